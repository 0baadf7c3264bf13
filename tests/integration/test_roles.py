"""Which ranks sample: measured, given, shared, or all in one; the batches and weights never depend on it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.host.malloc import glibc_release, setting_in_environment
from lightning_gnnload.plugin.job import FILE_NAME
from tests.faulted import PAGES
from tests.integration.scripts.launch import ROOT, run, start
from tests.rings import mostly_matrix

LIMIT_S = 300  # on a quiet machine a job takes ten seconds
SCRIPT = ROOT / "tests/integration/scripts/roles.py"
pytestmark = pytest.mark.timeout(2 * LIMIT_S + 10)


def ranks(folder: Path, case: str, count: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{case}-{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize("how", mostly_matrix(["script", "torchrun"], "script"))
def test_measured_roles_train_as_given_ones_do(how: str, tmp_path: Path) -> None:
    first = run(SCRIPT, "auto", "auto_once_more", folder=tmp_path, how=how, num_devices=4, timeout_s=LIMIT_S).output
    second = run(SCRIPT, "again", "fixed_2", folder=tmp_path, how=how, num_devices=4, timeout_s=LIMIT_S).output
    auto, again, fixed = (ranks(tmp_path, case, 4) for case in ("auto", "again", "fixed_2"))
    # A sampler takes 50 ms a batch, a trainer as long and somewhat more: two of each are best up to twice as long.
    assert [rank["role"] for rank in auto] == ["trainer", "trainer", "sampler", "sampler"]
    (decision,) = {json.dumps(rank["decision"]) for rank in auto}
    assert json.loads(decision)["sample_ms"] >= 50
    assert json.loads(decision)["train_ms"] >= 50
    # Had measuring drawn from a generator or moved a weight, these would differ.
    for rank in range(2):
        assert auto[rank]["weights"] == again[rank]["weights"] == fixed[rank]["weights"]
        assert auto[rank]["seen"] == again[rank]["seen"] == fixed[rank]["seen"]
    assert len(auto[0]["seen"]) == 4

    saved = json.loads((tmp_path / FILE_NAME).read_text())
    assert saved["num_samplers"] == 2
    assert [rank["decision"]["reused"] for rank in again] == [True] * 4
    assert again[0]["decision"]["stages"] == saved["stages"]
    # One line on the threads each time that roles are decided.
    assert (first + second).count(" torch thread") == 3
    lines = [line for line in (first + second).splitlines() if "ranks sample" in line]
    assert len(lines) == 3
    assert lines[0].startswith("2 of 4 ranks sample: a batch takes ")
    for line in lines[1:]:  # in the same processes, and in others
        assert line.startswith(lines[0])
        assert "measured in an earlier run" in line


@pytest.mark.matrix
def test_spawned_ranks_measure_too_and_the_parent_hears_of_it(tmp_path: Path) -> None:
    run(SCRIPT, "auto", folder=tmp_path, how="spawn", num_devices=3, timeout_s=LIMIT_S)
    (parent,) = ranks(tmp_path, "auto", 1)
    decision = parent["decision"]
    assert decision["num_ranks"] == 3
    one = max(decision["sample_ms"], decision["train_ms"] / 2)
    two = max(decision["sample_ms"] / 2, decision["train_ms"])
    assert decision["num_samplers"] == (1 if one <= 1.03 * two else 2)


def test_a_lone_device_samples_beside_its_training(tmp_path: Path) -> None:
    cases = ["ddp", "beside", "beside_auto", "beside_pinned", "alternating", "by_memory"]
    job = run(SCRIPT, *cases, folder=tmp_path, num_devices=1, timeout_s=LIMIT_S)
    plain, *others = (ranks(tmp_path, case, 1)[0] for case in cases)
    if glibc_release() is not None and not setting_in_environment():
        assert plain["faults"] > 0.9 * PAGES, "Lightning's own strategies leave malloc as it is"
        assert all(other["faults"] < 0.01 * PAGES for other in others)
    for other in others:
        assert other["seen"] == plain["seen"]
        assert other["weights"] == plain["weights"]
        assert other["role"] == "trainer"
    assert "1 of 1 ranks samples: it trains too, as it is the only one; a batch takes" in job.output
    before, during, after = ranks(tmp_path, "beside_pinned", 1)[0]["masks"]
    assert before == after
    assert during == [before[0], max(len(before[0]) - 1, 1)]  # one sampling thread has a core left


@pytest.mark.matrix
@pytest.mark.parametrize("devices", [1, 2])
def test_ranks_share_devices(devices: int, tmp_path: Path) -> None:
    run(SCRIPT, "shared", folder=tmp_path, num_devices=devices, timeout_s=LIMIT_S)
    found = ranks(tmp_path, "shared", 4)
    assert [rank["role"] for rank in found] == ["trainer", "trainer", "sampler", "sampler"]
    assert [len(rank["seen"]) for rank in found] == [4] * 4
    assert found[2]["seen"] == found[3]["seen"] == found[0]["seen"], "samplers' scripts hold what trainer 0's does"
    assert found[0]["weights"] == found[1]["weights"]
    assert len(found[0]["devices"]) == 4


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, one for each rank")
def test_each_rank_keeps_to_its_cores_while_it_runs(tmp_path: Path) -> None:
    output = run(SCRIPT, "pinned", "auto", folder=tmp_path, num_devices=2, timeout_s=LIMIT_S).output
    trainer, sampler = (rank["masks"] for rank in ranks(tmp_path, "pinned", 2))
    every = sorted(os.sched_getaffinity(0))
    for before, during, after in (trainer, sampler):
        assert before[0] == after[0] == every  # a script goes on with the cores that it had
        assert 0 < len(during[0]) < len(every)
    assert not set(trainer[1][0]) & set(sampler[1][0])
    assert trainer[1][1] == len(trainer[1][0])  # torch computes with as many threads
    # Its steps take 50 ms wherever they run, so two ranks that train would be twice as fast. It is said once, by the
    # job that has measured it, and before its first step.
    before, _, after = output.partition("FactoredStrategy will take")
    assert "0 pinned" in before
    assert re.match(r" (1\.[5-9]|2\.[01])\d times as long as DDP here", after), output
    assert "FactoredStrategy will take" not in after
    assert "0 auto" in after


@pytest.mark.matrix
def test_a_model_that_cannot_be_measured_ends_every_rank(tmp_path: Path) -> None:
    with start(SCRIPT, "broken", folder=tmp_path, num_devices=3) as job:
        job.wait(LIMIT_S)
    assert job.returncode != 0
    assert "RoleConfigError: roles cannot be measured" in job.output
    assert "ZeroDivisionError: by zero" in job.output
    # The other two are told why; the first of them to end may end the other one before it has said so.
    assert 1 <= job.output.count("TrainerFailedError: trainer rank 0 failed in stage 'deciding roles'") <= 2
