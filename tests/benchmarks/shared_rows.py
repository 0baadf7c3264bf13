"""What ranks of a machine ask for at once, and a cache for each against one for all: ``python -m
tests.benchmarks.shared_rows [--quick] [--graph G]``.

First, of the rows that the ranks of a step ask for, and of those that a cache of the hottest rows does not have, the
share that another rank of the same step asks for as well: so much would be saved at most if ranks gathered in lockstep
and passed rows on (DSP, PPoPP'23, section 3.1).

Second, hit rates of caches that evict: each rank's own, of the W-th part of the slots, against one that all fill and
hit (BGL, NSDI'23, section 3.2.3). The first epoch warms them, the second counts.

Third, milliseconds a gather of as many processes, with either: in front of memory, and of a store that sleeps 20
microseconds for each row, as if it came from a disk.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from lightning_gnnload import GraphData, MemoryFeatureStore, NeighborSampler, ops
from lightning_gnnload.cache.dynamic import DynamicCache, SharedSlots
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.cache.trace import node_lists
from lightning_gnnload.data.features import FeatureStore, Reads
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.host.locks import SharedLock
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks import machine
from tests.benchmarks.fifo import BATCH_SIZE, DYNAMIC, FANOUTS, GRAPHS, graphs, grid
from tests.benchmarks.report import number

RANKS = (2, 4, 8)
CACHED = 0.1  # of all rows
ORDERS: dict[str, SeedOrder] = {"shuffled": Shuffled(), "proximity-aware": ProximityOrder(sequences=8)}
NUM_FEATURES = 128

ROW_S = 20e-6


class SlowStore(MemoryFeatureStore):
    """Takes its time for each row, and nobody's processor."""

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads:
        time.sleep(ROW_S * len(ids))
        return super().gather_at(ids, positions, out)


Steps = list[list[np.ndarray]]
"""The nodes of each rank's mini-batch, step by step."""


def traces(data: GraphData, order: SeedOrder, num_ranks: int, most_steps: int) -> tuple[Workload, list[Steps]]:
    """Two epochs of a workload of several ranks, each cut off after some steps."""
    bound = order.bind(data.graph, data.y, BATCH_SIZE)
    workload = Workload(
        data.graph, NeighborSampler(FANOUTS), data.train, batch_size=BATCH_SIZE, order=bound, num_ranks=num_ranks
    )
    epochs = [[each for each in workload.requests(epoch) if each.step < most_steps] for epoch in (0, 1)]
    lists = dict(node_lists(workload, chain(*epochs)))
    made: list[Steps] = []
    for epoch in epochs:
        steps: Steps = [[] for _ in range(1 + max(request.step for request in epoch))]
        for request in epoch:
            steps[request.step].append(lists[request])
        made.append(steps)
    return workload, made


def asked_twice(steps: Steps, cached: np.ndarray) -> float:
    """Of the rows that the cache does not have, the share that fewer would be read if ranks read each once a step."""
    missed = [[nodes[~cached[nodes]] for nodes in ranks] for ranks in steps]
    distinct = sum(len(np.unique(np.concatenate(ranks))) for ranks in missed)
    return 1 - distinct / sum(len(nodes) for ranks in missed for nodes in ranks)


def hit_rates(num_nodes: int, epochs: list[Steps], eviction: str, num_slots: int, num_ranks: int) -> list[float]:
    """Of each rank's own cache, and of one for all."""
    rates = []
    for num_caches in (num_ranks, 1):
        caches = [ops.EvictingSlots(num_nodes, num_slots // num_caches, 0, eviction) for _ in range(num_caches)]
        counted = [0, 0]
        for steps in epochs:
            counted = [0, 0]
            for ranks in steps:
                for rank, nodes in enumerate(ranks):
                    counted[0] += caches[rank % num_caches].visit(nodes)
                    counted[1] += len(nodes)
        rates.append(counted[0] / counted[1])
    return rates


def took_ms(steps: Steps, store: FeatureStore, eviction: str, num_slots: int, num_turns: int) -> list[float]:
    """Milliseconds a gather, of as many processes as a step has ranks, all of which gather at once: the median of some
    turns, with a cache each, and with one for all."""
    num_ranks = len(steps[0])
    context, turns = multiprocessing.get_context("fork"), []
    num_bytes = ops.EvictingSlots.block_bytes(store.shape[0], num_slots, store.row_bytes, eviction)
    for is_shared in [False, True] * num_turns:
        memory, lock = MemoryFile.create("bench", num_bytes, open_to_all=True), SharedLock.create()
        begin = context.Barrier(num_ranks)

        def work(rank: int, told: Connection) -> None:
            slots = SharedSlots(memory.array, SharedLock(os.dup(lock.fd))) if is_shared else None  # noqa: B023
            num_own = num_slots if is_shared else num_slots // num_ranks  # noqa: B023
            cache = DynamicCache(store, num_own, eviction, slots=slots)
            batches = [torch.from_numpy(ranks[rank]) for ranks in steps]
            out = torch.zeros(max(map(len, batches)), NUM_FEATURES)
            for is_counted in (False, True):
                begin.wait()  # noqa: B023
                began = time.perf_counter()
                for ids in batches:
                    cache.gather(ids, out[: len(ids)])
                if is_counted:
                    told.send((time.perf_counter() - began) * 1e3 / len(batches))

        pipes = [context.Pipe(duplex=False) for _ in range(num_ranks)]
        processes = [context.Process(target=work, args=(rank, pipe[1])) for rank, pipe in enumerate(pipes)]
        for process in processes:
            process.start()
        turns.append(sum(pipe[0].recv() for pipe in pipes) / num_ranks)
        for process in processes:
            process.join()
        memory.close()
        lock.close()
    return [float(np.median(turns[at::2])) for at in (0, 1)]


def measure(name: str, data: GraphData, most_steps: int) -> Iterator[str]:
    """Markdown: a table of overlaps, of hit rates and of times."""
    overlaps, rates, times = [], [], []
    num_slots = round(CACHED * data.num_nodes)
    for num_ranks in RANKS:
        for title, order in ORDERS.items():
            workload, epochs = traces(data, order, num_ranks, most_steps)
            cached = np.zeros(data.num_nodes, bool)
            everything = asked_twice(epochs[1], cached)
            cached[hottest(policy_named("degree", progress=False).hotness(workload, 0), len(cached), num_slots)] = True
            missed = asked_twice(epochs[1], cached)
            mean_rows = sum(len(nodes) for ranks in epochs[1] for nodes in ranks) / len(epochs[1])
            overlaps.append([str(num_ranks), title, f"{mean_rows:,.0f}", f"{everything:.1%}", f"{missed:.1%}"])
            if num_ranks == RANKS[-1]:
                continue
            found = {each: hit_rates(data.num_nodes, epochs, each, num_slots, num_ranks) for each in DYNAMIC.values()}
            rates.append([str(num_ranks), title, *(f"{own:.1%}, {one:.1%}" for own, one in found.values())])
            rows = torch.rand(data.num_nodes, NUM_FEATURES)
            took = took_ms(epochs[1][:100], MemoryFeatureStore(rows), "fifo", num_slots, 3)
            took += took_ms(epochs[1][:50], SlowStore(rows), "fifo", num_slots, 1)
            ratios = [number(took[1] / took[0]), number(took[3] / took[2])]
            times.append([str(num_ranks), title, *map(number, took[:2]), ratios[0], *map(number, took[2:]), ratios[1]])
    header = ["ranks", "order", "rows a step", "asked for twice", f"of those missed by {CACHED:.0%}"]
    yield f"{name}, {data.num_nodes:,} nodes:\n\n{grid(header, overlaps)}"
    header = ["ranks", "order", *(f"{each}: own, one" for each in DYNAMIC)]
    yield f"{name}; hit rate of caches of {CACHED:.0%} of all rows together:\n\n{grid(header, rates)}"
    header = ["ranks", "order", "memory: own, ms", "one, ms", "times", "slow store: own, ms", "one, ms", "times"]
    yield f"{name}; FIFO, rows of {4 * NUM_FEATURES} bytes, a gather:\n\n{grid(header, times)}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.shared_rows", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small random graphs, 100 steps; a minute")
    parser.add_argument("--graph", nargs="+", choices=GRAPHS, default=GRAPHS)
    options: Any = parser.parse_args(arguments)
    for line in machine.describe():
        print(f"- {line}")
    for name in options.graph:
        dataset = graphs(100_000 if options.quick else 1_000_000)[name]
        dataset.prepare()
        for table in measure(name, dataset.load(), 100 if options.quick else 600):
            print(f"\n{table}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
