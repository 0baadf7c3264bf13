"""The slots of a cache on a device that admits and evicts rows.

Shapes: N graph nodes, B ids of a batch, F feature width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ....errors import GnnLoadError
from ..launch.device import Device
from .rows import MOVE_THREADS, move_shape, scan_blocks, scan_tiles
from .tiers import TieredTable


class EvictingSlots:
    """The slots of a first-in-first-out cache on a device, equal to those of :class:`.ops.EvictingSlots` after every
    batch. For one stream at a time; nothing waits for the device.

    It differs in one case: of a batch that repeats ids and misses more than there are slots, an id that the batch
    itself has evicted is not admitted again. Rows have one byte at least. Kernels take it as ``Slots``
    (kernels/dynamic_cache/dynamic_cache_cuda.cu). Raises DeviceMemoryError where the device has no such memory.

    Source: BGL (NSDI'23), sections 3.2.1 and 3.2.3.
    """

    def __init__(self, device: Device, num_nodes: int, num_slots: int, row_bytes: int) -> None:
        self.device, self.num_nodes, self.num_slots, self.row_bytes = device, num_nodes, num_slots, row_bytes
        self.slot_of = device.empty(num_nodes, torch.int32).fill_(-1)  # negative: not cached
        self.rows = device.empty(num_slots * row_bytes, torch.uint8)
        self.node_of = device.empty(num_slots, torch.int64).fill_(-1)  # negative: a free slot
        self.num_given = device.zeros(1, torch.int64)  # admissions before the last batch
        self.num_admitted = device.zeros(1, torch.int64)  # admissions of the last batch

    @property
    def table(self) -> TieredTable:
        """The cache as a table of one shard, without a backing."""
        return TieredTable.of(self.device, self.slot_of, [self.rows.data_ptr()], [self.num_slots], self.row_bytes)

    def admit(self, ids: torch.Tensor, batch: torch.Tensor) -> None:
        """Admits the nodes of a batch that have no slot: ``ids`` int64 ``[B]``, of which invalid ones are passed over,
        with their rows, ``[B, F]``, contiguous. Raises DeviceMemoryError where there is no memory for the lists of a
        batch, which is not admitted then."""
        count = len(ids)
        if len(batch) != count or batch.nbytes != count * self.row_bytes or not batch.is_contiguous():
            raise GnnLoadError(
                f"batch has shape {list(batch.shape)} and {batch.nbytes} bytes, but for {count} ids as many rows of "
                f"{self.row_bytes} bytes are needed."
            )
        if not count:
            return
        device, tiles = self.device, scan_tiles(count)
        arguments: dict[str, Any] = {"cache": self, "ids": ids, "count": count}
        blocks = scan_blocks(device, tiles)
        # Before the first launch, as a claim that is not followed up would keep its node out from then on. For all ids
        # of the batch, since the number of those that are admitted is known to the device alone.
        admitted = _Admitted(device.empty(count, torch.int64), device.empty(count, torch.int64))
        words = device.zeros(1 + tiles, torch.int64)
        # Three launches, as blocks of one launch cannot wait for each other: claims, then queue positions, then slots.
        device.launch("dynamic_cache", "claim", blocks=blocks, threads=MOVE_THREADS, **arguments)
        device.launch(
            "dynamic_cache",
            "list_admitted",
            blocks=blocks,
            threads=MOVE_THREADS,
            **arguments,
            admitted=admitted,
            words=words,
        )
        # A grid for all ids, since the device alone knows how many are admitted.
        shape = move_shape(device, count, self.row_bytes, batch.data_ptr(), to=self.rows.data_ptr())
        device.launch(
            "dynamic_cache",
            "admit",
            (shape.vector,),
            blocks=shape.blocks,
            threads=MOVE_THREADS,
            cache=self,
            admitted=admitted,
            batch=batch.reshape(-1).view(torch.uint8),
            shape=shape,
        )


class _Admitted(NamedTuple):
    """``Admitted`` of ``kernels/dynamic_cache/dynamic_cache_cuda.cu``."""

    ids: torch.Tensor
    positions: torch.Tensor
