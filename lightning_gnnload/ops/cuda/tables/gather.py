"""Gathers rows of one table on a device, and raises the errors of gathers.

Nothing here waits for the device. Errors stay in a word on the device until somebody reads it; the rows concerned are
zeros meanwhile, and no memory outside the table is read. That word and the counts of rows grow by atomics, so several
streams may share them, and kernels get them as addresses, since no single stream owns them.

Shapes: N rows of the table, B requested ids, R rows of the output, F feature width.
"""

from __future__ import annotations

import torch

from ....errors import CacheShareError, GnnLoadError, SeedError
from ..launch.device import Device, Mapped
from ..launch.state import BAD_ID, BAD_LOCATION, BAD_POSITION, decode_error
from .bus_order import AS_THEY_COME, FEW_READS, Reads, can_order, order_reads
from .rows import (
    AS_BYTES,
    MOVE_THREADS,
    RowCodes,
    Table,
    address_of,
    as_bytes_of,
    blocks_on_bus,
    check_tensor,
    form_of,
    move_shape,
    row_bytes_of,
)


def gather_rows(
    device: Device,
    table: Table,
    ids: torch.Tensor | None,
    out: torch.Tensor,
    error: torch.Tensor,
    positions: torch.Tensor | None = None,
    codes: RowCodes = AS_BYTES,
) -> None:
    """Copies row ``ids[b]`` of a table to ``out[b]``, or to ``out[positions[b]]``; equals :func:`.ops.gather_rows`.

    ``table`` is ``[N, F]`` or ``[N]``, on the device or mapped; ``ids`` int64 ``[B]``, None for 0, 1, 2, ...;
    ``positions`` int64 ``[B]``, distinct. ``out`` is contiguous with the table's dtype; a row of an invalid id becomes
    zeros, and rows that are nobody's position stay. Of a mapped table rows are read in order (:mod:`.bus_order`).
    ``error``, int64 ``[1]``, is for :func:`raise_error`.

    With ``codes``, which equals :func:`.ops.gather_quantized`, the table has int8 rows, or the same as bytes, and
    ``out`` what they decode to, or the same as bytes; a row of an invalid id becomes that of zeros. Raises GnnLoadError
    for shapes or dtypes that do not fit.
    """
    out_bytes = row_bytes_of(out)
    host = table.tensor if isinstance(table, Mapped) else table
    row_bytes = row_bytes_of(host)
    if (host.dtype != out.dtype and codes is AS_BYTES) or row_bytes * codes.itemsize != out_bytes:
        raise GnnLoadError(
            f"out is {form_of(out)}, but the table is {form_of(host)}: dtypes and rows have to be the same"
            + ("." if codes.dtype is None else f", once codes are {codes.dtype}.")
        )
    count = _count_rows(ids, positions, out)
    if not count or not row_bytes:
        return
    shape = move_shape(device, count, row_bytes, address_of(table), to=out.data_ptr(), codes=codes)
    order, blocks = AS_THEY_COME, shape.blocks
    if isinstance(table, Mapped):
        # More blocks would only take processors from other kernels.
        blocks = min(blocks, blocks_on_bus(device))
        if ids is not None and count >= FEW_READS and can_order(count, len(host)):
            order = order_reads(device, Reads(ids, count, len(host)))
    device.launch(
        "gather_rows",
        "gather_rows",
        (shape.vector, codes.format),
        blocks=blocks,
        threads=MOVE_THREADS,
        table=as_bytes_of(table),
        num_rows=len(host),
        ids=ids,
        order=order,
        positions=positions,
        count=count,
        shape=shape,
        columns=codes,
        out=as_bytes_of(out),
        num_out=len(out),
        error=error.data_ptr(),
    )


def _count_rows(ids: torch.Tensor | None, positions: torch.Tensor | None, out: torch.Tensor) -> int:
    """Returns how many rows are gathered. Raises GnnLoadError where ids, positions and output do not fit."""
    count = len(out)
    for name, numbers in (("positions", positions), ("ids", ids)):
        if numbers is not None:
            check_tensor(name, numbers, torch.int64, 1)
            count = len(numbers)
    if (positions is None and count > len(out)) or (positions is not None and count != len(positions)):
        raise GnnLoadError(
            f"{count} ids were given, but out is {form_of(out)}, and there are "
            f"{'no' if positions is None else len(positions)} positions: one place for each id is needed."
        )
    return count


def raise_error(word: int, num_rows: int) -> None:
    """Raises the error of a word that was read from the device, if any: SeedError for an id outside ``[0, N)`` or a
    position outside the output, CacheShareError for a location that names no row of a shard."""
    error = decode_error(word)
    if error is None:
        return
    code, position = error
    if code == BAD_ID:
        raise SeedError(
            f"ids[{position}] of a batch is no row of the table, which has {num_rows}: ids lie in [0, {num_rows})."
        )
    if code == BAD_POSITION:
        raise SeedError(f"positions[{position}] of a batch is no row of its output.")
    if code == BAD_LOCATION:
        raise CacheShareError(
            f"the cache says that the row of ids[{position}] of a batch is in a slot that no shard has: its table of "
            f"locations is damaged, or belongs to other shards."
        )
    raise GnnLoadError(f"a gather on the device reports error {code}, at {position}.")
