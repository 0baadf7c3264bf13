"""Small graphs with edge weights, and batches sampled from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lightning_gnnload.ops import AliasTable, DrawKey, SamplerInput, Workspace, build_alias, sample_weighted

from .graphs import KEY, Batch, random_graph, sampled, star_graph

WEIGHTS = {
    "equal": lambda rng, size: np.full(size, 0.3),
    "random": lambda rng, size: rng.standard_exponential(size),
    "some zero": lambda rng, size: rng.random(size) * (rng.random(size) < 0.6),
    "nearly all zero": lambda rng, size: (rng.random(size) < 0.05).astype(float),
    "skewed": lambda rng, size: np.exp(10 * rng.standard_normal(size)),  # few edges have almost all of the weight
}


class WeightedGraph(NamedTuple):
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    table: AliasTable

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray) -> WeightedGraph:
        return cls(indptr, indices, weights, build_alias(indptr, weights))

    @classmethod
    def random(
        cls, num_nodes: int, num_edges: int, seed: int, kind: str = "some zero", **options: Any
    ) -> WeightedGraph:
        weights = WEIGHTS[kind](np.random.default_rng(seed), num_edges)
        return cls.of(*random_graph(num_nodes, num_edges, seed, **options), weights)

    @classmethod
    def star(cls, hubs: int, weights: Any) -> WeightedGraph:
        """Nodes 0 to ``hubs`` - 1 have the same in-neighbours by the same weights."""
        return cls.of(*star_graph(hubs, len(weights)), np.tile(np.asarray(weights, np.float64), hubs))

    def sample(
        self, seeds: Any, fanouts: list[int], key: DrawKey = KEY, workspace: Workspace | None = None, **options: Any
    ) -> Batch:
        """A batch with edge ids in an arena that grows until it fits."""
        workspace = workspace or Workspace(len(self.indptr) - 1)
        graph = (workspace, self.indptr, self.indices, np.asarray(seeds, np.int64), key)
        names = options.pop("names", None)
        options.setdefault("edge_ids", True)
        return sampled(
            lambda arena: sample_weighted(SamplerInput(*graph, arena, names), self.table, fanouts, **options)
        )
