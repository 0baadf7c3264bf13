"""Repeating: something done again and again while something else takes its time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """Calls ``action`` in a thread of its own, every so many seconds, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            action()

    thread = threading.Thread(target=run, name="gnnload-repeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
