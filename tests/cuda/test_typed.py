"""Sampling by edge type, time and row on a device equals the CPU's, number for number."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, Queries
from lightning_gnnload.ops.cuda.launch import state
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling import queries as device_queries
from lightning_gnnload.ops.cuda.sampling.topology import DeviceLists, Topology
from lightning_gnnload.ops.cuda.sampling.typed import sample_typed_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from tests.ops.graphs import KEY
from tests.ops.typed_graphs import TypedGraph, paths_back_to_seeds, random_queries, random_typed_graph
from tests.oracle import TypedEdge

from .sampled import assert_equal, topology_of

FANOUTS = [-1, 0, 1, 2, 3, 5, 8, 10, 17, 40, 70]


def placed(device: Device, graph: TypedGraph, lists: Any, dtype: type = np.int64) -> Topology:
    run_ptr, times = (
        None if array is None else device.put(array.view(np.int32) if array.dtype == np.uint32 else array)
        for array in (lists.run_ptr, lists.edge_time)
    )
    on_device = DeviceLists.of(lists, run_ptr, device)  # type: ignore[arg-type]
    return topology_of(device, *graph.csc(dtype), lists=on_device, edge_time=times)


def check(
    device: Device,
    graph: TypedGraph,
    seeds: Any,
    fanouts: Any,
    *,
    lists: Any = None,
    dtype: Any = np.int64,
    **given: Any,
) -> None:
    """``given``: settings of both sides."""
    queries, names = given.get("queries"), given.pop("names", None)
    lists = graph.lists() if lists is None else lists
    several = queries is not None and not queries.are_one
    workspace = DeviceWorkspace(device, graph.size, "hash" if several else given.pop("table", "auto"))
    fanouts = np.asarray(fanouts, np.int64).reshape(-1, len(graph.ends))
    topology = placed(device, graph, lists, dtype)
    if names is not None:
        topology = replace(topology, names=device.put(names))
    key, settings = given.pop("key", KEY), given
    sample = sample_typed_neighbors(
        workspace, topology, np.asarray(seeds, np.int64), fanouts, key, edge_ids=True, **settings
    )
    cpus = graph.sample(seeds, fanouts, lists=lists, key=key, dtype=dtype, names=names, **settings)
    assert_equal(sample, cpus)


@pytest.mark.parametrize("number", range(60))
def test_a_batch_of_any_graph_is_that_of_the_cpu(device: Device, number: int) -> None:
    """Multi-edges, loops, empty runs and types, ties, windows, times before all, edges left out, one node in many rows:
    one in three without queries."""
    rng = np.random.default_rng(number)
    untyped = bool(rng.random() < 0.2)
    graph = random_typed_graph(rng, untyped)
    num_hops, num_seeds = int(rng.integers(0, 4)), int(min(rng.integers(0, 14), graph.size))
    fanouts = rng.choice(FANOUTS, (num_hops, len(graph.ends)))
    seeds, queries, _ = random_queries(rng, graph, num_seeds)
    if rng.random() < 0.3:
        seeds, queries = rng.permutation(graph.size)[:num_seeds], None
    pick = str(rng.choice(["uniform", "last"], p=[0.7, 0.3]))
    check(
        device,
        graph,
        seeds,
        fanouts,
        lists=graph.lists(np.uint32 if rng.random() < 0.5 else np.int64, untyped),
        dtype=np.int32 if rng.random() < 0.5 else np.int64,
        names=rng.permutation(3 * graph.size)[: graph.size] + 2**40 if rng.random() < 0.2 else None,
        key=DrawKey(*(int(rng.integers(0, 2**bits, dtype=np.uint64)) for bits in (64, 32, 32)), int(rng.integers(3))),
        replace=pick == "uniform" and bool(rng.random() < 0.25),
        expand=str(rng.choice(["all", "new"])),
        pick=pick,
        queries=queries,
    )


@pytest.mark.parametrize("number", range(4))
def test_no_copy_of_a_seed_draws_what_is_left_out(device: Device, number: int) -> None:
    graph, seeds, queries, _ = paths_back_to_seeds(np.random.default_rng(number))
    fanouts = np.full((3, 3), [-1, 2][number % 2])
    check(device, graph, seeds, fanouts, queries=queries, pick=["uniform", "last"][number // 2])


def two_types(num_edges: int = 300, most_time: int = 50) -> TypedGraph:
    rng, ends = np.random.default_rng(0), [(0, 0), (1, 0), (0, 1)]
    first, sizes = [0, 40], [40, 20]
    edges = [
        TypedEdge(int(first[src] + rng.integers(sizes[src])), int(first[dst] + rng.integers(sizes[dst])), kind, time, i)
        for kind, (src, dst) in enumerate(ends)
        for i, time in enumerate(rng.integers(0, most_time, num_edges).tolist() if kind < 2 else [None] * num_edges)
    ]
    return TypedGraph(sizes, ends, edges, [True, True, False])


def rows_of(seeds: Any, **given: Any) -> Queries:
    rows = np.arange(len(seeds), dtype=np.int32)
    return Queries(rows, rows.astype(np.uint32), by_row=True, **given)


@pytest.mark.parametrize("num_kinds", [9, 33, 70])
def test_more_types_than_lanes(device: Device, num_kinds: int) -> None:
    """A group of lanes looks at the runs of a destination in rounds; of some there is one beyond a full round."""
    rng = np.random.default_rng(num_kinds)
    edges = [
        TypedEdge(int(rng.integers(12)), int(rng.integers(12)), kind, int(rng.integers(9)), i)
        for kind in range(num_kinds)
        for i in range(int(rng.integers(0, 40)))
    ]
    graph = TypedGraph([12], [(0, 0)] * num_kinds, edges, [True] * num_kinds)
    until = rng.integers(0, 11, 12).astype(np.uint32)
    fanouts = rng.choice([0, 1, 3], (2, num_kinds))
    for queries in (None, rows_of(range(12), until=until)):
        check(device, graph, np.arange(12), fanouts, queries=queries)


def test_many_rows_of_one_node(device: Device) -> None:
    """They differ in the numbers above their nodes alone, which the table has to tell apart."""
    graph = two_types()
    seeds = np.full(200, 7)
    check(device, graph, seeds, [[2, 2, 2], [1, 0, 1]], queries=rows_of(seeds))


def test_the_host_waits_once(device: Device) -> None:
    graph, seeds = two_types(), np.array([3, 3, 41])
    topology, key = placed(device, graph, graph.lists()), DrawKey(1, 2, 3)
    until = np.array([10, 30, 50], np.uint32)
    for queries in (None, rows_of(seeds, until=until), rows_of(seeds, until=until, along_path=True)):
        some = seeds if queries is not None else seeds[1:]
        for fanouts, num_waits in (([[3, 2, 1], [2, 0, 1]], 1), ([[3, -1, 1], [2, 0, 1]], 2)):
            before = device.num_reads
            table = DeviceWorkspace(device, graph.size, "hash")
            sample_typed_neighbors(table, topology, some, np.array(fanouts), key, queries=queries)
            assert device.num_reads == before + num_waits


def test_a_hop_that_could_be_too_large_waits_for_its_size(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BOUND_EDGES", 20)
    graph, seeds = two_types(), np.arange(5, 45)
    until = np.full(40, 40, np.uint32)
    for expand in ("all", "new"):
        for queries in (None, rows_of(seeds), rows_of(seeds, until=until, along_path=True)):
            check(device, graph, seeds, [[3, 2, 1], [2, 0, 1]], queries=queries, expand=expand)


def test_a_workspace_serves_one_batch_after_the_other(device: Device) -> None:
    """Its tables of nodes and of pairs forget the one before, and grow."""
    graph, key = two_types(), DrawKey(1, 2, 3)
    table, topology = DeviceWorkspace(device, graph.size, "hash"), placed(device, graph, graph.lists())
    for size, along_path in ((3, True), (30, True), (10, False), (30, True), (2, True)):
        seeds = np.arange(size)
        queries = rows_of(seeds, until=(7 * seeds % 50).astype(np.uint32), along_path=along_path)
        fanouts = np.array([[3, 2, 1], [2, 4, 1]])
        sample = sample_typed_neighbors(table, topology, seeds, fanouts, key, edge_ids=True, queries=queries)
        assert_equal(sample, graph.sample(seeds, fanouts, key=key, queries=queries))


@pytest.mark.parametrize(
    ("seeds", "of_seed"),
    [([3, 60], [0, 1]), ([3, -1, 3], [0, 0, 1]), ([5, 3, 5, 99], [0, 0, 0, 1]), ([2**62, 1], [1, 0]), ([1, 1], [1, 1])],
)
def test_bad_seeds_are_named_as_on_the_cpu(device: Device, seeds: list[int], of_seed: list[int]) -> None:
    graph, bad = two_types(), np.array(seeds)
    queries = Queries(np.array(of_seed, np.int32), np.array([8, 9], np.uint32))
    with pytest.raises(SeedError) as expected:
        graph.sample(bad, [[2, 2, 2]], queries=queries)
    with pytest.raises(SeedError) as raised:
        check(device, graph, bad, [[2, 2, 2]], queries=queries)
    assert str(raised.value) == str(expected.value)


def test_what_cannot_be_sampled_is_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds, fanouts = two_types(), np.arange(5), np.array([[2, 2, 2], [2, 2, 2]])
    topology, stamps = placed(device, graph, graph.lists()), DeviceWorkspace(device, graph.size)
    until = np.full(5, 40, np.uint32)
    with pytest.raises(SamplerConfigError, match=r"DeviceWorkspace\(device, num_nodes, 'hash'\)"):
        sample_typed_neighbors(stamps, topology, seeds, fanouts, KEY, queries=rows_of(seeds))
    with pytest.raises(SamplerConfigError, match="no lists"):
        sample_typed_neighbors(stamps, replace(topology, lists=None), seeds, fanouts, KEY)
    with pytest.raises(SamplerConfigError, match="leave out replace"):
        sample_typed_neighbors(stamps, topology, seeds, fanouts, KEY, pick="last", replace=True)
    with pytest.raises(SamplerConfigError, match="shape"):
        sample_typed_neighbors(stamps, topology, seeds, np.full((2, 2), 2), KEY)
    with pytest.raises(SeedError, match="of_seed"):
        sample_typed_neighbors(stamps, topology, seeds, fanouts, KEY, queries=rows_of(seeds[1:]))
    table, along = DeviceWorkspace(device, graph.size, "hash"), rows_of(seeds, until=until, along_path=True)
    with pytest.raises(SamplerConfigError, match="along paths need"):
        sample_typed_neighbors(table, replace(topology, edge_time=None), seeds, fanouts, KEY, queries=along)
    with monkeypatch.context() as patch:
        patch.setattr(device_queries, "check_queries", lambda *_: 60)  # as if nodes left three bits
        with pytest.raises(SamplerConfigError, match="has 9 times at which it asks for edges"):
            sample_typed_neighbors(table, topology, seeds, fanouts, KEY, queries=along)
    for sample in (partial(sample_typed_neighbors, stamps, topology), graph.sample):
        with pytest.raises(SamplerConfigError, match=r"Hop 0 of a batch, of 60 nodes.* neighbours with replacement"):
            sample(np.arange(60), np.full((1, 3), 1 << 24), key=KEY, replace=True)
    for module, name in ((batches, "MAX_LOCAL"), (state, "MAX_POSITIONS")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 15)
            with pytest.raises(SamplerConfigError, match="beyond int32 local ids"):
                sample_typed_neighbors(table, topology, seeds, fanouts, KEY, queries=along)
    assert_equal(
        sample_typed_neighbors(table, topology, seeds, fanouts, KEY, edge_ids=True, queries=along),
        graph.sample(seeds, fanouts, queries=along),
    )


def test_nothing_to_draw(device: Device) -> None:
    graph, none = two_types(), np.empty(0, np.int64)
    check(device, graph, [1, 2], [])
    check(device, graph, [1, 2], [[0, 0, 0]])
    check(device, graph, none, [[2, 2, 2], [-1, 0, 1]])
    check(device, graph, none, [[2, 2, 2]], queries=Queries(none.astype(np.int32), np.array([4], np.uint32)))
    check(device, TypedGraph([3, 0], [(1, 1), (0, 1)], [], [True, False]), [0, 2], [[2, 2], [-1, 1]])
