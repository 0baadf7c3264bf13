"""Shards: memory of devices that holds a static cache's rows, as one rank's device reads them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch

from lightning_gnnload.ops.cuda.device import Device
from lightning_gnnload.ops.cuda.shared_memory import ExportedMemory, OpenedMemory

CLOSING_S = 30.0
"""How long an owner waits for its readers. All ranks close at the end of one fit."""
_log = logging.getLogger(__name__)


class PrivateMemory:
    """Memory of this rank's device that no other rank reads.

    Raises:
        DeviceMemoryError: there is no such memory.
    """

    def __init__(self, device: Device, num_bytes: int) -> None:
        self._tensor: torch.Tensor | None = device.empty(num_bytes, torch.uint8)
        self.address = self._tensor.data_ptr()

    def close(self, timeout_s: float) -> bool:
        self._tensor = None
        return True


@dataclass
class Shards:
    """Where the rows of a cache lie, all within this rank's device's reach.

    Attributes:
        addresses: of each shard's first row; rows follow each other without a gap.
        num_rows: of each shard.
        own: the shard that this rank has filled; -1: none.
        memory: this rank's.
        opened: the others'.
    """

    addresses: list[int] = field(default_factory=list)
    num_rows: list[int] = field(default_factory=list)
    own: int = -1
    memory: ExportedMemory | PrivateMemory | None = None
    opened: list[OpenedMemory] = field(default_factory=list)

    def close(self) -> None:
        """Gives back what this rank has opened, and its own memory once nobody reads it. A rank that is gone keeps
        nobody waiting. Nothing may be gathered any more."""
        for each in self.opened:
            each.close()
        memory, self.memory, self.opened = self.memory, None, []
        if memory is not None and not memory.close(CLOSING_S):
            _log.warning(
                "Another rank still reads this rank's cache %g s after this one is done with it. Its device's memory "
                "stays taken until this process ends.",
                CLOSING_S,
            )
