"""Two ways of timing mini-batches: one by one, or as they stream from a loader."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from tests.benchmarks.errors import BenchmarkError

PROCESSOR_MS = "processor ms"  # a column
WARM_UP_BATCHES = 5  # more than any contender holds ready: what is timed was made while it was timed


def timed(make: Callable[[Any], object], requests: Iterable[Any]) -> dict[str, Any]:
    """``"values"``: the milliseconds of each ``make(request)``.

    ``"processor ms"``: their median without the time in which other processes had the processor. Where it is
    far below the values, the machine was not idle.
    """
    took, used = [], []
    for request in requests:
        began, began_using = time.perf_counter(), time.process_time()
        make(request)
        took.append((time.perf_counter() - began) * 1e3)
        used.append((time.process_time() - began_using) * 1e3)
    return {"values": took, PROCESSOR_MS: statistics.median(used)}


def steady_ms(
    loader: Iterable[Any], num_batches: int, look: Callable[[], object] = lambda: None, *, num_workers: int = 0
) -> dict[str, Any]:
    """``"values"``: milliseconds a batch, once it streams, with a consumer that only takes the next.

    One figure, as loaders deliver in bursts. The first batches are not counted: processes and threads
    start, and buffers fill. ``"processor ms"``: as in :func:`timed`, of all threads; not told with workers, which use
    theirs elsewhere.

    Args:
        loader: iterated once, and not to its end.
        num_batches: batches to take, those of the warm-up included.
        look: called after each batch that is not timed.
        num_workers: processes of the loader's own.

    Raises:
        BenchmarkError: the loader ended before.
    """
    batches = iter(loader)
    for _batch in islice(batches, WARM_UP_BATCHES):
        look()
    del _batch  # its buffer is free for the loader to use again
    began, began_using = time.perf_counter(), time.process_time()
    num_timed = sum(1 for _ in islice(batches, num_batches - WARM_UP_BATCHES))
    took_ms, used_ms = (time.perf_counter() - began) * 1e3, (time.process_time() - began_using) * 1e3
    look()
    if num_timed != num_batches - WARM_UP_BATCHES:
        raise BenchmarkError(
            f"the loader gave {WARM_UP_BATCHES + num_timed} batches, but {num_batches} were to be timed."
        )
    del batches  # ends its threads and processes before the next contender's turn
    reply = {"values": [took_ms / num_timed]}
    return reply if num_workers else reply | {PROCESSOR_MS: used_ms / num_timed}
