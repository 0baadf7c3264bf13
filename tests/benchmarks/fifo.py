"""BGL's figure 5 again: hit rate and cost of dynamic caches: ``python -m tests.benchmarks.fifo [--quick] [--graph G]``.

Mini-batches of two epochs are sampled under each order. The first epoch warms the caches, the second is measured; a
mini-batch hits what is cached when it comes. Static caches are ranked beforehand. Costs are of processor time, over
node ids alone: finding the hits and replacing rows, without their bytes, as in BGL's figure 5a.

The last table has rows: what a mini-batch costs where two threads gather at once, with the cache's own lock, under
which many read, and with one lock for everything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from rich.console import Console

from lightning_gnnload import Debian, GraphData, MemoryFeatureStore, NeighborSampler, Synthetic, ops
from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.cache.trace import node_lists
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks import machine
from tests.benchmarks.contenders import count
from tests.benchmarks.eviction_models import Lru, belady_hits
from tests.benchmarks.report import number

RATIOS = (0.01, 0.02, 0.05, 0.10)
FANOUTS = [15, 10, 5]
BATCH_SIZE = 16  # so that a mini-batch is about as small a part of the graph as one of BGL's 1,000 is of papers100M
GRAPHS = ("debian", "citation", "web")
STATIC = ("degree", "presample")
DYNAMIC = {"FIFO": "fifo", "CLOCK": "clock", "S3-FIFO": "s3fifo"}
Visit = Callable[[np.ndarray], int]


def graphs(num_nodes: int) -> dict[str, StoredDataset]:
    """A real one, and two random ones with one training node in a hundred, as ogbn-papers100M has."""
    settings: dict[str, Any] = {"num_nodes": num_nodes, "num_edges": 16 * num_nodes, "num_features": 0}
    settings |= {"train_fraction": 0.01, "val_fraction": 0.0, "max_test": 0}
    return {
        "debian": Debian(),
        "citation": Synthetic("citation", **settings),
        "web": Synthetic("web", homophily=0.9, **settings),
    }


def orders(sequences: Sequence[int]) -> dict[str, SeedOrder]:
    """By title, shuffled first."""
    near = {f"proximity-aware, {count(each, 'sequence')}": ProximityOrder(sequences=each) for each in sequences}
    return {"shuffled": Shuffled(), **near}


class Trace:
    """The node lists of two epochs of a workload, and what static caches hold for it."""

    def __init__(self, data: GraphData, order: SeedOrder) -> None:
        order = order.bind(data.graph, data.y, BATCH_SIZE)
        self.workload = Workload(data.graph, NeighborSampler(FANOUTS), data.train, batch_size=BATCH_SIZE, order=order)
        self.num_nodes = data.num_nodes
        epochs = [list(self.workload.requests(epoch)) for epoch in (0, 1)]
        self.batches = [nodes for _, nodes in node_lists(self.workload, chain(*epochs))]
        self.num_warm = len(epochs[0])
        self.measured = self.batches[self.num_warm :]
        self.num_visits = sum(map(len, self.measured))

    def static_hit_rate(self, hotness: np.ndarray, num_slots: int) -> float:
        """Of the second epoch, with the hottest nodes cached."""
        cached = np.zeros(self.num_nodes, bool)
        cached[hottest(hotness, self.num_nodes, num_slots)] = True
        return sum(int(cached[nodes].sum()) for nodes in self.measured) / self.num_visits

    def counts(self) -> np.ndarray:
        """Visits of the second epoch, which no static cache can outdo."""
        counts = np.zeros(self.num_nodes, np.int64)
        for nodes in self.measured:
            counts[nodes] += 1
        return counts

    def dynamic(self, visit: Visit) -> tuple[float, float]:
        """Hit rate of the second epoch, and processor nanoseconds a visit there."""
        for nodes in self.batches[: self.num_warm]:
            visit(nodes)
        began = time.thread_time()
        hits = sum(map(visit, self.measured))
        return hits / self.num_visits, (time.thread_time() - began) * 1e9 / self.num_visits


@dataclass(frozen=True)
class Measured:
    """One cache under one order: hit rates by RATIOS, and nanoseconds a visit likewise, where it replaces rows."""

    name: str
    hit_rates: list[float]
    costs_ns: list[float]


def compare(trace: Trace, report: Callable[[str], object]) -> Iterator[Measured]:
    slots = [round(ratio * trace.num_nodes) for ratio in RATIOS]
    rankings = {f"static, {name}": policy_named(name, progress=False).hotness(trace.workload, 0) for name in STATIC}
    for name, hotness in {**rankings, "static, the epoch's own": trace.counts()}.items():
        report(name)
        yield Measured(name, [trace.static_hit_rate(hotness, each) for each in slots], [])
    makers: dict[str, Callable[[int], ops.EvictingSlots | Lru]] = {
        name: partial(_simulated, trace.num_nodes, rule) for name, rule in DYNAMIC.items()
    }
    makers["LRU"] = partial(Lru, trace.num_nodes)
    for name, make in makers.items():
        report(name)
        rates, costs = zip(*(trace.dynamic(make(each).visit) for each in slots), strict=True)
        yield Measured(name, list(rates), list(costs))
    report("the optimum")
    hits = [belady_hits(trace.num_nodes, each, trace.batches)[trace.num_warm :].sum() for each in slots]
    yield Measured("optimum (Belady)", [int(each) / trace.num_visits for each in hits], [])


def _simulated(num_nodes: int, eviction: str, num_slots: int) -> ops.EvictingSlots:
    return ops.EvictingSlots(num_nodes, num_slots, 0, eviction)


def figure_5(
    name: str, graph: StoredDataset, sequences: Sequence[int], report: Callable[[str], object]
) -> Iterator[str]:
    """Markdown: hit rates under each order, then costs under the first."""
    graph.prepare()
    data = graph.load()
    costs: list[Measured] = []
    shuffled_visits = 0
    for title, order in orders(sequences).items():
        trace = Trace(data, order)
        shuffled_visits = shuffled_visits or trace.num_visits
        rows = []
        for measured in compare(trace, partial(_report, report, f"{name}, {title}")):
            missed = trace.num_visits * (1 - measured.hit_rates[-1]) / shuffled_visits
            rows.append([measured.name, *(f"{rate:.1%}" for rate in measured.hit_rates), f"{missed:.0%}"])
            if measured.costs_ns and title == "shuffled":
                costs.append(measured)
        header = ["", *(f"{ratio:.0%}" for ratio in RATIOS), f"missed at {RATIOS[-1]:.0%}"]
        yield (
            f"{name}, {data.num_nodes:,} nodes, {title}: {len(trace.measured)} mini-batches of "
            f"{trace.num_visits // len(trace.measured):,} nodes; hit rate by cache size, and rows missed in the epoch, "
            f"as a share of all that it needs when shuffled:\n\n{grid(header, rows)}"
        )
    fifo_ns = costs[0].costs_ns[-1]
    rows = [[each.name, *map(number, each.costs_ns), number(each.costs_ns[-1] / fifo_ns)] for each in costs]
    header = ["", *(f"{ratio:.0%}" for ratio in RATIOS), f"times FIFO's at {RATIOS[-1]:.0%}"]
    yield f"{name}, shuffled; processor nanoseconds a visit by cache size:\n\n{grid(header, rows)}"


def _report(report: Callable[[str], object], what: str, step: str) -> None:
    report(f"{what}: {step}")


class OneLock(DynamicCache):
    """For comparison: nobody reads while somebody else does."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._cache = _Locked(self._cache)  # type: ignore[assignment]


class _Locked:
    def __init__(self, cache: ops.EvictingSlots) -> None:
        self._cache, self._lock = cache, threading.Lock()

    def read(self, *arguments: Any) -> int:
        with self._lock:
            return self._cache.read(*arguments)

    def admit(self, *arguments: Any) -> None:
        with self._lock:
            self._cache.admit(*arguments)


def locks(num_nodes: int, num_turns: int) -> str:
    """Markdown: milliseconds a mini-batch on one thread and on two."""
    rng = np.random.default_rng(0)
    store, names = MemoryFeatureStore(torch.rand(num_nodes, 128)), rng.permutation(num_nodes)
    rows = []
    for skew in (8, 30):  # the greater, the more hits
        ranks = [(num_nodes * rng.random(num_nodes // 8) ** skew).astype(np.int64) for _ in range(8)]
        batches = [torch.from_numpy(rng.permutation(names[np.unique(each)])) for each in ranks]
        settings = (store, num_nodes // 10)
        caches = {"many read at once": DynamicCache(*settings), "one lock": OneLock(*settings)}
        took: dict[tuple[str, int], list[float]] = {}
        for _ in range(num_turns):
            for name, cache in caches.items():
                for num_threads in (1, 2):
                    took.setdefault((name, num_threads), []).append(_gather_ms(cache, batches, num_threads))
        hits = sum(caches["one lock"].gather(ids, torch.empty(len(ids), 128))[0].rows for ids in batches)
        share = f"{hits / sum(map(len, batches)):.0%} hits"
        rows += [[f"{name}, {share}", *(number(statistics.median(took[name, n])) for n in (1, 2))] for name in caches]
    return f"Rows of 512 bytes; milliseconds a mini-batch:\n\n{grid(['', '1 thread', '2 threads'], rows)}"


def _gather_ms(cache: DynamicCache, batches: Sequence[torch.Tensor], num_threads: int) -> float:
    outs = [torch.zeros(max(map(len, batches)), cache.shape[1]) for _ in range(num_threads)]

    def work(thread: int) -> None:
        for ids in batches[thread::num_threads]:
            cache.gather(ids, outs[thread][: len(ids)])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(num_threads)]
    began = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return (time.perf_counter() - began) * 1e3 / len(batches)


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fifo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small random graphs, two orders; a minute")
    parser.add_argument("--graph", nargs="+", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--sequences", nargs="+", type=int, help="of proximity-aware orders; 1 and 8 by default")
    options = parser.parse_args(arguments)
    sequences = options.sequences or ((8,) if options.quick else (1, 8))
    num_nodes = 100_000 if options.quick else 1_000_000
    console = Console(stderr=True)
    for line in machine.describe():
        print(f"- {line}")
    with console.status("starting") as status:
        for name in options.graph:
            for table in figure_5(name, graphs(num_nodes)[name], sequences, status.update):
                print(f"\n{table}", flush=True)
        status.update("locks")
        print(f"\n{locks(num_nodes, 3 if options.quick else 9)}")


if __name__ == "__main__":
    main(sys.argv[1:])
