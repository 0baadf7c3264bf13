"""Walks, layers and scopes over parts equal those of the whole graph, id for id."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload import Graph, LayerSampler, RandomWalkSampler, Sampler, ShadowSampler
from lightning_gnnload.errors import ExchangeError, SamplerConfigError, SeedError
from lightning_gnnload.sample.base import LayBatch, Paradigm
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.parts.collective_walks import collective_random_walk
from lightning_gnnload.sample.parts.hops import lay_hops, node_wise
from lightning_gnnload.sample.parts.lists import class_named
from lightning_gnnload.sample.walk import random_walk
from tests.ops.graphs import random_weights
from tests.unit.conform.samplers import FloydSampler
from tests.unit.sample.ranks import disjoint, over_parts
from tests.unit.toy import content, toy_graph

GRAPH = toy_graph()
PARTS = np.random.default_rng(0).integers(0, 3, GRAPH.num_nodes)
SEEDS = np.array([17, 3, 250, 99, 42])


def assert_equal_batches(sampler: Sampler, graph: Graph, parts: np.ndarray, seeds: Any, paradigm: Any) -> None:
    """Every rank's batch of one step, and the only rank's."""

    def work(colleagues: SamplingGroup) -> Any:
        mine = CollectiveSampler(sampler, colleagues, paradigm)
        return content(mine.sample(graph, seeds, 1, 2, colleagues.rank))

    batches = over_parts(disjoint(graph, parts, int(parts.max(initial=0)) + 1), work)
    for step, batch in enumerate(batches):
        assert batch == content(sampler.sample(graph, seeds, 1, 2, step))


LAYERS = [
    LayerSampler([20, 30, 10], "dsp", edge_ids=True),
    LayerSampler([20, -1], "dsp", replace=True, normalize=True, expand="new"),
    LayerSampler([10**6, 3], "dsp", expand="new", edge_ids=True),
    LayerSampler([20, 30, 10], edge_ids=True),
    LayerSampler([20, 30, 10], expand="new", edge_ids=True, keep_known=True),
    LayerSampler([30, -1], replace=True, normalize=False, expand="new"),
    LayerSampler([60, 90, 30], "fastgcn", edge_ids=True),
    LayerSampler([60, 40], "fastgcn", replace=True, normalize=True, keep_known=True, expand="new", edge_ids=True),
    LayerSampler([10**6, -1, 50], "fastgcn", keep_known=True),
]
WALKS = [
    RandomWalkSampler(),
    RandomWalkSampler(2, 3, 5, 4, 0.1, 0.4, include_self=False, normalize=True, expand="new"),
    RandomWalkSampler(1, 9, 1, 1, 0.0),
]
SCOPES = [ShadowSampler([4, 3], 3, edge_ids=True), ShadowSampler([-1], 1, edge_ids=True), ShadowSampler([], 2)]


WEIGHTED = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_weight=random_weights(GRAPH.num_edges, np.float32))


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", [*LAYERS, LayerSampler([20, 9], "dsp", weighted=False), *WALKS], ids=str)
def test_batches_by_weight_equal_the_whole_graphs(sampler: Sampler, paradigm: str) -> None:
    assert_equal_batches(sampler, WEIGHTED, PARTS, SEEDS, paradigm)


@pytest.mark.parametrize("replace", [False, True])
def test_edges_drawn_by_weight_move_what_is_drawn(replace: bool) -> None:
    # Weights over 20 orders of magnitude: most draws of a round hit what is drawn already, so there are many rounds.
    weights = 10.0 ** np.random.default_rng(1).integers(-10, 10, GRAPH.num_edges)
    graph = Graph.from_csc(GRAPH.indptr, GRAPH.indices, edge_weight=weights)
    sampler = LayerSampler([12, 12], "dsp", replace=replace, edge_ids=True)

    def work(colleagues: SamplingGroup) -> tuple[Any, dict[str, int]]:
        batch = content(CollectiveSampler(sampler, colleagues).sample(None, SEEDS, 1, 2))
        return batch, {name: traffic.num_nodes for name, traffic in colleagues.traffic.items()}

    for batch, asked in over_parts(disjoint(graph, PARTS, 3), work):
        assert batch == content(sampler.sample(graph, SEEDS, 1, 2))
        assert asked.keys() == {"degrees", "lengths", "on_line"}
        assert asked["on_line"] == 24 if replace else 2 * 29 < asked["on_line"] < 400


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", LAYERS + WALKS + SCOPES, ids=str)
def test_batches_equal_the_whole_graphs(sampler: Sampler, paradigm: str) -> None:
    assert_equal_batches(sampler, GRAPH, PARTS, SEEDS, paradigm)


@settings(max_examples=40)
@given(data=st.data())
def test_batches_equal_the_whole_graphs_on_any_graph(data) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    num_nodes, num_edges = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 90))
    ends = rng.integers(0, num_nodes, (2, num_edges))
    weights = data.draw(st.sampled_from([None, random_weights(num_edges), np.zeros(num_edges)]))
    graph = Graph.from_coo(*ends, num_nodes, edge_weight=weights)
    num_parts = data.draw(st.integers(1, 4))
    parts = np.append(rng.integers(0, num_parts, num_nodes - 1), num_parts - 1)  # some own nothing
    seeds = rng.permutation(num_nodes)[: data.draw(st.integers(0, num_nodes))]
    expand, flags = data.draw(st.sampled_from(["all", "new"])), data.draw(st.tuples(*[st.booleans()] * 3))
    method = data.draw(st.sampled_from(["walks", "dsp", "ladies", "fastgcn", "scope"]))
    budgets = data.draw(st.lists(st.sampled_from([-1, 1, 3, 20]), min_size=1, max_size=3))
    sampler: Sampler
    if method == "scope":
        sampler = ShadowSampler([*budgets[1:]], data.draw(st.integers(1, 3)), edge_ids=flags[0])
    elif method == "walks":
        sampler = RandomWalkSampler(len(budgets), 2, 3, 3, 0.2, 0.3, flags[0], flags[1], expand)
    else:
        keep_known = flags[2] and method != "dsp"
        sampler = LayerSampler(budgets, method, flags[0], flags[1], keep_known, expand, edge_ids=True)
    assert_equal_batches(sampler, graph, parts, seeds, data.draw(st.sampled_from(["push", "pull"])))


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("graph", [GRAPH, WEIGHTED], ids=["alike", "weighted"])
def test_random_walks_equal_the_whole_graphs(graph: Graph, paradigm: Any) -> None:
    for weighted in (True, False):
        options: dict[str, Any] = {"num_walks": 3, "termination_prob": 0.1, "restart_prob": 0.2, "seed": 5, "step": 1}
        options["weighted"] = weighted
        traces = over_parts(
            disjoint(graph, PARTS, 3),
            lambda colleagues: collective_random_walk(colleagues, SEEDS, 6, paradigm=paradigm, **options).tolist(),  # noqa: B023
        )
        assert traces == [random_walk(graph, SEEDS, 6, **options).tolist()] * 3


def test_nodes_drawn_by_importance_to_the_whole_graph_move_the_edges_that_are_kept() -> None:
    sampler = LayerSampler([20, 20], "fastgcn", edge_ids=True)

    def work(colleagues: SamplingGroup) -> tuple[dict[str, int], int]:
        collective = CollectiveSampler(sampler, colleagues)
        for step in range(3):
            collective.sample(None, SEEDS, 1, 2, step)
        return {name: traffic.num_tasks for name, traffic in colleagues.traffic.items()}, colleagues.rank

    for tasks, _ in over_parts(disjoint(GRAPH, PARTS, 3), work):
        assert tasks == {
            "importance_sums": 2,
            "edges_from": tasks["edges_from"],
        }  # of two other ranks, once for all mini-batches
        assert tasks["edges_from"] <= 3 * 2 * 2


def test_kinds_that_meet_in_a_round_keep_their_tasks_apart() -> None:
    kinds = [LAYERS[0], WALKS[0], SCOPES[0]]

    def work(colleagues: SamplingGroup) -> list[Any]:
        samplers = [CollectiveSampler(kind, colleagues) for kind in kinds]

        def sample(turn: int) -> Any:
            # Each rank begins with another kind, and its threads with others still.
            at = (turn + colleagues.rank) % len(kinds)
            return at, content(samplers[at].sample(None, SEEDS, 1, 2, turn))

        with ThreadPoolExecutor(3) as threads:
            return list(threads.map(sample, range(9)))

    for batches in over_parts(disjoint(GRAPH, PARTS, 3), work):
        for turn, (at, batch) in enumerate(batches):
            assert batch == content(kinds[at].sample(GRAPH, SEEDS, 1, 2, turn))


def test_what_cannot_be_is_refused() -> None:
    def work(colleagues: SamplingGroup) -> None:
        with pytest.raises(SamplerConfigError, match="a metapath names edge types, but the graph has no types"):
            CollectiveSampler(RandomWalkSampler(metapath=["buys"]), colleagues)
        with pytest.raises(SamplerConfigError, match="needs a length"):
            collective_random_walk(colleagues, [3])
        with pytest.raises(SeedError, match="300"):
            collective_random_walk(colleagues, [300], 2)

    over_parts(disjoint(GRAPH, PARTS, 3), work)


def test_a_place_beyond_its_list_ends_in_an_error() -> None:
    # A rank that speaks of another graph is told, and reads no memory of others.
    def work(colleagues: SamplingGroup) -> None:
        nodes = np.arange(GRAPH.num_nodes)
        colleagues.ask("edges", nodes, {"edge_ids": False}, {"places": np.full(len(nodes), 10**6)})

    with pytest.raises((ExchangeError, SamplerConfigError), match="beyond the list"):
        over_parts(disjoint(GRAPH, PARTS, 3), work)


class Declared(FloydSampler):
    """A sampler in Python that says what other ranks have to know of it."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ("edge_ids",)

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        return lay_hops(self, group, node_wise(self, group, paradigm))

    def hop_settings(self, hop: int) -> dict[str, Any]:
        return {"fanouts": [self.fanouts[hop]]}


class Undeclared(Declared):
    """It may draw otherwise."""


class OfUnknownColumns(Declared):
    columns = None  # type: ignore[assignment]
    collective = Declared.collective


@pytest.mark.parametrize("paradigm", ["push", "pull"])
def test_a_sampler_in_python(paradigm: Any) -> None:
    # Each hop draws by its own number: a one-hop sampler that begins at 0 again differs in the second.
    assert_equal_batches(Declared([4, 3, 2]), GRAPH, PARTS, SEEDS, paradigm)


def test_a_sampler_in_python_that_says_too_little() -> None:
    class OfAFunction(Declared):
        collective = Declared.collective

    def work(colleagues: SamplingGroup) -> None:
        for sampler, message in (
            (FloydSampler([2]), "does not define Sampler.collective"),
            (Undeclared([2]), "does not define Sampler.collective"),
            (OfUnknownColumns([2]), "must declare its columns"),
            (OfAFunction([2]), "define it in a module"),
        ):
            with pytest.raises(SamplerConfigError, match=message):
                CollectiveSampler(sampler, colleagues)

    over_parts(disjoint(GRAPH, PARTS, 3), work)


@pytest.mark.parametrize(
    "name", ["os:system", "lightning_gnnload.sample.base:thread_workspace", "antigravity:fly", ":"]
)
def test_what_another_rank_names_is_a_sampler_or_refused(name: str) -> None:
    with pytest.raises(SamplerConfigError, match="is no sampler"):
        class_named(name)
    assert "antigravity" not in sys.modules
