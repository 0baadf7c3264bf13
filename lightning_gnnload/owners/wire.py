"""WireRows: the rows of a table as owners send them, as they are or rounded to fewer bytes."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch

from lightning_gnnload.data.features import byte_rows
from lightning_gnnload.errors import ExchangeError, LoaderConfigError
from lightning_gnnload.settings import check_one_of

Wire = Literal["exact", "float16", "bfloat16", "int8"]
"""How rows of real numbers travel."""
_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_PIECE_BYTES = 1 << 20
"""Rows are widened piece by piece: one of this size is still in the cache when it is put in its place."""
_SCALE_BYTES = 4


class WireRows:
    """The form on the wire of rows of one table. What a row becomes depends on the row and the setting alone.

    ``"float16"`` and ``"bfloat16"`` round each number to the nearest, ties to even; float64 by way of float32.
    ``"int8"`` sends a row's largest absolute value by 127, float32, and each number as the nearest multiple of it, one
    byte. Whole numbers, codes of quantised tables, and rows that would take no fewer bytes go as they are.

    Numbers of a row are off by at most 2^-11 of themselves with ``"float16"``, or 2^-25 where that is more; by 2^-8 of
    themselves with ``"bfloat16"``; by 1/254 of the row's largest with ``"int8"``. To this comes the rounding of
    float32, and of a table's own dtype where that is narrower.

    Args:
        wire: the setting.
        dtype: of the table.
        width: numbers a row.

    Raises:
        LoaderConfigError: there is no such setting.

    Example:
        >>> form = WireRows("int8", torch.float32, 8)
        >>> form.row_bytes, WireRows("int8", torch.int64, 8).row_bytes
        (12, 64)
        >>> out = torch.empty(1, 8)
        >>> form.unpack(form.pack(torch.arange(8.0).mul(18.5).view(1, 8), "x"), byte_rows(out))
        >>> [round(value, 2) for value in out[0].tolist()]
        [0.0, 18.35, 36.71, 55.06, 74.44, 92.79, 111.15, 129.5]
    """

    def __init__(self, wire: Wire, dtype: torch.dtype, width: int) -> None:
        check_one_of("wire", wire, get_args(Wire), LoaderConfigError)
        exact_bytes = width * dtype.itemsize
        rounded_bytes = _SCALE_BYTES + width if wire == "int8" else 2 * width
        self.wire, self.dtype, self.width = wire, dtype, width
        self.is_exact = wire == "exact" or not dtype.is_floating_point or rounded_bytes >= exact_bytes
        self.row_bytes = exact_bytes if self.is_exact else rounded_bytes

    def pack(self, rows: torch.Tensor, table: str) -> np.ndarray:
        """Returns rows ``[B, F]`` as they travel, uint8 ``[B, row_bytes]``: a view of them where they go as they are.

        Raises:
            ExchangeError: a finite number of ``table`` is beyond what the setting can hold; or it is NaN or infinite,
                of which ``"int8"`` has none.
        """
        if self.is_exact:
            return byte_rows(rows)
        values = rows.float()
        if self.wire == "int8":
            # Not smaller: arithmetic on subnormal numbers is not the same everywhere.
            scale = (values.abs().amax(1, keepdim=True) / 127).clamp(min=torch.finfo(torch.float32).smallest_normal)
            self._check((scale * 127).isfinite().expand_as(rows), rows, table)
            codes = (values / scale).round().to(torch.int8)
            return torch.cat([scale.view(torch.uint8), codes.view(torch.uint8)], 1).numpy()
        halves = values.to(_HALVES[self.wire])
        if halves.isinf().any():
            self._check(~halves.isinf() | rows.isinf(), rows, table)
        return halves.view(torch.uint8).numpy()

    def unpack(self, packed: np.ndarray, out: np.ndarray, positions: np.ndarray | None = None) -> None:
        """Widens packed rows, uint8 ``[B, row_bytes]``, into ``out`` uint8 ``[*, F * itemsize]`` of the table's dtype:
        in their order, or at ``positions`` int64 ``[B]``."""
        if not out.size:
            return
        typed = torch.from_numpy(out).view(self.dtype)
        step = max(_PIECE_BYTES // out.shape[1], 1)
        for begin in range(0, len(packed), step):
            # A copy, as rows that came behind others lie at any address.
            rows = self._widened(torch.from_numpy(packed[begin : begin + step].copy()))
            if positions is None:
                typed[begin : begin + len(rows)] = rows
            else:
                typed[torch.from_numpy(positions[begin : begin + step])] = rows.to(self.dtype)

    def _widened(self, packed: torch.Tensor) -> torch.Tensor:
        if self.is_exact:
            return packed.view(self.dtype)
        if self.wire == "int8":
            # contiguous() would leave one row as it is, whose stride need not be a multiple of the scale's bytes.
            scale = packed[:, :_SCALE_BYTES].clone(memory_format=torch.contiguous_format).view(torch.float32)
            return packed[:, _SCALE_BYTES:].view(torch.int8).float() * scale
        return packed.view(_HALVES[self.wire])

    def _check(self, is_sound: torch.Tensor, rows: torch.Tensor, table: str) -> None:
        if is_sound.all():
            return
        unsound = rows[~is_sound]
        value = unsound[unsound.abs().argmax()].item()  # NaN, where there is one
        raise ExchangeError(
            f"the table {table!r} has {value}, which wire={self.wire!r} cannot hold. Scale the table or replace such "
            "values, or give another setting: 'bfloat16' reaches as far as float32, 'exact' changes nothing."
        )
