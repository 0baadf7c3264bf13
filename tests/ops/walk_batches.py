"""Batches of neighbourhoods by random walks, read back from their arenas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.ops import DrawKey, SampleLayout, SamplerInput, Walks, Workspace, sample_walks

from .graphs import KEY, Hop, read_batch, sampled

WALKS = Walks(3, 4, termination_prob=0.5)  # GNNLab's
GNNLAB = {"num_hops": 3, "num_neighbors": 5}


@dataclass
class Batch:
    nodes: np.ndarray
    hops: list[Hop]
    weights: list[np.ndarray]


def read(layout: SampleLayout, arena: np.ndarray) -> Batch:
    batch = read_batch(layout, arena)
    weights = [
        np.frombuffer(arena, np.float32, hop.num_edges, hop.edge_weights_offset).copy()
        if hop.num_edges
        else np.empty(0, np.float32)
        for hop in layout.hops
    ]
    return Batch(batch.nodes, batch.hops, weights)


def sample_batch(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    walks: Walks = WALKS,
    key: DrawKey = KEY,
    workspace: Workspace | None = None,
    **options: Any,
) -> Batch:
    """A batch in an arena that grows until it fits."""
    workspace = workspace or Workspace(len(indptr) - 1)
    graph, names = (workspace, indptr, indices, np.asarray(seeds, np.int64), key), options.pop("names", None)
    return sampled(lambda arena: sample_walks(SamplerInput(*graph, arena, names), walks, **(GNNLAB | options)), read)


def assert_equal(got: Batch, want: Batch) -> None:
    np.testing.assert_array_equal(got.nodes, want.nodes)
    for a, b, got_weights, want_weights in zip(got.hops, want.hops, got.weights, want.weights, strict=True):
        assert a.num_src == b.num_src
        np.testing.assert_array_equal(a.indptr, b.indptr)
        np.testing.assert_array_equal(a.indices, b.indices)
        np.testing.assert_array_equal(got_weights, want_weights)


def neighbors_by_node(batch: Batch, hop: int) -> dict[int, list[tuple[int, float]]]:
    """The neighbours and weights of each destination of a hop, in order."""
    layer = batch.hops[hop]
    edges = list(zip(batch.nodes[layer.indices].tolist(), batch.weights[hop].tolist(), strict=True))
    bounds = layer.indptr.tolist()
    nodes = batch.nodes.tolist()
    return {nodes[d]: edges[bounds[d] : bounds[d + 1]] for d in range(len(bounds) - 1)}
