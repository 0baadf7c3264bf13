"""Bounded staleness when trainers are late, fail, or are told to stop."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.integration.scripts.late import LATE_STEP
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).parent / "scripts" / "late.py"
START_S, END_S = 90.0, 20.0


def read(folder: Path, name: str) -> list[int]:
    """Of both trainers."""
    return [json.loads((folder / f"{name}-{rank}").read_text()) for rank in range(2)]


def test_no_trainer_is_ever_more_than_the_bound_ahead_of_the_slowest(tmp_path: Path) -> None:
    """While trainer 1 does not begin step 20, trainer 0 finishes steps 0 to 19 + k, and waits."""
    bounds = (1, 2, 4)
    launch.run(SCRIPT, "late", *bounds, folder=tmp_path, num_devices=3)
    for bound in bounds:
        folder = tmp_path / f"k-{bound}"
        assert int((folder / "seen").read_text()) == LATE_STEP + bound
        assert read(folder, "finished") == [40, 40]
        early, late = (json.loads((folder / f"stats-{rank}").read_text()) for rank in range(2))
        assert early["max_ahead"] == early["max_lag"] == bound
        assert late["max_lag"] <= bound
        assert early["wait_ms"] > 900
        assert late["wait_ms"] < early["wait_ms"] / 2


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("happens", "says"),
    [
        ("0 fails", ["trainer 0 cannot go on", "TrainerFailedError: trainer rank 0"]),
        ("1 fails", ["trainer 1 cannot go on", "TrainerFailedError: trainer rank 1"]),
        ("both fail", ["trainer 1 cannot go on"]),
        ("1 saves", ["StalenessError", "this trainer had flushed", "in all trainers at the same step"]),
    ],
)
def test_a_failure_leaves_nobody_waiting(tmp_path: Path, happens: str, says: list[str]) -> None:
    with launch.start(SCRIPT, happens, 2, folder=tmp_path, num_devices=3) as job:
        deadline = time.monotonic() + START_S
        while not (tmp_path / "k-2" / "pid-1").exists():
            assert time.monotonic() < deadline, job.output
            time.sleep(0.05)
        job.wait(END_S)
    assert job.returncode != 0
    assert [text for text in says if text not in job.output] == [], job.output


@pytest.mark.parametrize("told", mostly_matrix([0, 1], 1))
def test_sigterm_to_one_trainer_ends_all_at_the_same_step_with_nothing_in_flight(tmp_path: Path, told: int) -> None:
    with launch.start(SCRIPT, "sigterm", 2, folder=tmp_path, num_devices=3) as job:
        folder, deadline = tmp_path / "k-2", time.monotonic() + START_S
        while not all((folder / f"pid-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < deadline, job.output
            time.sleep(0.05)
        os.kill(read(folder, "pid")[told], signal.SIGTERM)
        job.wait(END_S)
    first, second = read(folder, "ended")
    assert first == second
    assert first[0] == first[1], "updates and steps"


@pytest.mark.matrix
def test_a_metric_reduced_in_each_step_is_named(tmp_path: Path) -> None:
    job = launch.run(SCRIPT, "log", 1, folder=tmp_path, num_devices=3)
    assert job.output.count("staleness=1 cannot hide late trainers") == 1
    assert "self.log('my_loss', sync_dist=True)" in job.output
