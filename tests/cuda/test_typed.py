"""Sampling by edge type, time and row on a device equals the CPU's, number for number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.device import Device
from lightning_gnnload.ops.cuda.topology import DeviceLists, Topology
from lightning_gnnload.ops.cuda.typed import sample_typed_neighbors
from lightning_gnnload.ops.cuda.workspace import DeviceWorkspace
from tests.ops.graphs import KEY
from tests.ops.typed_graphs import TypedGraph, random_queries, random_typed_graph

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
