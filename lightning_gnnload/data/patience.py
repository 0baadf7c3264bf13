"""Patience: how long to wait for a process that starts, by what it does rather than by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_S = 0.5


class Patience:
    """Says when a process has been waited for long enough: only the time counts in which it did nothing.

    To import torch takes ten times as long on a machine with ten times the work, and is progress all the same. One that
    is stopped, hangs, or is not there does nothing. Used by one thread.

    Args:
        idle_s: so long it may do nothing.
        most_s: so long it is waited for, whatever it does.
        is_busy: whether it does something at this moment; asked twice a second, or four times in ``idle_s``.

    Example:
        >>> patience = Patience(0.02, 60.0, is_busy=lambda: False)
        >>> while not patience.is_over():
        ...     time.sleep(0.01)
        >>> print(patience)
        it did nothing for 0.02 s
    """

    def __init__(self, idle_s: float, most_s: float, is_busy: Callable[[], bool]) -> None:
        self.idle_s = idle_s
        self.most_s = max(most_s, idle_s)
        self._is_busy = is_busy
        self._every_s = min(_LOOK_S, idle_s / 4)
        self._looked_at = time.monotonic()
        self._idle_s = self._waited_s = 0.0

    def is_over(self) -> bool:
        """Whether it has been waited for long enough. To be called again and again: what lies between two calls counts
        as a second at most, as this process may have been stopped with the whole job."""
        now = time.monotonic()
        if now - self._looked_at >= self._every_s:
            passed_s, self._looked_at = min(now - self._looked_at, 2 * _LOOK_S), now
            self._waited_s += passed_s
            if not self._is_busy():
                self._idle_s += passed_s
        return self._idle_s >= self.idle_s or self._waited_s >= self.most_s

    def __str__(self) -> str:
        """Says why it is over."""
        if self._idle_s >= self.idle_s:
            return f"it did nothing for {self.idle_s:g} s"
        return f"it was busy, but did not come within {self.most_s:g} s"
