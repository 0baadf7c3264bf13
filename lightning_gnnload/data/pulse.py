"""Pulse: the signs by which a process that is busy for long shows that it gets on.

That a thread of it lives says little: another one may hang. So who does long work in pieces lets the pulse beat with
each, and who watches the process looks whether it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pulse:
    """Counts the pieces of long work that a process has done: rows copied, mini-batches sampled ahead.

    Any thread may call each method. Two that beat at once may be counted as one: that the count has moved is all that
    is ever asked.

    Attributes:
        beats: how many there were.
        is_waiting: a thread waits for another process, which shows by its own pulse whether it gets on.
    """

    def __init__(self) -> None:
        self.beats = 0
        self._num_waiting = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_waiting(self) -> bool:
        return self._num_waiting > 0

    def beat(self) -> None:
        """Counts a piece of work."""
        self.beats += 1
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
        """Calls ``listener`` at each beat, in the thread that works, until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


PULSE = Pulse()
"""This process's own."""
