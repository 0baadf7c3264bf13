"""The largest of each destination's in-neighbours, column by column, and whose it is.

Shapes: D destinations, E edges and S sources of a block; F columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import AggregationError
from .checks import as_integer_within, check_apart, check_array
from .dispatch import bytes_view, kernels

# MaxFormat of kernels/aggregate/max_neighbors.h. NumPy has no bfloat16: uint16 holds its bits.
_FORMATS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.uint16): 2}
_MOST_THREADS = 1 << 16


def max_neighbors(
    indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, out: np.ndarray, source: np.ndarray, num_threads: int = 1
) -> None:
    """Writes the largest number of each destination's sources to ``out``, 0 where there is none, and the source to
    ``source``, -1 where there is none; the first of equals in the order of edges. A NaN is larger than any number.

    ``indptr`` int32 ``[D + 1]``, ``indices`` int32 ``[E]``, ``x`` ``[S, F]`` and ``out`` ``[D, F]`` of one dtype:
    float32, float64, or uint16 for the bits of bfloat16; ``source`` int32 ``[D, F]``. Raises GraphFormatError for a
    source that is none, with nothing written, and AggregationError for shapes and dtypes that do not fit.

    Example:
        >>> out, source = np.empty((1, 2), np.float32), np.empty((1, 2), np.int32)
        >>> max_neighbors(np.int32([0, 2]), np.int32([2, 1]), np.float32([[9, 9], [1, 5], [3, 4]]), out, source)
        >>> out.tolist(), source.tolist()
        ([[3.0, 5.0]], [[2, 1]])
    """
    check_array("indptr", indptr, (np.int32,), 1, AggregationError)
    check_array("indices", indices, (np.int32,), 1, AggregationError)
    check_array("x", x, list(_FORMATS), 2, AggregationError)
    check_array("out", out, (x.dtype,), 2, AggregationError, writable=True)
    check_array("source", source, (np.int32,), 2, AggregationError, writable=True)
    shape = (len(indptr) - 1, x.shape[1])
    for name, array in (("out", out), ("source", source)):
        if array.shape != shape:
            raise AggregationError(
                f"{name} has shape {list(array.shape)}, but {list(shape)} is needed: a row for each."
            )
        check_apart(name, array, ("indptr", indptr), ("indices", indices), ("x", x))
    check_apart("out", out, ("source", source))
    kernels.max_neighbors(
        indptr,
        indices,
        bytes_view(x),
        len(x),
        x.shape[1],
        _FORMATS[x.dtype],
        bytes_view(out),
        source.reshape(-1),
        as_integer_within("num_threads", num_threads, 1, _MOST_THREADS, AggregationError),
    )


def add_to_sources(source: np.ndarray, grad: np.ndarray, into: np.ndarray, num_threads: int = 1) -> None:
    """Adds each of ``grad [D, F]`` to its column in the row of ``into [S, F]`` that ``source [D, F]`` says, none where
    that is -1: the gradient of :func:`max_neighbors`, in the order of destinations for any number of threads.

    ``into`` is float64 for float64, else float32. Raises as :func:`max_neighbors` does.
    """
    check_array("source", source, (np.int32,), 2, AggregationError)
    check_array("grad", grad, list(_FORMATS), 2, AggregationError)
    wide = np.float64 if grad.dtype == np.float64 else np.float32
    check_array("into", into, (wide,), 2, AggregationError, writable=True)
    if source.shape != grad.shape or grad.shape[1] != into.shape[1]:
        shapes = [list(array.shape) for array in (source, grad, into)]
        raise AggregationError(f"source, grad and into have shapes {shapes}, but must agree on rows and columns.")
    check_apart("into", into, ("source", source), ("grad", grad))
    num_dst, width = grad.shape
    kernels.add_to_sources(
        source.reshape(-1),
        bytes_view(grad),
        bytes_view(into),
        num_dst,
        len(into),
        width,
        _FORMATS[grad.dtype],
        as_integer_within("num_threads", num_threads, 1, _MOST_THREADS, AggregationError),
    )
