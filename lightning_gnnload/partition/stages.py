"""Stages: how long each step of a long work took, and how much memory it took at most."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lightning_gnnload.host.threads import start_thread

_SAMPLE_S = 0.05  # shorter peaks of memory are missed; looking costs a system call
_PRIVATE = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
_SHARED = re.compile(r"^RssShmem:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class BuildStage:
    """Time by the wall clock and most memory of one stage of building a partition.

    The memory is that of this process and its children, looked at 20 times a second, without pages of files, which the
    system takes back when it is short.
    """

    name: str
    seconds: float
    peak_bytes: int


class StageClock:
    """Measures the stages of a task, which calls :meth:`enter` at the start of each; a thread looks at the memory.

    Example:
        >>> with StageClock() as clock:
        ...     clock.enter("assign")
        ...     clock.enter("assign")  # goes on
        ...     clock.enter("close")
        >>> [stage.name for stage in clock.stages]
        ['assign', 'close']
    """

    def __init__(self) -> None:
        self.stages: list[BuildStage] = []
        self._name: str | None = None
        self._began = 0.0
        self._peak_bytes = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def enter(self, name: str | None) -> None:
        """Begins the stage ``name``, or goes on with it; None ends the last."""
        if name == self._name:
            return
        now = time.perf_counter()
        # A stage shorter than the watcher's interval has a peak, too.
        self._look()
        with self._lock:
            if self._name is not None:
                self.stages.append(BuildStage(self._name, round(now - self._began, 3), self._peak_bytes))
            self._name, self._began, self._peak_bytes = name, now, 0
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._look()

    def _look(self) -> None:
        began = self._began
        num_bytes = used_bytes()
        with self._lock:
            if began == self._began:  # else it may be what the stage before took
                self._peak_bytes = max(self._peak_bytes, num_bytes)

    def __enter__(self) -> StageClock:
        self._watcher = start_thread("gnnload-stages", self._watch)
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.enter(None)
        self._ended.set()
        self._watcher.join()


def used_bytes() -> int:
    """Returns the memory of this process and its children without pages of files; what they share is counted once, as
    the most that one of them maps."""
    private, shared = 0, 0
    for pid in [os.getpid(), *_children()]:
        with suppress(OSError):  # a child that has just ended
            status = Path(f"/proc/{pid}/status").read_text()
            private += sum(int(kilobytes) << 10 for kilobytes in _PRIVATE.findall(status))
            shared = max([shared, *(int(kilobytes) << 10 for kilobytes in _SHARED.findall(status))])
    return private + shared


def _children() -> list[int]:
    pids: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            pids += [int(pid) for pid in file.read_text().split()]
    return pids
