"""quantize: features as one byte a number, and the error that this makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.data.tables import as_store
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.host.progress import progress as progress_bar

_CHUNK_NUMBERS = 1 << 20  # 8 MiB as float64, in which ranges and errors are computed


def quantize(
    rows: Any, *, dtype: torch.dtype = torch.float32, out: np.ndarray | None = None, progress: bool = True
) -> QuantizedFeatureStore:
    """Quantises features to one byte a number. Each column's range is cut into 255 equal steps; a constant column stays
    exact.

    The rows are read twice, a million numbers at a time, so they may lie on disk.

    Args:
        rows: ``[N, F]``: array, tensor or :class:`FeatureStore`.
        dtype: of the rows that the store gathers.
        out: int8 ``[N, F]`` for the codes, such as a memory map; None: in memory.
        progress: show a bar on stderr.

    Raises:
        GraphDataError: NaN or infinite values, numbers beyond ``dtype``, or no table of numbers.

    Example:
        >>> store = quantize(torch.tensor([[0.0, 7.0], [51.0, 7.0], [20.1, 7.0]]), progress=False)
        >>> store.scale.tolist(), store.offset.tolist()
        ([0.20000000298023224, 0.0], [25.600000381469727, 7.0])
        >>> quantization_error([[0.0, 7.0], [51.0, 7.0], [20.1, 7.0]], store, progress=False).max[1].item()
        0.0
    """
    store = as_store(rows, name="features to quantise")
    if store.dtype.is_complex:
        raise GraphDataError(f"features are {store.dtype}; only real numbers can be quantised.")
    num_rows, width = store.shape
    codes = np.empty((num_rows, width), np.int8) if out is None else out
    if codes.shape != (num_rows, width) or codes.dtype != np.int8:
        raise GraphDataError(f"out is {codes.dtype} {list(codes.shape)}, but int8 {[num_rows, width]} is needed.")
    low = torch.full((width,), torch.inf, dtype=torch.float64)
    high = -low
    with progress_bar("Quantising", 2 * num_rows, show=progress) as advance:
        for first, values in _chunks(store):
            _check_finite(first, values)
            low, high = torch.minimum(low, values.amin(0)), torch.maximum(high, values.amax(0))
            advance(len(values))
        if num_rows == 0:
            low, high = torch.zeros_like(low), torch.zeros_like(high)
        # A step that float32 holds with all its digits: arithmetic on smaller ones is not the same everywhere.
        step = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).smallest_normal)
        scale = torch.where(high > low, step, 0).float()
        # Codes are signed: -128 stands for the lowest value. The scale is float32 by now, as decoding has it.
        offset = torch.where(high > low, low + 128 * scale.double(), low).float()
        # Made before its codes are filled in, so that values beyond ``dtype`` are an error before the second pass.
        quantized = QuantizedFeatureStore(tensor_view(codes), scale, offset, dtype)
        divisor = torch.where(scale > 0, scale.double(), 1)
        for first, values in _chunks(store):
            nearest = ((values - offset.double()) / divisor).round().clamp(-128, 127)
            codes[first : first + len(values)] = nearest.to(torch.int8).numpy()
            advance(len(values))
    return quantized


class QuantizationError(NamedTuple):
    """Each column's error of quantization, float64 ``[F]``: the largest, and the root of the mean square."""

    max: torch.Tensor
    rms: torch.Tensor


def quantization_error(rows: Any, quantized: FeatureStore, *, progress: bool = True) -> QuantizationError:
    """Measures how far ``quantized`` is from ``rows``; both are read once, a million numbers at a time.

    Args:
        rows: ``[N, F]``: array, tensor or :class:`FeatureStore`.
        quantized: another store of the same shape.
        progress: show a bar on stderr.

    Raises:
        GraphDataError: shapes that differ.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [255.0]])
        >>> quantization_error(x, quantize(x, progress=False), progress=False).max.item()
        0.0
    """
    store = as_store(rows, name="features")
    if store.shape != quantized.shape:
        raise GraphDataError(f"features are {list(store.shape)}, but the quantised ones {list(quantized.shape)}.")
    largest = torch.zeros(store.shape[1], dtype=torch.float64)
    squares = torch.zeros_like(largest)
    with progress_bar("Comparing", store.shape[0], show=progress) as advance:
        for (_, values), (_, decoded) in zip(_chunks(store), _chunks(quantized), strict=True):
            difference = (values - decoded).abs()
            largest = torch.maximum(largest, difference.amax(0))
            squares += difference.square().sum(0)
            advance(len(values))
    return QuantizationError(largest, (squares / max(store.shape[0], 1)).sqrt())


def _chunks(store: FeatureStore) -> Iterator[tuple[int, torch.Tensor]]:
    """Yields the rows in turn, as float64, each chunk with the number of its first row."""
    num_rows, width = store.shape
    step = max(_CHUNK_NUMBERS // max(width, 1), 1)
    for first in range(0, num_rows, step):
        ids = torch.arange(first, min(first + step, num_rows))
        chunk = torch.empty(len(ids), width, dtype=store.dtype)
        store.gather(ids, chunk)
        yield first, chunk.double()


def _check_finite(first: int, values: torch.Tensor) -> None:
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise GraphDataError(
            f"row {first + row} has {values[row, column]} in column {column}; only finite numbers can be quantised. "
            f"Replace such values first."
        )
