"""Gathers rows of a table that is cached in part: in shards of this device and of its peers, before the host's memory.

Shapes: N graph nodes, B requested ids, F feature width, S shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ....errors import GnnLoadError
from ...tiers import MAX_SHARDS
from ..launch.device import Device
from .bus_order import AS_THEY_COME, FEW_READS, BusOrder, Reads, can_order, order_reads
from .rows import (
    AS_BYTES,
    MOVE_THREADS,
    RowCodes,
    Table,
    address_of,
    alignment_of,
    as_bytes_of,
    blocks_on_bus,
    check_tensor,
    form_of,
    move_shape,
    row_bytes_of,
    scan_blocks,
    scan_tiles,
    shape_of,
)

# Of the rows of a batch: below it the bus, at 45 M rows a second, needs less time than what is near, at 3 G (an H200).
_FEW_SHARE = 1 / 64


@dataclass(frozen=True)
class TieredTable:
    """A feature table on a device that shards hold a part of; :func:`.ops.gather_tiered` reads the same on the CPU."""

    location: torch.Tensor  # int32 [N]: shard << SLOT_BITS | slot; negative where no shard has the node's row
    addresses: torch.Tensor  # int64 [S], on the device, of each shard's first row
    num_rows: torch.Tensor  # int64 [S], on the device, of each shard
    alignment: int  # bytes, a power of two that divides all addresses
    row_bytes: int  # of one row; rows of a shard follow each other
    backing: Table | None = None  # all rows, [N, F], which the device can read; None: other rows are missed

    @property
    def num_nodes(self) -> int:
        return len(self.location)

    @property
    def num_shards(self) -> int:
        return len(self.num_rows)

    @classmethod
    def of(
        cls,
        device: Device,
        location: torch.Tensor,
        addresses: Sequence[int],
        num_rows: Sequence[int],
        row_bytes: int,
        backing: Table | None = None,
    ) -> TieredTable:
        """Makes the table whose shards begin at these addresses. Raises GnnLoadError for more shards than a location
        can name, or arrays that do not fit each other."""
        check_tensor("location", location, torch.int32, 1)
        if len(addresses) != len(num_rows) or len(addresses) > MAX_SHARDS:
            raise GnnLoadError(
                f"{len(addresses)} shards with {len(num_rows)} numbers of rows were given; a location can name "
                f"{MAX_SHARDS} shards at most, and each has its number of rows."
            )
        if backing is not None and shape_of(backing)[0] != len(location):
            raise GnnLoadError(f"backing has {shape_of(backing)[0]} rows, but {len(location)} nodes have locations.")
        return cls(
            location,
            device.put(np.array(addresses, np.int64)),
            device.put(np.array(num_rows, np.int64)),
            alignment_of(*addresses),
            row_bytes,
            backing,
        )


def order_missed(device: Device, table: TieredTable, ids: torch.Tensor) -> BusOrder:
    """Puts the ids that no shard has in the order of their rows, for :func:`gather_tiered`. Nothing waits for the
    device, which alone knows how many there are; a table without a backing, or too large, has no order. Raises
    GnnLoadError for ids of another dtype or shape, DeviceMemoryError."""
    check_tensor("ids", ids, torch.int64, 1)
    if table.backing is None or not len(ids) or not can_order(len(ids), table.num_nodes):
        return AS_THEY_COME
    return order_reads(device, Reads(ids, len(ids), table.num_nodes, table.location))


def gather_tiered(
    device: Device,
    table: TieredTable,
    ids: torch.Tensor,
    out: torch.Tensor,
    counts: torch.Tensor,
    error: torch.Tensor,
    far: BusOrder = AS_THEY_COME,
    far_blocks: int | None = None,
    codes: RowCodes = AS_BYTES,
    counts_address: int = 0,
) -> None:
    """Copies row ``ids[b]`` to ``out[b]`` from where it is; equals :func:`.ops.gather_tiered`.

    ``ids`` are int64 ``[B]``, ``out`` is ``[B, F]``, contiguous; missed rows stay, and rows of invalid ids or locations
    become zeros. ``counts``, int64 ``[MAX_SHARDS + 1]``, grows by the rows of each shard, and of none; ``error``, int64
    ``[1]``, is for :func:`.raise_error`.

    Rows of the backing are read by ``far_blocks`` blocks (None: :func:`blocks_on_bus`) in the order ``far``, which
    :func:`order_missed` made of these ids; without one, by all blocks as they come, which is faster where they are few.
    ``codes`` are decoded as by :func:`.gather_rows`. At ``counts_address`` as many words of mapped memory follow
    ``counts``, though a block's earlier one may come last (:class:`MissCounts`). Raises GnnLoadError for shapes or
    dtypes that do not fit.
    """
    check_tensor("ids", ids, torch.int64, 1)
    out_bytes = table.row_bytes * codes.itemsize
    if len(out) != len(ids) or row_bytes_of(out) != out_bytes:
        raise GnnLoadError(
            f"out is {form_of(out)}, but for {len(ids)} ids as many rows of {out_bytes} bytes are needed."
        )
    if not len(ids) or not table.row_bytes:
        return
    # Address 0 is a multiple of everything, so that it does not narrow the vectors.
    backing_at = 0 if table.backing is None else address_of(table.backing)
    shape = move_shape(device, len(ids), table.row_bytes, table.alignment, backing_at, to=out.data_ptr(), codes=codes)
    # Rows that come over the bus have separate blocks, so that no others wait for them (UGache, section 5).
    num_far = 0
    if far.entries is not None:
        num_far = max(min(blocks_on_bus(device) if far_blocks is None else far_blocks, shape.blocks), 1)
    device.launch(
        "gather_tiered",
        "gather_tiered",
        (shape.vector, codes.format),
        blocks=shape.blocks + num_far,
        threads=MOVE_THREADS,
        table=table,
        ids=ids,
        count=len(ids),
        far=far,
        far_blocks=num_far,
        shape=shape,
        columns=codes,
        out=as_bytes_of(out),
        taken=counts.data_ptr(),
        host_counts=counts_address,
        error=error.data_ptr(),
    )


class MissCounts:
    """What a table's gathers took so far, in mapped memory to which kernels write it, so that the host can look without
    a wait; it may miss a batch or two. Thread-safe, as any of what it has said will do. Raises DeviceMemoryError where
    no page can be page-locked."""

    def __init__(self, device: Device) -> None:
        self._counts = device.map_host(np.zeros(MAX_SHARDS + 1, np.int64))
        self._before = [0] * (MAX_SHARDS + 1)
        self._missed_share = 1.0  # all, until a batch has been seen

    @property
    def address(self) -> int:
        """Where :func:`gather_tiered` writes them."""
        return self._counts.address

    def expects_few(self, count: int) -> bool:
        """Tells whether of ``count`` rows so few will be missed, going by the last batches, that reading them as they
        come takes no longer than putting them in order would."""
        counts = self._counts.tensor.tolist()
        num_rows = sum(counts) - sum(self._before)
        if num_rows > 0:  # else no batch has ended since
            self._missed_share = (counts[-1] - self._before[-1]) / num_rows
            self._before = counts
        return self._missed_share * count < max(FEW_READS, count * _FEW_SHARE)


def list_missed(
    device: Device,
    location: torch.Tensor,
    ids: torch.Tensor,
    missed_ids: torch.Tensor | int,
    missed_positions: torch.Tensor,
) -> torch.Tensor:
    """Lists the ids that no shard has, in order, as :func:`.ops.gather_tiered` does: their number, int64 ``[1]`` on the
    device. Their ids and positions in ``ids`` become the first entries of ``missed_ids``, which may be the address of
    mapped memory, and ``missed_positions``, int64 ``[B]`` or longer. Invalid ids are not missed."""
    check_tensor("location", location, torch.int32, 1)
    check_tensor("ids", ids, torch.int64, 1)
    num_missed = device.zeros(1, torch.int64)
    tiles = scan_tiles(len(ids))
    device.launch(
        "gather_tiered",
        "list_missed",
        blocks=scan_blocks(device, tiles),
        threads=MOVE_THREADS,
        location=location,
        num_nodes=len(location),
        ids=ids,
        count=len(ids),
        missed_ids=missed_ids,
        missed_positions=missed_positions,
        num_missed=num_missed,
        words=device.zeros(1 + tiles, torch.int64),
    )
    return num_missed
