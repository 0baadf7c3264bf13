"""``python -m tests.benchmarks.gpu_sampling [--quick]``: mini-batches sampled on a GPU, kernel by kernel.

The graph is random, of papers100M's size, made on the device: most in-neighbours are few nodes, of any id. Beside the
milliseconds of a batch stand the edges a second, as a share of what random reads of 4 bytes allow, and the least
traffic there could be, as a share of the bandwidth of a copy. ``--host`` leaves the lists in the host's memory, and
compares reading them in the order of their places with reading them as they come.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from unittest.mock import patch

from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.probe import copy_bytes_per_s, random_reads_per_s
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.plugin.device_report.sampling import SamplingTimes, measure_sampling, random_topology
from tests.benchmarks import gpu_device, machine

_TABLE_BYTES = 6 << 30  # as much as the edges of papers100M


def report(figures: SamplingTimes, reads_per_s: float, bytes_per_s: float) -> str:
    """As Markdown."""
    shares = []
    for what, ms in (("the whole batch", figures.device_ms), ("its draws alone", figures.picking_ms)):
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


def host_ms(device: Device, topology: Topology, batch: int, fanouts: list[int], num_turns: int) -> dict[str, float]:
    """Milliseconds of a batch whose lists lie in the host's memory, by the order in which they are read."""
    hosted, found = replace(topology, indices=device.map_host(device.read(topology.indices))), {}
    for name, few in (("in order", batches.FEW_LISTS), ("as they come", sys.maxsize)):
        with patch.object(batches, "FEW_LISTS", few):
            found[name] = measure_sampling(device, hosted, batch, fanouts, num_turns).device_ms
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_sampling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small graph, few turns")
    parser.add_argument("--nodes", type=int, default=111_059_956)
    parser.add_argument("--edges", type=int, default=1_615_685_872)
    parser.add_argument("--batch", type=int, default=8000)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--host", action="store_true", help="measure lists in the host's memory as well")
    options = parser.parse_args(arguments)
    if options.quick:
        options.nodes, options.edges, options.turns = 1_000_000, 15_000_000, 5
    device = gpu_device.opened()
    if device is None:
        return 0
    others = machine.Neighbours()
    reads_per_s, bytes_per_s = random_reads_per_s(device, _TABLE_BYTES), copy_bytes_per_s(device)
    topology = random_topology(device, options.nodes, options.edges)
    figures = measure_sampling(device, topology, options.batch, options.fanouts, options.turns)
    print(
        f"{options.batch:,} seeds, fanouts {options.fanouts}, {topology.num_nodes:,} nodes, {topology.num_edges:,} "
        f"edges; medians of {options.turns} batches. Random reads of 4 bytes: {reads_per_s / 1e9:.1f} 10^9/s; a copy: "
        f"{2 * bytes_per_s / 1e9:,.0f} GB/s read and written.\n"
    )
    print(report(figures, reads_per_s, bytes_per_s))
    if options.host:
        turns = max(options.turns // 10, 2)
        for name, ms in host_ms(device, topology, options.batch, options.fanouts, turns).items():
            print(f"\nLists in the host's memory, read {name}: {ms:.3f} ms a batch.")
    print("\n" + "\n".join(f"- {line}" for line in [*gpu_device.describe(device), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
