"""Sampling by edge weight equals the oracle; wrong input is named."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import (
    AliasTable,
    DrawKey,
    SamplerInput,
    Workspace,
    build_alias,
    instruction_sets,
    sample_weighted,
)
from tests import oracle

from .graphs import KEY, Arena, in_every_size, instruction_set, random_graph, sample_with
from .names import any_key, any_names
from .weighted_graphs import WEIGHTS, WeightedGraph


def assert_equals_oracle(
    graph: WeightedGraph, seeds: Any, fanouts: list[int], key: DrawKey = KEY, table: Any = "auto", **options: Any
) -> None:
    indptr, indices, weights, _ = graph
    nodes, hops = oracle.sample_weighted(indptr, indices, weights, np.asarray(seeds), fanouts, key, **options)
    workspace = Workspace(len(indptr) - 1, table)
    for name in instruction_sets():
        with instruction_set(name):
            batch = graph.sample(seeds, fanouts, key, workspace, **options)
        np.testing.assert_array_equal(batch.nodes, nodes, name)
        assert len(batch.hops) == len(hops)
        for got, want in zip(batch.hops, hops, strict=True):
            assert got.num_src == want.num_src
            np.testing.assert_array_equal(got.indptr, want.indptr, name)
            np.testing.assert_array_equal(got.indices, want.indices, name)
            np.testing.assert_array_equal(got.edge_ids, want.edge_ids, name)
            assert np.all(weights[got.edge_ids] > 0)


@settings(max_examples=200)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40) | st.just(120))
    graph = WeightedGraph.random(
        num_nodes,
        data.draw(st.integers(0, 150) | st.just(1500)),
        data.draw(st.integers(0, 99)),
        data.draw(st.sampled_from(list(WEIGHTS))),
        dtype=data.draw(st.sampled_from([np.int32, np.int64])),
    )
    assert_equals_oracle(
        graph,
        data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes)),
        data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 5, 8, 17, 70]), max_size=3)),
        any_key(data),
        table=data.draw(st.sampled_from(["stamp", "hash"])),
        expand=data.draw(st.sampled_from(["all", "new"])),
        replace=data.draw(st.booleans()),
        names=any_names(data, num_nodes),
    )


@pytest.mark.parametrize("kind", ["equal", "random", "skewed"])
@pytest.mark.parametrize("fanout", [1, 2, 3, 15, 16, 37, 38, 39, 64, 100])
def test_degrees_around_the_fanout(kind, fanout):
    # 19 hubs: chunks are filled in part. From a fanout of 39 on repeats are found in another way.
    for more, replace in itertools.product([0, 1, 2, 50], [False, True]):
        weights = WEIGHTS[kind](np.random.default_rng(fanout), fanout + more)
        assert_equals_oracle(WeightedGraph.star(19, weights), np.arange(19), [fanout], replace=replace)


@pytest.mark.parametrize("kind", ["random", "skewed"])
@pytest.mark.parametrize("replace", [False, True])
def test_more_trials_than_are_made_ahead(kind, replace):
    graph = WeightedGraph.random(3, 4000, 1, kind)
    assert_equals_oracle(graph, [0, 2, 1], [1025], replace=replace)


@pytest.mark.parametrize("share", [0.5, 0.999, 1 - 1e-9])
def test_one_neighbour_has_most_of_the_weight(share):
    # Trials bring it again and again: the fallback decides more of the picks the greater its share is.
    weights = np.random.default_rng(0).random(300)
    weights[77] = weights.sum() * share / (1 - share)
    assert_equals_oracle(WeightedGraph.star(5, weights), np.arange(5), [10])


def test_fewer_neighbours_of_weight_than_the_fanout():
    weights = np.zeros(500)
    weights[[3, 77, 401]] = 1.0, 1e-30, 1e30
    graph = WeightedGraph.star(40, weights)
    assert_equals_oracle(graph, np.arange(40), [5, 2])
    hop = graph.sample(np.arange(40), [5]).hops[0]
    picks = np.sort((hop.edge_ids % 500).reshape(40, 3), axis=1)
    assert np.all(picks == [3, 77, 401])


@pytest.mark.parametrize("fanout", [-1, 2, 3, 50])
@pytest.mark.parametrize("replace", [False, True])
def test_nodes_without_weight_draw_nothing(fanout, replace):
    # Among others, so that their words and trials are counted right; degrees below and above the fanout.
    indptr = np.cumsum([0, 4, 3, 30, 2, 40, 0])
    weights = np.concatenate([np.zeros(4), [1, 2, 3], np.zeros(30), [0, 1], np.random.default_rng(0).random(40)])
    graph = WeightedGraph.of(indptr, np.arange(79) % 6, weights)
    assert_equals_oracle(graph, [2, 4, 0, 1, 3, 5], [fanout], replace=replace)
    counts = np.diff(graph.sample([0, 1, 2, 3, 4, 5], [fanout], replace=replace).hops[0].indptr)
    assert counts[[0, 2, 5]].tolist() == [0, 0, 0]
    assert np.all(counts[[1, 3, 4]] > 0)
    assert graph.table.zero_nodes.tolist() == [0, 2]


def test_all_are_taken_in_adjacency_order():
    graph = WeightedGraph.of(np.array([0, 6]), np.zeros(6, np.int64), np.array([5, 0, 1e-9, 3, 0, 1e9]))
    for fanout in (-1, 6, 100):
        assert graph.sample([0], [fanout]).hops[0].edge_ids.tolist() == [0, 2, 3, 5]


def test_graphs_with_little_in_them():
    nothing, no_weights = np.empty(0, np.int64), np.empty(0)
    assert_equals_oracle(WeightedGraph.of(np.array([0]), nothing, no_weights), nothing, [3, 2])
    assert_equals_oracle(WeightedGraph.of(np.zeros(6, np.int64), nothing, no_weights), [4, 0], [3, -1, 2])
    assert_equals_oracle(WeightedGraph.of(np.array([0, 1]), np.array([0]), np.ones(1)), [0], [3, 3])  # one loop


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_arenas_of_every_size(table, expand, edge_ids):
    graph = WeightedGraph.random(200, 3000, seed=4)
    seeds, fanouts = np.array([5, 1, 100]), [4, -1, 2]
    want = graph.sample(seeds, fanouts, expand=expand, edge_ids=edge_ids)
    workspace = Workspace(200, table)

    def sample_into(arena):
        inputs = SamplerInput(workspace, graph.indptr, graph.indices, seeds, KEY, arena)
        return sample_weighted(inputs, graph.table, fanouts, expand=expand, edge_ids=edge_ids)

    for got in in_every_size(sample_into):
        np.testing.assert_array_equal(got.nodes, want.nodes)
        for a, b in zip(got.hops, want.hops, strict=True):
            np.testing.assert_array_equal(a.indices, b.indices)
            np.testing.assert_array_equal(a.edge_ids, b.edge_ids)


# Wrong input


@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_bad_seeds_leave_the_workspace_clean(table):
    graph = WeightedGraph.random(100, 1000, seed=2)
    workspace = Workspace(100, table)
    for seeds, message in (([4, 100], r"seeds\[1\] is 100"), ([7, 8, 7], r"same node as seeds\[0\]")):
        with pytest.raises(SeedError, match=message):
            graph.sample(seeds, [3], workspace=workspace)
    after, fresh = (graph.sample([7, 4, 8], [3, 3], workspace=w) for w in (workspace, None))
    np.testing.assert_array_equal(after.nodes, fresh.nodes)


@pytest.mark.parametrize("fanouts", [[0], [3, -2], [2**24 + 1], [2.0]])
def test_bad_fanouts(fanouts):
    with pytest.raises(SamplerConfigError, match="fanouts"):
        WeightedGraph.random(10, 20, seed=0).sample([1], fanouts)


def test_batches_beyond_int32_are_refused():
    # The limit is lowered, since a real case would take 8 GiB.
    graph, arena = WeightedGraph.star(10, np.ones(8)), Arena.of(1 << 14)

    def sample_up_to(max_local: int, fanout: int) -> Any:
        inputs = SamplerInput(Workspace(18), graph.indptr, graph.indices, np.arange(10), KEY, arena.bytes)
        inputs.native.max_local = max_local
        return sample_weighted(inputs, graph.table, [fanout])

    assert sample_up_to(80, 8).num_nodes == 18
    for fanout, num_edges in ((8, 80), (5, 50)):
        with pytest.raises(SamplerConfigError, match=f"more than {num_edges - 1} edges"):
            sample_up_to(num_edges - 1, fanout)
    with pytest.raises(SamplerConfigError, match="more than 9 nodes"):
        sample_up_to(9, 8)


def test_wrong_arguments():
    indptr, indices = random_graph(10, 20, seed=0)
    arguments = {
        "workspace": Workspace(10),
        "indptr": indptr,
        "indices": indices,
        "table": build_alias(indptr, np.ones(20)),
        "seeds": np.array([1]),
        "fanouts": [2],
        "key": KEY,
        "arena": Arena.of(4096).bytes,
    }
    sample_with(sample_weighted, **arguments)
    short = AliasTable(indptr, np.zeros(19, np.uint64))
    for change, message in (
        ({"table": short}, "of 10 nodes and 19 edges, but the graph has 10 and 20"),
        ({"expand": "both"}, "expand is 'both'"),
        ({"workspace": Workspace(9)}, "9 nodes, but this graph has 10"),
    ):
        with pytest.raises(SamplerConfigError, match=message):
            sample_with(sample_weighted, **(arguments | change))
