"""The part of a graph around some nodes, found in NumPy: a reference for samplers and for faster ways."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.origin import Origin


def part_around(graph: Graph, seeds: np.ndarray, hops: int) -> Graph:
    """Makes the part of a graph that holds so many hops of in-neighbours of these nodes, and nothing else.

    Its nodes are in no order, so that a sampler that takes a part's ids for those of the whole is found out.

    Args:
        graph: N nodes, a whole graph.
        seeds: int64 ``[S]``.
        hops: 0 holds the nodes alone, without their lists.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 0], dst=[0, 1, 2, 3])
        >>> part = part_around(graph, np.array([0]), hops=2)
        >>> sorted(part.origin.node_ids.tolist()), part.num_edges
        ([0, 1, 2], 2)
    """
    held, reach = np.zeros(graph.num_nodes, bool), np.zeros(graph.num_nodes, np.uint8)
    held[seeds], reach[seeds] = True, hops
    for left in range(hops, 0, -1):
        neighbors = graph.indices[_positions(graph, np.flatnonzero(reach == left))]
        held[neighbors] = True
        reach[neighbors] = np.maximum(reach[neighbors], left - 1)
    node_ids = np.random.default_rng(0).permutation(np.flatnonzero(held))
    local = np.full(graph.num_nodes, -1)
    local[node_ids] = np.arange(len(node_ids))
    has_list = reach[node_ids] > 0
    edges = _positions(graph, node_ids[has_list])
    return Graph(
        np.concatenate([[0], np.cumsum(np.where(has_list, graph.in_degrees[node_ids], 0))]),
        local[graph.indices[edges]].astype(graph.indices.dtype),
        None if graph.edge_weight is None else graph.edge_weight[edges],
        None if graph.edge_type is None and graph.types is None else graph.edge_types_of(edges),
        origin=Origin(node_ids, reach[node_ids], graph.indptr[node_ids]),
        edge_time=None if graph.edge_time is None else graph.edge_time[edges],
        node_time=None if graph.node_time is None else graph.node_time[node_ids],
        types=graph.types,
        clock=graph.clock,
    )


def _positions(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Returns the positions of all edges into these nodes, one node after the other."""
    lists = [np.arange(graph.indptr[node], graph.indptr[node + 1]) for node in nodes]
    return np.concatenate([np.empty(0, np.int64), *lists])
