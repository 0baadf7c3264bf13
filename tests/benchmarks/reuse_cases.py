"""The cases of ``tests.benchmarks.reuse``: graphs, samplers and orders of seeds, and what is measured of each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from lightning_gnnload import (
    DiskFeatureStore,
    FeatureCache,
    GraphData,
    GraphDataModule,
    LaborSampler,
    Negatives,
    NeighborSampler,
    ProximityOrder,
    Purchases,
    Sampler,
    SeedTable,
    save_features,
)
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.reuse import LARGER, Reuse, num_reused, reuse
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.cache.simulate import AccessTrace
from tests.benchmarks.eviction_models import belady_hits
from tests.benchmarks.overlap import Choice, best_order, in_windows, nearest_next
from tests.benchmarks.policy_cases import SAMPLERS, SETTINGS, weighted

WINDOWS, SEARCHED = (4, 8, 16, 32), (4, 8)
RATIOS = (0.05, 0.1, 0.2)
TYPICAL = 0.1
RULES = ("fifo", "clock", "s3fifo")
LEVEL, ALONE = "a level of {} behind it", "{} alone, in all the memory"
SMALL_GRAPH = "Debian, 64 seeds"
GRAPHS = ("social", "web", "citation", "co-purchase", "Debian", SMALL_GRAPH, "purchases")
HOPS = "15, 10, 5"
_NEGATIVES = {"negatives": Negatives("binary", num=1)}
NEAR: dict[str, Any] = {f"proximity, {number}": ProximityOrder(number) for number in (8, 1)}


@dataclass(frozen=True)
class Case:
    """A graph, a sampler and an order of seeds."""

    graph: str
    sampler: str
    order: str
    module: GraphDataModule

    @property
    def name(self) -> str:
        return f"{self.graph}; {self.sampler}; {self.order}"


@dataclass
class Result:
    """Of one case; rows shared, and hits, as shares of all rows that mini-batches ask for."""

    case: Case
    rows: int  # of a mini-batch on average
    batch: float  # that, as a share of the table
    shared: float  # with the mini-batch before
    reordered: dict[str, float]  # likewise, by how the windows were ordered
    same_memory: dict[str, float]  # hits of caches of a mini-batch's rows
    behind: dict[float, Reuse] = field(default_factory=dict)  # by the ratio of the cache before
    reordered_behind: dict[float, float] = field(default_factory=dict)  # of missed rows, in windows of 32


def cases(graph: str) -> Iterator[Case]:
    """All samplers on shuffled seeds, and three hops on seeds that are near, or of one time."""
    if graph == "purchases":
        yield from _purchases()
        return
    name, _, with_seeds = graph.partition(", ")
    setting = SETTINGS[name]
    setting.dataset.prepare()
    loaded = setting.dataset.load()
    batch_size = int(with_seeds.split()[0]) if with_seeds else -(-len(loaded.train) // setting.num_batches)
    data = GraphData(weighted(loaded.graph), y=loaded.y, train=loaded.train)
    samplers = {
        "10, 5": NeighborSampler([10, 5]),
        HOPS: SAMPLERS["3-hop uniform"],
        f"{HOPS}, weighted": SAMPLERS["3-hop weighted"],
        f"{HOPS}, LABOR": LaborSampler([15, 10, 5]),
        "random walks": SAMPLERS["random walks"],
    }
    for title, sampler in samplers.items():
        yield _case(graph, title, "shuffled", data, sampler, batch_size)
    yield _case(graph, "10, 5, links", "shuffled", _links(loaded), NeighborSampler([10, 5]), batch_size, _NEGATIVES)
    for order, seed_order in NEAR.items():
        yield _case(graph, HOPS, order, data, samplers[HOPS], batch_size, {"order": seed_order})


def _links(data: GraphData) -> GraphData:
    """Edges drawn at random, as many as there are nodes to train on."""
    graph, random = data.graph, np.random.default_rng(0)
    edges = random.choice(graph.num_edges, len(data.train), replace=False)
    dst = np.searchsorted(graph.indptr, edges, side="right") - 1
    return GraphData(graph, train=SeedTable(src=graph.indices[edges].astype(np.int64), dst=dst))


def _purchases() -> Iterator[Case]:
    """Bipartite, with times: who buys what."""
    data = Purchases(num_users=100_000, num_items=10_000).load()
    for title, fanouts in {"10, 5": [10, 5], HOPS: [15, 10, 5]}.items():
        for order in ("shuffle", "time"):
            sampler = NeighborSampler(fanouts, sharing="time")
            seeds = {"shuffle": "shuffled"}.get(order, order)
            yield _case("purchases", title, seeds, data, sampler, 256, {"order": order})


def _case(
    graph: str, title: str, order: str, data: GraphData, sampler: Sampler, batch_size: int, settings: Any = None
) -> Case:
    return Case(graph, title, order, GraphDataModule(data, sampler, batch_size, **(settings or {})))


def traced(case: Case) -> tuple[AccessTrace, np.ndarray]:
    """Samples two epochs, or as many steps of each as ask for some four million rows; returns with them how a presample
    cache would rank the rows."""
    case.module.setup("fit")
    trace = AccessTrace(case.module.workload("train"), 2, max_bytes=64 << 20)
    trace.epochs = [[_distinct(nodes) for nodes in epoch] for epoch in trace.epochs]
    # By an epoch that is not measured, as most epochs of a run are not those that were ranked.
    return trace, policy_named("presample", progress=False).hotness(trace.workload, len(trace.epochs))


def _distinct(nodes: np.ndarray) -> np.ndarray:
    """Leaves out repeats: with times, a node of several moments comes several times, but it is one row."""
    _, firsts = np.unique(nodes, return_index=True)
    return nodes[np.sort(firsts)]


def measure(case: Case) -> Result:
    trace, hotness = traced(case)
    total, num_nodes = trace.num_visits, trace.num_nodes
    rows = round(total / len(trace.epochs[1]))
    lists = [trace.epochs[0][-1], *trace.epochs[1]]  # the first one counts only as the last of the one after it
    reordered = {f"{window}": _reordered(lists, num_nodes, window) / total for window in WINDOWS}
    for window in SEARCHED:
        reordered[f"{window}, best"] = _reordered(lists, num_nodes, window, best_order) / total
    result = Result(case, rows, rows / num_nodes, num_reused(lists, num_nodes) / total, reordered, {})
    alone = reuse(trace, hotness, 0.0).saved  # without a cache before it
    result.same_memory = {"presample": alone[LARGER], **{rule: alone[LEVEL.format(rule)] for rule in RULES}}
    hits = belady_hits(num_nodes, rows, list(chain(*trace.epochs)))
    result.same_memory["belady"] = int(hits[len(trace.epochs[0]) :].sum()) / total
    for ratio in RATIOS:
        result.behind[ratio] = reuse(trace, hotness, ratio)
        is_missed = np.ones(num_nodes, bool)
        is_missed[hottest(hotness, num_nodes, int(ratio * num_nodes))] = False
        missed = [nodes[is_missed[nodes]] for nodes in lists]
        num_missed = max(sum(map(len, missed[1:])), 1)
        result.reordered_behind[ratio] = _reordered(missed, num_nodes, WINDOWS[-1]) / num_missed
    return result


def _reordered(lists: Sequence[np.ndarray], num_nodes: int, window: int, choose: Choice = nearest_next) -> int:
    """Rows shared with the mini-batch before, once each window is ordered."""
    return num_reused([lists[number] for number in in_windows(lists, num_nodes, window, choose)], num_nodes)


def bytes_from_disk() -> Iterator[tuple[str, float, dict[str, int]]]:
    """Loads Debian's mini-batches with rows on a disk, for each order of seeds. Yields the order, the memory of one
    mini-batch's rows as a share of the table, and bytes that the second epoch reads, by cache."""
    dataset = SETTINGS["Debian"].dataset
    dataset.prepare()
    loaded = dataset.load()
    with tempfile.TemporaryDirectory() as folder:
        save_features(loaded.x, folder, overwrite=True, progress=False)
        data = GraphData(loaded.graph, x=DiskFeatureStore(folder, direct=False), y=loaded.y, train=loaded.train)
        for order, seeds in {"shuffled": "shuffle", **NEAR}.items():
            case = _case(SMALL_GRAPH, HOPS, order, data, SAMPLERS["3-hop uniform"], 64, {"order": seeds})
            more = reuse(*traced(case), TYPICAL).more
            hottest_rows = FeatureCache("presample", ratio=TYPICAL)
            caches: dict[str, Any] = {
                "presample": hottest_rows,
                LARGER: FeatureCache("presample", ratio=TYPICAL + more),
                **{LEVEL.format(rule): [hottest_rows, FeatureCache(rule, ratio=more)] for rule in RULES},
            }
            yield order, more, {name: _bytes_read(data, case, seeds, cache) for name, cache in caches.items()}


def _bytes_read(data: GraphData, case: Case, seeds: Any, cache: Any) -> int:
    sampler, batch_size = case.module.sampler, case.module.batch_size
    module = GraphDataModule(data, sampler, batch_size, order=seeds, cache=cache, num_threads=1)
    module.setup("fit")
    loader, after = module.train_dataloader(), [0]
    for _ in range(2):
        for _ in loader:
            pass
        after.append(sum(reads.num_bytes for reads in loader.stats.reads if reads.tier == "disk"))
    return after[2] - after[1]
