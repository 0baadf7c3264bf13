"""The edges that groups of nodes induce: all edges of the graph between nodes of one group.

Shapes: N graph nodes, E edges, V nodes, G groups, M edges among them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import SeedError
from .checks import check_array, check_csc_form, check_kind
from .dispatch import Workspace, kernels


class InducedEdges(NamedTuple):
    """The edges among nodes, by destination, in compressed sparse columns."""

    indptr: np.ndarray  # int32 [V + 1]
    indices: np.ndarray  # int32 [M], each edge's source as its position in ``nodes``
    edge_ids: np.ndarray  # int64 [M], each edge's position in the graph's ``indices``


def induced_edges(
    indptr: np.ndarray,
    indices: np.ndarray,
    nodes: np.ndarray,
    ptr: np.ndarray | None = None,
    *,
    workspace: Workspace | None = None,
) -> InducedEdges:
    """Finds all edges of a graph between nodes of the same group: ``nodes[ptr[g]:ptr[g + 1]]``, int64; None: all are
    one.

    Each node keeps its in-neighbours in its group, in adjacency order, repeated edges and loops included. Costs a
    look-up for each in-neighbour of each node; a list more than 64 times as long as its group, if it ascends, costs a
    binary search for each node of the group instead, and one pass over the list a call to see that it ascends. Nodes
    are distinct within a group. ``workspace`` is scratch memory of this thread; None: made for this call.

    Raises SeedError for a node out of range or repeated in its group, or a ``ptr`` that does not ascend from 0 to V;
    SamplerConfigError for edges beyond int32 or a workspace of smaller graphs; GraphFormatError for other dtypes or
    lengths.

    Example:
        >>> indptr, indices = np.array([0, 1, 3, 3]), np.array([1, 0, 2])  # 1 -> 0, 0 -> 1, 2 -> 1
        >>> induced_edges(indptr, indices, np.array([1, 0])).indices.tolist()
        [1, 0]
        >>> edges = induced_edges(indptr, indices, np.array([1, 0, 2, 1]), np.array([0, 2, 4]))
        >>> edges.indptr.tolist(), edges.indices.tolist(), edges.edge_ids.tolist()
        ([0, 1, 2, 2, 3], [1, 0, 2], [1, 0, 2])
    """
    check_csc_form(indptr, indices)
    check_array("nodes", nodes, (np.int64,), 1, SeedError)
    if ptr is None:
        ptr = np.array([0, len(nodes)])
    check_array("ptr", ptr, (np.int64,), 1, SeedError)
    if len(ptr) == 0:
        raise SeedError("ptr is empty, but must have G + 1 entries: [0] for no groups.")
    if workspace is None:
        workspace = Workspace(len(indptr) - 1, "hash")  # stamps would clear memory of N nodes for a single call
    check_kind("workspace", workspace, Workspace)
    return InducedEdges(*kernels.induced_edges(workspace.native, indptr, indices, nodes, ptr))
