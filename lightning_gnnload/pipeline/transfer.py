"""Asynchronous copies of mini-batches from page-locked slots to a CUDA device."""

from __future__ import annotations

from collections import deque

import torch

from lightning_gnnload.data.block import MiniBatch


class DeviceCopies:
    """Starts copies without waiting for them, and keeps each source alive until its copy is done.

    A slot that went back to its pool in mid-copy would be overwritten under the copy engine.
    """

    def __init__(self) -> None:
        self._under_way: deque[tuple[torch.cuda.Event, MiniBatch]] = deque()

    def start(self, batch: MiniBatch, device: torch.device) -> MiniBatch:
        """``batch`` on ``device``, ordered on the current stream."""
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()
        moved = batch.to(device, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(device))
        self._under_way.append((done, batch))
        return moved
