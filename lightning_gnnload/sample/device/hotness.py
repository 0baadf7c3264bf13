"""Which in-neighbour lists sampling reads most: those that a device keeps where it has no room for all.

Shapes: N graph nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError

FANOUT = 10
"""The fanout of a usual hop."""
# 32 MiB for a float64 an edge, which spread makes, whatever the size of the graph.
_CHUNK_EDGES = 1 << 22
# Bounds the passes over the ranking, each of which goes on where a list did not fit the room that was left.
_MAX_ROUNDS = 4


class EdgeChunk(NamedTuple):
    """A chunk holds edges ``[begin, end)``, of which ``counts[i]`` are in the list of node ``first + i``."""

    begin: int
    end: int
    first: int
    counts: np.ndarray

    def spread(self, node_values: np.ndarray) -> np.ndarray:
        """Repeats each node's value for each of its edges in the chunk."""
        return np.repeat(node_values[self.first : self.first + len(self.counts)], self.counts)


def chunked_edges(indptr: np.ndarray, chunk_edges: int = _CHUNK_EDGES) -> Iterator[EdgeChunk]:
    """Yields all edges in order, ``chunk_edges`` at a time. A long list comes in several chunks."""
    num_edges = int(indptr[-1])
    for begin in range(0, num_edges, chunk_edges):
        end = min(begin + chunk_edges, num_edges)
        first = int(np.searchsorted(indptr, begin, side="right")) - 1
        last = int(np.searchsorted(indptr, end, side="left"))
        yield EdgeChunk(begin, end, first, np.diff(np.clip(indptr[first : last + 1], begin, end)))


def expected_visits(
    graph: Graph,
    fanout: int = FANOUT,
    num_hops: int = 2,
    seed_share: float = 0.01,
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Estimates how often a mini-batch reads each node's list, float64 ``[N]``.

    Seeds are any ``seed_share`` of the nodes; a node draws each of its ``d`` in-neighbours with probability ``min(1,
    fanout / d)``. Draws of different nodes count as independent, edge weights as equal. Reads the edges once for each
    hop after the first, in chunks, and calls ``advance`` with their number.

    Source: the expectation that PaGraph (SoCC'20), 3.1, takes from out-degrees alone, and DSP (PPoPP'23), 3.1, from
    in-degrees.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 2], dst=[0, 0, 1])
        >>> (100 * expected_visits(graph, fanout=1, num_hops=2)).round(1).tolist()
        [2.0, 2.5, 3.5]
    """
    chance = np.minimum(1.0, fanout / np.maximum(graph.in_degrees, 1))
    present = np.full(graph.num_nodes, seed_share)
    visits = present.copy()
    for _ in range(num_hops - 1):
        expected, draws = np.zeros(graph.num_nodes), present * chance
        for chunk in chunked_edges(graph.indptr):
            np.add.at(expected, graph.indices[chunk.begin : chunk.end], chunk.spread(draws))
            advance(chunk.end - chunk.begin)
        # exp(-sum of p) stands for the product of (1 - p), so that chances add up in one pass over the edges.
        present = 1 - (1 - present) * np.exp(-expected)
        visits += present
    return visits


def expected_reads(graph: Graph, visits: np.ndarray, fanout: int = FANOUT) -> np.ndarray:
    """Estimates how many entries of each node's list its visits read, at most ``fanout`` a visit: float64 ``[N]``.
    SamplerConfigError: visits are no ``[N]`` finite numbers from 0 on."""
    visits = np.asarray(visits)
    if visits.shape != (graph.num_nodes,) or visits.dtype.kind not in "iuf":
        raise SamplerConfigError(
            f"hotness is {visits.dtype} {list(visits.shape)}: expected visits of {graph.num_nodes} nodes are needed, "
            f"one number a node."
        )
    if visits.size and not (visits.min() >= 0 and visits.max() < np.inf):
        raise SamplerConfigError(
            f"hotness spans [{visits.min()}, {visits.max()}]: expected visits are finite, and 0 or more."
        )
    return visits * np.minimum(graph.in_degrees, fanout).astype(np.float64)


def hottest_lists(graph: Graph, reads: np.ndarray, num_edges: int) -> np.ndarray:
    """Selects the nodes whose lists serve most reads in the room for ``num_edges`` edges, bool ``[N]``.

    Greedy by reads an edge; a list that does not fit is left out, and later ones are still looked at. Nodes without
    in-neighbours or reads are not selected.
    """
    degrees = graph.in_degrees
    order = np.flatnonzero((degrees > 0) & (reads > 0))
    order = order[np.argsort(-(reads[order] / degrees[order]), kind="stable")]
    hot = np.zeros(graph.num_nodes, bool)
    hot[fitting_lists(order, degrees, num_edges)] = True
    return hot


def fitting_lists(nodes: np.ndarray, degrees: np.ndarray, num_edges: int) -> np.ndarray:
    """Returns those of ``nodes`` whose lists are taken into the room for ``num_edges`` edges, first ones first; one
    that does not fit is left out, and later ones are still looked at."""
    chosen = [nodes[:0]]
    for _ in range(_MAX_ROUNDS):
        nodes = nodes[degrees[nodes] <= num_edges]
        filled = np.cumsum(degrees[nodes])
        num_taken = int(np.searchsorted(filled, num_edges, side="right"))
        if not num_taken:
            break
        chosen.append(nodes[:num_taken])
        num_edges -= int(filled[num_taken - 1])
        nodes = nodes[num_taken:]
    return np.concatenate(chosen)
