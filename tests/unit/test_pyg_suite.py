"""make test-pyg, on a repository that looks like PyG's and holds one file of tests."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.pyg_suite.__main__ import Outcome, judge, main, problem_with, run, summary, table, write
from tests.runif import RunIf

pytestmark = RunIf(extras="pyg")

TESTS = """
import pytest
import torch
import torch_geometric.typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.loader.neighbor_loader import NeighborLoader as PyGs
from torch_geometric.sampler import NeighborSampler
from torch_geometric.sampler import neighbor_sampler
from torch_geometric.testing import onlyNeighborSampler, withPackage
from torch_geometric.typing import WITH_PYG_LIB

DATA = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)


@onlyNeighborSampler
@withPackage("pyg_lib", "torch_sparse")
def test_ours():
    assert WITH_PYG_LIB
    assert not torch_geometric.typing.WITH_PYG_LIB
    assert issubclass(NeighborLoader, PyGs)
    assert NeighborLoader is not PyGs
    batch = next(iter(NeighborLoader(DATA, [-1], input_nodes=torch.tensor([0]))))
    assert batch.n_id.tolist() == [0, 1, 2]


def test_our_sampler():
    assert neighbor_sampler.NeighborSampler is NeighborSampler
    next(iter(NodeLoader(DATA, NeighborSampler(DATA, [1]))))


def test_pygs_own():
    next(iter(PyGs(DATA, [-1])))


def test_nothing_of_ours():
    pass


@pytest.mark.skip(reason="no reason")
def test_skipped():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository like PyG's, of the release that is installed."""
    (tmp_path / "torch_geometric").mkdir()
    (tmp_path / "test" / "loader").mkdir(parents=True)
    (tmp_path / "torch_geometric" / "__init__.py").write_text(f"__version__ = '{version('torch-geometric')}'\n")
    (tmp_path / "test" / "loader" / "test_loaders.py").write_text(TESTS)
    (tmp_path / "test" / "loader" / "test_broken.py").write_text("import nothing_of_that_name")
    return tmp_path


def test_ours_stand_in_and_are_counted(checkout: Path) -> None:
    found = run(checkout / "test", ["loader"], [])
    name = "loader/test_loaders.py::test_"
    assert {test for test, each in found.items() if each.outcome == "failed"} == {
        f"{name}pygs_own",
        "loader/test_broken.py",  # what cannot be collected is no pass
    }
    assert "PyG's own, was to sample" in found[f"{name}pygs_own"].why
    assert found[f"{name}skipped"] == Outcome("skipped", "Skipped: no reason")
    assert {test.removeprefix(name): each.used for test, each in found.items() if each.outcome == "passed"} == {
        "ours": "GnnloadSampler NeighborLoader",
        "our_sampler": "GnnloadSampler",
        "nothing_of_ours": "",
    }


OPERATORS = "loader/test_neighbor_loader.py::test_pyg_lib_and_torch_sparse_homo_equality"
RETURNS = "loader/test_link_neighbor_loader.py::test_homo_link_neighbor_loader_triplet[1-True-False]"
FOUND = {
    "a.py::test_loads[1]": Outcome("passed", used="NeighborLoader"),
    "a.py::test_loads[2]": Outcome("passed", used="NeighborLoader"),
    "a.py::test_loads[3]": Outcome("skipped", "Skipped: no GPU"),
    "a.py::test_for_later": Outcome("left out", "reason: it is for later"),
    OPERATORS: Outcome("left out", "reason: it is of operators"),
    RETURNS: Outcome("passed"),
}


def test_what_is_said_of_them() -> None:
    assert summary(FOUND) == [
        "3 of 6 tests passed.",
        "      2 with NeighborLoader",
        "1 skipped:",
        "      1 skipped by its authors: no GPU",
        "2 left out:",
        "      1 expected to fail by its authors: it is for later",
        "      1 it is of operators",
    ]
    assert judge(FOUND, [RETURNS]) == []
    assert table(FOUND, "PyG", "2.8.1") == [
        "PyG 2.8.1: 2 of 6 tests pass with our classes.",
        "",
        "| test | |",
        "| --- | --- |",
        "| a.py `test_loads` | passes (2 times) |",
        "| a.py `test_loads` `[3]` | skipped by its authors: no GPU |",
        "| a.py `test_for_later` | expected to fail by its authors: it is for later |",
        "| test_neighbor_loader.py `test_pyg_lib_and_torch_sparse_homo_equality` | it is of operators |",
        "| test_link_neighbor_loader.py `test_homo_link_neighbor_loader_triplet` "
        "| returns before it does anything, for PyG's own classes, too |",
    ]


@pytest.mark.parametrize(
    ("test", "now", "problem"),
    [
        ("a.py::test_loads[1]", Outcome("failed", "assert 1 == 2\n"), r"FAILED: a.py::test_loads\[1\]: assert 1 == 2"),
        ("a.py::test_loads[1]", Outcome("passed"), r"PASSES WITHOUT A CLASS OF OURS: a.py::test_loads\[1\]"),
        (OPERATORS, Outcome("failed", "[XPASS(strict)] it is"), "PASSES, though it is left out.*"),
        (RETURNS, Outcome("passed", used="NeighborLoader"), "USES NeighborLoader, though.*"),
    ],
)
def test_what_must_not_be(test: str, now: Outcome, problem: str) -> None:
    (said,) = judge(FOUND | {test: now}, [])
    assert re.fullmatch(problem, said)


def test_an_entry_that_no_test_answers_to_is_an_error() -> None:
    assert judge(FOUND, ["a.py::test_gone"]) == ["NO TEST answers to this entry: a.py::test_gone"]


def test_a_table_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    marks = [
        f"<!-- {name}: {end}"
        for name in ("pyg", "relbench")
        for end in ("begin, written by make test-pyg -->", "end -->")
    ]
    page.write_text("\n".join(["head", marks[0], "old", marks[1], "between", *marks[2:], "foot", ""]))
    for _ in range(2):
        write(page, ["new"], "pyg")
    assert page.read_text().splitlines() == ["head", marks[0], "", "new", "", marks[1], "between", *marks[2:], "foot"]


def test_a_folder_that_is_no_checkout_of_this_release_is_refused(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = str(tmp_path_factory.mktemp("empty"))
    assert problem_with(str(checkout)) is None
    assert main([""]) == 2
    assert "PYG=path" in capsys.readouterr().err
    assert "is no checkout" in (problem_with(empty) or "")
    assert "RELBENCH=" in (problem_with(str(checkout), empty) or "")
    (checkout / "torch_geometric" / "__init__.py").write_text("__version__ = '1.7.0'\n")
    assert re.search(r"is release 1\.7\.0, but torch-geometric 2\.", problem_with(str(checkout)) or "")
