"""Graphs to hold a sampler against: small ones with everything awkward in them, and stars for counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
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
    graphs = {name: _graph(rng, np.int32, *ends) for name, ends in edges.items()}
    graphs["random, int64 ids"] = _graph(rng, np.int64, *skewed, 200)
    return graphs


def typed_graphs() -> dict[str, Graph]:
    """Makes small graphs with types of nodes and edges by name, the same in every call, with weights: types without
    nodes or without edges, several relations between the same two types, repeated edges, hubs.

    Samplers are held against them as against those of :func:`example_graphs`.
    """
    return {name: _hetero(*each) for name, each in _typed_edges().items()}


def timed_graphs() -> dict[str, Graph]:
    """Likewise, graphs whose edges or nodes have times, whole ones and others, with types that have none."""
    graphs, rng = {}, np.random.default_rng(2)
    for name, (sizes, edges) in _typed_edges().items():
        kinds, nodes = list(edges), list(sizes)
        # Edges of the first type always are there, if there are several; few times, so that many are the same.
        timed = kinds[1:] or kinds
        edge_time = {kind: rng.integers(100, 140, len(edges[kind][0])) for kind in timed}
        node_time = {kind: rng.integers(90, 130, sizes[kind]) for kind in nodes[1:]}
        graphs[name] = _hetero(sizes, edges, edge_time=edge_time, node_time=node_time)
    src, dst = rng.integers(0, 100, (2, 1500))
    graphs["one type, times between whole ones"] = _frozen(
        Graph.from_coo(src, dst, 100, edge_time=rng.random(1500), edge_weight=np.ones(1500, np.float32))
    )
    graphs["one type, times of nodes"] = _frozen(Graph.from_coo(src, dst, 100, node_time=10 * rng.integers(0, 50, 100)))
    graphs["all at once"] = _frozen(Graph.from_coo(src, dst, 100, edge_time=np.full(1500, 7)))
    return graphs


def star_graph(num_hubs: int, weights: np.ndarray) -> Graph:
    """Gives nodes 0 to ``num_hubs`` - 1 equal neighbourhoods, so that they are independent trials of one choice.

    Args:
        num_hubs: H.
        weights: ``[degree]``: in-neighbour ``i`` of each is node ``H + i``, by an edge of weight ``weights[i]``.
    """
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
    weights = {kind: rng.integers(0, 4, ends.shape[1]).astype(np.float32) for kind, ends in edges.items()}
    return _frozen(Graph.from_hetero(sizes, edges, edge_weight=weights, **times))


def _frozen(graph: Graph) -> Graph:
    for name in Graph.ARRAYS:
        if (array := getattr(graph, name)) is not None:
            array.flags.writeable = False
    return graph


def _graph(rng: np.random.Generator, dtype: type, src: np.ndarray, dst: np.ndarray, num_nodes: int) -> Graph:
    made = Graph.from_coo(src, dst, num_nodes)
    weight, kind = rng.integers(0, 4, len(src)).astype(np.float32), rng.integers(0, 3, len(src))
    arrays: list[Any] = [made.indptr, made.indices.astype(dtype), weight, kind]
    for array in arrays:
        array.flags.writeable = False
    return Graph(*arrays)
