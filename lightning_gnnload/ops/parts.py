"""Finds the parts that rows lie in.

Shapes: B rows, K parts.
"""

from __future__ import annotations

import numpy as np

from ..errors import PartitionError, SeedError
from .checks import as_integer_within, check_array
from .dispatch import kernels


def locate_rows(
    rows: np.ndarray,
    num_rows: int,
    starts: np.ndarray,
    begins: np.ndarray,
    new_ids: np.ndarray | None = None,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups rows of a table, int64 ``[B]``, by the part that has them, in one pass.

    Row r is of node ``first + r``, whose new id is ``new_ids[first + r]``, int64 ``[N]``; without ``new_ids``, r is a
    new id itself. New ids of part p lie in ``[starts[p], starts[p + 1])``, int64 ``[K + 1]`` from 0 on; ``begins``,
    int64 ``[K]``, are those of the parts' first rows. Returns how many rows each part has, int64 ``[K]``; and, part by
    part, in the order of ``rows`` within each: their numbers among the part's own, int64 ``[B]``, and where they stand
    in ``rows``, int64 ``[B]``.

    Raises SeedError for a row outside ``[0, num_rows)``, PartitionError for arrays that do not fit each other,
    GraphFormatError for a new id of no part.

    Example:
        >>> starts, new_ids = np.array([0, 1, 3]), np.array([1, 0, 2])
        >>> [array.tolist() for array in locate_rows(np.array([2, 1, 0]), 3, starts, starts[:-1], new_ids)]
        [[1, 2], [0, 1, 0], [1, 0, 2]]
    """
    check_array("rows", rows, (np.int64,), 1, SeedError)
    check_array("starts", starts, (np.int64,), 1, PartitionError)
    check_array("begins", begins, (np.int64,), 1, PartitionError, count=len(starts) - 1)
    if len(begins) < 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise PartitionError(f"starts has {len(starts)} entries, but must ascend from 0, with one more than parts.")
    if new_ids is not None:
        check_array("new_ids", new_ids, (np.int64,), 1, PartitionError)
    most = int(starts[-1]) if new_ids is None else len(new_ids)
    first = as_integer_within("first", first, 0, most, PartitionError)
    num_rows = as_integer_within("num_rows", num_rows, 0, most - first, PartitionError)
    counts = np.empty(len(begins), np.int64)
    own_rows, positions = np.empty((2, len(rows)), np.int64)
    kernels.locate_rows(rows, num_rows, new_ids, first, starts, begins, counts, own_rows, positions)
    return counts, own_rows, positions
