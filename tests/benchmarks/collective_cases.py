"""What the benchmark of collective sampling samples, and how it measures it; alike for threads and processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from lightning_gnnload import (
    Graph,
    GraphData,
    LayerSampler,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.datasets.synthetic import Synthetic
from lightning_gnnload.errors import MissingExtraError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.sample.base import Paradigm, nodes_of
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests.benchmarks.graphs import edge_weights

SAMPLERS: dict[str, Sampler] = {
    "uniform [15, 10, 5]": NeighborSampler([15, 10, 5]),
    "weighted [15, 10, 5]": WeightedNeighborSampler([15, 10, 5]),
    "walks, 3 x (4 walks of 3 steps, 5 nodes)": RandomWalkSampler(weighted=False),
    "layer-wise dsp, [1024, 1024, 1024]": LayerSampler([1024] * 3, "dsp", weighted=False),
    "layer-wise dsp by weight, [1024, 1024, 1024]": LayerSampler([1024] * 3, "dsp"),
    "layer-wise ladies, [512, 512]": LayerSampler([512] * 2, "ladies", weighted=False),
}
PARADIGMS: tuple[Paradigm, ...] = ("push", "pull")
BATCH_SIZE = 1024
KEY = DrawKey(1, 2, 3)


def dataset(kind: str, quick: bool) -> Synthetic:
    """``"chung-lu"``: power-law degrees, half of all edges within one of 16 communities. ``"web"``: most links stay
    within a host of some hundred pages."""
    num_nodes, num_edges = (20_000, 400_000) if quick else (400_000, 10_000_000)
    return Synthetic(kind, num_nodes=num_nodes, num_edges=num_edges, num_features=0)  # type: ignore[arg-type]


@cache
def load(kind: str, quick: bool) -> GraphData:
    """The dataset with a weight for every edge."""
    made = dataset(kind, quick)
    made.prepare()
    data = made.load()
    graph = Graph.from_csc(data.graph.indptr, data.graph.indices, edge_weight=edge_weights(data.graph.num_edges))
    return GraphData(graph, train=data.train, val=data.val, test=data.test, y=data.y)


def partition(data: GraphData, method: str, num_parts: int, folder: Path) -> Partition | None:
    """Each list with its owner; None where the method's package is missing."""
    try:
        return partition_graph(data, folder, num_parts, method, hops=0, features=False, progress=False)
    except MissingExtraError:
        return None


def seeds_of(made: Partition, rank: int, num_batches: int) -> list[np.ndarray]:
    """A rank's training nodes, as DSP deals them out: to the part that owns them."""
    own = made.parts[rank].seeds["train"]
    size = min(BATCH_SIZE, len(own))
    return [np.random.default_rng(turn).choice(own, size, replace=False) for turn in range(num_batches)]


@dataclass
class Measured:
    """Of one sampler: means a batch.

    Attributes:
        remote_share: of the nodes that it asks about, those that other ranks own.
        mega_bytes: to other ranks and back.
        took_ms: by the clock.
        drawn_mb: four bytes for each neighbour drawn: all that would be moved if tasks cost nothing and no node were
            a rank's own (DSP, figure 1, "Ideal").
    """

    remote_share: float
    mega_bytes: float
    took_ms: float
    drawn_mb: float


def measure(sampler: Sampler, colleagues: SamplingGroup, paradigm: Paradigm, seeds: list[np.ndarray]) -> Measured:
    """The first batch is not counted: tables are made, and memory is touched."""
    collective = CollectiveSampler(sampler, colleagues, paradigm)
    nodes_of(collective, None, Draw(seeds[0], KEY))  # type: ignore[arg-type]
    before = _traffic(colleagues)
    took_ms = _mean_ms(lambda ids: nodes_of(collective, None, Draw(ids, KEY)), seeds[1:])  # type: ignore[arg-type]
    num_batches = len(seeds) - 1
    num_nodes, num_remote, num_bytes = _traffic(colleagues) - before
    batch = collective.sample(None, seeds[-1], KEY.seed, KEY.epoch, KEY.step)
    drawn = sum(block.num_edges for block in batch.blocks)
    return Measured(num_remote / max(num_nodes, 1), num_bytes / num_batches / 1e6, took_ms, 4 * drawn / 1e6)


def alone_ms(sampler: Sampler, graph: Graph, seeds: list[np.ndarray]) -> float:
    """The same batches by one process that holds the whole graph."""
    nodes_of(sampler, graph, Draw(seeds[0], KEY))
    return _mean_ms(lambda ids: nodes_of(sampler, graph, Draw(ids, KEY)), seeds[1:])


def _traffic(colleagues: SamplingGroup) -> np.ndarray:
    counted = [(each.num_nodes, each.num_remote, each.num_bytes) for each in colleagues.traffic.values()]
    return np.array(counted, np.int64).reshape(-1, 3).sum(0)


def _mean_ms(sample: object, seeds: list[np.ndarray]) -> float:
    began = time.perf_counter()
    for ids in seeds:
        sample(ids)  # type: ignore[operator]
    return (time.perf_counter() - began) * 1e3 / len(seeds)
