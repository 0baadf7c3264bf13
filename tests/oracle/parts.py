"""Oracle of what parts hold."""

from __future__ import annotations

import numpy as np


def spread_parts(
    indptr: np.ndarray, indices: np.ndarray, fresh: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, int]:
    """uint64 ``[N]`` and a count, and changes ``held``; see :func:`.parts.spread_parts`."""
    reached = np.zeros_like(held)
    destinations = np.repeat(np.arange(len(fresh)), np.diff(indptr))
    np.bitwise_or.at(reached, indices, fresh[destinations])
    reached &= ~held
    held |= reached
    return reached, int(np.count_nonzero(reached))
