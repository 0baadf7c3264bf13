"""Stages: how long each step of a long work took, and how much memory it held at most."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lightning_gnnload.data.threads import start_thread

_SAMPLE_S = 0.05  # shorter peaks of memory are missed; looking costs a system call
_PRIVATE = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
_SHARED = re.compile(r"^RssShmem:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class BuildStage:
    """Reports the time and memory of one stage of building a partition.

    Attributes:
        name: what was done.
        seconds: of the wall clock.
        peak_bytes: the most memory that this process and its children held while it was done, pages of files left
            out, for the system takes those back when it is short; looked at 20 times a second.
    """

    name: str
    seconds: float
    peak_bytes: int


class StageClock:
    """Measures the stages of a task, which calls :meth:`enter` at the start of each. One thread enters; another one, of
    its own, looks at the memory.

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
        self._look()  # a stage shorter than the watcher's interval has a peak, too
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
        held = held_bytes()
        with self._lock:
            if began == self._began:  # else it may be what the stage before has held
                self._peak_bytes = max(self._peak_bytes, held)

    def __enter__(self) -> StageClock:
        self._watcher = start_thread("gnnload-stages", self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.enter(None)
        self._ended.set()
        self._watcher.join()


def held_bytes() -> int:
    """Returns the memory of this process and its children without pages of files; what they share is counted once, as
    the most that one of them maps."""
    private, shared = 0, 0
    for pid in [os.getpid(), *_children()]:
        with suppress(OSError):  # a child that has just ended
            status = Path(f"/proc/{pid}/status").read_text()
            private += sum(int(found) << 10 for found in _PRIVATE.findall(status))
            shared = max([shared, *(int(found) << 10 for found in _SHARED.findall(status))])
    return private + shared


def _children() -> list[int]:
    found: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(pid) for pid in file.read_text().split()]
    return found
