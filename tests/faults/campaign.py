"""Ranks are killed at random moments, from a job's first process to its last: samplers, whose work must be taken over,
and trainers, whose end must end the job.

    python -m tests.faults.campaign --sampler 100 --trainer 30

Prints a table; exits with 1 if anything else happened, and shows what. Takes some ten seconds a job.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests import guards
from tests.integration.scripts import launch

SCRIPT = Path(__file__).with_name("takeover.py")
STEP_MS = 60  # so that a good part of the job is training
END_S = 10.0 * launch.PATIENCE
OF_TORCH = "torchinductor_"  # its compiler's cache, made on import
LIMIT_S = 120.0 * launch.PATIENCE


@dataclass(frozen=True)
class Shape:
    """A job's ranks."""

    how: str
    num_devices: int
    num_samplers: int

    @property
    def num_trainers(self) -> int:
        return self.num_devices - self.num_samplers

    def local_ranks(self, role: str) -> range:
        return range(self.num_trainers) if role == "trainer" else range(self.num_trainers, self.num_devices)


def start(shape: Shape, folder: Path) -> Any:
    return launch.start(
        SCRIPT, shape.num_samplers, STEP_MS, folder=folder, how=shape.how, num_devices=shape.num_devices
    )


def records(shape: Shape, folder: Path) -> list[Any]:
    return [json.loads((folder / f"fit-{rank}.json").read_text()) for rank in range(shape.num_trainers)]


def process_of(job: launch.Job, local_rank: int) -> psutil.Process | None:
    """The process that does the rank's work: the youngest, where a rank has several."""
    found = []
    for process in job.processes():
        try:
            is_launcher = "torch.distributed.run" in process.cmdline()
            if not is_launcher and int(process.environ().get("LOCAL_RANK", 0)) == local_rank:
                found.append(process)
        except psutil.Error:
            continue
    return max(found, key=lambda process: process.create_time(), default=None)


def kill_at(job: launch.Job, local_rank: int, moment_s: float) -> float | None:
    """Kills a rank at a moment, or as soon as it is there; returns when that was, None if the job was over first."""
    while job.process.poll() is None:
        at = time.monotonic() - job.began
        if at >= moment_s and (process := process_of(job, local_rank)) is not None:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                return None
            return at
        time.sleep(0.005)
    return None


def leftovers(folder: Path, before: guards.Footprint) -> list[str]:
    """What the job left: files for a while, shared memory, and what this run's processes still hold."""
    files = [str(path) for path in (folder / "tmp").iterdir() if not path.name.startswith(OF_TORCH)]
    return files + guards.leaks(before)


def trial(
    shape: Shape, role: str, local_rank: int, moment_s: float, wanted: list[Any], folder: Path
) -> tuple[str, str]:
    """What came of one kill, in a few words, and the job's output."""
    (folder / "tmp").mkdir(parents=True)
    os.environ["TMPDIR"] = str(folder / "tmp")
    before = guards.footprint()
    with start(shape, folder) as job:
        at = kill_at(job, local_rank, moment_s)
        try:
            job.wait(LIMIT_S if role == "sampler" or at is None else END_S)
        except TimeoutError as error:
            return f"hung: {error}".splitlines()[0], job.output
    if left := leftovers(folder, before):
        return f"left {left}", job.output
    if role == "trainer" and at is not None:
        return ("ended" if job.returncode else "ended, all trained"), job.output
    if job.returncode:
        return f"exit code {job.returncode}", job.output
    if records(shape, folder) != wanted:
        return "other batches or weights", job.output
    if at is None:
        return "over before", job.output
    noticed = (
        "its work was taken over" if "takes its work over" in job.output or "themselves" in job.output else "unmissed"
    )
    return noticed, job.output


GOOD = ("its work was taken over", "unmissed", "ended", "ended, all trained", "over before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", type=int, default=4, help="how many samplers to kill, one a job")
    parser.add_argument("--trainer", type=int, default=2, help="how many trainers to kill, one a job")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--how", default="script", choices=("script", "torchrun", "spawn", "fork"))
    settings = parser.parse_args()
    guards.mark_run()
    choose = random.Random(settings.seed)
    shapes = [Shape(settings.how, 2, 1), Shape(settings.how, 3, 2), Shape(settings.how, 3, 1)]
    counts: dict[str, Counter[str]] = {"sampler": Counter(), "trainer": Counter()}
    bad = 0
    with tempfile.TemporaryDirectory(prefix="campaign-") as root:
        wanted, lasts = {}, {}
        for shape in shapes:
            folder = Path(root) / f"{shape.num_devices}-{shape.num_samplers}"
            with start(shape, folder) as job:
                lasts[shape] = job.wait(LIMIT_S)
            wanted[shape] = records(shape, folder)
        for role, number in (("sampler", settings.sampler), ("trainer", settings.trainer)):
            for index in range(number):
                shape = shapes[index % len(shapes)]
                local_rank, moment_s = choose.choice(shape.local_ranks(role)), choose.uniform(0, lasts[shape])
                folder = Path(root) / f"{role}-{index}"
                came, output = trial(shape, role, local_rank, moment_s, wanted[shape], folder)
                counts[role][came if came in GOOD else "failed"] += 1
                print(f"{role} {index}: local rank {local_rank} of {shape} at {moment_s:.2f} s: {came}", flush=True)
                if came not in GOOD:
                    bad += 1
                    print(output, flush=True)
    print("\n| killed | what came of it | jobs |\n| --- | --- | ---: |")
    for role, counted in counts.items():
        for came, number in counted.most_common():
            print(f"| {role} | {came} | {number} |")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
