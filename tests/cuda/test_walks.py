"""Random walks on a device, and the neighbourhoods they make, equal the CPU's, number for number."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey, Walks
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling import walks as device_walks
from lightning_gnnload.ops.cuda.sampling.walks import random_walk, sample_walks
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.sample.metapath import metapath_runs
from lightning_gnnload.sample.walk import RandomWalkSampler
from tests.ops.graphs import sampled, star_graph
from tests.ops.weighted_graphs import WEIGHTS, WeightedGraph

from .sampled import assert_equal, in_shards, skewed_graph, topology_of

KEY = DrawKey(seed=7, epoch=2, step=5, hop=1)
SEEDS = np.array([3, 0, 17, 59, 8, 1])
NAMES = (np.arange(60) * 7919 + 2**41)[::-1].copy()
GNNLAB = Walks(3, 4, termination_prob=0.5)


def check(device: Device, graph: Any, walks: Walks = GNNLAB, seeds: Any = SEEDS, **options: Any) -> None:
    names, seeds = options.pop("names", None), np.asarray(seeds)
    options = {"num_hops": 2, "num_neighbors": 5} | options
    workspace, table = DeviceWorkspace(device, len(graph[0]) - 1), options.pop("table", None)
    topology = topology_of(
        device,
        *graph,
        names=None if names is None else device.put(names),
        table=None if table is None else device.put(table.entries.view(np.int64)),
    )
    sample = sample_walks(workspace, topology, seeds, walks, KEY, weighted=table is not None, **options)
    given, options = (ops.Workspace(topology.num_nodes), *graph, seeds, KEY), options | {"table": table}
    expected = sampled(lambda arena: ops.sample_walks(ops.SamplerInput(*given, arena, names), walks, **options))
    assert_equal(sample, expected)


@pytest.mark.parametrize("names", [None, NAMES], ids=["whole", "part"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "walks",
    [Walks(1), Walks(6, 3), Walks(5, 9, termination_prob=0.2, restart_prob=0.5), Walks(4, 2, restart_prob=1.0)],
    ids=str,
)
def test_walks_are_those_of_the_cpu(device: Device, walks: Walks, dtype: type, names: np.ndarray | None) -> None:
    graph, starts = skewed_graph(seed=1, dtype=dtype), np.random.default_rng(0).permutation(60)
    topology = topology_of(device, *graph, names=None if names is None else device.put(names))
    before = device.num_reads
    traces = random_walk(device, topology, starts, walks, KEY)
    assert device.num_reads == before
    np.testing.assert_array_equal(traces.cpu(), ops.random_walk(*graph, starts, walks, KEY, names=names))


@pytest.mark.parametrize("starts", [[3, 60], [-1], [5, 5]], ids=str)
def test_bad_starts_are_named_as_on_the_cpu(device: Device, starts: list[int]) -> None:
    graph, bad = skewed_graph(seed=1), np.array(starts)
    with pytest.raises(SeedError) as expected:
        ops.random_walk(*graph, bad, GNNLAB, KEY)
    with pytest.raises(SeedError) as raised:
        random_walk(device, topology_of(device, *graph), bad, GNNLAB, KEY)
    assert str(raised.value) == str(expected.value)


def test_no_walks(device: Device) -> None:
    traces = random_walk(device, topology_of(device, *skewed_graph(seed=1)), np.empty(0, np.int64), Walks(3, 2), KEY)
    assert traces.shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_a_batch_is_that_of_the_cpu(device: Device, expand: str, dtype: type) -> None:
    graph = skewed_graph(seed=2, dtype=dtype)
    for include_self, normalize, names in product([False, True], [False, True], [None, NAMES]):
        check(device, graph, include_self=include_self, normalize=normalize, expand=expand, names=names)


# Teams of 1, 2, 8 and 32 threads, and a block of 128 that counts in scratch; one, few and all visited are neighbours.
@pytest.mark.parametrize(
    "walks",
    [Walks(1), Walks(40), Walks(3, 2), Walks(5, 7, restart_prob=0.3), Walks(7, 120), Walks(20, 120, 0.1)],
    ids=str,
)
@pytest.mark.parametrize("num_neighbors", [1, 6, 1000])
def test_any_number_of_walks_and_neighbours(device: Device, walks: Walks, num_neighbors: int) -> None:
    seeds = SEEDS if walks.num_walks < 100 else SEEDS[:2]
    check(device, skewed_graph(seed=3), walks, seeds, num_hops=1, num_neighbors=num_neighbors, normalize=True)


def test_a_team_serves_one_destination_after_the_other(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_walks, "_MOST_SCRATCH_BYTES", 1)
    check(device, skewed_graph(seed=3), Walks(40, 60), SEEDS[:3], num_hops=1, names=NAMES)  # one block, in scratch
    check(device, skewed_graph(seed=3), Walks(2, 2), np.random.default_rng(0).permutation(60), num_hops=1)
    monkeypatch.setattr(device_walks, "_MOST_SHARED_BYTES", 1)
    monkeypatch.setattr(device_walks, "_TEAMS_THREADS", 32)
    check(device, skewed_graph(seed=3), Walks(2, 2), np.random.default_rng(0).permutation(60), num_hops=1)


def test_ties_go_to_the_smaller_name(device: Device) -> None:
    """Walks of one step from a hub visit each leaf about as often, so that most of the order is by names."""
    graph = star_graph(4, 30)
    names = np.random.default_rng(0).permutation(len(graph[0]) - 1)
    for part in (None, names):
        check(device, graph, Walks(1, 60), np.arange(4), num_hops=1, num_neighbors=20, names=part)


def test_lists_are_read_from_shards(device: Device) -> None:
    indptr, indices = skewed_graph(seed=2)
    topology = in_shards(device, topology_of(device, indptr, indices))
    traces = random_walk(device, topology, SEEDS, GNNLAB, KEY)
    np.testing.assert_array_equal(traces.cpu(), ops.random_walk(indptr, indices, SEEDS, GNNLAB, KEY))


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("walks", [Walks(1), Walks(6, 3), Walks(5, 9, 0.2, 0.5)], ids=str)
def test_walks_by_weight_are_those_of_the_cpu(device: Device, walks: Walks, kind: str) -> None:
    """A step has a block of draws of its own, and ends the walk where all weights are zero."""
    graph = WeightedGraph.random(60, 900, 3, kind, dtype=np.int32 if kind == "random" else np.int64)
    starts = np.random.default_rng(0).permutation(60)
    for names in (None, NAMES):
        placed = {"names": None if names is None else device.put(names)}
        topology = topology_of(
            device, graph.indptr, graph.indices, table=device.put(graph.table.entries.view(np.int64)), **placed
        )
        traces = random_walk(device, topology, starts, walks, KEY, weighted=True)
        expected = ops.random_walk(graph.indptr, graph.indices, starts, walks, KEY, table=graph.table, names=names)
        np.testing.assert_array_equal(traces.cpu(), expected)
        check(device, (graph.indptr, graph.indices), walks, table=graph.table, names=names)


def test_tables_are_read_from_shards(device: Device) -> None:
    graph = WeightedGraph.random(60, 900, 2, "skewed")
    table = device.put(graph.table.entries.view(np.int64))
    topology = in_shards(device, topology_of(device, graph.indptr, graph.indices, table=table))
    traces = random_walk(device, topology, SEEDS, GNNLAB, KEY, weighted=True)
    expected = ops.random_walk(graph.indptr, graph.indices, SEEDS, GNNLAB, KEY, table=graph.table)
    np.testing.assert_array_equal(traces.cpu(), expected)


BUYS, REV_BUYS, KNOWS = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "knows", "user")


def shop(seed: int, weighted: bool, dtype: type = np.int32) -> Graph:
    """Users, nothings and items: hubs, users without purchases, lists of two types in one, weights of zero."""
    rng, sizes = np.random.default_rng(seed), {"user": 40, "nothing": 0, "item": 25}
    user, item = (lambda: rng.integers(sizes["user"], size=300) // 2), (lambda: rng.integers(25, size=300) ** 2 // 25)
    buys, knows = (user(), item()), (user(), rng.integers(40, size=300))
    graph = Graph.from_hetero(
        sizes,
        {BUYS: buys, REV_BUYS: buys[::-1], KNOWS: knows},
        edge_weight={kind: rng.random(300) * (rng.random(300) < 0.7) for kind in (BUYS, REV_BUYS, KNOWS)}
        if weighted
        else None,
    )
    arrays = {name: getattr(graph, name) for name in ("run_ptr", "types", "edge_weight")}
    return Graph(graph.indptr, graph.indices.astype(dtype), **arrays)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metapath", [[REV_BUYS, BUYS], [KNOWS], [KNOWS, REV_BUYS, BUYS]], ids=lambda path: len(path))
def test_walks_along_a_metapath_are_those_of_the_cpu(device: Device, metapath: list[Any], weighted: bool) -> None:
    """Walks end, restart and are visited at the end of a round alone; batches of both widths of ids."""
    for number, dtype in enumerate((np.int32, np.int64)):
        graph = shop(number, weighted, dtype)
        topology = place(graph, device, weighted=weighted)
        items = metapath[0] is BUYS
        seeds = np.arange(graph.num_nodes)[graph.types.range_of("item" if items else "user")]
        seeds = np.random.default_rng(number).permutation(seeds)[: 5 + 10 * number]
        for expand, include_self in product(("all", "new"), (False, True)):
            sampler = RandomWalkSampler(
                2, 4, 6, 3, 0.2, 0.3, include_self=include_self, normalize=True, expand=expand, metapath=metapath
            )
            cpus = sampled(lambda arena: sampler.draw(graph, Draw(seeds, KEY), arena))  # noqa: B023  called at once
            assert_equal(DeviceSampler(sampler, topology, device).sample(Draw(seeds, KEY)), cpus)


def test_a_metapath_begins_at_its_type(device: Device) -> None:
    graph = shop(0, weighted=False)
    sampler = RandomWalkSampler(metapath=[BUYS, REV_BUYS])
    on_device, bad = DeviceSampler(sampler, place(graph, device), device), Draw(np.array([41, 3]), KEY)
    with pytest.raises(SeedError) as expected:
        sampled(lambda arena: sampler.draw(graph, bad, arena))
    with pytest.raises(SeedError) as raised:
        on_device.sample(bad)
    assert str(raised.value) == str(expected.value)
    with pytest.raises(SeedError, match="the first edge type of the metapath"):  # whoever launches the kernels
        sampler.check_draw(on_device.topology, bad)
    runs = metapath_runs(graph, [BUYS, REV_BUYS], returns=True)
    runs = replace(runs, run_ptr=on_device.topology.lists.run_ptr)
    walks, starts = Walks(4, 3, restart_prob=0.5), np.arange(40, 65)
    traces = random_walk(device, on_device.topology, starts, walks, KEY, runs=runs)
    expected_runs = metapath_runs(graph, [BUYS, REV_BUYS], returns=True)
    np.testing.assert_array_equal(
        traces.cpu(), ops.random_walk(graph.indptr, graph.indices, starts, walks, KEY, runs=expected_runs)
    )
    with pytest.raises(SeedError, match=r"starts\[0\] is 3"):
        random_walk(device, on_device.topology, np.array([3]), walks, KEY, runs=runs)
    with pytest.raises(SamplerConfigError, match="amid a round"):
        random_walk(device, on_device.topology, starts, Walks(3), KEY, runs=runs)
    workspace, seeds = DeviceWorkspace(device, graph.num_nodes), device.put(np.array([3]))
    with pytest.raises(SeedError, match=r"seeds\[0\] is 3"):  # of a device, which the host reads first
        sample_walks(workspace, on_device.topology, seeds, walks, KEY, num_hops=1, num_neighbors=2, runs=runs)


def test_walks_by_weight_across_types_are_left_to_the_host(device: Device) -> None:
    graph, sampler = shop(0, weighted=True), RandomWalkSampler()
    assert "across types" in sampler.needs_host(graph)
    assert RandomWalkSampler(weighted=False).needs_host(graph) is None
    assert RandomWalkSampler(metapath=[KNOWS]).needs_host(graph) is None
    with pytest.raises(CudaUnavailableError, match="across types"):
        DeviceSampler(sampler, place(graph, device, weighted=True), device).sample(Draw(SEEDS, KEY))


def test_the_host_waits_once(device: Device) -> None:
    topology = topology_of(device, *skewed_graph(seed=1))
    before = device.num_reads
    sample_walks(DeviceWorkspace(device, 60), topology, SEEDS, GNNLAB, KEY, num_hops=3, num_neighbors=5)
    assert device.num_reads == before + 1


def test_a_hop_that_could_be_too_large_waits_for_its_size(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (batches, device_walks):
        monkeypatch.setattr(module, "MAX_BOUND_EDGES", 60)
    before = device.num_reads
    check(device, skewed_graph(seed=1), num_hops=3)
    check(device, skewed_graph(seed=1), num_hops=3, expand="new")
    assert device.num_reads > before + 2


def test_as_many_steps_as_there_are_destinations_for_are_walked(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There can be 36 nodes after the first hop, of which some are the same."""
    steps = GNNLAB.num_walks * GNNLAB.length
    for most in (36 * steps - 1, 5 * steps):
        for module in (batches, device_walks):
            monkeypatch.setattr(module, "MAX_HOP_DRAWS", most)
        refused = pytest.raises(SamplerConfigError, match=r"Hop 0 of a batch, of 6 nodes, .* steps of walks")
        with refused if most == 5 * steps else nullcontext():
            check(device, skewed_graph(seed=1))


def test_nothing_to_visit(device: Device) -> None:
    graph = skewed_graph(seed=1)
    check(device, graph, num_hops=0)
    check(device, graph, seeds=SEEDS[:0])
    check(device, (np.zeros(61, np.int64), np.empty(0, np.int32)))
    check(device, (np.arange(2), np.zeros(1, np.int64)), seeds=[0], include_self=False)  # a loop, which is no visit


def test_what_cannot_be_sampled_is_said(device: Device) -> None:
    table, topology = DeviceWorkspace(device, 60), topology_of(device, *skewed_graph(seed=1))

    def sample(walks: Walks = GNNLAB, **options: Any) -> None:
        sample_walks(table, topology, SEEDS, walks, KEY, **({"num_hops": 1, "num_neighbors": 1} | options))

    for options in ({"num_hops": 2**16}, {"num_neighbors": 0}, {"expand": "some"}):
        with pytest.raises(SamplerConfigError, match=next(iter(options))):
            sample(**options)
    with pytest.raises(SamplerConfigError, match="visits are counted up to"):
        sample(Walks(256, 256))
    with pytest.raises(SamplerConfigError, match="weighted=True"):
        sample(weighted=True)
    entries = device.put(np.zeros(topology.num_edges, np.int64))
    topology = replace(topology, table=entries)
    with pytest.raises(SamplerConfigError, match="more than there are draws for by weight"):
        random_walk(device, topology, SEEDS, Walks(2**13, 2**12), KEY, weighted=True)


@pytest.mark.parametrize("walks", [Walks(255, 257), Walks(1, 65535), Walks(65535)], ids=str)
def test_the_most_visits_fill_a_block_of_most_threads(walks: Walks) -> None:
    teams = device_walks._Teams.of(walks.num_walks, walks.length)
    assert (teams.threads, teams.size, teams.are_shared) == (1024, 1 << 16, False)


def test_blocks_are_of_whole_warps_and_shared_memory_holds_their_visits() -> None:
    for length, num_walks in product([1, 2, 3, 5, 17, 33, 100, 300], repeat=2):
        teams = device_walks._Teams.of(num_walks, length)
        assert teams.size >= length * num_walks
        assert teams.threads % 32 == 0
        assert teams.threads <= 1024
        assert teams.num_teams <= 128  # kMaxTeams
        assert teams.are_shared == (teams.size <= 2048)
