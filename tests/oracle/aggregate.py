"""Oracle of what a layer makes of neighbours."""

from __future__ import annotations

import numpy as np


def max_neighbors(indptr: np.ndarray, indices: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``out`` in the dtype of ``x`` and ``source``, int32; see :func:`.aggregate.max_neighbors`."""
    shape = (len(indptr) - 1, x.shape[1])
    out, source = np.zeros(shape, x.dtype), np.full(shape, -1, np.int32)
    for d in range(shape[0]):
        for c in range(shape[1]):
            for s in indices[indptr[d] : indptr[d + 1]]:
                is_first = source[d, c] == -1
                is_nan = np.isnan(x[s, c]) and not np.isnan(out[d, c])
                if is_first or x[s, c] > out[d, c] or is_nan:
                    out[d, c], source[d, c] = x[s, c], s
    return out, source


def sum_neighbors(indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, is_mean: bool) -> np.ndarray:
    """``out`` in the dtype of ``x``, by additions one after the other; see :func:`.aggregate.sum_neighbors`."""
    out = np.zeros((len(indptr) - 1, x.shape[1]), x.dtype)
    for d in range(len(out)):
        for s in indices[indptr[d] : indptr[d + 1]]:
            out[d] += x[s]
        if is_mean:
            out[d] *= _share(indptr, d, x.dtype)
    return out


def sum_destinations(
    indptr: np.ndarray, indices: np.ndarray, grad: np.ndarray, num_src: int, is_mean: bool
) -> np.ndarray:
    """``out [num_src, F]``; see :func:`.aggregate.sum_destinations`."""
    out = np.zeros((num_src, grad.shape[1]), grad.dtype)
    for d in range(len(grad)):
        for s in indices[indptr[d] : indptr[d + 1]]:
            out[s] += grad[d] * _share(indptr, d, grad.dtype) if is_mean else grad[d]
    return out


def _share(indptr: np.ndarray, d: int, dtype: np.dtype) -> np.generic:
    return dtype.type(1) / dtype.type(max(indptr[d + 1] - indptr[d], 1))


def add_to_sources(source: np.ndarray, grad: np.ndarray, into: np.ndarray) -> np.ndarray:
    """What :func:`.aggregate.add_to_sources` makes of ``into``."""
    into = into.copy()
    for d in range(len(source)):
        for c in range(source.shape[1]):
            if source[d, c] >= 0:
                into[source[d, c], c] += grad[d, c]
    return into
