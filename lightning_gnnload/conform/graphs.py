"""Graphs to hold a sampler against: small ones with everything awkward in them, and stars for counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph


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


def _graph(rng: np.random.Generator, dtype: type, src: np.ndarray, dst: np.ndarray, num_nodes: int) -> Graph:
    made = Graph.from_coo(src, dst, num_nodes)
    weight, kind = rng.integers(0, 4, len(src)).astype(np.float32), rng.integers(0, 3, len(src))
    arrays: list[Any] = [made.indptr, made.indices.astype(dtype), weight, kind]
    for array in arrays:
        array.flags.writeable = False
    return Graph(*arrays)
