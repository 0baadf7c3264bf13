"""Uniform sampling on a device equals the CPU's, number for number."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch import state
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling import neighbors, workspace
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from tests.ops import graphs

from .emulated import EmulatedDevice
from .sampled import assert_equal, in_shards, skewed_graph, topology_of

SEEDS = np.array([3, 0, 17, 59, 8, 1])


def check(device: Device, graph: Any, fanouts: list[int], seeds: np.ndarray = SEEDS, **options: Any) -> None:
    key = options.pop("key", DrawKey(seed=7, epoch=2, step=5))
    names = options.pop("names", None)
    table = DeviceWorkspace(device, len(graph[0]) - 1, options.pop("table", "auto"))
    topology = topology_of(device, *graph, names=None if names is None else device.put(names))
    sample = sample_neighbors(table, topology, seeds, fanouts, key, **options)
    assert_equal(sample, graphs.sample(*graph, seeds, fanouts, key, names=names, **options))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "fanouts", [[1], [5, 3], [8, 9], [16, 4], [17], [31, 2], [32], [-1, 2], [3, -1]], ids=lambda fanouts: str(fanouts)
)
def test_a_batch_is_that_of_the_cpu(device: Device, fanouts: list[int], dtype: type) -> None:
    graph = skewed_graph(seed=len(fanouts), dtype=dtype)
    for replace, expand, edge_ids in product([False, True], ["all", "new"], [False, True]):
        if edge_ids == replace:  # half of the combinations: the two do not meet in the code
            check(device, graph, fanouts, replace=replace, expand=expand, edge_ids=edge_ids)


@pytest.mark.parametrize("fanout", [1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100])
def test_draws_that_collide_are_replaced_as_one_by_one(device: Device, fanout: int) -> None:
    """With degrees just above the fanout nearly every draw is replaced, in chains."""
    degrees = [fanout - 1, fanout, fanout + 1, fanout + 2, fanout + fanout // 2 + 1, 4 * fanout]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    num_nodes = int(indptr[-1]) + len(degrees)
    indptr = np.concatenate([indptr, np.full(num_nodes - len(degrees), indptr[-1])])
    indices = len(degrees) + np.arange(indptr[len(degrees)])
    for step in range(3):
        check(device, (indptr, indices), [fanout], np.arange(len(degrees)), key=DrawKey(1, 0, step), edge_ids=True)


@pytest.mark.parametrize("count", [255, 256, 257, 512, 1024, 1025])
def test_hops_that_fill_their_tiles_are_complete(device: Device, count: int) -> None:
    """Destinations are summed 256 at a time, edges are numbered 1,024 at a time; here there are as many of both."""
    num_nodes = 3 * count
    indptr = np.minimum(np.arange(num_nodes + 1), 2 * count)  # the last third has none
    indices = np.roll(np.arange(num_nodes), -count)[: 2 * count]
    check(device, (indptr, indices), [1, 1], np.arange(count), edge_ids=True)
    check(device, (indptr, indices), [-1, 1], np.arange(count)[::-1].copy(), expand="new")


@pytest.mark.parametrize("fanout", [3, -1])
def test_edges_are_numbered_beyond_32_bits(device: Device, fanout: int, tmp_path: Path) -> None:
    """Most of the lists' memory is never touched, and so takes none of the host's; a device would have to hold it."""
    if not isinstance(device, EmulatedDevice):
        pytest.skip("takes 17 GB of a device; tests/gpu has a graph of that size")
    num_edges = (1 << 32) + 1000
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(num_edges,))
    begins = np.array([0, 5, (1 << 31) - 3, (1 << 31) + 4, (1 << 32) - 2, (1 << 32) + 7, num_edges])
    for node, begin in enumerate(begins[:-1]):
        indices[begin : begin + 20] = (np.arange(20) * 7 + node) % 6
    most = int(np.diff(begins).max())
    topology = Topology(6, num_edges, device.put(begins), torch.from_numpy(indices), max_degree=most)
    # Lists 1 and 3 have two thousand million edges.
    seeds, key = np.array([1, 2, 4] if fanout > 0 else [0, 2, 4]), DrawKey(3, 1, 4)
    sample = sample_neighbors(DeviceWorkspace(device, 6), topology, seeds, [fanout], key, edge_ids=True)
    expected = graphs.sample(begins, indices, seeds, [fanout], key, edge_ids=True)
    assert_equal(sample, expected)
    assert expected.hops[0].edge_ids.max() > 1 << 32


def test_a_part_draws_in_the_name_of_its_graph(device: Device) -> None:
    names = (np.arange(60) * 7919 + 2**41)[::-1].copy()
    check(device, skewed_graph(seed=1), [5, 3], names=names)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_lists_are_read_from_shards(device: Device, dtype: type) -> None:
    indptr, indices = skewed_graph(seed=2, dtype=dtype)
    topology = in_shards(device, topology_of(device, indptr, indices))
    for fanouts in ([5, 3], [-1, 2]):
        key = DrawKey(1, 2, 3)
        sample = sample_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, fanouts, key, edge_ids=True)
        assert_equal(sample, graphs.sample(indptr, indices, SEEDS, fanouts, key, edge_ids=True))


def test_the_host_waits_once(device: Device) -> None:
    table, topology = DeviceWorkspace(device, 60), topology_of(device, *skewed_graph(seed=1))
    before = device.num_reads
    sample_neighbors(table, topology, SEEDS, [5, 3, 2], DrawKey(0, 0, 0))
    assert device.num_reads == before + 1
    sample_neighbors(table, topology, SEEDS, [5, -1, 2], DrawKey(0, 0, 0))
    assert device.num_reads == before + 3  # once more for the hop that takes all


@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_a_workspace_forgets_one_batch_after_the_other(
    device: Device, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of batches run out, and positions take more bits in mid-batch: both clear the table."""
    monkeypatch.setattr(workspace, "_LEAST_BITS", 3)
    graph = skewed_graph(seed=3)
    held, topology = DeviceWorkspace(device, 60, table), topology_of(device, *graph)
    held._bits = 3
    for step in range(4):
        key, fanouts = DrawKey(0, 0, step), [[1], [4, 3], [2, 2], [6]][step]
        assert_equal(
            sample_neighbors(held, topology, SEEDS[:3], fanouts, key), graphs.sample(*graph, SEEDS[:3], fanouts, key)
        )
    held._bits, held._batch = 30, 0  # four numbers
    for step in range(9):
        assert_equal(
            sample_neighbors(held, topology, SEEDS, [2], DrawKey(0, 1, step)),
            graphs.sample(*graph, SEEDS, [2], DrawKey(0, 1, step)),
        )


def test_a_hop_that_could_be_too_large_waits_for_its_size(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BOUND_EDGES", 20)
    before = device.num_reads
    check(device, skewed_graph(seed=1), [5, 3])
    check(device, skewed_graph(seed=1), [5, 3], expand="new")
    assert device.num_reads == before + 6


@pytest.mark.parametrize(
    "seeds", [[3, 60], [3, -1, 3], [5, 3, 5, 99], [2**62, 1], [1, 1, 1]], ids=lambda seeds: str(seeds)
)
def test_bad_seeds_are_named_as_on_the_cpu(device: Device, seeds: list[int]) -> None:
    graph, bad, key = skewed_graph(seed=1), np.array(seeds), DrawKey(0, 0, 0)
    with pytest.raises(SeedError) as expected:
        graphs.sample(*graph, bad, [2, 2], key)
    table, topology = DeviceWorkspace(device, 60), topology_of(device, *graph)
    for given in (bad, device.put(bad)):
        with pytest.raises(SeedError) as raised:
            sample_neighbors(table, topology, given, [2, 2], key)
        assert str(raised.value) == str(expected.value)
    assert_equal(sample_neighbors(table, topology, SEEDS, [2, 2], key), graphs.sample(*graph, SEEDS, [2, 2], key))


def test_edges_beyond_int32_are_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "MAX_LOCAL", 10)
    topology = topology_of(device, *skewed_graph(seed=1))
    with pytest.raises(SamplerConfigError, match="beyond int32 local ids"):
        sample_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, [5, 5], DrawKey(0, 0, 0))
    monkeypatch.undo()
    monkeypatch.setattr(state, "MAX_POSITIONS", 30)
    with pytest.raises(SamplerConfigError, match="beyond int32 local ids"):
        sample_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, [5, 5], DrawKey(0, 0, 0))


def test_more_draws_than_there_is_time_for_are_refused_as_on_the_cpu(device: Device) -> None:
    nodes = np.arange(300)
    ring = np.arange(301), np.roll(nodes, 1)
    table, key = DeviceWorkspace(device, 300), DrawKey(0, 0, 0)
    for seeds, fanouts, expand, hop in (
        (nodes[:99], [1 << 24], "all", "Hop 0 of a batch, of 99"),
        (nodes[:99], [1, 1 << 24], "all", "Hop 1 of a batch, of 100"),
        (np.arange(0, 180, 2), [1, 1 << 24], "new", "Hop 1 of a batch, of 90"),
    ):
        for sample in (partial(sample_neighbors, table, topology_of(device, *ring)), partial(graphs.sample, *ring)):
            with pytest.raises(SamplerConfigError, match=f"{hop} nodes.* with replacement.* at most {1 << 28}"):
                sample(seeds, fanouts, key, replace=True, expand=expand)


def test_nothing_to_draw(device: Device) -> None:
    graph = skewed_graph(seed=1)
    check(device, graph, [], SEEDS)
    check(device, graph, [2, 2], SEEDS[:0])
    check(device, graph, [-1], SEEDS[:0], expand="new")
    check(device, (np.zeros(61, np.int64), np.empty(0, np.int32)), [3, -1])


def test_settings_are_checked(device: Device) -> None:
    topology = topology_of(device, *skewed_graph(seed=1))
    with pytest.raises(SamplerConfigError, match="graphs of 59 nodes"):
        sample_neighbors(DeviceWorkspace(device, 59), topology, SEEDS, [2], DrawKey(0, 0, 0))
    with pytest.raises(SamplerConfigError, match="expand"):
        sample_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, [2], DrawKey(0, 0, 0), expand="some")  # type: ignore[arg-type]
    with pytest.raises(SamplerConfigError, match="fanouts"):
        sample_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, [0], DrawKey(0, 0, 0))
    with pytest.raises(SeedError, match="int64"):
        sample_neighbors(DeviceWorkspace(device, 60), topology, SEEDS.astype(np.int32), [2], DrawKey(0, 0, 0))
    with pytest.raises(SamplerConfigError, match="table"):
        DeviceWorkspace(device, 60, "tree")  # type: ignore[arg-type]
