"""A long training: the memory and the file descriptors of every rank stay what they were.

    python -m tests.faults.soak --batches 20000

One trainer and two samplers, mini-batches of two seeds, validation after each epoch. Prints a table; exits with 1
where a rank grows. The first quarter, in which libraries load and slots find their size, does not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from tests.integration.scripts import launch

SCRIPT = Path(__file__).with_name("soaking.py")
NUM_DEVICES = 3
LIMIT_MB = 4.0  # growth that is no leak: allocators' caches, and interpreters'
LIMIT_DESCRIPTORS = 2.0
INTERVAL_S = 0.25


class Watch:
    """What one process held, from time to time."""

    def __init__(self, process: psutil.Process) -> None:
        self.rank = process.environ().get("LOCAL_RANK", "0")
        self.process = process
        self.rows: list[tuple[float, float, int]] = []

    def look(self) -> None:
        with self.process.oneshot():
            self.rows.append((time.monotonic(), self.process.memory_info().rss / 2**20, self.process.num_fds()))

    def growth(self) -> tuple[np.ndarray, np.ndarray]:
        """(MB, descriptors): the mean, and the growth by a fitted line."""
        rows = np.array(self.rows)
        seconds = rows[:, 0] - rows[0, 0]
        slopes = np.polyfit(seconds, rows[:, 1:], deg=1)[0]
        return rows[:, 1:].mean(axis=0), slopes * seconds[-1]


def watch(job: launch.Job, folder: Path) -> list[Watch]:
    """Looks at all ranks while the training is warm."""
    watches: dict[int, Watch] = {}
    while job.process.poll() is None:
        for process in job.processes() if (folder / "warm").exists() else ():
            watches.setdefault(process.pid, Watch(process)).look()
        time.sleep(INTERVAL_S)
    return list(watches.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20_000)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        with launch.start(SCRIPT, settings.batches, folder=Path(folder), num_devices=NUM_DEVICES) as job:
            watches = watch(job, Path(folder))
            job.wait(30 * launch.PATIENCE)
        if job.returncode:
            sys.exit(f"the job ended with {job.returncode}:\n{job.output}")
    print(f"{settings.batches} mini-batches, {len(watches)} ranks; growth is over the last three quarters\n")
    print("| local rank | MB | growth | descriptors | growth |\n| ---: | ---: | ---: | ---: | ---: |")
    grows = len(watches) != NUM_DEVICES
    for each in sorted(watches, key=lambda each: each.rank):
        (mb, descriptors), (mb_more, descriptors_more) = each.growth()
        grows |= mb_more > LIMIT_MB or descriptors_more > LIMIT_DESCRIPTORS
        print(f"| {each.rank} | {mb:.1f} | {mb_more:+.2f} | {descriptors:.1f} | {descriptors_more:+.2f} |")
    sys.exit(bool(grows))


if __name__ == "__main__":
    main()
