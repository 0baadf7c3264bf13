"""A system that gives a process no further thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest


@contextmanager
def refused(number: int = 0, name: str = "", times: int = 1 << 30) -> Iterator[None]:
    """Refuses threads as Python does, where the system gives none: of those whose names begin with ``name``, so many
    from the one with this ``number`` on."""
    start, numbers = threading.Thread.start, count()

    def starts(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and number <= next(numbers) < number + times:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", starts)
        yield
