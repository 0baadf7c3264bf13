"""GraphSAINT's three draws of a mini-batch's nodes: by out-degree, by edges, and by random walks.

Shapes: N graph nodes, E edges, V nodes of a mini-batch. The graph is given by its out-neighbours: those of node u are
``indices[indptr[u]:indptr[u + 1]]``, int64 both. Nodes come as distinct ids, ascending, int64 ``[V]``.

A draw is a pure function of the graph, the settings and the key (seed, epoch, step).

Source: Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method" (ICLR'20), section 3.4.
"""

from __future__ import annotations

import numpy as np

from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.philox import philox, stream_keys

_SAINT_TAG = 0x73616E74  # ASCII of "sant": a stream of its own, beside those of draws, rows and orders
_AGAIN = (1 << 32) - 1  # the wave of draws among the edges that were not drawn yet


def nodes_by_degree(indptr: np.ndarray, num_draws: int, key: DrawKey) -> np.ndarray:
    """Draws edges uniformly, with replacement, and returns their sources: a node by its out-degree.

    Example:
        >>> nodes_by_degree(np.array([0, 3, 3, 4]), 100, DrawKey(0, 0, 0)).tolist()  # node 1 has no out-edge
        [0, 2]
    """
    edges = _uniform_below(int(indptr[-1]), _uniforms(key, num_draws))
    return np.unique(np.searchsorted(indptr, edges, side="right") - 1)


def edge_odds(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Returns the running sums of the edges' weights, float64 ``[E]``: of an edge from u to v,
    ``1 / out-degree of u + 1 / in-degree of v``, of which the estimate has the least variance (Theorem 3.2).

    Example:
        >>> edge_odds(np.array([0, 2, 3, 3]), np.array([1, 2, 2])).tolist()
        [1.5, 2.5, 4.0]
    """
    out_degrees = np.diff(indptr)
    in_degrees = np.bincount(indices, minlength=len(out_degrees))
    return np.cumsum(np.repeat(1 / np.maximum(out_degrees, 1), out_degrees) + 1 / in_degrees[indices])


def nodes_of_edges(
    indptr: np.ndarray, indices: np.ndarray, odds: np.ndarray, num_edges: int, key: DrawKey
) -> np.ndarray:
    """Draws distinct edges one after the other, each in proportion to its weight, and returns their ends.

    ``odds`` is :func:`edge_odds`. All edges are drawn where there are no more than ``num_edges``.

    Example:
        >>> indptr, indices = np.array([0, 2, 3, 3]), np.array([1, 2, 2])
        >>> nodes_of_edges(indptr, indices, edge_odds(indptr, indices), 9, DrawKey(0, 0, 0)).tolist()
        [0, 1, 2]
    """
    total = len(indices)
    if num_edges >= total:
        edges = np.arange(total)
    else:
        # Draws with replacement, of which those of an edge that was drawn before are passed over: the same law.
        positions = _uniforms(key, 2 * num_edges) * odds[-1]
        picks = np.minimum(np.searchsorted(odds, positions, side="right"), total - 1)
        edges = picks[np.sort(np.unique(picks, return_index=True)[1])][:num_edges]
        if missing := num_edges - len(edges):
            # Few edges have nearly all of the weight. The rest, by exponential clocks: those that ring first, of the
            # edges that were not drawn (Efraimidis & Spirakis, 2006).
            clocks = -np.log1p(-_uniforms(key, total, _AGAIN)) / np.diff(odds, prepend=0.0)
            clocks[edges] = np.inf
            edges = np.concatenate([edges, np.argpartition(clocks, missing - 1)[:missing]])
    sources = np.searchsorted(indptr, edges, side="right") - 1
    return np.unique(np.concatenate([sources, indices[edges]]))


def nodes_of_walks(
    indptr: np.ndarray, indices: np.ndarray, num_walks: int, walk_length: int, key: DrawKey
) -> np.ndarray:
    """Walks along out-edges from nodes that are drawn uniformly, with replacement, and returns the nodes visited. A
    walk stays at a node without out-edges.

    Example:
        >>> nodes_of_walks(np.array([0, 1, 2, 3]), np.array([1, 2, 0]), 1, 2, DrawKey(0, 0, 0)).tolist()  # a ring
        [0, 1, 2]
    """
    nodes = _uniform_below(len(indptr) - 1, _uniforms(key, num_walks))
    visited = [nodes]
    for step in range(walk_length):
        begin, degrees = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
        edges = begin + _uniform_below(degrees, _uniforms(key, num_walks, step + 1))
        goes_on = degrees > 0
        nodes = nodes.copy()
        nodes[goes_on] = indices[edges[goes_on]]
        visited.append(nodes)
    return np.unique(np.concatenate(visited))


def _uniforms(key: DrawKey, count: int, wave: int = 0) -> np.ndarray:
    """Returns numbers in [0, 1), multiples of 2**-53, float64 ``[count]``; waves of one key are apart."""
    counters = np.zeros((-(-count // 2), 4), np.uint32)
    counters[:, 0] = np.arange(len(counters), dtype=np.uint32)
    counters[:, 1], counters[:, 2] = key.step & 0xFFFFFFFF, wave
    words = philox(counters, stream_keys(key.seed, key.epoch, _SAINT_TAG)[0])
    return (words.view(np.uint64).reshape(-1)[:count] >> np.uint64(11)) * 2.0**-53


def _uniform_below(bounds: int | np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Returns integers in [0, bound), int64; 0 for a bound of 0."""
    # A product may round up to the bound itself.
    return np.maximum(np.minimum((uniforms * bounds).astype(np.int64), np.asarray(bounds) - 1), 0)
