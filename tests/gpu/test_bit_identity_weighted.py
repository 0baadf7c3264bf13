"""Draws by weight and walks on a device, some of each node of a large graph, compared with the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import Draw, DrawKey, Walks, random_walk
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import walks as device_walks
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler
from tests.cuda.sampled import assert_equal
from tests.ops.graphs import sampled

from .test_bit_identity import wide_graph

NUM_NODES = 1_000_000
HUBS = {10_000: 300, 1_000_000: 2}
BATCH = 1 << 16
WEIGHTS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "even": lambda rng, size: rng.random(size),
    "some zero": lambda rng, size: rng.random(size) * (rng.random(size) < 0.4),
    "skewed": lambda rng, size: np.exp(8 * rng.standard_normal(size)),  # picks from shares, too
}
VISITS = [
    {},
    {"num_walks": 60, "walk_length": 2, "num_neighbors": 50},  # the paper's number of neighbours
    {"num_walks": 100, "walk_length": 30, "termination_prob": 0.02},  # blocks, and scratch
]

pytestmark = pytest.mark.timeout(1800)


def weighted_graph(kind: str, num_nodes: int = NUM_NODES, hubs: dict[int, int] = HUBS) -> Graph:
    indptr, indices = wide_graph(num_nodes, hubs, seed=5)
    return Graph(indptr, indices, WEIGHTS[kind](np.random.default_rng(6), len(indices)).astype(np.float32))


def check_seeds(device: Device, graph: Graph, samplers: list[Sampler], batch: int) -> None:
    """Batches of distinct nodes, a sampler each in turn."""
    topology = place(graph, device, weighted=True)
    order = np.random.default_rng(7).permutation(graph.num_nodes)
    for step, sampler in enumerate(samplers):
        seeds = order[step * batch % graph.num_nodes :][:batch]
        key = DrawKey(seed=2**63 + 1, epoch=7, step=step)
        cpus = sampled(lambda arena: sampler.draw(graph, Draw(seeds, key), arena))  # noqa: B023  called at once
        assert_equal(DeviceSampler(sampler, topology, device).sample(Draw(seeds, key)), cpus)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weighted_draws_are_those_of_the_cpu(device: Device, kind: str) -> None:
    samplers: list[Sampler] = []
    for fanout in (1, 2, 5, 8, 10, 16, 25, 32, 33, 100, 1000):
        samplers += [WeightedNeighborSampler([fanout], replace=replace, edge_ids=True) for replace in (False, True)]
    samplers += [WeightedNeighborSampler([10, 5, 3], expand=expand) for expand in ("all", "new")]  # type: ignore[arg-type]
    check_seeds(device, weighted_graph(kind), samplers, BATCH)


def visiting(settings: dict[str, Any]) -> list[Sampler]:
    """Not by edge weight, by which the CPU alone walks."""
    return [
        RandomWalkSampler(num_layers=2, normalize=normalize, expand=expand, weighted=False, **settings)  # type: ignore[arg-type]
        for normalize, expand in ((False, "all"), (True, "new"))
    ]


@pytest.mark.parametrize("settings", VISITS, ids=str)
def test_visits_are_those_of_the_cpu(device: Device, settings: dict[str, Any]) -> None:
    check_seeds(device, weighted_graph("even"), visiting(settings), batch=2000)


def test_walks_from_every_node_are_those_of_the_cpu(device: Device) -> None:
    graph, starts, key = weighted_graph("even"), np.arange(NUM_NODES), DrawKey(1, 2, 3)
    walks = Walks(9, 2, termination_prob=0.05, restart_prob=0.2)
    traces = device_walks.random_walk(device, place(graph, device), starts, walks, key)
    assert torch.equal(traces.cpu(), torch.from_numpy(random_walk(graph.indptr, graph.indices, starts, walks, key)))
