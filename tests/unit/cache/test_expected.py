"""Expected visits: exact on trees, near the truth elsewhere, refused where the sampler's law is not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    ShadowSampler,
    Synthetic,
    WeightedNeighborSampler,
)
from lightning_gnnload.cache.expected import Expected
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import Degree
from lightning_gnnload.cache.trace import visit_counts
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample import inclusion, presence
from lightning_gnnload.sample.inclusion import WeightedInclusion
from lightning_gnnload.sample.workload import Workload
from tests.unit.toy import toy_workload

EPOCHS = 4000


def tree(*, both_ways: bool, seed: int = 0) -> Graph:
    """Node 0 draws 1 to 5, each of these draws six of its own, and so on: 5 + 30 + 60 nodes below the root."""
    children = {0: range(1, 6)}
    children |= {node: range(6 + 6 * (node - 1), 12 + 6 * (node - 1)) for node in range(1, 6)}
    children |= {node: range(36 + 2 * (node - 6), 38 + 2 * (node - 6)) for node in range(6, 36)}
    edges = np.array([(child, node) for node, below in children.items() for child in below]).T
    if both_ways:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    weight = np.random.default_rng(seed).uniform(0.2, 5, edges.shape[1])
    return Graph.from_coo(*edges, num_nodes=96, edge_weight=weight)


def from_the_root(graph: Graph, sampler: Sampler, **settings: Any) -> Workload:
    return toy_workload(GraphData(graph, train=np.array([0])), sampler=sampler, batch_size=1, **settings)


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([2, 2, 1]),
        NeighborSampler([2, 2, 1], expand="new"),
        NeighborSampler([2, 3, 2], replace=True),
        NeighborSampler([3, -1, 1], expand="new"),
        ShadowSampler([2, 2, 1], num_layers=2),
        WeightedNeighborSampler([2, 2, 1], replace=True),
        WeightedNeighborSampler([-1, 1, 1], expand="new", replace=True),
    ],
    ids=repr,
)
def test_on_a_tree_visits_are_what_is_expected(sampler: Sampler) -> None:
    # Each node's count is binomial. Six sigma for 96 nodes: by chance 2e-7 a case. Draws of all hops taken as
    # independent (SALIENT++), or nodes of earlier hops that do not draw again, differ by ten sigma and more.
    workload = from_the_root(tree(both_ways=False), sampler)
    expected = Expected().hotness(workload, 0)
    counts = visit_counts(workload, range(EPOCHS), progress=False)
    sigma = np.sqrt(EPOCHS * np.maximum(expected * (1 - expected), 1e-9))
    assert (np.abs(counts - EPOCHS * expected) < 6 * sigma + 1e-6).all()


def test_on_a_tree_of_edges_both_ways_nothing_comes_back() -> None:
    # With expand="new" a node may draw the one that drew it, for nothing. A count of this as a second chance would
    # give the root's children 57 % more; what is left is that a node's edges are known on average, below 2 %.
    workload = from_the_root(tree(both_ways=True), NeighborSampler([2, 2, 2], expand="new"))
    expected = Expected().hotness(workload, 0)
    visits = visit_counts(workload, range(EPOCHS), progress=False) / EPOCHS
    assert expected[1:6].mean() == pytest.approx(visits[1:6].mean(), rel=0.02)
    assert expected.sum() == pytest.approx(visits.sum(), rel=0.02)


def test_weighted_draws_without_replacement_are_near_the_law() -> None:
    # Against all orders of drawing 2 of 4 by weight.
    weight = np.array([1.0, 2.0, 3.0, 10.0])
    share = weight / weight.sum()
    exact = share + [sum(share[j] * share[i] / (1 - share[j]) for j in range(4) if j != i) for i in range(4)]
    graph = Graph.from_coo([1, 2, 3, 4, 5], [0] * 5, edge_weight=[*weight, 0.0])
    found = WeightedInclusion(graph, 2, replace=False).of(0, graph.num_nodes)
    assert found.sum() == pytest.approx(2, abs=1e-3)
    assert found[4] == 0
    assert found[:4] == pytest.approx(exact, abs=0.06)


def test_nodes_take_all_that_has_weight_where_the_fanout_reaches() -> None:
    graph = Graph.from_coo([1, 2, 3, 0], [0, 0, 0, 1], edge_weight=[1e-6, 0.0, 5.0, 2.0])
    for fanout in (2, 7, -1):
        assert WeightedInclusion(graph, fanout, replace=False).of(0, graph.num_nodes).tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("sampler", "share"),
    [
        (NeighborSampler([10, 5, 5]), 0.97),
        (WeightedNeighborSampler([10, 5, 5]), 0.97),
        (RandomWalkSampler(), 0.95),
        (RandomWalkSampler(restart_prob=0.3, expand="new"), 0.95),
    ],
    ids=repr,
)
def test_on_a_graph_without_clusters_it_ranks_as_the_future_does(sampler: Sampler, share: float) -> None:
    data = Synthetic("chung-lu", 5000, 60_000, num_features=0, train_fraction=0.05, homophily=0).build(None)
    weight = np.random.default_rng(0).random(5000)[data.graph.indices] ** 4 + 1e-3
    graph = Graph.from_csc(data.graph.indptr, data.graph.indices, edge_weight=weight)
    data = GraphData(graph, train=data.train)
    workload = toy_workload(data, sampler=sampler, batch_size=5)
    visits = visit_counts(workload, range(30), progress=False)
    best = visits[hottest(visits, 5000, 500)].sum()
    found = visits[hottest(Expected().hotness(workload, 0), 5000, 500)].sum()
    assert found >= share * best
    assert found > visits[hottest(Degree().hotness(workload, 0), 5000, 500)].sum()


def test_walks_go_by_weight() -> None:
    # Steps taken as equally likely expect as much of each leaf, and something of the last one.
    graph = Graph.from_coo([1, 2, 3, 4], [0, 0, 0, 0], edge_weight=[1.0, 1.0, 98.0, 0.0])
    walks = RandomWalkSampler(1, num_neighbors=4, num_walks=2, walk_length=1)
    expected = Expected().hotness(from_the_root(graph, walks), 0)
    visited = 1 - np.array([0.99, 0.99, 0.02, 1.0]) ** 2  # by one of the two walks
    assert expected == pytest.approx([1, *(1 - np.exp(-visited))], abs=1e-3)
    alike = Expected().hotness(from_the_root(graph, RandomWalkSampler(1, 4, 2, 1, weighted=False)), 0)
    assert len(set(alike[1:].round(6))) == 1


def test_seeds_of_all_ranks_and_steps_come_once_an_epoch() -> None:
    # Each seed is in one mini-batch of an epoch; with drop_last, in as many as there are places.
    workload = toy_workload(sampler=NeighborSampler([]), num_ranks=2)
    assert Expected().hotness(workload, 0)[workload.seeds] == pytest.approx(1)
    dropping = toy_workload(sampler=NeighborSampler([]), batch_size=30, drop_last=True)
    assert Expected().hotness(dropping, 0)[dropping.seeds] == pytest.approx(0.9)
    assert Expected().hotness(dropping, 0).sum() == pytest.approx(90)


def test_loops_bring_nobody() -> None:
    graph = Graph.from_coo([0, 1, 1], [0, 0, 1])
    workload = from_the_root(graph, NeighborSampler([1, 1]))
    # Node 0 draws itself or node 1, twice: node 1 is there after two tosses.
    assert Expected().hotness(workload, 0).tolist() == pytest.approx([1, 0.75])


@pytest.mark.parametrize("sampler", [LaborSampler([3]), NeighborSampler([{0: 2}])], ids=repr)
def test_laws_that_are_not_known_are_refused(sampler: Sampler) -> None:
    with pytest.raises(CacheConfigError, match="policy='presample'"):
        Expected().hotness(toy_workload(sampler=sampler), 0)


class OfKnownPresence(LaborSampler):
    def presence(self, graph: Graph, seeds: np.ndarray) -> np.ndarray:
        return np.maximum(seeds, 0.5)


def test_a_sampler_of_ones_own_says_how_it_draws() -> None:
    workload = toy_workload(sampler=OfKnownPresence([3]), batch_size=10)
    num_batches = len(list(workload.requests(0)))
    assert Expected().hotness(workload, 0).min() == pytest.approx(num_batches / 2)


def test_chunks_of_edges_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = toy_workload(sampler=NeighborSampler([3, 2]))
    whole = Expected().hotness(workload, 0)
    monkeypatch.setattr(presence, "chunks", lambda indptr: inclusion.chunks(indptr, num_edges=7))
    assert Expected().hotness(workload, 0) == pytest.approx(whole, rel=1e-12)
