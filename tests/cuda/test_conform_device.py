"""The device's samplers on the graphs and settings that ``tests.laws`` holds the CPU's against: equal batches keep
the same contract and draw by the same laws."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import pytest

from lightning_gnnload.conform.graphs import example_graphs
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler, can_sample, draws_by_tables
from tests.laws.subjects import own_subjects
from tests.ops.graphs import sampled

from .sampled import assert_equal

GRAPHS = example_graphs()


def _is_left_to_the_host(sampler: Sampler, graphs: Mapping[str, Graph]) -> bool:
    """As :func:`.why_on_host` says of a workload; and times, which need seeds with some: test_typed.py has them."""
    if _needs_host(sampler, graphs) and sampler.weighting != "optional":
        return True
    typed = {graph.types is not None for graph in graphs.values()}
    timed = any(graph.clock is not None for graph in graphs.values())
    return timed or (False in typed and "edge_type" in (sampler.columns or ()))


def _needs_host(sampler: Sampler, graphs: Mapping[str, Graph]) -> bool:
    return any(sampler.needs_host(graph) is not None for graph in graphs.values())


SAMPLERS = [
    (c.sampler, c.graphs or GRAPHS)
    for subject in own_subjects()
    for c in subject.contracts
    if can_sample(c.sampler) is None and not _is_left_to_the_host(c.sampler, c.graphs or GRAPHS)
]
MOST_SEEDS = 10


@pytest.mark.parametrize(
    ("sampler", "graphs"), SAMPLERS, ids=lambda value: repr(value) if isinstance(value, Sampler) else ""
)
def test_batches_are_those_of_the_cpu(device: Device, sampler: Sampler, graphs: Mapping[str, Graph]) -> None:
    if _needs_host(sampler, graphs):  # by weight
        sampler = copy.copy(sampler)
        sampler.weighted = False  # type: ignore[attr-defined]
    for number, graph in enumerate(graphs.values()):
        on_device = DeviceSampler(sampler, place(graph, device, weighted=draws_by_tables(sampler, graph)), device)
        nodes = np.random.default_rng(number).permutation(graph.num_nodes)[:MOST_SEEDS]
        for step, seeds in enumerate((nodes[:0], nodes[:1], nodes)):
            key = DrawKey(seed=2**63 + number, epoch=2**32 - 1, step=17 * step)
            cpus = sampled(lambda arena: sampler.draw(graph, Draw(seeds, key), arena))  # noqa: B023  called at once
            assert_equal(on_device.sample(Draw(seeds, key)), cpus)


def test_who_samples_on_a_device() -> None:
    assert {type(sampler).__name__ for sampler, _ in SAMPLERS} >= {
        "NeighborSampler",
        "WeightedNeighborSampler",
        "RandomWalkSampler",
    }
    assert any(graph.types is not None for _, graphs in SAMPLERS for graph in graphs.values())
