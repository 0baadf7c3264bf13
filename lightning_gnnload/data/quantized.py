"""QuantizedFeatureStore: features of one byte a number, with a scale and an offset for each column."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, Reads, TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.tables import as_store
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.host.pages import scratch_rows

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class QuantizedFeatureStore(FeatureStore):
    """Stores features as 8-bit codes, which a gather decodes as ``codes * scale + offset``: they take a quarter of
    float32's memory.

    :func:`.quantize` makes one. Codes of another quantiser work as well, if they are linear in each column.

    Args:
        codes: int8 ``[N, F]``: array, tensor, or a store of such rows: on disk, or a cache in front of it, which then
            holds four times the rows.
        scale: ``[F]``, not negative; a column of scale 0 is all offset.
        offset: ``[F]``; zeros when None.
        dtype: of the gathered rows: float32, float16 or bfloat16. The arithmetic is float32's, rounded at the end.

    Shapes: N graph nodes, F feature width.

    Raises:
        GraphDataError: codes that are not int8, columns that are not finite, or values beyond ``dtype``.

    Example:
        >>> store = QuantizedFeatureStore(torch.tensor([[0], [-4]], dtype=torch.int8), scale=[0.5], offset=[10])
        >>> out = torch.empty(1, 1)
        >>> store.gather(torch.tensor([1]), out)
        (TierReads(tier='memory', rows=1, num_bytes=1),)
        >>> out.item()
        8.0
    """

    def __init__(self, codes: Any, scale: Any, offset: Any = None, dtype: torch.dtype = torch.float32) -> None:
        self.codes = as_store(codes, name="codes")
        if self.codes.dtype is not torch.int8:
            raise GraphDataError(f"codes are {self.codes.dtype}, but must be torch.int8, as quantize(x) makes them.")
        if dtype not in DTYPES:
            raise GraphDataError(f"dtype is {dtype}, but must be one of {', '.join(map(str, DTYPES))}.")
        width = self.codes.shape[1]
        self.scale = _column("scale", scale, width)
        self.offset = _column("offset", np.zeros(width, np.float32) if offset is None else offset, width)
        if bool((self.scale < 0).any()):
            raise GraphDataError(f"scale is negative for column {int((self.scale < 0).nonzero()[0])}.")
        self._dtype = dtype
        if bool((self._reach > torch.finfo(dtype).max).any()):
            column = int(self._reach.argmax())
            raise GraphDataError(
                f"column {column} has values up to {self._reach[column]:.4g} on either side of 0, which {dtype} cannot "
                f"hold. Use float32, or scale the features down."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def error_bound(self) -> torch.Tensor:
        """How far a value of each column may be from the one that was quantised: float64 ``[F]``.

        Half a step, for rounding to a code, and what rounding the floats adds. The root of the mean square is about
        ``scale / 12**0.5``, where a column's values are spread over many steps.
        """
        # Of the product and the sum in float32, and of the result in the dtype; subnormal results have fewer digits.
        roundings = 2 * torch.finfo(torch.float32).eps + torch.finfo(self.dtype).eps / 2
        smallest = torch.finfo(self.dtype).smallest_normal * torch.finfo(self.dtype).eps
        return self.scale.double() / 2 + self._reach * roundings + smallest

    def over(self, codes: FeatureStore) -> QuantizedFeatureStore:
        """Returns the same features with bytes taken from another store, such as a cache in front of ``codes``."""
        return QuantizedFeatureStore(codes, self.scale, self.offset, self.dtype)

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads | None:
        return self._gather(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads | None:
        return self._gather(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        self.codes.announce(request)

    def close(self) -> None:
        self.codes.close()

    @property
    def _reach(self) -> torch.Tensor:
        """The largest absolute value that each column can have."""
        low, high = (self.offset.double() + code * self.scale.double() for code in (-128, 127))
        return torch.maximum(low.abs(), high.abs())

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads | None:
        if isinstance(self.codes, MemoryFeatureStore):
            self._dequantize(self.codes.rows, ids, positions, out)
            return (TierReads("memory", len(ids), len(ids) * self.shape[1]),)
        with scratch_rows(len(ids), self.shape[1], torch.int8) as codes:
            reads = self.codes.gather(ids, codes)
            self._dequantize(codes, torch.arange(len(ids)), positions, out)
        return reads

    def _dequantize(
        self, codes: torch.Tensor, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor
    ) -> None:
        # NumPy has no bfloat16.
        floats = out.view(torch.uint16) if self.dtype is torch.bfloat16 else out
        ops.gather_quantized(
            codes.numpy(),
            self.scale.numpy(),
            self.offset.numpy(),
            ids.numpy(),
            floats.numpy(),
            None if positions is None else positions.numpy(),
        )

    def __repr__(self) -> str:
        return f"QuantizedFeatureStore(shape={self.shape}, dtype={self.dtype})"


def _column(name: str, values: Any, width: int) -> torch.Tensor:
    column = as_rows(values, name=name)
    if column.ndim != 1 or len(column) != width:
        raise GraphDataError(f"{name} has shape {list(column.shape)}, but one number a column is needed: [{width}].")
    column = column.float().clone()
    if not bool(column.isfinite().all()):
        raise GraphDataError(f"{name} is {column[~column.isfinite()][0]} for some column; float32 numbers are needed.")
    return column
