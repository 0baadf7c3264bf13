"""Turns: many threads that read, or one that writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock for the threads of one process. Who waits to write is not passed by readers who come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_reading = 0
        self._num_writers = 0
        self._is_written = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._num_writers)
            self._num_reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_reading -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._num_writers += 1
            try:
                self._changed.wait_for(lambda: not self._num_reading and not self._is_written)
            except BaseException:  # an interrupt: readers must not wait for who writes no more
                self._num_writers -= 1
                self._changed.notify_all()
                raise
            self._is_written = True
        try:
            yield
        finally:
            with self._changed:
                self._num_writers -= 1
                self._is_written = False
                self._changed.notify_all()
