"""A device whose mini-batches are not the CPU's is not used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lightning_gnnload import Graph, NeighborSampler
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CudaUnavailableError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.sample.device.samplers import NUM_SEEDS, DeviceSampler, check_device
from lightning_gnnload.sample.workload import Workload

from .sampled import skewed_graph, topology_of

FIRST = BatchRequest(epoch=0, step=0, rank=0, num_ranks=1)


def test_bad_seeds_are_left_to_their_batch(device: Device) -> None:
    graph = Graph.from_csc(*skewed_graph(seed=1))
    topology, sampler = topology_of(device, graph.indptr, graph.indices), NeighborSampler([4])
    check_device(
        DeviceSampler(sampler, topology, device),
        Workload(graph, sampler, np.array([-1]), batch_size=1, order=Sequential()),
        FIRST,
    )


def test_equal_batches_pass(device: Device) -> None:
    graph = Graph.from_csc(*skewed_graph(seed=1, num_nodes=2 * NUM_SEEDS))
    topology = topology_of(device, graph.indptr, graph.indices)
    for sampler in (NeighborSampler([4, 3], edge_ids=True), NeighborSampler([4, 3], expand="new")):
        workload = Workload(graph, sampler, np.arange(2 * NUM_SEEDS), batch_size=100, order=Sequential())
        check_device(DeviceSampler(sampler, topology, device), workload, FIRST)


@pytest.mark.parametrize("differs", ["indices", "indptr"])
def test_any_difference_is_named(device: Device, differs: str) -> None:
    graph = Graph.from_csc(*skewed_graph(seed=1))
    sampler = NeighborSampler([100])
    changed = {"indices": graph.indices.copy(), "indptr": graph.indptr.copy()}
    node = int(np.argmax(np.diff(graph.indptr)))
    if differs == "indices":  # two neighbours that have changed places
        edge = graph.indptr[node] + np.flatnonzero(np.diff(graph.in_neighbors(node)))[0]
        changed["indices"][[edge, edge + 1]] = changed["indices"][[edge + 1, edge]]
    else:
        changed["indptr"][node + 1] -= 1
    topology = topology_of(device, changed["indptr"], changed["indices"])
    topology = replace(topology, num_edges=graph.num_edges)
    workload = Workload(graph, sampler, np.array([node]), batch_size=1, order=Sequential())
    with pytest.raises(CudaUnavailableError, match=r"than the CPU: (nodes|in\w+ of hop 0) differs"):
        check_device(DeviceSampler(sampler, topology, device), workload, FIRST)


def test_an_error_of_the_device_is_told_as_a_device_that_cannot(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    graph = Graph.from_csc(*skewed_graph(seed=1))
    sampler = NeighborSampler([4])
    draws = DeviceSampler(sampler, topology_of(device, graph.indptr, graph.indices), device)
    monkeypatch.setattr(draws, "sample", fails)
    workload = Workload(graph, sampler, np.arange(8), batch_size=8, order=Sequential())
    with pytest.raises(CudaUnavailableError, match="RuntimeError: CUDA error: an illegal memory access"):
        check_device(draws, workload, FIRST)
