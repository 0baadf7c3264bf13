"""Sampling by weight on a device equals the CPU's, number for number."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling import weighted
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.ops.cuda.sampling.weighted import sample_weighted_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from tests.ops.weighted_graphs import WEIGHTS, WeightedGraph

from .sampled import assert_equal, in_shards, topology_of

KEY = DrawKey(seed=7, epoch=2, step=5)
SEEDS = np.array([3, 0, 17, 59, 8, 1])


def weighted_topology(device: Device, graph: WeightedGraph, **more: Any) -> Topology:
    table = device.put(graph.table.entries.view(np.int64))
    return topology_of(device, graph.indptr, graph.indices, table=table, **more)


def check(device: Device, graph: WeightedGraph, fanouts: list[int], seeds: Any = SEEDS, **options: Any) -> None:
    key, names = options.pop("key", KEY), options.pop("names", None)
    topology = weighted_topology(device, graph, names=None if names is None else device.put(names))
    seeds, options = np.asarray(seeds), {"edge_ids": True} | options
    sample = sample_weighted_neighbors(
        DeviceWorkspace(device, topology.num_nodes), topology, seeds, fanouts, key, **options
    )
    assert_equal(sample, graph.sample(seeds, fanouts, key, names=names, **options))


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("fanouts", [[5, 3], [17, 1], [-1, 2], [3, -1], [33]], ids=str)
def test_a_batch_is_that_of_the_cpu(device: Device, kind: str, fanouts: list[int]) -> None:
    graph = WeightedGraph.random(60, 900, len(fanouts), kind, dtype=np.int32 if kind == "random" else np.int64)
    for replace, expand in product([False, True], ["all", "new"]):
        check(device, graph, fanouts, replace=replace, expand=expand, edge_ids=replace == (expand == "all"))


@pytest.mark.parametrize("fanout", [1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 64, 100])
def test_degrees_around_the_fanout(device: Device, fanout: int) -> None:
    """With degrees just above the fanout most trials bring what came before, and shares decide the last picks."""
    rng = np.random.default_rng(fanout)
    degrees = [0, 1, fanout, fanout + 1, fanout + 2, 2 * fanout, 5 * fanout]
    indptr = np.cumsum([0, *degrees])
    weights = WEIGHTS["skewed"](rng, indptr[-1])
    graph = WeightedGraph.of(indptr, rng.integers(len(degrees), size=indptr[-1]), weights)
    for replace in (False, True):
        check(device, graph, [fanout], np.arange(len(degrees)), replace=replace)


@pytest.mark.parametrize("share", [0.5, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("fanout", [10, 40])
def test_one_neighbour_has_most_of_the_weight(device: Device, share: float, fanout: int) -> None:
    """Trials bring it again and again. 600 neighbours: some of the block's threads have three, some two."""
    weights = np.random.default_rng(0).random(600)
    weights[[77, 599]] = 0, weights.sum() * share / (1 - share)
    check(device, WeightedGraph.star(5, weights), [fanout], np.arange(5))


def test_more_destinations_than_blocks_draw_from_shares(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block, and so one piece of scratch, serves them one after the other; nobody draws on where another left."""
    monkeypatch.setattr(weighted, "_MOST_SHARES_BYTES", 1)
    weights = np.zeros(300)
    weights[[3, 77, 299]] = 1.0, 1e-30, 1e30
    graph = WeightedGraph.star(40, weights)
    check(device, graph, [5, 2], np.arange(40))
    check(device, graph, [2], np.arange(40))


@pytest.mark.parametrize("fanout", [-1, 2, 3, 50])
@pytest.mark.parametrize("replace", [False, True])
def test_nodes_without_weight_draw_nothing(device: Device, fanout: int, replace: bool) -> None:
    indptr = np.cumsum([0, 4, 3, 30, 2, 40, 0])
    weights = np.concatenate([np.zeros(4), [1, 2, 3], np.zeros(30), [0, 1], np.random.default_rng(0).random(40)])
    graph = WeightedGraph.of(indptr, np.arange(79) % 6, weights)
    check(device, graph, [fanout], [2, 4, 0, 1, 3, 5], replace=replace)


def test_a_part_draws_in_the_name_of_its_graph(device: Device) -> None:
    names = (np.arange(60) * 7919 + 2**41)[::-1].copy()
    for kind in ("random", "skewed"):  # by trials and from shares
        check(device, WeightedGraph.random(60, 900, 1, kind), [5, 3], names=names)


def test_tables_lie_where_lists_do(device: Device) -> None:
    graph = WeightedGraph.random(60, 900, 2, "skewed")
    topology = in_shards(device, weighted_topology(device, graph))
    for fanouts in ([5, 3], [-1, 2]):
        sample = sample_weighted_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, fanouts, KEY, edge_ids=True)
        assert_equal(sample, graph.sample(SEEDS, fanouts, KEY))


def test_the_host_waits_once(device: Device) -> None:
    topology = weighted_topology(device, WeightedGraph.random(60, 900, 1, "skewed"))
    before = device.num_reads
    sample_weighted_neighbors(DeviceWorkspace(device, 60), topology, SEEDS, [5, 3], KEY)
    assert device.num_reads == before + 1


def test_edges_beyond_int32_are_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = WeightedGraph.random(60, 900, 1, "equal")
    monkeypatch.setattr(batches, "MAX_LOCAL", 30)
    check(device, graph, [5])  # of 6 seeds
    for fanout in (6, -1):
        with pytest.raises(SamplerConfigError, match="beyond int32 local ids"):
            check(device, graph, [fanout])


def test_more_draws_than_there_is_time_for_are_refused_as_on_the_cpu(device: Device) -> None:
    graph, seeds = WeightedGraph.of(np.arange(301), np.roll(np.arange(300), 1), np.ones(300)), np.arange(99)
    table, topology = DeviceWorkspace(device, 300), weighted_topology(device, graph)
    for sample in (partial(sample_weighted_neighbors, table, topology), graph.sample):
        with pytest.raises(SamplerConfigError, match=r"Hop 0 of a batch, of 99 nodes.* neighbours with replacement"):
            sample(seeds, [1 << 24], KEY, replace=True)


def test_nothing_to_draw(device: Device) -> None:
    graph = WeightedGraph.random(60, 900, 1)
    check(device, graph, [])
    check(device, graph, [2, -1], SEEDS[:0])
    check(device, WeightedGraph.of(np.zeros(61, np.int64), np.empty(0, np.int64), np.empty(0)), [3, -1])


def test_what_cannot_be_sampled_is_said(device: Device) -> None:
    graph = WeightedGraph.random(60, 900, 1)
    table, topology = DeviceWorkspace(device, 60), weighted_topology(device, graph)
    for fanouts in ([0], [2**24 + 1]):
        with pytest.raises(SamplerConfigError, match="fanouts"):
            sample_weighted_neighbors(table, topology, SEEDS, fanouts, KEY)
    with pytest.raises(SamplerConfigError, match="weighted=True"):
        sample_weighted_neighbors(table, topology_of(device, graph.indptr, graph.indices), SEEDS, [2], KEY)
    with pytest.raises(SeedError, match="same node as"):
        sample_weighted_neighbors(table, topology, np.array([1, 1]), [2], KEY)
