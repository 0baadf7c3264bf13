"""Neighbourhoods by random walks: the kernel equals the oracle, and counts as one would by hand."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.ops import DrawKey, Walks, Workspace, build_alias, random_walk
from tests import oracle

from .graphs import KEY, random_graph, random_weights, star_graph
from .names import any_key, any_names
from .walk_batches import GNNLAB, WALKS, Batch, assert_equal, neighbors_by_node, sample_batch


def assert_equals_oracle(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    walks: Walks = WALKS,
    key: DrawKey = KEY,
    table: Any = "auto",
    **options: Any,
) -> None:
    options = GNNLAB | options
    nodes, hops = oracle.sample_walks(indptr, indices, np.asarray(seeds), walks, key, **options)
    if (weights := options.pop("weights", None)) is not None:
        options["table"] = build_alias(indptr, weights)
    batch = sample_batch(indptr, indices, seeds, walks, key, Workspace(len(indptr) - 1, table), **options)
    assert_equal(batch, Batch(nodes, hops, [hop.weights for hop in hops]))
    assert all(weights.dtype == np.float32 for weights in batch.weights)


@settings(max_examples=300)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40) | st.just(120))
    num_edges, seed = data.draw(st.integers(0, 150) | st.just(700)), data.draw(st.integers(0, 99))
    indptr, indices = random_graph(num_nodes, num_edges, seed, data.draw(st.sampled_from([np.int32, np.int64])))
    probabilities = st.sampled_from([0.0, 0.2, 0.5, 1.0])
    small = st.integers(1, 7)
    assert_equals_oracle(
        indptr,
        indices,
        data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes)),
        Walks(data.draw(small), data.draw(small), data.draw(probabilities), data.draw(probabilities)),
        any_key(data),
        table=data.draw(st.sampled_from(["stamp", "hash"])),
        num_hops=data.draw(st.integers(0, 3)),
        num_neighbors=data.draw(small | st.just(100)),
        include_self=data.draw(st.booleans()),
        normalize=data.draw(st.booleans()),
        expand=data.draw(st.sampled_from(["all", "new"])),
        weights=data.draw(st.sampled_from([None, random_weights(len(indices)), np.zeros(len(indices))])),
        names=any_names(data, num_nodes),
    )


@pytest.mark.parametrize("num_walks", [1, 85, 86, 255, 256, 257, 600])
@pytest.mark.parametrize("num_neighbors", [1, 10, 2000])
def test_any_number_of_walks_and_visited_nodes(num_walks, num_neighbors):
    # Chunks of 256, 3, 2 and 1 destinations, walks of one destination in several groups, and so many visited nodes
    # that they are sorted and not ranked.
    indptr, indices = random_graph(300, 20_000, seed=1)
    seeds = np.arange(0, 300, 40) if num_walks > 1 else np.arange(300)
    assert_equals_oracle(indptr, indices, seeds, Walks(3, num_walks), num_hops=1, num_neighbors=num_neighbors)
    named = {"names": np.random.default_rng(1).permutation(300)}
    assert_equals_oracle(indptr, indices, seeds, Walks(3, num_walks), num_hops=1, num_neighbors=num_neighbors, **named)


def test_long_walks():
    # So long that chunks hold fewer destinations than there are walks in a group.
    indptr, indices = random_graph(400, 8000, seed=1)
    assert_equals_oracle(indptr, indices, np.arange(0, 400, 20), Walks(10_000, 1, 0.01), num_hops=1)


def test_ids_beyond_32_bits(tmp_path):
    # Ids that agree in their low 32 bits are different nodes. indptr is a file with a hole, mostly zero.
    num_nodes = 2**32 + 100
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=(num_nodes + 1,))
    indices = np.array([5, 2**32 + 5, 6, 2**32 + 6, 5, 2**32 + 99])
    indptr[-1] = len(indices)
    for num_neighbors in (1, 2, 6):
        assert_equals_oracle(
            indptr, indices, [num_nodes - 1, 6], Walks(3, 20), table="hash", num_neighbors=num_neighbors
        )


@pytest.mark.parametrize("expand", ["all", "new"])
def test_graphs_with_little_in_them(expand):
    nothing = np.empty(0, np.int64)
    assert_equals_oracle(np.array([0]), nothing, nothing, expand=expand)
    assert_equals_oracle(np.zeros(6, np.int64), nothing, [4, 0], expand=expand)
    assert_equals_oracle(np.array([0, 1]), np.array([0]), [0], expand=expand)  # one loop
    assert_equals_oracle(np.array([0, 1]), np.array([0]), [0], expand=expand, include_self=False)


# What a neighbourhood is, told without the oracle


@pytest.mark.parametrize("include_self", [False, True])
def test_neighbours_are_the_most_visited_nodes_of_the_walks(include_self):
    indptr, indices = random_graph(200, 1500, seed=4)
    walks = Walks(4, 30, 0.2, 0.1)
    batch = sample_batch(indptr, indices, np.arange(100), walks, num_neighbors=3, include_self=include_self)
    for hop in range(3):
        for node, found in neighbors_by_node(batch, hop).items():
            traces = random_walk(indptr, indices, np.array([node]), walks, dataclasses.replace(KEY, hop=hop))[:, 1:]
            visits = Counter(traces[traces >= 0].tolist())
            if not include_self:
                visits.pop(node, None)
            assert len(found) == min(3, len(visits))
            assert found == sorted(found, key=lambda edge: (-edge[1], edge[0]))
            assert all(visits[neighbor] == count for neighbor, count in found)
            least = (-found[-1][1], found[-1][0]) if found else None
            for other in visits.keys() - dict(found).keys():
                assert (-visits[other], other) > least  # fewer visits, or as many and a larger id


def test_ties_go_to_the_smaller_name():
    # One walk over a path 9 <- 4 <- 7 <- 2 visits each node once.
    path = {9: 4, 4: 7, 7: 2}
    degree = np.isin(np.arange(10), list(path)).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    indices = np.array([path[node] for node in sorted(path)])
    batch = sample_batch(indptr, indices, [9], Walks(3), num_hops=1, num_neighbors=2)
    assert neighbors_by_node(batch, 0) == {9: [(2, 1.0), (4, 1.0)]}
    named = sample_batch(indptr, indices, [9], Walks(3), num_hops=1, num_neighbors=2, names=9 - np.arange(10))
    assert neighbors_by_node(named, 0) == {9: [(7, 1.0), (4, 1.0)]}


def test_returns_to_the_destination_count_and_restarts_do_not():
    # 0 and 1 are each other's only neighbour.
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    there_and_back = neighbors_by_node(sample_batch(indptr, indices, [0], Walks(4, 10), num_hops=1), 0)
    assert there_and_back == {0: [(0, 20.0), (1, 20.0)]}
    others = neighbors_by_node(sample_batch(indptr, indices, [0], Walks(4, 10), num_hops=1, include_self=False), 0)
    assert others == {0: [(1, 20.0)]}
    restarted = neighbors_by_node(sample_batch(indptr, indices, [0], Walks(4, 10, restart_prob=1), num_hops=1), 0)
    assert restarted == {0: [(1, 40.0)]}


def test_normalized_weights_are_quotients_rounded_once():
    indptr, indices = random_graph(200, 3000, seed=4)
    counts, shares = (sample_batch(indptr, indices, np.arange(200), normalize=flag) for flag in (False, True))
    assert_equal(Batch(counts.nodes, counts.hops, shares.weights), shares)
    for hop in range(3):
        found = neighbors_by_node(shares, hop)
        for node, edges in neighbors_by_node(counts, hop).items():
            total = np.float32(sum(count for _, count in edges))
            want = [np.float32(count) / total for _, count in edges]
            assert [weight for _, weight in found[node]] == want
            if edges:
                assert sum(weight for _, weight in found[node]) == pytest.approx(1)


def test_a_node_has_the_same_neighbours_in_any_company():
    indptr, indices = random_graph(400, 4000, seed=1)
    order = np.random.default_rng(0).permutation(400)
    everyone = sample_batch(indptr, indices, order)
    for seeds in ([17], [300, 17, 5], order[-70:]):
        some = sample_batch(indptr, indices, seeds)
        for hop in range(3):
            want = neighbors_by_node(everyone, hop)
            assert all(want[node] == found for node, found in neighbors_by_node(some, hop).items())


def test_both_modes_of_expansion_walk_alike():
    indptr, indices = random_graph(400, 4000, seed=1)
    every, new = (sample_batch(indptr, indices, [3, 9], num_hops=2, expand=e) for e in ("all", "new"))
    found = neighbors_by_node(new, 1)
    known_before = set(every.nodes[:2].tolist())
    assert all(found[node] == edges for node, edges in neighbors_by_node(every, 1).items() if node not in known_before)


def test_hops_walk_differently():
    # Of 200 nodes with 30 neighbours about 7 agree by chance; 30 do with probability below 1e-9.
    indptr, indices = star_graph(200, 30)
    batch = sample_batch(indptr, indices, np.arange(200), Walks(1), num_hops=2)
    first, second = neighbors_by_node(batch, 0), neighbors_by_node(batch, 1)
    assert sum(first[node] == second[node] for node in range(200)) < 30


def test_as_many_visits_as_are_counted():
    # All visits of one node: a count one beyond 16 bits would turn into none.
    batch = sample_batch(np.array([0, 1]), np.array([0]), [0], Walks(257, 255), num_hops=1)
    assert neighbors_by_node(batch, 0) == {0: [(0, 65535.0)]}
