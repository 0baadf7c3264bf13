"""What ends a rank that nobody replaces ends the job within seconds, with the reason named, and leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.rings import mostly_matrix

SCRIPT = Path(__file__).with_name("job.py")
START_S, END_S = 90.0 * launch.PATIENCE, 10.0 * launch.PATIENCE
RUNNING = ("trainer-0", "trainer-1", "sampler-2")
"""The files that ranks write their process ids to, once they are in mid-epoch."""


@dataclass(frozen=True)
class Fault:
    """What happens, and what the output must say of it.

    Attributes:
        happens: what the script is told.
        do: done to the running job; None where the script does it to itself.
        says: parts of the output.
        or_says: what it may say instead under a launcher that ends the other ranks before they can speak.
        when: files to wait for before.
        by_force: whether a rank may hang and be killed: one that waits in a collective, or prepares data, hears nobody.
    """

    happens: str
    do: Callable[[launch.Job, Path], None] | None
    says: tuple[str, ...]
    or_says: dict[str, tuple[str, ...]] = field(default_factory=dict)
    when: tuple[str, ...] = RUNNING
    by_force: bool = False


def to_rank(name: str, number: int) -> Callable[[launch.Job, Path], None]:
    return lambda job, folder: os.kill(int((folder / name).read_text()), number)


def first_to_rank(first: str, name: str, number: int) -> Callable[[launch.Job, Path], None]:
    def do(job: launch.Job, folder: Path) -> None:
        to_rank(first, number)(job, folder)
        time.sleep(1)
        to_rank(name, number)(job, folder)

    return do


def kill_amid_start(job: launch.Job, folder: Path) -> None:
    """Rank 0, as soon as it has started the others, which know nothing yet."""
    while len(job.processes()) < 3:
        assert job.process.poll() is None, job.output
    job.process.kill()


def killed(local_rank: int) -> dict[str, tuple[str, ...]]:
    """torchrun's own report, in which the global rank is the local one."""
    return {"torchrun": (f"(local_rank: {local_rank})", "Signal 9 (SIGKILL)")}


SAMPLER_FAILED = "SamplerFailedError: sampler rank 2 failed in stage "
GONE = "is gone without a word (killed, out of memory, or crashed)"
FAULTS = {
    "sampler killed": Fault(
        "nothing",
        to_rank("sampler-2", signal.SIGKILL),
        (f"SamplerDiedError: sampler rank 2 {GONE}",),
        killed(2),
    ),
    "trainer 0 killed": Fault(
        "nothing", to_rank("trainer-0", signal.SIGKILL), (f"TrainerDiedError: trainer rank 0 {GONE}",), killed(0)
    ),
    "trainer 1 killed": Fault(
        "nothing", to_rank("trainer-1", signal.SIGKILL), (f"TrainerDiedError: trainer rank 1 {GONE}",), killed(1)
    ),
    "sampler stopped": Fault(
        "stall",
        to_rank("sampler-2", signal.SIGSTOP),
        ("QueueStalledError: nothing came from sampler rank 2 for 2 s (step ",),
    ),
    "trainer 1 killed after the sampler": Fault(
        "nothing",
        first_to_rank("sampler-2", "trainer-1", signal.SIGKILL),
        ("sampler rank 2 is gone", "TrainerDiedError: trainer rank 1"),
    ),
    "seed out of range, for the sampler and then for a trainer": Fault(
        "seed",
        None,
        (
            "sampler rank 2 failed in stage 'sample (train, epoch 0, step 25)'",
            "The above exception was the direct cause",
            "SeedError: seeds[0] is 2007",
        ),
    ),
    "Ctrl-C": Fault("nothing", lambda job, _: launch.interrupt(job), ("Detected KeyboardInterrupt",)),
    "Ctrl-C while data is prepared": Fault(
        "slow_prepare",
        lambda job, _: launch.interrupt(job),
        ("Detected KeyboardInterrupt",),
        when=("preparing",),
    ),
    "Ctrl-C while data is prepared and a trainer is late": Fault(
        "slow_prepare_and_rank_1_late",
        lambda job, _: launch.interrupt(job),
        ("Detected KeyboardInterrupt",),
        when=("preparing", "late"),
    ),
    "sampler killed while data is prepared": Fault(
        "slow_prepare", to_rank("early-2", signal.SIGKILL), ("rank 2",), when=("preparing", "early-2"), by_force=True
    ),
    "trainer 0 killed while data is prepared": Fault(
        "slow_prepare",
        to_rank("early-0", signal.SIGKILL),
        (f"TrainerDiedError: trainer rank 0 {GONE}",),
        when=("preparing", "early-0", "early-1", "early-2"),
        by_force=True,
    ),
    "trainer 0 killed while the others start": Fault(
        "nothing", kill_amid_start, ("rank 0 is gone",), when=("early-0",), by_force=True
    ),
    "SIGTERM": Fault("nothing", lambda job, _: job.process.send_signal(signal.SIGTERM), ("Received SIGTERM",)),
    "training_step raises": Fault(
        "training_step",
        None,
        ("TrainerFailedError: trainer rank 1 failed in stage", "ValueError: a bad batch"),
        {"torchrun": ("ValueError: a bad batch", "(local_rank: 1)")},
    ),
    "feature store raises": Fault(
        "store",
        None,
        (
            SAMPLER_FAILED + "'sample (train, epoch 0, step ",
            "OSError: the disk is gone",
        ),
    ),
    "seed out of range": Fault(
        "seed",
        None,
        (
            SAMPLER_FAILED + "'sample (train, epoch 0, step 25)'",
            "SeedError: seeds[0] is 2007",
        ),
    ),
    "sampler raises": Fault(
        "sampler",
        None,
        (
            SAMPLER_FAILED + "'sample (train, epoch 0, step 10)'",
            "ArithmeticError: cannot draw",
        ),
        {"fork": (SAMPLER_FAILED, "ArithmeticError: cannot draw")},
    ),
    "setup raises on the sampler": Fault(
        "setup",
        None,
        (
            SAMPLER_FAILED + "'setup'",
            "KeyError: 'no such split on this rank'",
        ),
    ),
    "prepare_data raises": Fault("prepare_data", None, ("PermissionError: cannot download",)),
}
WITHOUT_TAKEOVER = (
    "sampler killed",
    "sampler stopped",
    "sampler killed while data is prepared",
    "feature store raises",
    "seed out of range",
    "sampler raises",
    "setup raises on the sampler",
)
"""Where a lost sampler ends the job, as it does with ``takeover=False``."""
UNDER_TORCHRUN = (
    "sampler killed",
    "trainer 0 killed",
    "trainer 1 killed",
    "training_step raises",
    "Ctrl-C",
    "SIGTERM",
)
UNDER_FORK = ("sampler killed", "trainer 0 killed", "training_step raises", "sampler raises", "Ctrl-C", "SIGTERM")


@pytest.mark.parametrize(
    ("how", "name"),
    mostly_matrix(
        [
            *(("script", name) for name in FAULTS),
            *(("torchrun", name) for name in UNDER_TORCHRUN),
            *(("fork", name) for name in UNDER_FORK),
        ],
        *(("script", name) for name in ("sampler killed", "trainer 0 killed", "training_step raises", "Ctrl-C")),
        ("torchrun", "SIGTERM"),
    ),
)
def test_all_ranks_end_and_say_why(tmp_path: Path, how: str, name: str) -> None:
    fault = FAULTS[name]
    options = () if name in WITHOUT_TAKEOVER else ("takeover",)
    with launch.start(SCRIPT, fault.happens, *options, folder=tmp_path, how=how, num_devices=3) as job:
        if fault.do is None:
            await_files(job, tmp_path, ("failing",))
        else:
            await_files(job, tmp_path, fault.when)
            fault.do(job, tmp_path)
        seconds = job.wait(END_S)
    print(f"{name} under {how}: {seconds:.1f} s")
    alternatives = [fault.says, *([fault.or_says[how]] if how in fault.or_says else [])]
    assert any(all(part in job.output for part in parts) for parts in alternatives), f"{alternatives}\n{job.output}"
    assert fault.by_force or "hangs since" not in job.output, "ended by force"
    assert job.returncode != 0
    if name == "SIGTERM" and how != "torchrun":
        assert job.returncode == 128 + signal.SIGTERM


def await_files(job: launch.Job, folder: Path, names: tuple[str, ...]) -> None:
    deadline = time.monotonic() + START_S
    while not all((folder / name).exists() for name in names):
        assert job.process.poll() is None, f"the job ended before it was running:\n{job.output}"
        assert time.monotonic() < deadline, f"the job did not start:\n{job.output}"
        time.sleep(0.02)
