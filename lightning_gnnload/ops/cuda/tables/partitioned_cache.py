"""The slots of a cache that several devices hold together, each those of its nodes.

Shapes: N graph nodes, B ids of a batch, F feature width, R ranks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from ....errors import GnnLoadError
from ...tiers import MAX_SHARDS, SLOT_BITS
from ..launch.device import Device
from .rows import MOVE_THREADS, Table, alignment_of, move_shape, scan_blocks, scan_tiles
from .tiers import TieredTable, list_missed

_HEADER_BYTES = 256
_ALIGNMENT = 256  # of the parts of a rank's memory
_PLACES_SHARE = 4  # slots to a place of the outbox
_PROGRESS_WORDS = 8 + 3 * MAX_SHARDS


class Parts(NamedTuple):
    """Where the parts of a rank's memory begin, in bytes; alike in all ranks."""

    num_places: int  # of the outbox
    slots_at: int
    ids_at: int
    sent_rows_at: int
    rows_at: int
    num_bytes: int  # of all of it

    @classmethod
    def of(cls, num_nodes: int, num_slots: int, row_bytes: int, num_ranks: int) -> Parts:
        """Lays out the memory of one of so many ranks, which has ``num_slots`` rows.

        Example:
            >>> Parts.of(num_nodes=1000, num_slots=64, row_bytes=100, num_ranks=4)
            Parts(num_places=16, slots_at=256, ids_at=1280, sent_rows_at=1536, rows_at=3328, num_bytes=9728)
        """
        num_places = max(num_slots // _PLACES_SHARE, 1)
        sizes = (_HEADER_BYTES, -(-num_nodes // num_ranks) * 4, num_places * 8, num_places * row_bytes)
        slots_at, ids_at, sent_rows_at, rows_at = accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
        return cls(num_places, slots_at, ids_at, sent_rows_at, rows_at, rows_at + num_slots * row_bytes)

    @staticmethod
    def slot_bytes(row_bytes: int) -> int:
        """Returns the bytes of a row beside itself: its node, and its share of the outbox and of who is admitted."""
        return 8 + -(-(row_bytes + 24) // _PLACES_SHARE)

    @classmethod
    def slots_in(cls, num_bytes: int, num_nodes: int, row_bytes: int, num_ranks: int) -> int:
        """Returns for how many rows the memory of one of so many ranks has room, none where it is too small.

        Example:
            >>> Parts.slots_in(9728, num_nodes=1000, row_bytes=100, num_ranks=4)
            64
        """
        most = range(num_bytes // max(row_bytes, 1) + 1)
        fitting = bisect_right(most, num_bytes, key=lambda slots: cls.of(num_nodes, slots, row_bytes, num_ranks)[-1])
        return max(fitting - 1, 0)


class PartitionedSlots:
    """One rank's end of a first-in-first-out cache that ranks hold together: of R ranks, rank r caches the nodes whose
    id is r modulo R, and all read them in place. For one stream at a time; nothing waits for the device or for others.

    A batch is :meth:`enter`, :meth:`locate`, a gather of :attr:`table` for the same ids, :meth:`admit` and
    :meth:`leave`, which has to follow in any case. Rows that the batch missed are laid out for their owners, which
    admit them in batches of theirs, in turn; no rank writes to another's memory. A slot is written when no rank can be
    reading it, however long that takes (kernels/partitioned_cache/partitioned_cache_cuda.cu): until then nothing is
    admitted. A quarter of the memory of rows is for those on their way, and as many are admitted in a batch at most.

    ``memories`` are the addresses on this device of all ranks' memory, of :attr:`Parts.num_bytes` each; this rank's is
    cleared, which must be done before another rank enters. Rows have one byte at least. Kernels take it as ``Group``.
    Raises DeviceMemoryError where the device has no such memory, GnnLoadError for more ranks or slots than a location
    can name.

    Source: BGL (NSDI'23), section 3.2.3.
    """

    def __init__(
        self,
        device: Device,
        num_nodes: int,
        num_slots: int,
        row_bytes: int,
        memories: Sequence[int],
        rank: int,
        backing: Table | None = None,
    ) -> None:
        self.device, self.num_nodes, self.num_slots, self.row_bytes = device, num_nodes, num_slots, row_bytes
        self.num_ranks, self.rank = len(memories), rank
        if num_slots > 1 << SLOT_BITS:
            raise GnnLoadError(f"{num_slots} slots a rank are wanted, but a location can name {1 << SLOT_BITS}.")
        parts = Parts.of(num_nodes, num_slots, row_bytes, self.num_ranks)
        self.num_places, self.slots_at, self.ids_at, self.sent_rows_at, self.rows_at, _ = parts
        self.location = device.empty(num_nodes, torch.int32).fill_(-1)
        shard_addresses = [address + self.rows_at for address in memories]
        self.table = TieredTable.of(
            device, self.location, shard_addresses, [num_slots] * self.num_ranks, row_bytes, backing
        )
        self.memories = device.put(torch.tensor(list(memories)).numpy())
        self.node_of = device.empty(num_slots, torch.int64)
        self.progress = device.zeros(_PROGRESS_WORDS, torch.int64)
        self._alignment = alignment_of(self.sent_rows_at, self.rows_at, *memories)
        self._incoming = _Incoming(
            device.empty(self.num_places, torch.int64), device.empty(self.num_places, torch.int64)
        )
        tiles = scan_tiles(max(-(-num_nodes // self.num_ranks), num_slots))
        self._launch("clear_slots", blocks=scan_blocks(device, tiles))

    def enter(self) -> None:
        """Begins a batch: from here on to :meth:`leave`, what this rank can find stays where it is."""
        self._launch("enter", threads=32)

    def locate(self, ids: torch.Tensor) -> None:
        """Looks up where the rows of ``ids``, int64 ``[B]``, are now; those of no node are passed over. From then on,
        others do not find the rows that are to be evicted."""
        if len(ids):
            blocks = scan_blocks(self.device, scan_tiles(len(ids)))
            self._launch("locate", blocks=blocks, ids=ids, count=len(ids))
        self._launch("clear_next", blocks=scan_blocks(self.device, scan_tiles(self.num_places)))

    def admit(self, ids: torch.Tensor, batch: torch.Tensor) -> None:
        """Lays out for its owner what the batch has missed, and admits what others and this one have missed of this
        rank's nodes: ``ids`` are those of :meth:`locate`, with their rows, ``[B, F]``, contiguous."""
        device, count = self.device, len(ids)
        if len(batch) != count or batch.nbytes != count * self.row_bytes or not batch.is_contiguous():
            raise GnnLoadError(
                f"batch has shape {list(batch.shape)} and {batch.nbytes} bytes, but for {count} ids as many rows of "
                f"{self.row_bytes} bytes are needed."
            )
        missed_ids, positions = (device.empty(max(count, 1), torch.int64) for _ in range(2))
        # For as many candidates as there can be, as the device alone knows how many there are. Allocated before nodes
        # are claimed, as a claim that is not followed up would keep its node out from then on.
        tiles = scan_tiles(self.num_ranks * self.num_places)
        words = device.zeros(1 + tiles, torch.int64)
        num_missed = list_missed(device, self.location, ids, missed_ids, positions)
        shape = move_shape(device, self.num_places, self.row_bytes, batch.data_ptr(), to=self._alignment)
        self._launch(
            "post",
            (shape.vector,),
            blocks=shape.blocks,
            missed_ids=missed_ids,
            missed_positions=positions,
            num_missed=num_missed,
            batch=batch.reshape(-1).view(torch.uint8),
            shape=shape,
        )
        blocks = scan_blocks(device, tiles)
        self._launch("claim", blocks=blocks)
        self._launch("list_incoming", blocks=blocks, row_bytes=self.row_bytes, incoming=self._incoming, words=words)
        shape = move_shape(device, self.num_places, self.row_bytes, self._alignment, to=self._alignment)
        self._launch("admit", (shape.vector,), blocks=shape.blocks, incoming=self._incoming, shape=shape)

    def leave(self) -> None:
        """Ends a batch, and shows others what it has laid out for them."""
        self._launch("leave", threads=32)

    def _launch(
        self, kernel: str, types: tuple[str, ...] = (), *, blocks: int = 1, threads: int = MOVE_THREADS, **more: Any
    ) -> None:
        self.device.launch("partitioned_cache", kernel, types, blocks=blocks, threads=threads, group=self, **more)


class _Incoming(NamedTuple):
    """``Incoming`` of ``kernels/partitioned_cache/partitioned_cache_cuda.cu``."""

    ids: torch.Tensor
    sources: torch.Tensor
