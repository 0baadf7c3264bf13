"""QueueLoader: on a trainer, stands in for the loader that would sample there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from lightning_gnnload.pipeline.loader import EpochLoader, SampledLoader
from lightning_gnnload.pipeline.queue import BatchQueue
from lightning_gnnload.pipeline.stats import Delivery
from lightning_gnnload.pipeline.streams import StreamSpec


class QueueLoader(EpochLoader):
    """The mini-batches of a SampledLoader, made by the samplers; by itself, from where the last sampler is lost.

    Args:
        queue: this trainer's end of the queue.
        local: the loader that this one stands in for.
        phase: ``"train"``, ``"val"``, ``"test"`` or ``"predict"``.
        loader: which of the phase's loaders this is.
        reload: counts how often Lightning asked for the loaders anew.
        limit: how many steps will be read at most, once that is known.
    """

    def __init__(
        self,
        queue: BatchQueue,
        local: SampledLoader,
        *,
        phase: str,
        loader: int,
        reload: int,
        limit: Callable[[], float],
    ) -> None:
        super().__init__(local.source, local.num_ranks, local.rank)
        self.queue = queue
        self.local = local
        self.phase = phase
        self.loader = loader
        self.convert = local.convert
        self.reload = reload
        self.limit = limit

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        stop = int(min(len(self), self.limit()))
        stream = self.queue.open(StreamSpec(self.phase, self.loader, self.reload, epoch, start, stop))
        is_open = True
        try:
            for step in range(start, stop):
                fill = self.queue.fill(stream)
                asked_s = time.monotonic()
                taken = self.queue.take(stream, step)
                if taken is None:
                    self.queue.close_stream(stream)
                    is_open = False
                    yield from self._sampled_here(epoch, step, stop)
                    return
                batch, payload = taken
                del taken
                taken_s = time.monotonic()
                converted = [self.convert(batch)]
                del batch  # else it would stay while the consumer works, and its slot with it
                convert_s = (taken_s, time.monotonic())
                self._note(Delivery.of(payload, step, asked_s=asked_s, taken_s=taken_s, convert_s=convert_s, fill=fill))
                if step == stop - 1:
                    # Lightning asks a sized loader for no batch after the last: there is no later moment.
                    self.queue.close_stream(stream)
                    is_open = False
                yield converted.pop()
        finally:
            if is_open:
                self.queue.close_stream(stream)

    def _sampled_here(self, epoch: int, start: int, stop: int) -> Iterator[Any]:
        """Without samplers. What made one of them raise may be raised here too, with that one's report as its cause."""
        try:
            yield from map(self._note_local, self.local.batches(epoch, start, stop))
        except Exception as error:
            if self.queue.report is None:
                raise
            raise error from self.queue.report

    def _note_local(self, batch: Any) -> Any:
        assert self.local.last is not None
        self._note(self.local.last)
        return batch
