"""LoadWatch: the cores that other programs have used in a time, and those that some processes have."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import psutil

from tests.benchmarks.errors import BenchmarkError

_EVERY_S = 0.1


class Sample(NamedTuple):
    at_s: float
    busy_s: float  # of all cores
    ours_s: float


class LoadWatch:
    """Watches processes, and all that they start, from a thread; times are of ``time.monotonic``."""

    def __init__(self, pids: Sequence[int] = ()) -> None:
        self._pids = [os.getpid(), *pids]
        self._seen: dict[int, float] = {}
        self._samples: list[Sample] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def cores_left(self, began_s: float, ended_s: float) -> float:
        """The cores that others left to us in that time: of two, at least a tenth."""
        first, last = self._at(began_s), self._at(ended_s)
        foreign_s = (last.busy_s - first.busy_s) - (last.ours_s - first.ours_s)
        num_cores = len(os.sched_getaffinity(0))
        return max(num_cores - max(foreign_s, 0.0) / max(last.at_s - first.at_s, 1e-9), 0.1)

    def ours_s(self, began_s: float, ended_s: float) -> float:
        """The processor's time of these processes in that time."""
        return self._at(ended_s).ours_s - self._at(began_s).ours_s

    def _at(self, moment_s: float) -> Sample:
        return self._samples[min(bisect_left(self._samples, (moment_s,)), len(self._samples) - 1)]

    def __enter__(self) -> LoadWatch:
        self._samples.append(self._sample())
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            self._samples.append(self._sample())

    def _sample(self) -> Sample:
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
        busy_s = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        return Sample(time.monotonic(), busy_s, self._ours_s())

    def _ours_s(self) -> float:
        for pid in self._pids:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                for each in [process, *process.children(recursive=True)]:
                    with suppress(psutil.Error):
                        times = each.cpu_times()
                        self._seen[each.pid] = times.user + times.system
        return sum(self._seen.values())


def watched(jobs: Sequence[subprocess.Popen[Any]], limit_s: float) -> LoadWatch:
    """Waits for processes that take part in one run, and ends all of them. BenchmarkError: one has failed."""
    try:
        with LoadWatch([job.pid for job in jobs]) as watch:
            if any(job.wait(limit_s) for job in jobs):
                raise BenchmarkError("a process of the run has failed; it says above why")
        return watch
    finally:
        for job in jobs:
            job.kill()
            job.wait()
