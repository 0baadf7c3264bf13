"""Arrivals: mini-batches from samplers, on the device that trains on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.pipeline.device_batches import Rows, keep_for
from lightning_gnnload.pipeline.payload import Payload

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device, Event
    from lightning_gnnload.pipeline.queue import BatchQueue


class _Arrived(NamedTuple):
    """A mini-batch of ``step``, complete once the device is ``ready``."""

    step: int
    batch: MiniBatch
    payload: Payload
    ready: Event


class Arrivals:
    """Takes a trainer's mini-batches from its queue, copies them to its device, and gathers their features there.

    All of that is work of a side stream. The next mini-batch, if it has come, is begun before one is handed over, so
    that it arrives while that one is trained on. The host waits only where it is two steps ahead of the device, so that
    no more than three mini-batches lie there. Used by one thread.

    Args:
        rows: the tables, by name: ``"x"`` and those of the data's ``tables``.
        device: where mini-batches come to lie.

    Source: GNNLab (EuroSys'22), section 5.2: trainers extract, in a pipeline with training.
    """

    def __init__(self, rows: Mapping[str, Rows], device: Device) -> None:
        self.rows = dict(rows)
        self.device = device
        self._ahead: dict[int, _Arrived] = {}  # by stream
        self._copied: deque[tuple[Event, MiniBatch]] = deque()
        self._handed: deque[Event] = deque()

    def take(self, queue: BatchQueue, stream: int, step: int, stop: int) -> tuple[MiniBatch, Payload] | None:
        """As :meth:`.BatchQueue.take`, for work in the current stream; steps end before ``stop``."""
        arrived = self._ahead.pop(stream, None)
        if arrived is None or arrived.step != step:
            arrived = self._bring(queue, stream, step)
        if arrived is None:
            return None
        if step + 1 < stop and queue.has_come(stream, step + 1):
            following = self._bring(queue, stream, step + 1)
            assert following is not None, "it has come"
            self._ahead[stream] = following
        return self._hand_over(arrived), arrived.payload

    def forget(self, stream: int) -> None:
        """Nobody wants more of it."""
        self._ahead.pop(stream, None)

    def _bring(self, queue: BatchQueue, stream: int, step: int) -> _Arrived | None:
        while self._copied and self._copied[0][0].is_done():
            self._copied.popleft()  # which gives its slot back
        with self.device.side_stream():
            taken = queue.take(stream, step)
            if taken is None:
                return None
            batch, payload = taken
            if batch.nodes.device != self.device.torch_device:  # else it came from a sampler's device
                there = batch.to(self.device.torch_device, non_blocking=True)
                self._copied.append((self.device.record(), batch))
                batch = there
            tables = {name: rows.gather(batch.nodes) for name, rows in self.rows.items()}
            batch = replace(batch, x=tables.pop("x", None), tables=tables)
            return _Arrived(step, batch, payload, self.device.record())

    def _hand_over(self, arrived: _Arrived) -> MiniBatch:
        arrived.ready.wait()
        if self.device.torch_device.type == "cuda":
            keep_for(arrived.batch, torch.cuda.current_stream(self.device.torch_device))
        self._handed.append(self.device.record())
        if len(self._handed) > 2:
            self._handed.popleft().synchronize()
        return arrived.batch
