"""Policies that look at the graph alone: by degree, by the ratio of degrees, and blindly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.sample.workload import FIXED_DRAWS_EPOCH, Workload


@dataclass(frozen=True)
class Degree(CachePolicy):
    """By out-degree: a node is gathered because an edge leads from it to one that was there before.

    It knows neither which nodes are seeds nor how the sampler draws.

    Source: PaGraph (SoCC'20), section 3.1.
    """

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return out_degrees(workload.graph)


@dataclass(frozen=True)
class DegreeRatio(CachePolicy):
    """By in-degree over out-degree, as PaGraph compares itself with AliGraph; 0 where no edge leads out.

    Where each edge goes both ways, all nodes are equal and the lowest ids win.

    Source: PaGraph (SoCC'20), section 5.3; AliGraph (VLDB'19).
    """

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        out = out_degrees(workload.graph)
        return np.divide(workload.graph.in_degrees, out, out=np.zeros(len(out)), where=out > 0)


@dataclass(frozen=True)
class Random(CachePolicy):
    """Any rows, the same for the same seed of the run: what a policy must beat."""

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return ops.random_keys(workload.seed, FIXED_DRAWS_EPOCH, np.arange(workload.graph.num_nodes))


def out_degrees(graph: Graph, chunk: int = 1 << 24) -> np.ndarray:
    """How many edges lead out of each node, int64 ``[N]``."""
    degrees = np.zeros(graph.num_nodes, np.int64)
    for begin in range(0, graph.num_edges, chunk):  # bincount makes int64 of what it is given
        degrees += np.bincount(graph.indices[begin : begin + chunk], minlength=graph.num_nodes)
    return degrees
