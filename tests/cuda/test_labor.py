"""Layer-neighbour sampling on a device equals the CPU's, number for number."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling import labor
from lightning_gnnload.ops.cuda.sampling.labor import sample_labor
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.sample.labor import LaborSampler
from tests.ops.graphs import sampled, star_graph
from tests.ops.typed_graphs import random_typed_graph

from .sampled import assert_equal, in_shards, skewed_graph, topology_of
from .test_typed import placed

KEY = DrawKey(seed=7, epoch=2, step=5, hop=1)
SEEDS = np.array([3, 0, 17, 59, 8, 1])
NAMES = (np.arange(60) * 7919 + 2**41)[::-1].copy()


@pytest.fixture(params=[32, 50, 1024])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The neighbours that a warp looks at: one at a time of each lane, a part of that in the end, all of a list."""
    monkeypatch.setattr(labor, "_PIECE", request.param)
    return request.param


def check(device: Device, graph: Any, fanouts: Any, seeds: Any = SEEDS, **options: Any) -> None:
    key, names = options.pop("key", KEY), options.pop("names", None)
    seeds, options = np.ascontiguousarray(seeds, np.int64), {"edge_ids": True} | options
    topology = topology_of(device, *graph, names=None if names is None else device.put(names))
    sample = sample_labor(DeviceWorkspace(device, topology.num_nodes), topology, seeds, fanouts, key, **options)
    given = (ops.Workspace(topology.num_nodes), *graph, seeds, key)
    assert_equal(
        sample,
        sampled(lambda arena: ops.sample_labor(ops.SamplerInput(*given, arena, names), fanouts, **options)),
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanouts", [[5, 3], [17, 1], [-1, 2], [3, -1], [200], [1, 1, 1]], ids=str)
def test_a_batch_is_that_of_the_cpu(device: Device, piece: int, fanouts: list[int], dtype: type) -> None:
    graph = skewed_graph(seed=len(fanouts), dtype=dtype, num_edges=900)
    for expand, one_layer in product(["all", "new"], [False, True]):
        estimate = "sum" if one_layer == (expand == "all") else "mean"
        names = NAMES if estimate == "sum" else None
        check(device, graph, fanouts, expand=expand, layer_dependency=one_layer, estimate=estimate, names=names)


@pytest.mark.parametrize("fanout", [1, 31, 32, 33, 64, 95, 96, 97])
def test_degrees_around_the_fanout_and_the_piece(device: Device, piece: int, fanout: int) -> None:
    """Of the lists, one ends with a piece and one an edge later; nodes without edges lie before, between and behind."""
    rng = np.random.default_rng(fanout)
    degrees = [0, 0, 1, fanout, fanout + 1, 0, piece, piece + 1, 2 * piece, 3 * piece + 7, 0]
    indptr = np.cumsum([0, *degrees])
    graph = indptr, rng.integers(len(degrees), size=indptr[-1])
    for order in (np.arange(11), np.arange(11)[::-1], np.array([9]), np.array([0])):
        check(device, graph, [fanout], order, estimate="sum")


def test_hubs_share_what_they_draw(device: Device) -> None:
    graph = star_graph(6, 3000)
    for fanout in (1, 10, 2999):
        check(device, graph, [fanout], np.arange(6))


@pytest.mark.parametrize("number", range(24))
def test_a_typed_batch_is_that_of_the_cpu(device: Device, piece: int, number: int) -> None:
    """Empty types and runs, fanouts of 0, all and any number, by either width of offsets."""
    rng = np.random.default_rng(number)
    graph = random_typed_graph(rng, untyped=False)
    num_hops, num_seeds = int(rng.integers(0, 4)), int(min(rng.integers(0, 14), graph.size))
    fanouts = rng.choice([-1, 0, 1, 2, 5, 17], (num_hops, len(graph.ends)))
    seeds, names = rng.permutation(graph.size)[:num_seeds], rng.permutation(3 * graph.size)[: graph.size] + 2**40
    lists = graph.lists(np.uint32 if rng.random() < 0.5 else np.int64)
    options = {
        "expand": str(rng.choice(["all", "new"])),
        "estimate": str(rng.choice(["mean", "sum"])),
        "layer_dependency": bool(rng.integers(2)),
        "edge_ids": bool(rng.integers(2)),
    }
    topology = replace(placed(device, graph, lists, np.int32), names=device.put(names))
    sample = sample_labor(DeviceWorkspace(device, graph.size), topology, seeds, fanouts, KEY, **options)
    given = (ops.Workspace(graph.size), *graph.csc(np.int32), seeds, KEY)
    cpus = sampled(
        lambda arena: ops.sample_labor(ops.SamplerInput(*given, arena, names), fanouts, lists=lists, **options)
    )
    assert_equal(sample, cpus)


def test_lists_are_read_from_shards(device: Device) -> None:
    graph = skewed_graph(seed=2)
    topology = in_shards(device, topology_of(device, *graph))
    sample = sample_labor(DeviceWorkspace(device, 60), topology, SEEDS, [3, 3], KEY)
    given = (ops.Workspace(60), *graph, SEEDS, KEY)
    assert_equal(sample, sampled(lambda arena: ops.sample_labor(ops.SamplerInput(*given, arena), [3, 3])))


def test_the_host_waits_once_a_hop_and_at_the_end(device: Device) -> None:
    topology = topology_of(device, *skewed_graph(seed=1))
    before = device.num_reads
    sample_labor(DeviceWorkspace(device, 60), topology, SEEDS, [3, 3], KEY)
    assert device.num_reads == before + 3


def test_edges_beyond_int32_are_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_LOCAL", 5)
    with pytest.raises(SamplerConfigError, match="beyond int32 local ids"):
        check(device, skewed_graph(seed=1), [-1])


def test_nothing_to_draw(device: Device) -> None:
    graph = skewed_graph(seed=1)
    check(device, graph, [])
    check(device, graph, [2, -1], SEEDS[:0])
    check(device, (np.zeros(61, np.int64), np.empty(0, np.int64)), [3, -1])


def test_what_cannot_be_sampled_is_said(device: Device) -> None:
    table, topology = DeviceWorkspace(device, 60), topology_of(device, *skewed_graph(seed=1))
    with pytest.raises(SamplerConfigError, match="fanouts"):
        sample_labor(table, topology, SEEDS, [0], KEY)
    with pytest.raises(SamplerConfigError, match="estimate"):
        sample_labor(table, topology, SEEDS, [2], KEY, estimate="median")  # type: ignore[arg-type]
    with pytest.raises(SeedError, match="same node as"):
        sample_labor(table, topology, np.array([1, 1]), [2], KEY)


@pytest.mark.parametrize("settings", [{"importance": 2}, {"fixed_count": True}], ids=str)
def test_what_the_host_draws_is_named(device: Device, settings: dict[str, Any]) -> None:
    graph = Graph(*skewed_graph(seed=1))
    sampler = LaborSampler([3], **settings)
    assert str(next(iter(settings))) in str(sampler.needs_host(graph))
    assert LaborSampler([3]).needs_host(graph) is None
    with pytest.raises(CudaUnavailableError, match="only importance=0 without fixed_count has"):
        DeviceSampler(sampler, place(graph, device), device).sample(Draw(SEEDS, KEY))
    with pytest.raises(CudaUnavailableError, match=r"the edge_type of Graph\.from_coo"):
        DeviceSampler(LaborSampler([{0: 3}]), place(graph, device), device).sample(Draw(SEEDS, KEY))
