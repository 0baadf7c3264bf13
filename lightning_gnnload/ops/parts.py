"""Parts of a graph: which of them hold a node.

Shapes: N graph nodes, E edges.
"""

from __future__ import annotations

import numpy as np

from ..errors import PartitionError
from .checks import check_apart, check_array, check_graph
from .dispatch import kernels

MAX_CLOSED_PARTS = 64
"""A mask has a bit for each part."""


def spread_parts(
    indptr: np.ndarray, indices: np.ndarray, fresh: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, int]:
    """Extends the closures of all parts by one hop: a part that holds a node takes in its in-neighbours.

    Masks tell of a node which parts hold it, by a bit each. One pass over the lists of nodes with fresh parts, in
    the order of the graph, so that a mapped one is read in turn.

    Args:
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``, of a graph that passed :func:`.check_csc`.
        indices: likewise.
        fresh: uint64 ``[N]``: the parts that came to hold the node at the hop before, and now spread.
        held: uint64 ``[N]``: all that hold it; those that come to hold it now are added.

    Returns:
        uint64 ``[N]``, those that came to hold the node now, which spread at the next hop; and of how many nodes there
        are any.

    Raises:
        GraphFormatError, PartitionError: arrays of other dtypes, of other lengths, or of one memory.

    Source: PaGraph (TPDS'21), section 3.2, self-reliance.

    Example:
        >>> indptr, indices = np.array([0, 1, 2, 2]), np.array([1, 2])  # 2 -> 1 -> 0
        >>> held = np.array([0b01, 0b10, 0], np.uint64)
        >>> fresh, num_reached = spread_parts(indptr, indices, held.copy(), held)
        >>> fresh.tolist(), num_reached, held.tolist()
        ([0, 1, 2], 2, [1, 3, 2])
    """
    check_graph(indptr, indices)
    check_array("fresh", fresh, (np.uint64,), 1, PartitionError)
    check_array("held", held, (np.uint64,), 1, PartitionError, writable=True)
    num_nodes = len(indptr) - 1
    if len(fresh) != num_nodes or len(held) != num_nodes:
        raise PartitionError(
            f"there are {len(fresh)} fresh masks and {len(held)} held ones, but {num_nodes} nodes: give one each."
        )
    check_apart("held", held, ("indptr", indptr), ("indices", indices), ("fresh", fresh))
    reached = np.empty(num_nodes, np.uint64)
    return reached, kernels.spread_parts(indptr, indices, fresh, held, reached)
