"""A rank is stopped, or hangs, without being killed: the job ends all the same, in time, well, and leaves nobody."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.takeover import SETUP_TIMEOUT_S, STALL_TIMEOUT_S
from tests.faults.test_faults import await_files
from tests.faults.test_takeover import SCRIPT, Trainings, records
from tests.integration.scripts import launch

LIMIT_S = 45.0 * launch.PATIENCE
WOKEN = "was stopped when training ended: it is woken up"
LATE = "sampler rank 1 did not start"
STUCK = f"For {SETUP_TIMEOUT_S:g} s, nothing moved in it"
SILENT = f"nothing came from sampler rank 1 for {STALL_TIMEOUT_S:.0f} s"


@dataclass(frozen=True)
class Hang:
    """What hangs, on how many devices, and what the output says of it."""

    hang: str
    says: tuple[str, ...]
    num_devices: int = 2
    connect_timeout_s: float = 30.0


HANGS = {
    "stopped after its last mini-batch": Hang("stopped:fit_end:0", (WOKEN,)),
    "stopped after its last mini-batch, with two trainers": Hang("stopped:fit_end:0", (WOKEN,), num_devices=3),
    "its rank is stopped, which waits for it": Hang("rank_stopped:fit_end:0", (WOKEN,)),
    "frozen after its last mini-batch": Hang(
        "frozen:fit_end:0", (f"rank 1 has not ended within {STALL_TIMEOUT_S:g} s of the end of training",)
    ),
    "stopped while it owes nothing": Hang("stopped:idle:0", (SILENT,)),
    "a trainer is stopped at the end": Hang(
        "trainer_stopped:fit_end:1", ("Trainer rank 1 was stopped",), num_devices=3
    ),
    "stopped in setup": Hang("stopped:setup:0", (SILENT,)),
    "frozen in setup": Hang("frozen:setup:0", (SILENT,)),
    "loops in setup": Hang("loops:setup:0", (STUCK, "lose(what)\n", "while True:")),
    "sleeps in setup": Hang(
        "sleeps:setup:0", (STUCK, "time.sleep(3600)", "raise FactoredStrategy(setup_timeout_s=...)")
    ),
    "stopped before it connects": Hang("stopped:launch:0", (LATE, "was stopped"), connect_timeout_s=4.0),
    "stopped before it launches": Hang("stopped:start:0", (LATE, "was stopped"), connect_timeout_s=4.0),
}
AFTER_LAST = "stopped after its last mini-batch"
BY = {
    # Without failover, a rank has one process.
    "script": tuple(name for name in HANGS if name != "its rank is stopped, which waits for it"),
    "spawn": (AFTER_LAST, "frozen after its last mini-batch", "sleeps in setup"),
    "torchrun": (
        AFTER_LAST,
        "its rank is stopped, which waits for it",
        "stopped in setup",
        "stopped before it connects",
    ),
}
"""What is tried by each way to start ranks: of those but the script's, what these do otherwise."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.timeout(120 * launch.PATIENCE)
@pytest.mark.parametrize(
    ("how", "name"),
    [(how, name) for how, names in BY.items() for name in names],
)
def test_the_job_ends_well_and_in_time(
    tmp_path: Path, undisturbed: Trainings, monkeypatch: pytest.MonkeyPatch, how: str, name: str
) -> None:
    hang = HANGS[name]
    monkeypatch.setenv("CONNECT_TIMEOUT_S", str(hang.connect_timeout_s * launch.PATIENCE))
    job = launch.run(SCRIPT, 1, hang.hang, folder=tmp_path, how=how, num_devices=hang.num_devices, timeout_s=LIMIT_S)
    assert records(tmp_path, hang.num_devices - 1) == undisturbed.of(hang.num_devices - 1)
    for part in hang.says:
        assert part in job.output, f"{part!r}\n{job.output}"
    # The script of whoever trained went on, through another launch.
    hands = [json.loads(file.read_text()) for file in tmp_path.glob("hands-*.json")]
    assert hands[0]["metrics"]


@pytest.mark.timeout(120 * launch.PATIENCE)
@pytest.mark.parametrize(
    ("does", "says", "never"),
    [
        ("slow", (), ("nothing moved", "nothing came", "goes on without")),
        ("loops", ("sampler rank 2 failed", "nothing moved", "goes on without a cache"), ("nothing came",)),
        ("stopped", ("nothing came from sampler rank 2", "opening", "goes on without a cache"), ("nothing moved",)),
    ],
)
def test_who_fills_a_cache_is_given_up_only_where_no_row_moves(
    tmp_path: Path, does: str, says: tuple[str, ...], never: tuple[str, ...]
) -> None:
    """The second of two samplers, for which the first one waits: that one is not to blame."""
    script = Path(__file__).with_name("filling.py")
    seen = []
    for what in ("nothing", does):
        job = launch.run(script, what, folder=tmp_path / what, num_devices=3, timeout_s=LIMIT_S)
        seen.append(json.loads((tmp_path / what / "seen.json").read_text()))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1
    for part in says:
        assert part in job.output, f"{part!r}\n{job.output}"
    assert not [part for part in (*never, "sampler rank 1") if part in job.output], job.output


@pytest.mark.timeout(120 * launch.PATIENCE)
@pytest.mark.parametrize("how", ["script", "torchrun"])
def test_sigterm_ends_the_wait_for_a_sampler_that_hangs(tmp_path: Path, how: str) -> None:
    options = {"folder": tmp_path, "how": how, "num_devices": 3, "environment": {"SETUP_TIMEOUT_S": "600"}}
    with launch.start(SCRIPT, 1, "sleeps:setup:0", **options) as job:
        await_files(job, tmp_path, ("sampler-0",))
        time.sleep(1)
        job.process.send_signal(signal.SIGTERM)
        job.wait(20 * launch.PATIENCE)
    assert "nothing moved" not in job.output
