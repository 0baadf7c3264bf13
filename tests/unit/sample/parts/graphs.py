"""Random graphs with types and times, whose parts are sampled together."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload import Graph

COUNTS = {"a": 17, "none": 0, "b": 12}
KINDS = {("a", "to", "b"): 60, ("b", "back", "a"): 70, ("a", "in", "a"): 40, ("b", "no", "none"): 0}
TO, BACK, IN, _ = KINDS


def typed_graph(seed: int, *, weighted: bool = False, timed: str = "") -> Graph:
    """Two types of nodes, and one without any; hubs, loops, repeated edges and nodes without lists; two of the edge
    types have ``timed`` edges ("int", or "float", whose codes are ranks), some of equal times, one has none."""
    rng = np.random.default_rng(seed)
    edges, weights, times = {}, {}, {}
    for kind, size in KINDS.items():
        src, dst = (max(COUNTS[kind[end]], 1) * rng.random(size) ** power for end, power in ((0, 1), (2, 2)))
        edges[kind] = src.astype(np.int64), dst.astype(np.int64)
        weights[kind] = rng.random(size) * (rng.random(size) < 0.8)
        times[kind] = rng.integers(0, 12, size) if timed == "int" else rng.integers(0, 12, size) / 7
    described: dict[str, Any] = {"edge_weight": weights} if weighted else {}
    if timed:
        described["edge_time"] = {kind: times[kind] for kind in (TO, BACK)}
        if seed % 2:
            node_time = rng.integers(0, 6, COUNTS["a"])
            described["node_time"] = {"a": node_time if timed == "int" else node_time / 7}
    return Graph.from_hetero(COUNTS, edges, **described)


def flat_graph(seed: int, *, by_type: bool) -> Graph:
    """One type of nodes, times of edges and nodes, and edges of several types."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 29, 200), (29 * rng.random(200) ** 2).astype(np.int64)
    types = {"edge_type": rng.integers(0, 4, 200)} if by_type else {}
    return Graph.from_coo(src, dst, 29, edge_time=rng.integers(0, 12, 200), node_time=rng.integers(0, 4, 29), **types)
