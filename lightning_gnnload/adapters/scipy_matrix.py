"""SciPy's sparse matrices as GraphData."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lightning_gnnload.adapters.columns import drawable_weights
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import GraphDataError, warn


def from_scipy(matrix: Any, *, orientation: Literal["src_dst", "dst_src"] = "src_dst", **columns: Any) -> GraphData:
    """Converts a SciPy sparse matrix or array, in whatever format: an edge for each stored entry.

    Entries other than 1 are weights, which samplers can draw by and mini-batches carry as ``edge_weight``.

    Args:
        matrix: ``[N, N]``, of numbers.
        orientation: what the axes mean. ``"src_dst"``: ``A[i, j]`` is an edge from ``i`` to ``j``, as in NetworkX
            and ``scipy.sparse.csgraph``. ``"dst_src"``: an edge from ``j`` to ``i``, as of ``A @ x``, which sums
            over in-neighbours.
        **columns: ``x``, ``y``, ``train`` and all else that :class:`.GraphData` takes beside the graph.

    Raises:
        GraphDataError: no sparse matrix, or one that is not square; an orientation that is none.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from lightning_gnnload import GraphData
        >>> matrix = csr_array(([1, 1], ([0, 1], [2, 2])), shape=(3, 3))
        >>> GraphData.from_scipy(matrix, train=[2]).graph.in_neighbors(2).tolist()
        [0, 1]
    """
    if not hasattr(matrix, "tocoo"):
        raise GraphDataError(
            f"GraphData.from_scipy: a sparse matrix or array of SciPy is needed, but a {type(matrix).__name__} was "
            f"given. Of a dense one make scipy.sparse.csr_array(matrix)."
        )
    if orientation not in ("src_dst", "dst_src"):
        raise GraphDataError(
            f"GraphData.from_scipy: orientation={orientation!r} is not known. Give 'src_dst' where A[i, j] is an edge "
            f"from i to j, or 'dst_src' where it is one from j to i."
        )
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphDataError(
            f"GraphData.from_scipy: the matrix has the shape {list(matrix.shape)}, but one row and one column a node "
            f"are needed. Where rows and columns are nodes of two types, build the graph with Graph.from_hetero."
        )
    entries = matrix.tocoo()
    edges = (entries.row, entries.col) if orientation == "src_dst" else (entries.col, entries.row)
    weights, edge_tables = None, dict(columns.get("edge_tables") or {})
    # A matrix of ones is an adjacency matrix: weights of 1 would only make sampling slower.
    if bool((entries.data != 1).any()):
        if num_zeros := int(np.count_nonzero(entries.data == 0)):
            warn(
                f"GraphData.from_scipy: {num_zeros} stored entries are 0, and are edges of weight 0 here. To have "
                f"none, call matrix.eliminate_zeros() first."
            )
        weights = edge_tables["edge_weight"] = entries.data
    graph = Graph.from_coo(
        *edges, matrix.shape[0], edge_weight=drawable_weights("the matrix's entries", weights), keep_order=True
    )
    return GraphData(graph, **{**columns, "edge_tables": edge_tables})
