"""AlternatingLoader: fills a queue with all cores, then lets the consumer have them until it is empty."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator
from typing import Any

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.pipeline.loader import SampledLoader, _HostBatch
from lightning_gnnload.pipeline.stats import QueueFill

_MAX_DEPTH = 1024


class AlternatingLoader(SampledLoader):
    """Fills a queue with all threads, delivers it, and begins again; mini-batches and their order stay the same.

    Where sampling and training share cores or a device, neither slows the other down, and each finds its data in the
    processor's caches. ``num_threads`` None: one a core. ``depth`` mini-batches are made in each turn; None: as many as
    fit in ``memory_bytes``, by the size of the turn's first one.

    Source: GNNLab (EuroSys'22), section 5.3 (a single GPU: the queue is filled, then emptied).
    """

    def __init__(self, loader: SampledLoader, *, num_threads: int | None, depth: int | None, memory_bytes: int) -> None:
        super().__init__(
            loader.source,
            num_ranks=loader.num_ranks,
            rank=loader.rank,
            num_threads=num_threads or len(os.sched_getaffinity(0)),
            convert=loader.convert,
            pinned=loader._slots.pinned,
        )
        self.progress = loader.progress
        self.on_resume_change = loader.on_resume_change
        self.depth = depth
        self.memory_bytes = memory_bytes

    def batches(self, epoch: int, start: int, stop: int) -> Iterator[Any]:
        self.source.open()
        requests = [BatchRequest(epoch, step, self.rank, self.num_ranks) for step in range(start, stop)]
        remaining, queue = iter(requests), deque[_HostBatch]()
        with Threads(self.num_threads, "gnnload-sample", self._slots.initializer()) as threads:

            def take() -> _HostBatch:
                if not queue:
                    queue.extend(self._turn(remaining, threads))
                return queue.popleft()

            for request in requests:
                yield self._deliver(request, take, QueueFill(ready=len(queue), slots=self.depth or 0))

    def _turn(self, remaining: Iterator[BatchRequest], threads: Threads) -> Iterator[_HostBatch]:
        # Made before the others: its size tells how many more the memory holds.
        first = self._make(next(remaining))
        depth = self.depth or self._depth_for(first.payload.header.num_bytes)
        yield first
        yield from threads.map(self._make, itertools.islice(remaining, depth - 1))

    def _depth_for(self, batch_bytes: int) -> int:
        return min(max(self.memory_bytes // batch_bytes, 1), _MAX_DEPTH)
