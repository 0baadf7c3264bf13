"""``python -m tests.benchmarks.gpu_sampling [--quick]``: mini-batches sampled on a GPU, kernel by kernel.

The graph is random, of papers100M's size, made on the device: in-neighbours are skewed towards low ids. Beside the
milliseconds of a batch stand the edges a second, as a share of what random reads of 32 bytes allow, and the least
traffic there could be, as a share of the bandwidth of a copy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.device import Device
from lightning_gnnload.ops.cuda.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.topology import Topology
from lightning_gnnload.ops.cuda.workspace import DeviceWorkspace
from tests.benchmarks import gpu_device, machine
from tests.benchmarks.gpu_device import Moment

_EDGE_BYTES, _SEED_BYTES = 32 + 8 + 4, 52
"""Least traffic: a sector, an id and a local id an edge; where a list begins and ends, and counts, a destination."""
_CHUNK = 1 << 26


@dataclass(frozen=True)
class Figures:
    """Medians over mini-batches.

    Attributes:
        num_nodes: of a batch.
        num_edges: of a batch.
        num_dst: destinations of all its hops.
        host_ms: from the call to the return, which has waited for the device.
        device_ms: from the first kernel to the last.
        kernels_ms: sum over the batch's launches of each kernel.
    """

    num_nodes: float
    num_edges: float
    num_dst: float
    host_ms: float
    device_ms: float
    kernels_ms: dict[str, float]

    @property
    def least_bytes(self) -> float:
        return self.num_edges * _EDGE_BYTES + self.num_dst * _SEED_BYTES

    @property
    def sampling_ms(self) -> float:
        """Of the kernels that count and draw edges, without deduplication."""
        return sum(ms for name, ms in self.kernels_ms.items() if name.startswith("sample_neighbors/"))


class Timed:
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

    def taken_ms(self) -> dict[str, float]:
        """Of each kernel since the last call."""
        summed: dict[str, float] = defaultdict(float)
        for name, before, after in self._launches:
            summed[name] += after.ms_since(before)
        self._launches.clear()
        return dict(summed)


def random_topology(device: Device, num_nodes: int, num_edges: int, seed: int = 0) -> Topology:
    """Degrees of a power law with exponent 2.5, in-neighbours skewed towards low ids."""
    generator = torch.Generator(device.torch_device).manual_seed(seed)
    uniform = torch.rand(num_nodes, device=device.torch_device, generator=generator)
    weights = uniform.clamp_(min=1e-6).pow_(-1 / 1.5)
    degrees = (weights * (num_edges / weights.sum())).long()
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device.torch_device)
    torch.cumsum(degrees, 0, out=indptr[1:])
    indices = device.empty(int(indptr[-1]), torch.int32)
    for begin in range(0, len(indices), _CHUNK):
        part = indices[begin : begin + _CHUNK]
        uniform = torch.rand(len(part), device=device.torch_device, generator=generator)
        part.copy_((uniform.square_() * num_nodes).clamp_(max=num_nodes - 1))
    return Topology(num_nodes, len(indices), indptr, indices, max_degree=int(degrees.max()))


def measure(device: Device, topology: Topology, batch_size: int, fanouts: list[int], num_turns: int) -> Figures:
    """The first turn is not counted."""
    workspace, timed = DeviceWorkspace(device, topology.num_nodes), Timed(device)
    by_kernel = DeviceWorkspace(timed, topology.num_nodes)  # timing each launch would slow the others
    seeds = np.random.default_rng(1).permutation(topology.num_nodes)[: batch_size * (num_turns + 1)]
    rows, kernels = [], []
    for step, batch in enumerate(np.array_split(seeds, num_turns + 1)):
        key = DrawKey(seed=1, epoch=0, step=step)
        before, began = Moment(device), time.perf_counter()
        sample = sample_neighbors(workspace, topology, batch, fanouts, key)
        host_ms, after = (time.perf_counter() - began) * 1e3, Moment(device)
        num_edges, num_dst = (sum(getattr(hop, name) for hop in sample.hops) for name in ("num_edges", "num_dst"))
        rows.append((len(sample.nodes), num_edges, num_dst, host_ms, after.ms_since(before)))
        gpu_device.keep_busy(device)
        sample_neighbors(by_kernel, topology, batch, fanouts, key)
        kernels.append(timed.taken_ms())
    medians = [statistics.median(column) for column in zip(*rows[1:], strict=True)]
    return Figures(*medians, {name: statistics.median(turn[name] for turn in kernels[1:]) for name in kernels[0]})


def report(figures: Figures, reads_per_s: float, bytes_per_s: float) -> str:
    """As Markdown."""
    shares = []
    for what, ms in (("the whole batch", figures.device_ms), ("its draws alone", figures.sampling_ms)):
        edges_per_s, least_bytes_per_s = (x / ms * 1e3 for x in (figures.num_edges, figures.least_bytes))
        shares.append(
            f"| {what} | {ms:.3f} | {edges_per_s / 1e9:.2f} | {edges_per_s / reads_per_s:.0%} "
            f"| {least_bytes_per_s / (2 * bytes_per_s):.0%} |"
        )
    lines = [
        f"{figures.num_nodes:,.0f} input nodes and {figures.num_edges:,.0f} edges a batch, which keeps the host for "
        f"{figures.host_ms:.3f} ms.\n",
        "| device | ms | 10^9 edges/s | of random reads | least traffic, of a copy's bandwidth |",
        "| --- | ---: | ---: | ---: | ---: |",
        *shares,
        "",
        "| kernel | ms a batch |",
        "| --- | ---: |",
        *(f"| {name} | {ms:.3f} |" for name, ms in sorted(figures.kernels_ms.items(), key=lambda item: -item[1])),
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_sampling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small graph, few turns")
    parser.add_argument("--nodes", type=int, default=111_059_956)
    parser.add_argument("--edges", type=int, default=1_615_685_872)
    parser.add_argument("--batch", type=int, default=8000)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--turns", type=int, default=50)
    options = parser.parse_args(arguments)
    if options.quick:
        options.nodes, options.edges, options.turns = 1_000_000, 15_000_000, 5
    device = gpu_device.opened()
    if device is None:
        return 0
    others = machine.Neighbours()
    reads_per_s, bytes_per_s = gpu_device.random_reads_per_s(device), gpu_device.copy_bytes_per_s(device)
    topology = random_topology(device, options.nodes, options.edges)
    figures = measure(device, topology, options.batch, options.fanouts, options.turns)
    print(
        f"{options.batch:,} seeds, fanouts {options.fanouts}, {topology.num_nodes:,} nodes, {topology.num_edges:,} "
        f"edges; medians of {options.turns} batches. Random reads of 32 bytes: {reads_per_s / 1e9:.1f} 10^9/s; a copy: "
        f"{2 * bytes_per_s / 1e9:,.0f} GB/s read and written.\n"
    )
    print(report(figures, reads_per_s, bytes_per_s))
    print("\n" + "\n".join(f"- {line}" for line in [*gpu_device.describe(device), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
