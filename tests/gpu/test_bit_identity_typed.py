"""Draws by type, time, row and weight on a device, of a graph with hubs, compared with the CPU's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.seeds.rows import NodeSeeds
from lightning_gnnload.sample.weighted import WeightedNeighborSampler
from tests.cuda.sampled import assert_equal
from tests.ops.graphs import sampled

COUNTS = {"user": 300_000, "item": 100_000, "shop": 50}
EDGES = {
    ("user", "buys", "item"): 3_000_000,
    ("item", "rev_buys", "user"): 3_000_000,
    ("user", "knows", "user"): 2_000_000,
    ("user", "visits", "shop"): 1_000_000,  # lists of 20,000
}
BATCH, STEPS = 4096, 5
SAMPLERS: list[Sampler] = [
    NeighborSampler([10, 5, 3], edge_ids=True),
    NeighborSampler([{"buys": 40, "visits": 100}, {"knows": -1, "rev_buys": 2}], expand="new"),
    NeighborSampler([10, 5], sharing="disjoint", replace=True),
    NeighborSampler([10, 5], sharing="disjoint", order="path", window=300),
    NeighborSampler([20, 3], sharing="time", before="<"),
    NeighborSampler([10, 5], sharing="disjoint", pick="last", expand="new"),
    WeightedNeighborSampler([10, 5], edge_ids=True),
    WeightedNeighborSampler([{"buys": 33, "knows": -1}, 5], replace=True, expand="new"),
]

pytestmark = pytest.mark.timeout(1800)


@cache
def graph_of(timed: bool, share: float) -> Graph:
    """``share``: of the edges and nodes."""
    rng, counts = np.random.default_rng(0), {name: int(count * share) + 1 for name, count in COUNTS.items()}
    edges, times, weights = {}, {}, {}
    for kind, count in EDGES.items():
        size = int(count * share)
        targets = (counts[kind[2]] * rng.random(size) ** 3).astype(np.int64)
        edges[kind] = rng.integers(0, counts[kind[0]], size), targets
        times[kind], weights[kind] = rng.integers(0, 1000, size), np.exp(4 * rng.standard_normal(size))
    if not timed:
        return Graph.from_hetero(counts, edges, edge_weight=weights)
    del times["user", "knows", "user"]
    node_time = {name: rng.integers(0, 1000, count) for name, count in counts.items()}
    return Graph.from_hetero(counts, edges, edge_time=times, node_time=node_time)


def check(device: Device, sampler: Any, share: float = 1, batch: int = BATCH, steps: int = STEPS) -> None:
    timed = getattr(sampler, "window", None) is not None or sampler.sharing == "time" or sampler.pick == "last"
    graph = graph_of(timed, share)
    draws = DeviceSampler(sampler, place(graph, device, weighted=sampler.weighting == "always"), device)
    rows = NodeSeeds(graph, sampler, np.arange(graph.num_nodes))
    for step in range(steps):
        seeds = np.random.default_rng(step).permutation(graph.num_nodes)[:batch]
        key = DrawKey(seed=2**63 + 1, epoch=7, step=step)
        draw = rows.ask(seeds, key).draw
        cpus = sampled(lambda arena: sampler.draw(graph, draw, arena))  # noqa: B023  called at once
        assert_equal(draws.sample(draw), cpus)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_batches_are_those_of_the_cpu(device: Device, sampler: Sampler) -> None:
    check(device, sampler)
