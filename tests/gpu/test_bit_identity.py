"""Ten million draws on a device, each compared with the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey, Workspace
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from tests.cuda.sampled import assert_equal, topology_of
from tests.ops import graphs

NUM_NODES = 10_000_000
HUBS = {10_000: 1000, 1_000_000: 10, 10_000_000: 1}
"""Degree, and how many nodes have it; all others' degrees are 0 to 32."""
FANOUTS = (*range(1, 34), 40, 63, 64, 65, 100, 1000)
BATCH = 1 << 17

pytestmark = pytest.mark.timeout(1800)


def wide_graph(num_nodes: int, hubs: dict[int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Degrees from 0 to the hubs', hubs at random places."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 33, num_nodes)
    places = rng.permutation(num_nodes)[: sum(hubs.values())]
    degrees[places] = np.repeat(list(hubs), list(hubs.values()))
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return indptr, rng.integers(0, num_nodes, indptr[-1], dtype=np.int32)


def check_every_node(
    device: Device, num_nodes: int = NUM_NODES, hubs: dict[int, int] = HUBS, batch: int = BATCH
) -> None:
    """Every node is a seed once; fanouts take turns."""
    indptr, indices = wide_graph(num_nodes, hubs, seed=1)
    topology = topology_of(device, indptr, indices)
    there, here = DeviceWorkspace(device, num_nodes), Workspace(num_nodes)
    order = np.random.default_rng(2).permutation(num_nodes)
    for step, begin in enumerate(range(0, num_nodes, batch)):
        seeds, key = order[begin : begin + batch], DrawKey(seed=2**63 + 1, epoch=7, step=step)
        fanout, options = FANOUTS[step % len(FANOUTS)], {"replace": step % 5 == 4, "edge_ids": True}
        sample = sample_neighbors(there, topology, seeds, [fanout], key, **options)
        assert_equal(sample, graphs.sample(indptr, indices, seeds, [fanout], key, here, **options))


def test_ten_million_nodes_draw_as_on_the_cpu(device: Device) -> None:
    check_every_node(device)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_deep_batches_are_those_of_the_cpu(device: Device, expand: str) -> None:
    indptr, indices = wide_graph(1_000_000, {100_000: 20}, seed=3)
    topology = topology_of(device, indptr, indices)
    there, here = DeviceWorkspace(device, 1_000_000), Workspace(1_000_000)
    for step in range(20):
        seeds = np.random.default_rng(step).permutation(1_000_000)[:8000]
        key = DrawKey(seed=4, epoch=0, step=step)
        sample = sample_neighbors(there, topology, seeds, [15, 10, 5], key, expand=expand)
        assert_equal(sample, graphs.sample(indptr, indices, seeds, [15, 10, 5], key, here, expand=expand))
