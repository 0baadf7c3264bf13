"""A small graph with types, whose features tell where they came from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lightning_gnnload import Graph, MiniBatch, NeighborSampler
from lightning_gnnload.data.types import EdgeType

NODES = {"paper": 30, "author": 20, "venue": 0, "field": 7}
KINDS: list[EdgeType] = [
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "has", "field"),
    ("paper", "rev_writes", "author"),
    ("venue", "prints", "paper"),
    ("author", "knows", "author"),
    ("paper", "in", "venue"),
]
SIZES = [120, 150, 60, 90, 0, 40, 0]


def typed_edges(seed: int = 0) -> dict[EdgeType, np.ndarray]:
    """``[2, E_k]`` by type; repeated edges and loops are there by chance, and nodes without in-neighbours."""
    rng = np.random.default_rng(seed)
    edges = {}
    for kind, size in zip(KINDS, SIZES, strict=True):
        ends = [rng.integers(max(NODES[kind[end]], 1), size=size) for end in (0, 2)]
        edges[kind] = np.stack(ends)
    return edges


def typed_graph(seed: int = 0, **settings: Any) -> Graph:
    return Graph.from_hetero(NODES, typed_edges(seed), **{"keep_order": True, **settings})


def typed_flat(
    graph: Graph, seeds: Any = (3, 0, 29), *, expand: Any = "new", fanouts: Any = (5, 4, 3), seed: int = 1
) -> MiniBatch:
    """A mini-batch with edge ids; the seeds are papers."""
    batch = NeighborSampler(list(fanouts), expand=expand, edge_ids=True).sample(graph, list(seeds), seed=seed)
    return replace(batch, y=batch.seeds % 7)
