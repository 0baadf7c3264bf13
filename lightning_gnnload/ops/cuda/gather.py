"""Rows of feature tables, gathered on a device: from one table, or from the shards that hold a cache.

Nothing here waits for the device. What kernels find wrong is kept in a word on the device until somebody reads it; the
rows concerned are zeros meanwhile, and no memory is read that is not the table's. That word and the counts of rows grow
by atomics, so several streams may share them, and are handed over as addresses, which no stream owns.

Shapes: N graph nodes, B requested ids, R rows of the output, F feature width, S shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...errors import CacheShareError, GnnLoadError, SeedError
from ..tiers import MAX_SHARDS
from .device import Device, Mapped
from .state import BAD_ID, BAD_LOCATION, BAD_POSITION, decode_error

MOVE_THREADS = 256
"""Of a block that moves rows or sums (kernels/common/cuda)."""
_WARPS = MOVE_THREADS // 32
_BLOCKS_A_PROCESSOR = 8
_WARP_BYTES = 4096
"""That a warp moves at a time: enough to hide where it looks rows up, and little enough to share out small batches."""
_MAX_ROW_BYTES = 1 << 26
_VECTORS = {16: "uint4", 8: "uint2", 4: "uint32_t", 2: "uint16_t", 1: "uint8_t"}

Table = torch.Tensor | Mapped


@dataclass(frozen=True)
class TieredTable:
    """A table of which shards hold a part; what :func:`.ops.gather_tiered` takes, on a device.

    Attributes:
        location: int32 ``[N]``: ``shard << SLOT_BITS | slot``; negative where no shard holds the node's row.
        addresses: int64 ``[S]``, on the device: where each shard's first row is.
        num_rows: int64 ``[S]``, on the device: of each shard.
        alignment: bytes, a power of two that divides all addresses.
        row_bytes: of one row; rows of shards follow each other.
        backing: all rows, ``[N, F]``, which the device can read; None: what no shard holds is missed.
    """

    location: torch.Tensor
    addresses: torch.Tensor
    num_rows: torch.Tensor
    alignment: int
    row_bytes: int
    backing: Table | None = None

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
        """The table whose shards begin at these addresses.

        Raises:
            GnnLoadError: more shards than a location can name, or arrays that do not fit each other.
        """
        _check("location", location, torch.int32, 1)
        if len(addresses) != len(num_rows) or len(addresses) > MAX_SHARDS:
            raise GnnLoadError(
                f"{len(addresses)} shards with {len(num_rows)} numbers of rows were given; a location can name "
                f"{MAX_SHARDS} shards at most, and each has its number of rows."
            )
        if backing is not None and _shape(backing)[0] != len(location):
            raise GnnLoadError(f"backing has {_shape(backing)[0]} rows, but {len(location)} nodes have locations.")
        return cls(
            location,
            device.put(np.array(addresses, np.int64)),
            device.put(np.array(num_rows, np.int64)),
            _alignment(*addresses),
            row_bytes,
            backing,
        )


def gather_rows(
    device: Device,
    table: Table,
    ids: torch.Tensor | None,
    out: torch.Tensor,
    error: torch.Tensor,
    positions: torch.Tensor | None = None,
) -> None:
    """Row ``ids[b]`` of a table to ``out[b]``, or to ``out[positions[b]]``; equals :func:`.ops.gather_rows`.

    Args:
        table: ``[N, F]`` or ``[N]``, on the device or mapped.
        ids: int64 ``[B]``; None for 0, 1, 2, ..., as many as there are positions, or else rows of ``out``.
        out: ``[B, F]``, with ``positions`` ``[R, F]``; contiguous, with the table's dtype. Zeros where an id is none.
        error: int64 ``[1]``, 0 where nothing went wrong yet; see :func:`raise_error`.
        positions: int64 ``[B]``, distinct, in ``[0, R)``; rows that are no one's are left alone.

    Raises:
        GnnLoadError: shapes or dtypes that do not fit each other.
    """
    row_bytes = _row_bytes(out)
    host = table.tensor if isinstance(table, Mapped) else table
    if host.dtype != out.dtype or _row_bytes(host) != row_bytes:
        raise GnnLoadError(f"out is {_form(out)}, but the table is {_form(host)}: dtypes and rows have to be the same.")
    count = len(out)
    for name, numbers in (("positions", positions), ("ids", ids)):
        if numbers is not None:
            _check(name, numbers, torch.int64, 1)
            count = len(numbers)
    if (positions is None and count > len(out)) or (positions is not None and count != len(positions)):
        raise GnnLoadError(
            f"{count} ids were given, but out is {_form(out)}, and there are "
            f"{'no' if positions is None else len(positions)} positions: one place for each id is needed."
        )
    if not count or not row_bytes:
        return
    vector, row_vectors, rows_a_warp, blocks = move_shape(device, count, row_bytes, _address(table), out.data_ptr())
    device.launch(
        "gather_rows",
        "gather_rows",
        (vector,),
        blocks=min(blocks, blocks_on_bus(device)) if isinstance(table, Mapped) else blocks,
        threads=MOVE_THREADS,
        table=_bytes(table),
        num_rows=len(host),
        ids=ids,
        positions=positions,
        count=count,
        row_vectors=row_vectors,
        rows_a_warp=rows_a_warp,
        out=_bytes(out),
        num_out=len(out),
        error=error.data_ptr(),
    )


def gather_tiered(
    device: Device,
    table: TieredTable,
    ids: torch.Tensor,
    out: torch.Tensor,
    taken: torch.Tensor,
    error: torch.Tensor,
    host_blocks: int | None = None,
) -> None:
    """Row ``ids[b]`` to ``out[b]`` from where it is; equals :func:`.ops.gather_tiered`.

    Args:
        table: of which shards hold a part.
        ids: int64 ``[B]``.
        out: ``[B, F]``, contiguous. Places of missed rows are left alone; zeros where an id or a location is none.
        taken: int64 ``[MAX_SHARDS + 1]``, which grows by the rows of each shard, and of none.
        error: int64 ``[1]``, 0 where nothing went wrong yet; see :func:`raise_error`.
        host_blocks: that read rows of the host's memory; None for :func:`blocks_on_bus`.

    Raises:
        GnnLoadError: shapes or dtypes that do not fit each other.
    """
    _check("ids", ids, torch.int64, 1)
    if len(out) != len(ids) or _row_bytes(out) != table.row_bytes:
        raise GnnLoadError(
            f"out is {_form(out)}, but for {len(ids)} ids as many rows of {table.row_bytes} bytes are needed."
        )
    if not len(ids) or not table.row_bytes:
        return
    backing_at = 0 if table.backing is None else _address(table.backing)
    vector, row_vectors, rows_a_warp, near = move_shape(
        device, len(ids), table.row_bytes, table.alignment, backing_at, out.data_ptr()
    )
    far = 0 if table.backing is None else min(blocks_on_bus(device) if host_blocks is None else host_blocks, near)
    device.launch(
        "gather_tiered",
        "gather_tiered",
        (vector,),
        blocks=near + far,
        threads=MOVE_THREADS,
        location=table.location,
        num_nodes=len(table.location),
        addresses=table.addresses,
        shard_rows=table.num_rows,
        num_shards=len(table.num_rows),
        backing=None if table.backing is None else _bytes(table.backing),
        ids=ids,
        count=len(ids),
        row_vectors=row_vectors,
        rows_a_warp=rows_a_warp,
        host_blocks=far,
        out=_bytes(out),
        taken=taken.data_ptr(),
        error=error.data_ptr(),
    )


def list_missed(
    device: Device,
    location: torch.Tensor,
    ids: torch.Tensor,
    missed_ids: torch.Tensor | int,
    missed_positions: torch.Tensor,
) -> torch.Tensor:
    """The ids that no shard holds, in the order of ``ids``, as :func:`.ops.gather_tiered` lists them.

    Args:
        location: int32 ``[N]``.
        ids: int64 ``[B]``; those that are none are not missed.
        missed_ids: int64 ``[B]`` or longer, whose first entries are written; or the address of mapped memory.
        missed_positions: likewise: where in ``ids`` they are.

    Returns:
        How many, int64 ``[1]`` on the device.
    """
    _check("location", location, torch.int32, 1)
    _check("ids", ids, torch.int64, 1)
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


def raise_error(word: int, num_rows: int) -> None:
    """Raises what an error word says.

    Args:
        word: read from the device.
        num_rows: N, of the table.

    Raises:
        SeedError: an id outside ``[0, N)``, or a position outside the output.
        CacheShareError: a location that names no row of a shard.
    """
    error = decode_error(word)
    if error is None:
        return
    code, place = error
    if code == BAD_ID:
        raise SeedError(
            f"ids[{place}] of a batch is no row of the table, which has {num_rows}: ids lie in [0, {num_rows})."
        )
    if code == BAD_POSITION:
        raise SeedError(f"positions[{place}] of a batch is no row of its output.")
    if code == BAD_LOCATION:
        raise CacheShareError(
            f"the cache says that the row of ids[{place}] of a batch is in a slot that no shard has: its table of "
            f"locations is damaged, or belongs to other shards."
        )
    raise GnnLoadError(f"a gather on the device reports error {code}, at {place}.")


def blocks_on_bus(device: Device) -> int:
    """How many blocks read the host's memory: with 16 KB under way each, an eighth of the processors keeps a line of
    50 GB/s full for 5 us, several times as long as a read takes; more would keep others waiting. Not measured."""
    return max(device.num_processors // 8, 1)


def scan_tiles(count: int) -> int:
    """Tiles of a sum over so many items (kernels/common/cuda/scan.h)."""
    return max(-(-count // MOVE_THREADS), 1)


def scan_blocks(device: Device, tiles: int) -> int:
    """Blocks that share the tiles of a sum."""
    return min(tiles, device.num_processors * _BLOCKS_A_PROCESSOR)


def move_shape(device: Device, count: int, row_bytes: int, *addresses: int) -> tuple[str, int, int, int]:
    """How ``count`` rows are moved between addresses: type and number of the vectors of a row, the widest that divide
    it and them; rows that a warp takes at a time; and blocks."""
    if row_bytes >= _MAX_ROW_BYTES:
        raise GnnLoadError(f"rows have {row_bytes} bytes, but rows below {_MAX_ROW_BYTES} bytes are needed.")
    vector = min(_alignment(row_bytes, *addresses), max(_VECTORS))
    rows_a_warp = min(max(_WARP_BYTES // row_bytes, 1), 32)
    blocks = min(-(-count // (rows_a_warp * _WARPS)), device.num_processors * _BLOCKS_A_PROCESSOR)
    return _VECTORS[vector], row_bytes // vector, rows_a_warp, blocks


def _alignment(*numbers: int) -> int:
    """The largest power of two up to 256 that divides all."""
    joined = 256
    for number in numbers:
        joined |= number
    return joined & -joined


def _bytes(table: Table) -> torch.Tensor | int:
    """As kernels take rows of any dtype."""
    return table.address if isinstance(table, Mapped) else table.reshape(-1).view(torch.uint8)


def _address(table: Table) -> int:
    return table.address if isinstance(table, Mapped) else table.data_ptr()


def _shape(table: Table) -> torch.Size:
    return (table.tensor if isinstance(table, Mapped) else table).shape


def _row_bytes(rows: torch.Tensor) -> int:
    if rows.ndim not in (1, 2) or not rows.is_contiguous():
        raise GnnLoadError(f"rows are {_form(rows)}, but must be contiguous, of one or two dimensions.")
    return rows.element_size() * (rows.shape[1] if rows.ndim == 2 else 1)


def _check(name: str, numbers: torch.Tensor, dtype: torch.dtype, ndim: int) -> None:
    if numbers.dtype != dtype or numbers.ndim != ndim or not numbers.is_contiguous():
        raise GnnLoadError(f"{name} is {_form(numbers)}, but contiguous {dtype} of {ndim} dimension(s) is needed.")


def _form(rows: torch.Tensor) -> str:
    return f"{rows.dtype} of shape {list(rows.shape)}"
