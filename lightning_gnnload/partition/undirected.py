"""A graph's edges without their direction, as partitioners of undirected graphs want them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph

_EDGES_A_CHUNK = 1 << 22  # bounds scratch memory: graphs are larger than what is left


def undirected_neighbors(
    graph: Graph, *, advance: Callable[[float], object] = lambda share: None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Merges in- and out-neighbours of each node into one list, ascending, without itself and without repeats.

    Args:
        graph: N nodes, E edges; ``indices`` may be a mapped file, and is read twice, in turn.
        advance: is told which share is done.

    Yields:
        For some nodes in turn, from 0 on: how many neighbours each has, int64, and these in a row, int64.

    Memory: 8 bytes an edge (16 where ids are int64) and 16 a node, and some MiB for a chunk, or 16 bytes a neighbour of
    a node that has more.

    Example:
        >>> graph = Graph.from_coo(src=[1, 0, 2, 2], dst=[0, 1, 0, 2])
        >>> [(counts.tolist(), neighbors.tolist()) for counts, neighbors in undirected_neighbors(graph)]
        [([2, 1, 1], [1, 2, 0, 0])]
    """
    num_nodes = graph.num_nodes
    ends = np.repeat(np.arange(num_nodes, dtype=graph.indices.dtype), graph.in_degrees)
    out_indptr, out_indices, _ = ops.coo_to_csc(ends, graph.indices, num_nodes)
    del ends
    total = graph.indptr + out_indptr
    first = 0
    while first < num_nodes:
        last = max(int(np.searchsorted(total, total[first] + _EDGES_A_CHUNK, side="right")) - 1, first + 1)
        keys = np.concatenate(
            [
                _keys(indptr[first : last + 1], indices, num_nodes)
                for indptr, indices in ((graph.indptr, graph.indices), (out_indptr, out_indices))
            ]
        )
        keys.sort()  # np.unique hashes, which takes a hundred times as long
        keys = keys[np.flatnonzero(np.diff(keys, prepend=-1))]
        nodes, neighbors = np.divmod(keys, num_nodes)
        others = nodes + first != neighbors
        yield np.bincount(nodes[others], minlength=last - first), neighbors[others]
        first = last
        advance(first / num_nodes)


def _keys(indptr: np.ndarray, indices: np.ndarray, num_nodes: int) -> np.ndarray:
    """Returns a number for each entry of some lists; sorted, they go by list, then by neighbour."""
    lists = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return lists * num_nodes + indices[indptr[0] : indptr[-1]]
