"""Breadth-first orders of seeds.

Shapes: N graph nodes, E edges, S seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GraphFormatError, SeedError
from .checks import as_integer_within, check_array, check_csc_form
from .dispatch import kernels

# Positions among the seeds are int32.
MAX_SEEDS = 2**31 - 1


def breadth_first(
    indptr: np.ndarray,
    indices: np.ndarray,
    position: np.ndarray,
    roots: np.ndarray,
    num_seeds: int,
    reversed_indptr: np.ndarray | None = None,
    reversed_indices: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Orders seeds as a breadth-first search along in-neighbours reaches them.

    It starts at the first of ``roots``, int64 ``[R]``, and, whenever it has nowhere left to go, at the next root that
    it has not reached; each start makes a tree. It ends with the last seed or root. ``position``, int32 ``[N]``, is
    each node's position among the ``num_seeds`` seeds, negative for other nodes. With the reversed graph it goes along
    out-neighbours as well. Returns ``order`` and ``tree``, int32 ``[S]``: positions of the seeds as they were reached,
    and the tree of each; shorter where no root leads to some seed.

    Raises GraphFormatError or SeedError for arrays that do not fit each other, or a root that is no node.

    Example:
        >>> indptr, indices = np.array([0, 1, 3, 4, 4]), np.array([1, 0, 2, 1])  # 0 - 1 - 2, and 3 alone
        >>> order, tree = breadth_first(indptr, indices, np.array([0, 1, 2, 3], np.int32), np.array([2, 3]), 4)
        >>> order.tolist(), tree.tolist()
        ([2, 1, 0, 3], [0, 0, 0, 1])
    """
    check_csc_form(indptr, indices)
    check_array("position", position, (np.int32,), 1, SeedError)
    check_array("roots", roots, (np.int64,), 1, SeedError)
    num_nodes = len(indptr) - 1
    if len(position) != num_nodes:
        raise SeedError(f"position has {len(position)} entries, but the graph has {num_nodes} nodes; give one each.")
    num_seeds = as_integer_within("num_seeds", num_seeds, 0, min(num_nodes, MAX_SEEDS), SeedError)
    if not (reversed_indptr is None and reversed_indices is None):
        _check_same_size(indptr, indices, reversed_indptr, reversed_indices)
    # Room for all seeds; a search that does not reach some returns fewer.
    order, tree = np.empty(num_seeds, np.int32), np.empty(num_seeds, np.int32)
    num_reached = kernels.breadth_first(
        indptr, indices, reversed_indptr, reversed_indices, position, roots, order, tree
    )
    return order[:num_reached], tree[:num_reached]


def _check_same_size(indptr: np.ndarray, indices: np.ndarray, reversed_indptr: Any, reversed_indices: Any) -> None:
    check_array("reversed_indptr", reversed_indptr, (np.int64,), 1, GraphFormatError)
    check_array("reversed_indices", reversed_indices, (indices.dtype,), 1, GraphFormatError)
    if len(reversed_indptr) != len(indptr) or len(reversed_indices) != len(indices):
        raise GraphFormatError(
            f"the reversed graph has {len(reversed_indptr) - 1} nodes and {len(reversed_indices)} edges, but the graph "
            f"has {len(indptr) - 1} and {len(indices)}: both must be the same graph."
        )
    check_csc_form(reversed_indptr, reversed_indices)
