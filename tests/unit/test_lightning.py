"""make test-lightning, on a repository that looks like Lightning's and holds one file of tests."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("lightning.pytorch", reason="pip install lightning")

from tests.lightning.__main__ import Outcome, judge, main, outcomes_in, problem_with, run, summary

TESTS = """
import pickle
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, StrategyRegistry
from lightning_gnnload import FactoredStrategy


def trainer(strategy, devices):
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    return Trainer(accelerator="cpu", devices=devices, strategy=strategy, **quiet)


@pytest.mark.parametrize("name", ["ddp", "ddp_spawn", "ddp_fork", "ddp_find_unused_parameters_true"])
def test_by_name(name):
    strategy = trainer(name, 2).strategy
    assert isinstance(strategy, FactoredStrategy)
    assert (strategy.world_size, strategy.num_processes) == (2, 2)
    assert strategy.parallel_devices == [torch.device("cpu")] * 2
    assert strategy.roles.num_devices == 3


def test_by_class():
    strategy = DDPStrategy(None, [torch.device("cpu")] * 2, find_unused_parameters=True, start_method="spawn")
    assert isinstance(trainer(strategy, 2).strategy, FactoredStrategy)
    assert strategy._ddp_kwargs == {"find_unused_parameters": True}


def test_in_a_spawned_process():
    strategy = trainer("ddp_spawn", 2).strategy
    strategy._configure_launcher()
    first = pickle.dumps(strategy.launcher).index(b"tests.lightning.stand_in")
    assert first < 100


def test_alone():
    assert trainer("auto", 1).strategy.roles.is_lone


def test_only_without():
    assert not isinstance(trainer("auto", 1).strategy, FactoredStrategy)


def test_nothing_of_a_strategy():
    pass


def test_a_try_that_is_repeated_is_no_outcome():
    from tests.lightning import stand_in

    stand_in.pytest_runtest_logreport(SimpleNamespace(outcome="rerun"))


@pytest.mark.skip(reason="no reason")
def test_skipped():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository like Lightning's, of the release that is installed."""
    tests = tmp_path / "tests" / "tests_pytorch"
    (tmp_path / "src").mkdir()
    tests.mkdir(parents=True)
    (tmp_path / "src" / "version.info").write_text(version("lightning") + "\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tests / "test_strategies.py").write_text(TESTS)
    (tests / "test_broken.py").write_text("import lightning.nothing_of_that_name")
    (tests / "test_needy.py").write_text("import nothing_of_that_name")
    return tmp_path


def _line(test: str, ended: bool) -> dict[str, object]:
    return {"test": test, "outcome": "passed", "why": "", "ended": ended, "roles": "recorded"}


def test_factored_strategy_stands_in_and_is_counted(checkout: Path, tmp_path: Path) -> None:
    name, record = "test_strategies.py::", tmp_path / "record"
    # Of a run that was broken off in the second of two tests.
    lines = [(f"{name}test_nothing_of_a_strategy", True), (f"{name}test_alone", False)]
    record.write_text("".join(json.dumps(_line(test, ended)) + "\n" for test, ended in lines))
    assert list(outcomes_in(record)) == [f"{name}test_nothing_of_a_strategy"]
    found = run(checkout, record, [])
    assert found.pop("test_needy.py") == Outcome("skipped", "Skipped: nothing_of_that_name is not installed")
    failed = {test for test, each in found.items() if each.outcome == "failed"}
    assert failed == {f"{name}test_only_without", "test_broken.py"}  # what cannot be collected is no pass
    assert found[f"{name}test_skipped"] == Outcome("skipped", "Skipped: no reason")
    assert {test.removeprefix(name): each.roles for test, each in found.items() if each.outcome == "passed"} == {
        **dict.fromkeys(["test_by_name[ddp]", "test_by_name[ddp_fork]", "test_by_class"], "apart"),
        **dict.fromkeys(["test_by_name[ddp_spawn]", "test_in_a_spawned_process"], "apart"),
        "test_by_name[ddp_find_unused_parameters_true]": "apart",
        "test_alone": "alone",
        "test_a_try_that_is_repeated_is_no_outcome": "",
        "test_nothing_of_a_strategy": "recorded",
    }


def test_what_lies_beside_the_tests_comes_along(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "tests" / "legacy").mkdir()
    (checkout / "tests" / "legacy" / "back-compatible-versions.txt").write_text("1.0.0\n")

    def run_nothing(copy: Path, *_: object) -> dict[str, Outcome]:
        assert (copy / "tests" / "legacy" / "back-compatible-versions.txt").read_text() == "1.0.0\n"
        assert (copy / "tests" / "tests_pytorch" / "test_strategies.py").is_file()
        return {}

    monkeypatch.setattr("tests.lightning.__main__.run", run_nothing)
    monkeypatch.setattr("tests.lightning.__main__.guards.kill", lambda _: None)  # of this very run's processes
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main([str(checkout), "-k", "nothing"]) == 0


FOUND = {
    "a.py::test_trains[ddp]": Outcome("passed", roles="apart"),
    "a.py::test_trains[auto]": Outcome("passed", roles="alone"),
    "a.py::test_adds": Outcome("passed"),
    "a.py::test_counts[1]": Outcome("left out", "it counts processes", "apart"),
    "a.py::test_counts[2]": Outcome("left out", "it counts processes", "apart"),
    "a.py::test_on_gpus": Outcome("skipped", "Skipped: no GPU"),
    "a.py::test_downloads": Outcome("failed", "no network"),
}
WITH_DDP = {"a.py::test_downloads": Outcome("failed")}


def test_what_is_said_of_them() -> None:
    assert summary(FOUND, WITH_DDP) == [
        "6 of 7 tests ran.",
        "3 passed, 2 of them with FactoredStrategy: 1 with a sampler's rank of its own, 1 with one rank for both.",
        "2 failed, as they must:",
        "      2 it counts processes",
        "1 were skipped by themselves:",
        "      1 no GPU",
        "1 failed with DDPStrategy in its place too.",
    ]
    assert judge(FOUND, WITH_DDP, ["a.py::test_counts"]) == []


@pytest.mark.parametrize(
    ("test", "now", "with_ddp", "problem"),
    [
        ("a.py::test_adds", Outcome("failed", "assert"), Outcome("passed"), "FAILED with Factored.*: a.py::test_adds"),
        ("a.py::test_counts[1]", Outcome("failed", "[XPASS(strict)] it counts"), None, r"PASSES.*test_counts\[1\]"),
        ("b.py::test_new", Outcome("passed"), None, "NO TEST answers to this entry: a.py::test_gone"),
    ],
)
def test_what_must_not_be(test: str, now: Outcome, with_ddp: Outcome | None, problem: str) -> None:
    entries = ["a.py::test_counts", *(["a.py::test_gone"] if "gone" in problem else [])]
    (said,) = judge(FOUND | {test: now}, WITH_DDP | ({test: with_ddp} if with_ddp else {}), entries)
    assert re.fullmatch(problem + ".*", said)


def test_a_folder_that_is_no_checkout_of_this_release_is_refused(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem_with(str(checkout)) is None
    assert main([""]) == 2
    assert "LIGHTNING=path" in capsys.readouterr().err
    assert "is no checkout" in (problem_with(str(tmp_path_factory.mktemp("empty"))) or "")
    (checkout / "src" / "version.info").write_text("1.9.0\n")
    assert re.search(r"is release 1\.9\.0, but pytorch-lightning 2\.", problem_with(str(checkout)) or "")
