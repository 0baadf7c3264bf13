"""Caches over linked devices: rows that are copied beside rows that are there once, and caches that evict: ``python -m
tests.benchmarks.device_levels [--quick] [--graph G]``.

First, where the rows of an epoch come from, by the memory of each device, filled by the visits of the epoch before:
all rows once; half of the memory for copies of the hottest rows, which the other half holds as well (overlap) or not;
and as many copies as are cheapest (:func:`.rows_to_copy`). Nanoseconds a row are estimated from an H200's figures
(docs/benchmarks_gpu.md) and 380 GB/s of NVLink.

Second, hit rates of first-in-first-out caches: each device's own; one over all of them, by the real kernels on
emulated devices, in the same memory; and one for all with a lock, as ranks share it in the host's memory. The first
epoch warms them, the second counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from lightning_gnnload import GraphData, ops
from lightning_gnnload.cache.copies import ReadCosts, rows_to_copy
from lightning_gnnload.ops.cuda.tables.partitioned_cache import PartitionedSlots, Parts
from lightning_gnnload.ops.cuda.tables.tiers import gather_tiered
from tests.benchmarks import machine
from tests.benchmarks.fifo import GRAPHS, graphs, grid
from tests.benchmarks.report import number
from tests.benchmarks.shared_rows import CACHED, ORDERS, RANKS, Steps, hit_rates, traces
from tests.cuda.emulated import EmulatedDevice

ROW_BYTES = 512
H200 = ReadCosts(ROW_BYTES / 1612, ROW_BYTES / 380, ROW_BYTES / 48.5)  # ns, by GB/s
MEMORIES = (0.02, 0.1)  # of all rows, on each device
OWN_SLOT_BYTES = 8  # of a row in a cache of one device, beside itself


def visits_of(steps: Steps, num_nodes: int) -> np.ndarray:
    return np.bincount(np.concatenate([nodes for ranks in steps for nodes in ranks]), minlength=num_nodes)


def copies(data: GraphData, epochs: list[Steps], num_ranks: int) -> Iterator[list[str]]:
    """Rows of a table: shares of reads by memory, and what a row takes."""
    ranked, counted = (visits_of(steps, data.num_nodes) for steps in epochs)
    hot = np.argsort(-ranked, kind="stable")
    expected, visits = ranked[hot].astype(np.float64), counted[hot] / counted.sum()
    for share in MEMORIES:
        room = round(share * data.num_nodes)
        most = min(room * num_ranks, data.num_nodes)
        half = room // 2
        cheapest = rows_to_copy(expected[:most], num_ranks, H200)
        layouts = {
            "once": (0, most),
            "half copied, overlapping": (half, min(half * num_ranks, data.num_nodes)),
            "half copied": (half, min(half + (room - half) * num_ranks, data.num_nodes)),
            f"cheapest: {cheapest / room:.0%} copied": (cheapest, min(most - cheapest * (num_ranks - 1), most)),
            "all copied": (room, room),
        }
        for title, (copied, cached) in layouts.items():
            once = visits[copied:cached].sum()
            own, hits = visits[:copied].sum() + once / num_ranks, visits[:cached].sum()
            peers = hits - own
            took = own * H200.local_s + peers * H200.peers_s + (1 - hits) * H200.behind_s
            yield [f"{num_ranks}", f"{share:.0%}", title, *(f"{part:.1%}" for part in (own, peers, hits)), number(took)]


def over_devices(num_nodes: int, epochs: list[Steps], num_slots: int, num_ranks: int) -> float:
    """The hit rate of one cache of so many slots in all, by the kernels."""
    devices = [EmulatedDevice(seed=rank, num_processors=2) for rank in range(num_ranks)]
    own_slots = num_slots // num_ranks
    memories = [torch.empty(Parts.of(num_nodes, own_slots, 1, num_ranks).num_bytes, dtype=torch.uint8) for _ in devices]
    addresses = [memory.data_ptr() for memory in memories]
    rows = torch.zeros(num_nodes, 1, dtype=torch.uint8)
    ranks = [
        PartitionedSlots(device, num_nodes, own_slots, 1, addresses, rank, rows) for rank, device in enumerate(devices)
    ]
    rate = 0.0
    for steps in epochs:
        counts = [device.zeros(ops.MAX_SHARDS + 1, torch.int64) for device in devices]
        for step in steps:
            for rank, nodes in enumerate(step):
                device, slots = devices[rank], ranks[rank]
                ids, out = device.put(nodes), device.zeros(len(nodes), torch.uint8).view(-1, 1)
                slots.enter()
                slots.locate(ids)
                gather_tiered(device, slots.table, ids, out, counts[rank], device.zeros(1, torch.int64))
                slots.admit(ids, out)
                slots.leave()
        total = torch.stack(counts).sum(0)
        rate = 1 - float(total[-1] / total.sum())
    return rate


def measure(name: str, data: GraphData, most_steps: int, ranks: tuple[int, ...]) -> Iterator[str]:
    """Markdown: a table of copies, and one of hit rates."""
    shares, rates = [], []
    for num_ranks in ranks:
        for title, order in ORDERS.items():
            _, epochs = traces(data, order, num_ranks, most_steps)
            if title == "shuffled":
                shares += list(copies(data, epochs, num_ranks))
            num_slots = round(CACHED * data.num_nodes)
            same_memory = num_slots * (ROW_BYTES + OWN_SLOT_BYTES) // (ROW_BYTES + Parts.slot_bytes(ROW_BYTES))
            own, one = hit_rates(data.num_nodes, epochs, "fifo", num_slots, num_ranks)
            over = over_devices(data.num_nodes, epochs, same_memory, num_ranks)
            rates.append([str(num_ranks), title, *(f"{rate:.1%}" for rate in (own, over, one))])
    header = ["ranks", "memory of each", "rows", "own", "peers", "hits", "ns a row, estimated"]
    yield f"{name}, {data.num_nodes:,} nodes, shuffled:\n\n{grid(header, shares)}"
    header = ["ranks", "order", "own", "over devices", "one"]
    yield f"{name}; FIFO of {CACHED:.0%} of all rows together:\n\n{grid(header, rates)}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.device_levels", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 and 4 ranks, smaller random graphs, 40 steps")
    parser.add_argument("--graph", nargs="+", choices=GRAPHS, default=GRAPHS)
    options: Any = parser.parse_args(arguments)
    for line in machine.describe():
        print(f"- {line}")
    for name in options.graph:
        dataset = graphs(100_000 if options.quick else 1_000_000)[name]
        dataset.prepare()
        for table in measure(name, dataset.load(), 40 if options.quick else 200, RANKS[:2] if options.quick else RANKS):
            print(f"\n{table}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
