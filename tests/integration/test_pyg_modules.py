"""PyG's data modules with other processes that sample, and with several trainers: the same mini-batches, field by
field, as one process makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scripts import launch
from tests.runif import RunIf

pytestmark = [pytest.mark.timeout(600), RunIf(extras="pyg")]  # the first test waits for launches
SCRIPT = Path(__file__).parent / "scripts" / "pyg_modules.py"
CASES = ["nodes", "cached", "times", "types", "negatives", "triplets", "transformed", "filtered", "resumed"]
Seen = list[list[Any]]


def seen(folder: Path, case: str, rank: int = 0) -> Seen:
    """Of each mini-batch its phase, epoch, rows and fields."""
    found: Seen = json.loads((folder / case / f"trainer-{rank}.json").read_text())
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    launch.run(SCRIPT, "auto", *CASES, folder=folder, timeout_s=250)
    return folder


@pytest.fixture(scope="module")
def factored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sampler and one trainer."""
    folder = tmp_path_factory.mktemp("factored")
    launch.run(SCRIPT, "factored", *CASES, folder=folder, num_devices=2, timeout_s=250)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_samplers_make_the_mini_batches_of_one_process(alone: Path, factored: Path, case: str) -> None:
    assert seen(factored, case) == seen(alone, case)
    assert not (factored / case / "trainer-1.json").exists(), "the other process sampled"


def test_a_run_resumes_in_mid_epoch(alone: Path, factored: Path) -> None:
    for folder in (alone, factored):
        whole = [each for each in seen(folder, "nodes") if each[0] == "train"]
        resumed = [each for each in seen(folder, "resumed") if each[0] == "train"]
        assert 0 < len(resumed) < len(whole)
        assert resumed == whole[14:]


def test_the_cases_do_what_they_are_named_for(alone: Path) -> None:
    """Equal runs prove nothing where both do nothing."""

    def fields(case: str) -> dict[str, str]:
        return {f"{store}{name}": value for store, name, value in seen(alone, case)[-1][3]}

    phases = [each[0] for each in seen(alone, "nodes")]
    assert (phases.count("train"), phases.count("val")) == (2 * 11, 2 * 3), "163 rows in 16 and 47 in 16"
    assert {"Nonetransposed", "Nonee_id", "Noneinput_id", "Nonename"} <= fields("nodes").keys()
    cached, plain = ([each for each in seen(alone, case) if each[0] == "train"] for case in ("cached", "nodes"))
    assert cached == plain, "a cache changes no mini-batch"
    assert fields("transformed")["Nonex"] != fields("nodes")["Nonex"]
    assert "Nonenum_sampled_nodes" not in fields("filtered")
    assert "Noneedge_label" in fields("negatives")
    assert "itemdst_neg_index" in fields("triplets")


def test_each_of_two_trainers_rows_comes_once(alone: Path, tmp_path: Path) -> None:
    cases = ["nodes", "types", "triplets"]
    launch.run(SCRIPT, "ddp", *cases, folder=tmp_path, num_devices=2, timeout_s=250)
    for case in cases:
        both = [seen(tmp_path, case, rank) for rank in range(2)]
        assert len(both[0]) == len(both[1])
        for phase in ("train", "val"):
            for epoch in range(2):
                rows = [
                    row for each in (*both[0], *both[1]) if each[:2] == [phase, epoch] for row in each[2]
                ]  # of both trainers
                wanted = [row for each in seen(alone, case) if each[:2] == [phase, epoch] for row in each[2]]
                assert sorted(rows) == sorted(set(wanted)) == sorted(wanted), (case, phase, epoch)
