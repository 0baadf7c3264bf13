"""Batches of any sampling op, with the weights of their edges, and graphs whose nodes share neighbours or do not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.ops import DrawKey, SampleLayout, SamplerInput, Workspace

from .graphs import KEY, Batch, read_batch, sampled


@dataclass
class Sampled(Batch):
    """``weights``: float32 of each hop's edges, or None where the op wrote none."""

    weights: list[np.ndarray | None]


def read_sampled(layout: SampleLayout, arena: np.ndarray) -> Sampled:
    batch = read_batch(layout, arena)
    weights = [
        np.frombuffer(arena, np.float32, hop.num_edges, hop.edge_weights_offset).copy()
        if hop.edge_weights_offset >= 0
        else None
        for hop in layout.hops
    ]
    return Sampled(batch.nodes, batch.hops, batch.layout, batch.queries, weights)


def sample_by(
    op: Callable[..., SampleLayout],
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    fanouts: list[int],
    key: DrawKey = KEY,
    workspace: Workspace | None = None,
    **options: Any,
) -> Sampled:
    """A batch in an arena that grows until it fits."""
    workspace = workspace or Workspace(len(indptr) - 1)
    graph, names = (workspace, indptr, indices, np.asarray(seeds, np.int64), key), options.pop("names", None)
    return sampled(lambda arena: op(SamplerInput(*graph, arena, names), fanouts, **options), read_sampled)


def assert_equal_hops(got: Sampled, nodes: np.ndarray, hops: list[Any], edge_ids: bool = True) -> None:
    """The nodes, ids and counts of a batch; weights are the caller's to compare."""
    np.testing.assert_array_equal(got.nodes, nodes)
    assert len(got.hops) == len(hops)
    for mine, want in zip(got.hops, hops, strict=True):
        assert mine.num_src == want.num_src
        np.testing.assert_array_equal(mine.indptr, want.indptr)
        np.testing.assert_array_equal(mine.indices, want.indices)
        if edge_ids:
            np.testing.assert_array_equal(mine.edge_ids, want.edge_ids)


def private_graph(hubs: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes 0 to ``hubs`` - 1 have ``degree`` in-neighbours each, and share none: independent trials."""
    indptr = np.concatenate([np.arange(hubs + 1) * degree, np.full(hubs * degree, hubs * degree)])
    return indptr, hubs + np.arange(hubs * degree)


def graph_of(*lists: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Node ``i`` has the in-neighbours ``lists[i]``; other nodes have none."""
    num_nodes = max(len(lists), 1 + max((max(each, default=-1) for each in lists), default=-1))
    degrees = [len(each) for each in lists] + [0] * (num_nodes - len(lists))
    return np.concatenate([[0], np.cumsum(degrees)]), np.array([*itertools.chain(*lists)], np.int64)
