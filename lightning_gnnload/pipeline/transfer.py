"""Asynchronous copies of mini-batches from page-locked slots to a CUDA device."""

from __future__ import annotations

from collections import deque

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.typed_batch import TypedMiniBatch

AnyBatch = MiniBatch | TypedMiniBatch
_MOST_BEGUN = 2
"""Steps that the host may have given to the device when it copies the next batch: one computes, one waits."""


class DeviceCopies:
    """Copies mini-batches on a CUDA stream of its own, so that a copy overlaps the training step before it.

    The host waits for no copy, only when it runs more than two steps ahead of the device, where each step holds a
    batch. A source is kept alive until its copy is done: a slot reused in mid-copy would be overwritten under the copy
    engine.
    """

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._under_way: deque[tuple[torch.cuda.Event, AnyBatch]] = deque()
        self._with_setup: deque[torch.cuda.Event] = deque()

    def start(self, batch: AnyBatch, device: torch.device) -> AnyBatch:
        """Starts to copy ``batch`` to ``device``; returns it there, for work in the current stream from now on."""
        # Copies end in the order in which they began, as they share one stream.
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()
        computes = torch.cuda.current_stream(device)
        # Before the wait for this copy is queued: it happens when the device is done with the steps that it has so far.
        self._with_setup.append(_moment(computes))
        if len(self._with_setup) > _MOST_BEGUN:
            self._with_setup.popleft().synchronize()
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        with torch.cuda.stream(self._stream):
            moved = batch.to(device, non_blocking=True)
            copy_end = _moment(self._stream)
        self._under_way.append((copy_end, batch))
        computes.wait_event(copy_end)
        # Allocated on the copying stream: without this, torch would reuse the memory while the step still computes.
        moved.record_stream(computes)
        return moved


def _moment(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record(stream)
    return event
