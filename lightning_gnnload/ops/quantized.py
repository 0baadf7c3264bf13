"""Rows of one byte a number, converted to floats as they are gathered.

Shapes: N rows of the table, B requested ids, R rows of the output, F feature width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GnnLoadError, SeedError
from .checks import check_apart, check_array
from .dispatch import bytes_view, check_positions, kernels

# FloatFormat of kernels/gather_quantized/gather_quantized.h. NumPy has no bfloat16: uint16 holds its bits.
_FORMATS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 2}


def gather_quantized(
    codes: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    ids: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray | None = None,
) -> None:
    """Computes ``out[b] = codes[ids[b]] * scale + offset``, or likewise ``out[positions[b]]``.

    The product is rounded to float32, then the sum, then the output, on every machine alike. ``codes`` are int8 ``[N,
    F]``, ``scale`` and ``offset`` float32 ``[F]``, ``ids`` int64 ``[B]``; ``out`` is float32, float16, or uint16 for
    the bits of bfloat16. Raises SeedError for an id or position out of range, with ``out`` unchanged, and GnnLoadError
    for shapes or dtypes that do not fit each other.

    Example:
        >>> out = np.empty((1, 2), np.float32)
        >>> scale, offset = np.float32([0.5, 2]), np.float32([0, 10])
        >>> gather_quantized(np.int8([[0, 0], [3, -4]]), scale, offset, np.array([1]), out)
        >>> out.tolist()
        [[1.5, 2.0]]
    """
    check_array("codes", codes, (np.int8,), 2, GnnLoadError)
    check_array("ids", ids, (np.int64,), 1, SeedError)
    check_array("out", out, list(_FORMATS), 2, GnnLoadError, writable=True)
    for name, column in (("scale", scale), ("offset", offset)):
        check_array(name, column, (np.float32,), 1, GnnLoadError)
    for name, width in (("scale", len(scale)), ("offset", len(offset)), ("out", out.shape[1])):
        if width != codes.shape[1]:
            raise GnnLoadError(f"{name} has {width} columns, but codes has {codes.shape[1]}.")
    check_positions(positions, ids, out)
    check_apart("out", out, ("codes", codes), ("scale", scale), ("offset", offset), ("ids", ids))
    kernels.gather_quantized(
        codes.reshape(-1), len(codes), scale, offset, ids, positions, bytes_view(out), len(out), _FORMATS[out.dtype]
    )
