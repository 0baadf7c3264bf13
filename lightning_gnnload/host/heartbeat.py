"""How a process shows that its long work gets on, and how long another process waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_S = 0.5


class Heartbeat:
    """Counts the finished pieces of a process's long work, as rows copied; any thread may call each method."""

    # A process is watched by its beats, as threads that hang live, too.
    def __init__(self) -> None:
        # Two beats at once may count as one: all that matters is whether the number moves.
        self.beats = 0
        self._num_waiting = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a thread waits for another process, which has a heartbeat of its own."""
        return self._num_waiting > 0

    def beat(self) -> None:
        """Counts a piece of work, and calls the listeners in this thread."""
        self.beats += 1
        # A copy: another thread may remove its listener meanwhile.
        for listener in tuple(self._listeners):
            listener()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Says that this process waits for another one, until the block ends."""
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1

    @contextmanager
    def heard_by(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls ``listener`` at each beat until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


HEARTBEAT = Heartbeat()
"""That of this process."""


class Patience:
    """A time limit for another process: it may do nothing for ``idle_s``, and take ``most_s`` in all.

    ``is_busy`` says whether it does something now, and is called twice a second, or four times in ``idle_s``.

    Example:
        >>> patience = Patience(0.02, 60.0, is_busy=lambda: False)
        >>> while not patience.is_over():
        ...     time.sleep(0.01)
        >>> print(patience)
        it did nothing for 0.02 s
    """

    # Not by the clock alone: importing torch takes ten times as long on a machine with ten times the work, and is
    # progress all the same. A process that is stopped, hangs, or is gone does nothing.
    def __init__(self, idle_s: float, most_s: float, is_busy: Callable[[], bool]) -> None:
        self.idle_s = idle_s
        self.most_s = max(most_s, idle_s)
        self._is_busy = is_busy
        self._every_s = min(_LOOK_S, idle_s / 4)
        self._looked_at = time.monotonic()
        self._idle_s = self._waited_s = 0.0

    def is_over(self) -> bool:
        """Returns whether the limit is reached. Call it again and again."""
        now = time.monotonic()
        if now - self._looked_at >= self._every_s:
            # A second at most between two calls: this process may have been stopped with the whole job.
            passed_s, self._looked_at = min(now - self._looked_at, 2 * _LOOK_S), now
            self._waited_s += passed_s
            if not self._is_busy():
                self._idle_s += passed_s
        return self._idle_s >= self.idle_s or self._waited_s >= self.most_s

    def __str__(self) -> str:
        if self._idle_s >= self.idle_s:
            return f"it did nothing for {self.idle_s:g} s"
        return f"it was busy, but did not come within {self.most_s:g} s"
