"""Parts of a graph: which of them hold a node.

Shapes: N graph nodes, E edges.
"""

from __future__ import annotations

import numpy as np

from ..errors import PartitionError
from .checks import check_apart, check_array, check_csc_form
from .dispatch import kernels

MAX_CLOSED_PARTS = 64  # a mask has a bit for each part


def spread_parts(
    indptr: np.ndarray, indices: np.ndarray, fresh: np.ndarray, masks: np.ndarray
) -> tuple[np.ndarray, int]:
    """Extends the closures of all parts by one hop: a part that holds a node takes in its in-neighbours.

    Masks, uint64 ``[N]``, have a bit for each part that holds a node. ``fresh`` are the parts that got the node in the
    last hop, and now spread; new bits are added to ``masks``. Returns those, which spread in the next hop, and for how
    many nodes there are any. One pass over the lists of nodes with fresh parts, in the graph's order, so that a mapped
    one is read in turn. Raises GraphFormatError or PartitionError for arrays of other dtypes or lengths, or of one
    memory.

    Source: PaGraph (TPDS'21), section 3.2, self-reliance.

    Example:
        >>> indptr, indices = np.array([0, 1, 2, 2]), np.array([1, 2])  # 2 -> 1 -> 0
        >>> masks = np.array([0b01, 0b10, 0], np.uint64)
        >>> fresh, num_reached = spread_parts(indptr, indices, masks.copy(), masks)
        >>> fresh.tolist(), num_reached, masks.tolist()
        ([0, 1, 2], 2, [1, 3, 2])
    """
    check_csc_form(indptr, indices)
    check_array("fresh", fresh, (np.uint64,), 1, PartitionError)
    check_array("masks", masks, (np.uint64,), 1, PartitionError, writable=True)
    num_nodes = len(indptr) - 1
    if len(fresh) != num_nodes or len(masks) != num_nodes:
        raise PartitionError(
            f"there are {len(fresh)} fresh masks and {len(masks)} masks, but {num_nodes} nodes: give one each."
        )
    check_apart("masks", masks, ("indptr", indptr), ("indices", indices), ("fresh", fresh))
    reached = np.empty(num_nodes, np.uint64)
    return reached, kernels.spread_parts(indptr, indices, fresh, masks, reached)
