"""Graphs on a device, and comparison of what was sampled there with what the CPU samples."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
from lightning_gnnload.ops.cuda.sampling.topology import OFFSET_BITS, Topology
from tests.ops.graphs import Batch, random_graph


def topology_of(device: Device, indptr: np.ndarray, indices: np.ndarray, **more: Any) -> Topology:
    """All of it on the device."""
    degrees = np.diff(indptr)
    return Topology(
        len(indptr) - 1,
        len(indices),
        device.put(indptr),
        device.put(indices),
        max_degree=int(degrees.max(initial=0)),
        **more,
    )


def in_shards(device: Device, topology: Topology) -> Topology:
    """The lists of every other node in shards of memory of their own, one of which has none, the others in host memory;
    who reads a list of a shard there is found out."""
    indptr = device.read(topology.indptr)  # type: ignore[arg-type]
    location, of_shards = np.full(topology.num_nodes, -1), []
    for shard, first in enumerate((0, topology.num_nodes, 2, 4)):
        edges = [np.empty(0, np.int64)]
        for node in range(first, topology.num_nodes, 6):
            location[node] = (shard << OFFSET_BITS) + sum(map(len, edges))
            edges.append(np.arange(indptr[node], indptr[node + 1]))
        of_shards.append(np.concatenate(edges))
    columns: dict[str, Any] = {"location": device.put(location)}
    memory = []
    for name in ("indices", "table", "edge_time"):
        if (column := getattr(topology, name)) is not None:
            damaged = device.read(column)
            shards = [device.put(damaged[edges]) for edges in of_shards]
            damaged[np.concatenate(of_shards)] = 0
            columns[name] = device.map_host(damaged)
            addresses = np.array([shard.data_ptr() for shard in shards])
            columns["shards" if name == "indices" else f"{name}_shards"] = device.put(addresses)
            memory += shards
    return replace(topology, **columns, memory=SimpleNamespace(shards=memory, check=lambda: None))  # type: ignore[arg-type]


def skewed_graph(seed: int, dtype: type = np.int64, num_nodes: int = 60, num_edges: int = 500) -> Any:
    """Degrees from 0 to over 100, repeated edges and loops."""
    return random_graph(num_nodes, num_edges, seed, dtype)


def assert_equal(sample: DeviceSample, batch: Batch) -> None:
    """Number for number."""
    np.testing.assert_array_equal(sample.nodes.cpu(), batch.nodes)
    assert len(sample.hops) == len(batch.hops)
    for mine, cpus, layout in zip(sample.hops, batch.hops, batch.layout.hops, strict=True):
        assert (mine.num_dst, mine.num_src, mine.num_edges) == (layout.num_dst, layout.num_src, layout.num_edges)
        assert (mine.indptr.dtype, mine.indices.dtype) == (torch.int32, torch.int32)
        np.testing.assert_array_equal(mine.indptr.cpu(), cpus.indptr)
        np.testing.assert_array_equal(mine.indices.cpu(), cpus.indices)
        for name in ("edge_ids", "edge_weights", "edge_types"):
            _assert_same(getattr(mine, name), getattr(cpus, name))
    _assert_same(sample.queries, batch.queries)


def _assert_same(mine: torch.Tensor | None, cpus: np.ndarray | None) -> None:
    assert (mine is None) == (cpus is None)
    if mine is not None and cpus is not None:
        assert mine.numpy(force=True).dtype == cpus.dtype
        np.testing.assert_array_equal(mine.cpu(), cpus)
