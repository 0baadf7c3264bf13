"""``gnnload order``: what it writes and prints, and what it says of arguments that cannot work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphData, NeighborSampler, save_graph_data
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.orders.shuffling import MOST_EXCESS
from lightning_gnnload.plugin.commands import order as order_command
from lightning_gnnload.sample.workload import Workload
from tests.unit.data.orders.test_proximity import ring

SAMPLER = ["--data.sampler.fanouts", "[3, 2]", "--data.batch_size", "32"]


def save_ring(folder: Path, y: torch.Tensor | None) -> str:
    save_graph_data(GraphData(ring(3000), torch.zeros(3000, 2), y, range(3000), [], []), folder)
    return str(folder)


def test_table_figure_and_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    data, out = save_ring(tmp_path / "ring", torch.arange(3000) // 300), tmp_path / "out"
    arguments = [data, *SAMPLER, "--sequences", "512", "1", "--trainers", "2", "--out", str(out)]
    assert order_command.main(arguments) == 0
    printed = capsys.readouterr().out
    written = json.loads((out / "order.json").read_text())
    shuffled, one, default, most = written["orders"]
    assert [each["sequences"] for each in (shuffled, one, most)] == [None, 1, 512]
    assert written["chosen"] == written["choice"]["sequences"] == default["sequences"] > 1
    # Of 47 steps for two trainers, the second half.
    assert {each["reads"]["batches"] for each in written["orders"]} == {47}
    # One sequence leaves 32 neighbours on a ring with hardly more nodes than seeds, of one label or two.
    assert one["reads"]["rows"] < 0.5 * shuffled["reads"]["rows"]
    assert one["reads"]["missed"] < 0.5 * shuffled["reads"]["missed"]
    assert one["distance"] > 0.7 > shuffled["distance"] + MOST_EXCESS >= default["distance"]
    assert (out / "order.png").read_bytes().startswith(b"\x89PNG")
    rows = {cells[1].strip(): cells[-2].strip() for line in printed.splitlines() if len(cells := line.split("│")) > 3}
    assert rows == {
        "shuffle": "",
        "1": "labels too alike",
        str(default["sequences"]): "the default",
        "512": rows["512"],
    }
    assert "order='proximity': with" in printed
    assert max(map(len, printed.partition("order=")[0].splitlines())) <= 80


def test_another_seed_is_no_reason_to_choose_otherwise() -> None:
    labels, graph = torch.arange(3000) // 300, ring(3000)
    made = [
        Workload(
            graph, NeighborSampler([3]), np.arange(3000), batch_size=64, order=Shuffled(), seed=seed, labels=labels
        )
        for seed in (1, 2)
    ]
    one, other = map(order_command.choice_of, made)
    assert one == other is not None


def test_without_classes_there_is_no_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = save_ring(tmp_path / "ring", None)
    out = tmp_path / "out"
    assert order_command.main([data, *SAMPLER, "--sequences", "1", "--policy", "fifo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "it chooses by integer labels [N] of nodes, which are not there; give a number" in printed
    assert "the default" not in printed
    written = json.loads((out / "order.json").read_text())
    assert (written["chosen"], written["choice"], written["policy"]) == (None, None, "fifo")
    assert {each["distance"] for each in written["orders"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give DATA, or --config FILE"),
        (["--config", "none.yaml"], "none.yaml"),
        (["Debian", "--sequences", "0"], "'0': a whole number of at least 1"),
        (["Debian", "--trainers", "1.5"], "'1.5': a whole number of at least 1"),
        (["Debian", "--ratio", "2"], "a share above 0 and at most 1"),
        (["Debian", "--policy", "presample"], "invalid choice: 'presample'"),
        (["NoSuchDataset"], "DATA NoSuchDataset: there is no such data set or folder"),
        (["Debian", "--trainer.devices", "2"], "unknown: --trainer.devices"),
    ],
)
def test_bad_arguments_are_told_in_a_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        order_command.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
