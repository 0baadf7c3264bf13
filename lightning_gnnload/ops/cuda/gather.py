"""Rows of one table, gathered on a device; and what gathers say of their errors.

Nothing here waits for the device. What kernels find wrong is kept in a word on the device until somebody reads it; the
rows concerned are zeros meanwhile, and no memory is read that is not the table's. That word and the counts of rows grow
by atomics, so several streams may share them, and are handed over as addresses, which no stream owns.

Shapes: N rows of the table, B requested ids, R rows of the output, F feature width.
"""

from __future__ import annotations

import torch

from ...errors import CacheShareError, GnnLoadError, SeedError
from .device import Device, Mapped
from .rows import (
    MOVE_THREADS,
    Table,
    address_of,
    blocks_on_bus,
    bytes_of,
    check_numbers,
    form_of,
    move_shape,
    row_bytes_of,
)
from .state import BAD_ID, BAD_LOCATION, BAD_POSITION, decode_error


def gather_rows(
    device: Device,
    table: Table,
    ids: torch.Tensor | None,
    out: torch.Tensor,
    error: torch.Tensor,
    positions: torch.Tensor | None = None,
) -> None:
    """Copies row ``ids[b]`` of a table to ``out[b]``, or to ``out[positions[b]]``; equals :func:`.ops.gather_rows`.

    Args:
        table: ``[N, F]`` or ``[N]``, on the device or mapped.
        ids: int64 ``[B]``; None for 0, 1, 2, ..., as many as there are positions, or else rows of ``out``.
        out: ``[B, F]``, with ``positions`` ``[R, F]``; contiguous, with the table's dtype. Zeros where an id is none.
        error: int64 ``[1]``, 0 where nothing went wrong yet; see :func:`raise_error`.
        positions: int64 ``[B]``, distinct, in ``[0, R)``; rows that are no one's are left alone.

    Raises:
        GnnLoadError: shapes or dtypes that do not fit each other.
    """
    row_bytes = row_bytes_of(out)
    host = table.tensor if isinstance(table, Mapped) else table
    if host.dtype != out.dtype or row_bytes_of(host) != row_bytes:
        raise GnnLoadError(
            f"out is {form_of(out)}, but the table is {form_of(host)}: dtypes and rows have to be the same."
        )
    count = len(out)
    for name, numbers in (("positions", positions), ("ids", ids)):
        if numbers is not None:
            check_numbers(name, numbers, torch.int64, 1)
            count = len(numbers)
    if (positions is None and count > len(out)) or (positions is not None and count != len(positions)):
        raise GnnLoadError(
            f"{count} ids were given, but out is {form_of(out)}, and there are "
            f"{'no' if positions is None else len(positions)} positions: one place for each id is needed."
        )
    if not count or not row_bytes:
        return
    shape = move_shape(device, count, row_bytes, address_of(table), out.data_ptr())
    device.launch(
        "gather_rows",
        "gather_rows",
        (shape.vector,),
        blocks=min(shape.blocks, blocks_on_bus(device)) if isinstance(table, Mapped) else shape.blocks,
        threads=MOVE_THREADS,
        table=bytes_of(table),
        num_rows=len(host),
        ids=ids,
        positions=positions,
        count=count,
        shape=shape,
        out=bytes_of(out),
        num_out=len(out),
        error=error.data_ptr(),
    )


def raise_error(word: int, num_rows: int) -> None:
    """Raises the error that an error word stands for, if any.

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
