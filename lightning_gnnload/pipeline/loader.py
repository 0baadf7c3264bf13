"""SampledLoader: mini-batches made in this process, by background threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.pipeline.pool import SlotPool
from lightning_gnnload.pipeline.source import BatchRequest, BatchSource, Payload
from lightning_gnnload.pipeline.stats import LoaderStats

Convert = Callable[[MiniBatch], Any]


class _Made(NamedTuple):
    payload: Payload
    batch: Any
    convert_ms: float


class EpochLoader:
    """What Lightning asks of a train loader: a length, the epoch, and a place in it that survives a restart.

    A subclass yields mini-batches from :meth:`_batches`. Making one starts nothing, and neither does ``iter()``:
    Lightning makes and iterates loaders that it never reads.
    """

    def __init__(self, source: BatchSource, num_ranks: int, rank: int) -> None:
        self.source = source
        self.num_ranks = num_ranks
        self.rank = rank
        self.stats = LoaderStats()
        self.epoch = 0
        self._num_yielded = 0
        self._resume_at: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self.source.plan(self.num_ranks).num_steps

    def __iter__(self) -> Iterator[Any]:
        start = 0
        if self._resume_at is not None:
            epoch, step = self._resume_at
            # A checkpoint from an epoch's end is resumed in the next epoch, from its begin.
            start = step if epoch == self.epoch else 0
            self._resume_at = None
        self._num_yielded = start
        # A reference kept here would keep the last batch's slot while the next one is waited for.
        yield from map(self._count, self._batches(self.epoch, start))

    def _count(self, batch: Any) -> Any:
        self._num_yielded += 1
        return batch

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Lightning announces the epoch to ``loader.batch_sampler.sampler.set_epoch``.

        A bare ``sampler`` attribute would do so as well, but would be searched for a shuffling sampler too.
        """
        return SimpleNamespace(sampler=self)

    def state_dict(self) -> dict[str, int]:
        """The place in the stream: batches are pure functions, so two integers say all."""
        return {"epoch": self.epoch, "step": self._num_yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._resume_at = (state["epoch"], state["step"])


class SampledLoader(EpochLoader):
    """Mini-batches made by threads of this process: one thread, one batch, the GIL released.

    Batches come in order and are the same for any number of threads.

    Args:
        source: the phase's mini-batches.
        num_ranks: trainers that share each step.
        rank: this trainer.
        num_threads: sampling threads; 0 samples in the caller's thread.
        convert: makes of a MiniBatch what the model expects.
        pinned: write to page-locked memory, for asynchronous copies to a CUDA device.
    """

    def __init__(
        self,
        source: BatchSource,
        *,
        num_ranks: int = 1,
        rank: int = 0,
        num_threads: int = 1,
        convert: Convert | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(source, num_ranks, rank)
        self.num_threads = num_threads
        self.convert: Convert = convert or (lambda batch: batch)
        self._slots = SlotPool(pinned=pinned)

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        return self.batches(epoch, start, len(self))

    def batches(self, epoch: int, start: int, stop: int) -> Iterator[Any]:
        """Those of steps ``[start, stop)``."""
        requests = (BatchRequest(epoch, step, self.rank, self.num_ranks) for step in range(start, stop))
        if self.num_threads == 0:
            for request in requests:
                yield self._deliver(partial(self._make, request))
            return
        threads = ThreadPoolExecutor(self.num_threads, thread_name_prefix="gnnload-sample")
        # One more than there are threads: a batch waits to be consumed while each thread makes another.
        ahead: deque[Future[_Made]] = deque()
        try:
            for request in requests:
                ahead.append(threads.submit(self._make, request))
                if len(ahead) > self.num_threads:
                    yield self._deliver(ahead.popleft().result)
            while ahead:
                yield self._deliver(ahead.popleft().result)
        finally:
            threads.shutdown(cancel_futures=True)

    def _make(self, request: BatchRequest) -> _Made:
        slot = self._slots.take()
        try:
            payload = self.source.make(request, slot)
        except BaseException:
            self._slots.give(slot)
            raise
        began = time.perf_counter()
        batch = self.convert(payload.view(self._slots.lend(slot)))
        return _Made(payload, batch, (time.perf_counter() - began) * 1e3)

    def _deliver(self, get: Callable[[], _Made]) -> Any:
        began = time.perf_counter()
        made = get()
        self.stats.add(made.payload, wait_ms=(time.perf_counter() - began) * 1e3, convert_ms=made.convert_ms)
        return made.batch
