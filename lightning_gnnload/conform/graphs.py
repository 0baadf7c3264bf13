"""Graphs to hold a sampler against: small ones with everything awkward in them, stars for counting, and parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.data.types import EdgeType


def example_graphs() -> dict[str, Graph]:
    """Makes small graphs by name, the same in every call: from nothing to hubs, repeated edges and loops.

    All have edge weights (some of them zero) and edge types, which samplers that do not ask for them ignore. Their
    arrays are read-only, as those of a graph that is mapped from files.
    """
    rng = np.random.default_rng(0)
    loop, pair = np.zeros(1, np.int64), np.array([0, 1])
    ring, all_to_all = np.arange(40), np.indices((12, 12)).reshape(2, -1)
    skewed = rng.integers(0, 200, 2400), (200 * rng.random(2400) ** 3).astype(np.int64)
    hubs = np.tile(np.arange(500), 60), np.repeat(np.arange(60), 500)
    edges = {
        "one node": (loop[:0], loop[:0], 1),
        "one loop": (loop, loop, 1),
        "no edges": (loop[:0], loop[:0], 5),
        "parallel edges": (np.repeat(pair, 7), np.repeat(pair[::-1], 7), 2),
        "ring": (ring, (ring + 1) % 40, 40),
        "all to all, loops included": (*all_to_all, 12),
        "random, skewed, with isolated nodes": (*skewed, 200),
        "60 hubs of degree 500": (*hubs, 500),
    }
    graphs = {name: _graph(rng, np.int32, *endpoints) for name, endpoints in edges.items()}
    graphs["random, int64 ids"] = _graph(rng, np.int64, *skewed, 200)
    return graphs


def typed_graphs() -> dict[str, Graph]:
    """Makes small graphs with types of nodes and edges by name, the same in every call, with weights: types without
    nodes or without edges, several relations between the same two types, repeated edges, hubs.

    Samplers are held against them as against those of :func:`example_graphs`.
    """
    return {name: _hetero(sizes, edges) for name, (sizes, edges) in _typed_edges().items()}


def timed_graphs() -> dict[str, Graph]:
    """Likewise, graphs whose edges or nodes have times, whole ones and others, with types that have none."""
    graphs, rng = {}, np.random.default_rng(2)
    for name, (sizes, edges) in _typed_edges().items():
        edge_types, node_types = list(edges), list(sizes)
        # Edges of the first type always are there, if there are several; few times, so that many are the same.
        timed = edge_types[1:] or edge_types
        edge_time = {edge_type: rng.integers(100, 140, len(edges[edge_type][0])) for edge_type in timed}
        node_time = {node_type: rng.integers(90, 130, sizes[node_type]) for node_type in node_types[1:]}
        graphs[name] = _hetero(sizes, edges, edge_time=edge_time, node_time=node_time)
    src, dst = rng.integers(0, 100, (2, 1500))
    graphs["one type, times between whole ones"] = _frozen(
        Graph.from_coo(src, dst, 100, edge_time=rng.random(1500), edge_weight=np.ones(1500, np.float32))
    )
    graphs["one type, times of nodes"] = _frozen(Graph.from_coo(src, dst, 100, node_time=10 * rng.integers(0, 50, 100)))
    graphs["all at once"] = _frozen(Graph.from_coo(src, dst, 100, edge_time=np.full(1500, 7)))
    return graphs


def star_graph(num_hubs: int, weights: np.ndarray) -> Graph:
    """Gives nodes 0 to ``num_hubs`` - 1 equal neighbourhoods, so that they are independent trials of one choice:
    in-neighbour ``i`` of each is node ``num_hubs + i``, by an edge of weight ``weights[i]``."""
    degree = len(weights)
    indptr = np.concatenate([np.arange(num_hubs + 1) * degree, np.full(degree, num_hubs * degree)])
    indices = np.tile(np.arange(num_hubs, num_hubs + degree), num_hubs)
    return Graph.from_csc(indptr, indices, edge_weight=np.tile(weights, num_hubs).astype(np.float32))


def _typed_edges() -> dict[str, tuple[dict[str, int], dict[EdgeType, np.ndarray]]]:
    """Makes nodes of each type, and edges ``[2, E]`` of each type."""
    rng = np.random.default_rng(1)

    def edges(num_src: int, num_dst: int, count: int) -> np.ndarray:
        return np.stack([rng.integers(0, num_src, count), (num_dst * rng.random(count) ** 2).astype(np.int64)])

    buys = edges(80, 60, 1500)
    shop: dict[EdgeType, np.ndarray] = {
        ("item", "like", "item"): edges(60, 60, 900),
        ("user", "buys", "item"): buys,
        ("user", "sees", "item"): edges(80, 60, 700),
        ("item", "rev_buys", "user"): buys[::-1].copy(),
        ("tag", "of", "user"): edges(9, 80, 400),
        ("user", "sells", "item"): edges(80, 60, 0),
    }
    hubs = np.stack([np.tile(np.arange(300), 40), np.repeat(np.arange(40), 300)])
    return {
        "one node": ({"a": 1}, {("a", "to", "a"): np.zeros((2, 0), np.int64)}),
        "a type without nodes": (
            {"a": 3, "none": 0, "b": 2},
            {("none", "to", "a"): np.zeros((2, 0), np.int64), ("a", "to", "b"): np.array([[0, 1, 2, 2], [1, 1, 1, 0]])},
        ),
        "users, items and tags": ({"user": 80, "item": 60, "tag": 9}, shop),
        "hubs of two types": ({"hub": 40, "leaf": 300}, {("leaf", f"{n}", "hub"): hubs for n in ("in", "and in")}),
    }


def _hetero(sizes: Any, edges: Any, **times: Any) -> Graph:
    rng = np.random.default_rng(3)
    weights = {edge_type: rng.integers(0, 4, pairs.shape[1]).astype(np.float32) for edge_type, pairs in edges.items()}
    return _frozen(Graph.from_hetero(sizes, edges, edge_weight=weights, **times))


def _frozen(graph: Graph) -> Graph:
    for name in Graph.ARRAYS:
        if (array := getattr(graph, name)) is not None:
            array.flags.writeable = False
    return graph


def _graph(rng: np.random.Generator, dtype: type, src: np.ndarray, dst: np.ndarray, num_nodes: int) -> Graph:
    plain = Graph.from_coo(src, dst, num_nodes)
    weight, edge_type = rng.integers(0, 4, len(src)).astype(np.float32), rng.integers(0, 3, len(src))
    arrays: list[Any] = [plain.indptr, plain.indices.astype(dtype), weight, edge_type]
    for array in arrays:
        array.flags.writeable = False
    return Graph(*arrays)


def part_around(graph: Graph, seeds: np.ndarray, hops: int) -> Graph:
    """Makes the part of a graph that holds ``hops`` hops of in-neighbours of these nodes, and nothing else.

    It is found in NumPy: a reference for samplers and for faster ways. Its nodes are in no order, so that a sampler
    that takes a part's ids for those of the whole is found out. 0 hops hold the nodes alone, without their lists.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 0], dst=[0, 1, 2, 3])
        >>> part = part_around(graph, np.array([0]), hops=2)
        >>> sorted(part.origin.node_ids.tolist()), part.num_edges
        ([0, 1, 2], 2)
    """
    is_in_part, reach = np.zeros(graph.num_nodes, bool), np.zeros(graph.num_nodes, np.uint8)
    is_in_part[seeds], reach[seeds] = True, hops
    for num_left in range(hops, 0, -1):
        neighbors = graph.indices[_edge_positions(graph, np.flatnonzero(reach == num_left))]
        is_in_part[neighbors] = True
        reach[neighbors] = np.maximum(reach[neighbors], num_left - 1)
    node_ids = np.random.default_rng(0).permutation(np.flatnonzero(is_in_part))
    local = np.full(graph.num_nodes, -1)
    local[node_ids] = np.arange(len(node_ids))
    has_list = reach[node_ids] > 0
    edges = _edge_positions(graph, node_ids[has_list])
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


def _edge_positions(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Returns the positions of all edges into these nodes, one node after the other."""
    lists = [np.arange(graph.indptr[node], graph.indptr[node + 1]) for node in nodes]
    return np.concatenate([np.empty(0, np.int64), *lists])
