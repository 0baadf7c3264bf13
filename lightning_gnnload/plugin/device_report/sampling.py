"""How long mini-batches take that a device samples, kernel by kernel, from a random graph that is made there."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.timing import Moment, keep_busy
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.sample.neighbor import NeighborSampler

_EDGE_BYTES, _SEED_BYTES = 32 + 8 + 4, 52
"""Least traffic: a sector, an id and a local id an edge; where a list begins and ends, and counts, a destination."""
_CHUNK = 1 << 26


@dataclass(frozen=True)
class SamplingTimes:
    """Medians over mini-batches."""

    num_nodes: float  # of a batch
    num_edges: float  # of a batch
    num_dst: float  # destinations of all its hops
    host_ms: float  # from the call to the return, which has waited for the device
    device_ms: float  # from the first kernel to the last
    kernels_ms: dict[str, float]  # of each kernel, the sum over the batch's launches

    @property
    def least_bytes(self) -> float:
        """The least traffic there could be."""
        return self.num_edges * _EDGE_BYTES + self.num_dst * _SEED_BYTES

    @property
    def picking_ms(self) -> float:
        """The milliseconds of the kernels that count and draw edges, without deduplication."""
        return sum(ms for name, ms in self.kernels_ms.items() if name.startswith("sample_neighbors/"))


class TimedLaunches:
    """A device that keeps the time of each launch."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._launches: list[tuple[str, Moment, Moment]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def launch(self, op: str, kernel: str, *types: Any, **launched: Any) -> None:
        before = Moment(self._device)
        self._device.launch(op, kernel, *types, **launched)
        self._launches.append((f"{op}/{kernel}", before, Moment(self._device)))

    def take_ms(self) -> dict[str, float]:
        """Returns the milliseconds of each kernel since the last call."""
        summed: dict[str, float] = defaultdict(float)
        for name, before, after in self._launches:
            summed[name] += after.ms_since(before)
        self._launches.clear()
        return dict(summed)


def random_topology(device: Device, num_nodes: int, num_edges: int, seed: int = 0) -> Topology:
    """Makes a graph whose degrees follow a power law with exponent 2.5, and whose edges come mostly from few nodes,
    which may have any id. Raises DeviceMemoryError where the device has no room for it."""
    there = device.torch_device
    generator = torch.Generator(there).manual_seed(seed)
    weights = torch.rand(num_nodes, device=there, generator=generator).clamp_(min=1e-6).pow_(-1 / 1.5)
    degrees = (weights * (num_edges / weights.sum())).long()
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=there)
    torch.cumsum(degrees, 0, out=indptr[1:])
    indices = device.empty(int(indptr[-1]), torch.int32)
    ids = torch.randperm(num_nodes, device=there, generator=generator, dtype=torch.int32)
    for begin in range(0, len(indices), _CHUNK):
        part = indices[begin : begin + _CHUNK]
        # float32 has 2^24 numbers, fewer than large graphs have nodes.
        ranks = torch.rand(len(part), device=there, generator=generator, dtype=torch.float64).square_()
        part.copy_(ids[(ranks * num_nodes).long().clamp_(max=num_nodes - 1)])
    return Topology(num_nodes, len(indices), indptr, indices, max_degree=int(degrees.max()))


def measure_sampling(
    device: Device, topology: Topology, batch_size: int, fanouts: Sequence[int], num_turns: int
) -> SamplingTimes:
    """Times ``num_turns`` mini-batches as a training draws them, and the same again with each launch timed; two before
    them are not counted, as the first may be compared, and memory is taken."""
    num_all = num_turns + 2
    sampler = DeviceSampler(NeighborSampler(list(fanouts)), topology, device)
    timed = TimedLaunches(device)
    workspace = DeviceWorkspace(timed, topology.num_nodes)  # apart, as timing each launch would slow the others
    seeds = np.random.default_rng(1).permutation(topology.num_nodes)[: batch_size * num_all]
    batches = np.array_split(seeds, num_all)
    rows, kernels = [], []
    for step, batch in enumerate(batches):
        before, began = Moment(device), time.perf_counter()
        sample = sampler.sample(Draw(batch, DrawKey(seed=1, epoch=0, step=step)))
        host_ms, after = (time.perf_counter() - began) * 1e3, Moment(device)
        num_edges, num_dst = (sum(getattr(hop, name) for hop in sample.hops) for name in ("num_edges", "num_dst"))
        rows.append((len(sample.nodes), num_edges, num_dst, host_ms, after.ms_since(before)))
    for step, batch in enumerate(batches):
        keep_busy(device)
        sample_neighbors(workspace, topology, batch, list(fanouts), DrawKey(seed=1, epoch=0, step=step))
        kernels.append(timed.take_ms())
    num_nodes, num_edges, num_dst, host_ms, device_ms = map(statistics.median, zip(*rows[2:], strict=True))
    kernels_ms = {name: statistics.median(turn[name] for turn in kernels[2:]) for name in kernels[0]}
    return SamplingTimes(num_nodes, num_edges, num_dst, host_ms, device_ms, kernels_ms)
