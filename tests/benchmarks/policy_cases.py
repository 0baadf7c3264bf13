"""GNNLab's twelve cases for caching policies at a small scale, and what is measured of each.

Four kinds of graph of a few million edges and three samplers, as in Fig. 10 of GNNLab (EuroSys'22): training nodes are
the same share of all and an epoch has the same number of mini-batches as there. More graphs are there for what the
others lack: a one-way citation graph, whose visits are spread most evenly; graphs that grew by preferential attachment,
with few and with many training nodes, which nothing was tuned on; and Debian's, which is no model but real.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from lightning_gnnload import (
    Debian,
    Graph,
    GraphData,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    Synthetic,
    WeightedNeighborSampler,
)
from lightning_gnnload.cache.policy import CachePolicy, hottest
from lightning_gnnload.cache.rules import Clairvoyant, PreSample, policy_named
from lightning_gnnload.cache.trace import similarity, visit_counts
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks.attachment import Attachment

NUM_EPOCHS = 10
CACHE_RATIO = 0.1
NUM_FEATURES = 128
_SAVED: dict[str, Any] = {"num_features": 0}  # the rows are made here, since what they say does not matter


@dataclass(frozen=True)
class Setting:
    """One graph: how it is made, and the mini-batches of an epoch."""

    dataset: StoredDataset
    num_batches: int


SETTINGS = {
    "social": Setting(
        Synthetic("chung-lu", 300_000, 6_000_000, exponent=2.1, max_degree=30_000, train_fraction=0.01, **_SAVED), 52
    ),
    "web": Setting(Synthetic("web", 300_000, 6_000_000, homophily=0.8, train_fraction=0.013, **_SAVED), 125),
    "citation": Setting(Synthetic("citation", 400_000, 6_000_000, train_fraction=0.01, **_SAVED), 150),
    "co-purchase": Setting(Synthetic("chung-lu", 100_000, 5_000_000, homophily=0.8, train_fraction=0.08, **_SAVED), 25),
    "citation, one way": Setting(
        Synthetic("citation", 400_000, 6_000_000, train_fraction=0.01, symmetric=False, **_SAVED), 150
    ),
    "attachment, 0.2 % train": Setting(Attachment(train_fraction=0.002), 40),
    "attachment, 10 % train": Setting(Attachment(train_fraction=0.1), 40),
    "attachment, one way": Setting(Attachment(symmetric=False), 40),
    "Debian": Setting(Debian(), 40),
}
THE_TWELVE = ("social", "web", "citation", "co-purchase")
QUICK = {"web": Setting(Synthetic("web", 20_000, 300_000, homophily=0.8, train_fraction=0.1, **_SAVED), 25)}
SAMPLERS: dict[str, Sampler] = {
    "3-hop uniform": NeighborSampler([15, 10, 5]),
    "random walks": RandomWalkSampler(weighted=False),
    "3-hop weighted": WeightedNeighborSampler([15, 10, 5]),
}
POLICIES: dict[str, CachePolicy] = {
    "presample": PreSample(num_threads=1, progress=False),
    "PreSC#1": PreSample(smooth=False, num_threads=1, progress=False),
    "presample 1": PreSample(1, num_threads=1, progress=False),
    **{name: policy_named(name) for name in ("expected", "degree", "degree-ratio", "random")},
}


@dataclass
class Result:
    """Of one case.

    Attributes:
        optimum: hit rate of a cache that is filled once with the best rows for the whole run.
        hit_rates: of each policy in the run; clairvoyant's with a window of one epoch.
        later: share of the optimum that presample's rows reach in as many epochs after the run, none of which it saw.
        on_window: clairvoyant's hits as a share of the most that were possible in the same epoch.
        similar: of an epoch and the next, by GNNLab's Table 2.
        epoch_s: processor seconds of an epoch that samples and gathers rows of 512 bytes, without a model.
        rank_s: what a policy took, likewise.
    """

    graph: str
    sampler: str
    optimum: float
    later: float
    on_window: float
    similar: float
    epoch_s: float
    hit_rates: dict[str, float] = field(default_factory=dict)
    rank_s: dict[str, float] = field(default_factory=dict)

    def share(self, policy: str) -> float:
        return self.hit_rates[policy] / self.optimum


def measure(graph: str, setting: Setting, num_epochs: int) -> Iterator[Result]:
    setting.dataset.prepare()
    loaded = setting.dataset.load()
    rows = np.ones((loaded.num_nodes, NUM_FEATURES), np.float32)
    data = GraphData(weighted(loaded.graph), rows, train=loaded.train)
    for name, sampler in SAMPLERS.items():
        batch_size = -(-len(data.train) // setting.num_batches)
        workload = Workload(data.graph, sampler, data.train, batch_size=batch_size, order=Shuffled())
        yield _measured(graph, name, data, workload, num_epochs)


def weighted(graph: Graph) -> Graph:
    """Edges of newer nodes weigh more, as GNNLab weighs papers by their year; how new, a hash of the id says."""
    newness = (graph.indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return Graph(graph.indptr, graph.indices, edge_weight=(newness / np.float32(2**24)) ** 4 + np.float32(0.001))


def _measured(graph: str, name: str, data: GraphData, workload: Workload, num_epochs: int) -> Result:
    epochs = [visit_counts(workload, [epoch], progress=False) for epoch in range(num_epochs)]
    run = np.sum(epochs, axis=0, dtype=np.int64)
    count = round(CACHE_RATIO * data.num_nodes)
    ideal = [epoch[hottest(epoch, data.num_nodes, count)].sum() for epoch in epochs]

    def hits(hotness: np.ndarray, visits: np.ndarray) -> int:
        return int(visits[hottest(hotness, data.num_nodes, count)].sum())

    ranked = {policy_name: _ranked(policy, workload, epoch=0) for policy_name, policy in POLICIES.items()}
    later = visit_counts(workload, range(num_epochs, 2 * num_epochs), progress=False)
    result = Result(
        graph,
        name,
        optimum=hits(run, run) / run.sum(),
        later=hits(ranked["presample"][0], later) / hits(later, later),
        on_window=0,
        similar=float(np.mean([similarity(one, other) for one, other in pairwise(epochs)])),
        epoch_s=_epoch_s(data, workload),
    )
    for policy_name, (hotness, rank_s) in ranked.items():
        result.rank_s[policy_name] = rank_s
        result.hit_rates[policy_name] = hits(hotness, run) / run.sum()
    seen = 0
    for epoch, visits in enumerate(epochs):
        hotness, result.rank_s["clairvoyant"] = _ranked(Clairvoyant(1, 1, progress=False), workload, epoch)
        seen += hits(hotness, visits)
    result.hit_rates["clairvoyant"] = seen / run.sum()
    result.on_window = seen / sum(ideal)
    return result


def _ranked(policy: CachePolicy, workload: Workload, epoch: int) -> tuple[np.ndarray, float]:
    began = time.process_time()
    return policy.hotness(workload, epoch), time.process_time() - began


def _epoch_s(data: GraphData, workload: Workload) -> float:
    """The faster of two epochs; the first finds memory untouched."""
    source, slot = BatchSource(data, workload), Slot()
    taken = []
    for epoch in range(2):
        began = time.process_time()
        for request in workload.requests(epoch):
            source.make(request, slot)
        taken.append(time.process_time() - began)
    return min(taken)
