"""DevicePrefetcher: a trainer's mini-batches, brought from the queue to its device ahead of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.pipeline.device_batches import FeatureFetcher
from lightning_gnnload.pipeline.device_tables import DeviceTable
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.source import BatchSource

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device, Event


class _Fetched(NamedTuple):
    """A mini-batch of ``step``, complete once the device is ``ready``."""

    step: int
    batch: MiniBatch
    payload: Payload
    ready: Event


class DevicePrefetcher(FeatureFetcher):
    """Copies a trainer's mini-batches from the queue to its device ahead of time, and gathers their features there.

    The next mini-batch, if it has come, is begun in a side stream before the current one is handed over, so it arrives
    during training. The host waits only when it is two steps ahead of the device, so at most three mini-batches lie
    there. For one thread.

    Source: GNNLab (EuroSys'22), section 5.2: trainers extract, in a pipeline with training.
    """

    def __init__(self, source: BatchSource, tables: Mapping[str, DeviceTable], device: Device) -> None:
        super().__init__(source, tables, device)
        self._ahead: dict[int, _Fetched] = {}  # by stream
        self._copied: deque[tuple[Event, MiniBatch]] = deque()

    def take(self, queue: BatchQueue, stream: int, step: int, stop: int) -> tuple[MiniBatch, Payload] | None:
        """Takes the next mini-batch like :meth:`.BatchQueue.take`, for work in the current stream; steps end before
        ``stop``."""
        fetched = self._ahead.pop(stream, None)
        if fetched is None or fetched.step != step:
            fetched = self._fetch(queue, stream, step)
        if fetched is None:
            return None
        if step + 1 < stop and queue.has_come(stream, step + 1):
            following = self._fetch(queue, stream, step + 1)
            assert following is not None, "it has come"
            self._ahead[stream] = following
        # Read before this batch is handed over, and waited for last: by then the device has all the work there is.
        handed = tuple(self._handed)
        batch = self.hand_over(fetched.batch, fetched.ready)
        if len(handed) == 2:
            handed[0].synchronize()
        return batch, fetched.payload

    def forget(self, stream: int) -> None:
        """Drops what was fetched ahead of a stream that nobody reads any more."""
        self._ahead.pop(stream, None)

    def _fetch(self, queue: BatchQueue, stream: int, step: int) -> _Fetched | None:
        # One thread has one side stream, so copies end in the order in which they began.
        while self._copied and self._copied[0][0].is_done():
            self._copied.popleft()  # which gives its slot back
        with self.device.side_stream():
            # In the side stream, as a copy from a sampler's device is work of the current one.
            delivered = queue.take(stream, step)
            if delivered is None:
                return None
            batch, payload = delivered
            if batch.nodes.device != self.device.torch_device:  # else it came from a sampler's device
                there = batch.to(self.device.torch_device, non_blocking=True)
                self._copied.append((self.device.record(), batch))
                batch = there
            return _Fetched(step, self._complete(batch), payload, self.device.record())
