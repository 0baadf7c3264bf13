"""What becomes of the rows of each destination's in-neighbours: their sum, mean or maximum, and its gradient.

Shapes: D destinations, E edges and S sources of a block; F columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import AggregationError
from .checks import as_flag, as_integer_within, check_apart, check_array
from .dispatch import bytes_view, kernels

# RowFormat of kernels/aggregate/aggregate.h. NumPy has no bfloat16: uint16 holds its bits.
_FORMATS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.uint16): 2}
_MOST_THREADS = 1 << 16


def sum_neighbors(
    indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, out: np.ndarray, is_mean: bool, num_threads: int = 1
) -> None:
    """Writes the sum of the rows of each destination's sources to ``out``, or their mean; zeros where there is none.
    Adds in the order of edges for any number of threads, bfloat16 in float32.

    ``indptr`` int32 ``[D + 1]``, ``indices`` int32 ``[E]``, ``x`` ``[S, F]`` and ``out`` ``[D, F]`` of one dtype:
    float32, float64, or uint16 for the bits of bfloat16. Raises GraphFormatError for a source that is none, with
    nothing written, and AggregationError for shapes and dtypes that do not fit.

    Example:
        >>> out = np.empty((2, 2), np.float32)
        >>> sum_neighbors(np.int32([0, 2, 2]), np.int32([2, 1]), np.float32([[9, 9], [1, 5], [3, 4]]), out, True)
        >>> out.tolist()
        [[2.0, 4.5], [0.0, 0.0]]
    """
    _check_rows(indptr, indices, x, out, as_rows_of="destination")
    sizes = len(x), x.shape[1], _FORMATS[x.dtype], as_flag("is_mean", is_mean, AggregationError)
    kernels.sum_neighbors(indptr, indices, bytes_view(x), *sizes, bytes_view(out), _checked(num_threads))


def sum_destinations(
    indptr: np.ndarray, indices: np.ndarray, grad: np.ndarray, out: np.ndarray, is_mean: bool, num_threads: int = 1
) -> None:
    """Writes the sum of the rows ``grad [D, F]`` of each source's destinations to ``out [S, F]``, those of a mean by
    the share that the source has in it: the gradient of :func:`sum_neighbors`. All else is as there.

    Example:
        >>> out = np.empty((3, 1), np.float32)
        >>> sum_destinations(np.int32([0, 2, 3]), np.int32([2, 1, 1]), np.float32([[4], [1]]), out, is_mean=True)
        >>> out.tolist()
        [[0.0], [3.0], [2.0]]
    """
    _check_rows(indptr, indices, grad, out, as_rows_of="source")
    sizes = len(out), grad.shape[1], _FORMATS[grad.dtype], as_flag("is_mean", is_mean, AggregationError)
    kernels.sum_destinations(indptr, indices, bytes_view(grad), *sizes, bytes_view(out), _checked(num_threads))


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
    _check_rows(indptr, indices, x, out, as_rows_of="destination")
    check_array("source", source, (np.int32,), 2, AggregationError, writable=True)
    if source.shape != out.shape:
        raise AggregationError(f"source has shape {list(source.shape)}, but {list(out.shape)} is needed, as out has.")
    check_apart("source", source, ("indptr", indptr), ("indices", indices), ("x", x), ("out", out))
    kernels.max_neighbors(
        indptr,
        indices,
        bytes_view(x),
        len(x),
        x.shape[1],
        _FORMATS[x.dtype],
        bytes_view(out),
        source.reshape(-1),
        _checked(num_threads),
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
        _checked(num_threads),
    )


def _check_rows(indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, out: np.ndarray, *, as_rows_of: str) -> None:
    """Of the destinations, or of the sources, ``out`` has a row each; ``x`` of the others."""
    check_array("indptr", indptr, (np.int32,), 1, AggregationError)
    check_array("indices", indices, (np.int32,), 1, AggregationError)
    check_array("x", x, list(_FORMATS), 2, AggregationError)
    check_array("out", out, (x.dtype,), 2, AggregationError, writable=True)
    num_dst, width = len(indptr) - 1, x.shape[1]
    if as_rows_of == "source" and len(x) != num_dst:
        raise AggregationError(f"grad has {len(x)} rows, but indptr has {num_dst} destinations.")
    shape = (num_dst if as_rows_of == "destination" else len(out), width)
    if num_dst < 0 or out.shape != shape:
        raise AggregationError(f"out has shape {list(out.shape)}, but {list(shape)} is needed: a row for each.")
    check_apart("out", out, ("indptr", indptr), ("indices", indices), ("x", x))


def _checked(num_threads: int) -> int:
    return as_integer_within("num_threads", num_threads, 1, _MOST_THREADS, AggregationError)
