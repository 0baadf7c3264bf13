"""make test-relbench, without RelBench: what it exchanges, what it finds in mini-batches, and when it says "equal"."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

pytest.importorskip("scipy", reason="pip install scipy")

from scipy import stats

from tests.pyg_suite.examples import judge, main, table, welch
from tests.pyg_suite.side import OUR_IMPORT, THEIR_IMPORT, faults_of, planned, with_ours
from tests.runif import RunIf

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

pytestmark = RunIf(extras="pyg")


def test_one_line_of_the_script_is_exchanged() -> None:
    script = f"import torch\n{THEIR_IMPORT}\n\nloader = NeighborLoader()\n"
    assert with_ours(script) == f"import torch\n{OUR_IMPORT}\n\nloader = NeighborLoader()\n"


@pytest.mark.parametrize(
    "script", ["import torch\n", f"{THEIR_IMPORT}\n{THEIR_IMPORT}\n", f"{THEIR_IMPORT}, NodeLoader\n"]
)
def test_a_script_of_another_release_is_refused(script: str) -> None:
    with pytest.raises(ValueError, match="where one was needed"):
        with_ours(script)


def batch(rows: list[int], reviews: list[int], times: list[int], ends: list[list[int]]) -> HeteroData:
    """Two customers, asked about at 10 and 20, with their reviews."""
    made = HeteroData()
    made["customer"].seed_time = torch.tensor([10, 20])
    made["customer"].n_id, made["customer"].batch = torch.tensor([7, 7]), torch.tensor([0, 1])
    made["review"].n_id, made["review"].batch = torch.tensor(reviews), torch.tensor(rows)
    made["review"].time = torch.tensor(times)
    made["review", "of", "customer"].edge_index = torch.tensor(ends)
    return made


@pytest.mark.parametrize(
    ("columns", "faults"),
    [
        (([0, 1, 1], [3, 3, 4], [10, 10, 20], [[0, 1, 2], [0, 1, 1]]), []),
        (([0, 1, 1], [3, 3, 4], [11, 11, 20], [[0, 1, 2], [0, 1, 1]]), ["later"]),  # 11 is not later than row 1
        (([0, 1, 1], [3, 3, 4], [10, 10, 20], [[0, 1, 2], [0, 0, 1]]), ["shared"]),  # an edge to another row
        (([0, 1, 1], [3, 4, 4], [10, 20, 20], [[0, 1, 2], [0, 1, 1]]), ["shared"]),  # a node twice in row 1
        (([0, 0, 1], [3, 4, 4], [10, 20, 20], [[0, 1, 2], [0, 1, 1]]), ["later", "shared"]),
    ],
)
def test_faults_of_mini_batches_are_seen(columns: tuple[Any, ...], faults: list[str]) -> None:
    assert faults_of(batch(*columns)) == faults


def test_nodes_of_no_row_are_shared() -> None:
    made = batch([0, 1, 1], [3, 3, 4], [10, 10, 20], [[0, 1, 2], [0, 1, 1]])
    del made["review"].batch
    assert faults_of(made) == ["shared"]


def test_the_rule_is_welchs_test() -> None:
    one, other = [0.61, 0.64, 0.6, 0.66, 0.62], [0.7, 0.9, 0.5, 0.8, 0.75]
    found = welch(one, other, 0.01)
    assert found.p == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)
    apart = [each + found.smallest for each in one]
    centred = [each - sum(other) / 5 + sum(one) / 5 for each in other]  # of one's mean
    assert welch(apart, centred, 0.01).p == pytest.approx(0.01)


def test_figures_that_never_vary_are_equal_or_they_differ() -> None:
    assert welch([3.0, 3.0], [3.0, 3.0], 0.01) == (1, 0)
    assert welch([3.0, 3.0], [4.0, 4.0], 0.01) == (0, 0)


def runs(*figures: float, later: int = 0, nodes: int = 100) -> list[dict[str, Any]]:
    """The lines of a side: a run of one example for each figure."""
    named = {"database": "taste", "script": "gnn_entity", "task": "user-churn"}
    found = {"batches": 10, "nodes": nodes} | ({"later": later} if later else {})
    return [
        named | {"seed": seed, "val": figure, "test": figure - 0.1, "batches": found}
        for seed, figure in enumerate(figures)
    ]


def sides(**others: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    told = {
        "pyg": runs(0.91, 0.92, 0.9, 0.91, 0.93),
        "ours": runs(0.92, 0.91, 0.9, 0.92, 0.93),
        "future": runs(0.6, 0.61, 0.6, later=9, nodes=200),
        "strangers": runs(0.5, 0.51, 0.52, nodes=100),
        "without": [{**runs(0)[0], "error": "no sampler", "batches": {}}],
    }
    return told | others


def test_what_is_said_of_equal_sides() -> None:
    assert judge(sides()) == []
    said = table(sides(), "2.1")
    assert said[0].startswith("RelBench 2.1, mean ± standard deviation over 5 seeds.")
    assert "p ≥ 0.01 / 3: one table in 100" in said[0]
    assert said[4:7] == [
        "| taste | `gnn_entity` user-churn | ROC AUC, val | 0.914 ± 0.011 | 0.916 ± 0.011 | yes, p = 0.79 | 0.03 "
        "| ≠ 0.603 | ≠ 0.510 |",
        "| taste | `gnn_entity` user-churn | ROC AUC, test | 0.814 ± 0.011 | 0.816 ± 0.011 | yes, p = 0.79 | 0.03 "
        "| ≠ 0.503 | ≠ 0.410 |",
        "| taste | `gnn_entity` user-churn | nodes a mini-batch | 10.000 ± 0.000 | 10.000 ± 0.000 | yes, p = 1 | 0 "
        "| ≠ 20.000 | 10.000 |",
    ]
    assert said[-1] == (
        "Of our 50 mini-batches none had rows that share a node or an edge, and none a node later than its row; of "
        "PyG's 50, none and none; of `future`'s 30, none and 27. Without pyg-lib PyG's loaders made no mini-batch: "
        "`gnn_entity` ended with `no sampler`."
    )


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"pyg": runs(0.8, 0.81, 0.8, 0.79, 0.8)}, "DIFFERS: taste, gnn_entity, user-churn, ROC AUC, val"),
        ({"pyg": runs(0.91, 0.92, 0.9, 0.91, 0.93, nodes=101)}, "DIFFERS: .*, nodes a mini-batch"),
        ({"pyg": []}, "DIFFERS: taste"),
        ({"ours": runs(0.92, 0.91, 0.9, 0.92, 0.93, later=1)}, "FAULT: 5 mini-batches of ours are later"),
        ({"future": runs(0.6, 0.61, 0.6)}, "NOT SEEN: no mini-batch of a graph without times"),
        ({"strangers": runs(0.92, 0.91, 0.9, nodes=7)}, "NOT SEEN: no metric tells strangers from ours"),
        ({"ours": [*sides()["ours"], *sides()["without"]]}, "FAILED: ours, gnn_entity, user-churn: no sampler"),
    ],
)
def test_what_must_not_be(others: dict[str, list[dict[str, Any]]], problem: str) -> None:
    assert re.match(problem, judge(sides(**others))[0])


def test_what_is_planned() -> None:
    all_of_them = planned(["fake", "taste"], 2, 5)
    assert len(all_of_them) == 2 * (4 + 3)
    assert not [run for run in all_of_them if run["database"] == "taste" and run["task"] == "item-ltv"]


def test_what_cannot_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "is no checkout of RelBench's repository" in capsys.readouterr().err
    (tmp_path / "examples").mkdir()
    for script in ("gnn_entity", "gnn_recommendation", "idgnn_recommendation"):
        (tmp_path / "examples" / f"{script}.py").touch()
    assert main([str(tmp_path), "--seeds", "1"]) == 2
    assert "has no deviation" in capsys.readouterr().err
