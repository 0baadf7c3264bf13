"""A watch over a thread that may be busy for long: it tells whether the thread gets on, not only that it lives."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.threads import start_thread

_HEARTBEAT_S = 1.0  # trainers give up who is silent for stall_timeout_s


@contextmanager
def watched(timeout_s: float, *, gets_on: Callable[[], None], hangs: Callable[[str], None]) -> Iterator[None]:
    """Watches this thread from another one until the block ends.

    ``gets_on`` is called each second while the process makes progress (beats of its pulse; waiting for another process
    counts as progress). After ``timeout_s`` without any, ``hangs`` is called once with the stack of the watched thread.
    """
    over, working = threading.Event(), threading.get_ident()

    def watch() -> None:
        # Counted in looks, not by the clock: a machine that is suspended, or a stopped job, makes no progress either.
        beats, idle_s = HEARTBEAT.beats, 0.0
        while not over.wait(_HEARTBEAT_S):
            has_moved = HEARTBEAT.is_waiting or HEARTBEAT.beats != beats
            beats, idle_s = HEARTBEAT.beats, 0.0 if has_moved else idle_s + _HEARTBEAT_S
            if idle_s >= timeout_s:
                hangs("".join(traceback.format_stack(sys._current_frames()[working])))
                return
            gets_on()

    thread = start_thread("gnnload-watch", watch)
    try:
        yield
    finally:
        over.set()
        thread.join()
