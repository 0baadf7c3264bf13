"""HGT's budget sampling: so many nodes of each type a hop, by their squared budgets, and all edges among them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, SampleLayout, SamplerInput, Workspace, instruction_sets, sample_hgt
from tests import oracle
from tests.oracle import TypedEdge

from .graphs import KEY, Arena, Batch, in_every_size, instruction_set, sampled
from .names import any_key, any_names
from .typed_graphs import TypedGraph, random_typed_graph

LAST_HOP = 12  # leaves room for four


def sample(
    graph: TypedGraph,
    seeds: Any,
    num_samples: Any,
    key: DrawKey = KEY,
    table: Any = "auto",
    dtypes: tuple[Any, Any] = (np.int64, np.uint32),
    names: np.ndarray | None = None,
    workspace: Workspace | None = None,
    **options: Any,
) -> Batch:
    of_graph = workspace or Workspace(graph.size, table), *graph.csc(dtypes[0]), np.asarray(seeds, np.int64), key
    counts = np.array(num_samples, np.int64).reshape(-1, len(graph.num_nodes))
    options = {"num_layers": 2, "edge_ids": True} | options
    return sampled(
        lambda arena: sample_hgt(SamplerInput(*of_graph, arena, names), graph.lists(dtypes[1]), counts, **options)
    )


def wanted(graph: TypedGraph, seeds: Any, num_samples: Any, key: DrawKey = KEY, **options: Any) -> Any:
    edge_type = np.array([edge.kind for edge in graph.stored], np.int64)
    first_node = np.concatenate([[0], np.cumsum(graph.num_nodes)])
    options = {"num_layers": 2, "max_neighbors": 520} | options
    return oracle.sample_hgt(*graph.csc(), edge_type, first_node, np.asarray(seeds), num_samples, key, **options)


def assert_equals(batch: Batch, graph: TypedGraph, nodes: np.ndarray, hops: list[Any]) -> None:
    np.testing.assert_array_equal(batch.nodes, nodes)
    kinds = np.array([edge.kind for edge in graph.stored], np.int64)
    for mine, want in zip(batch.hops, hops, strict=True):
        assert mine.num_src == want.num_src
        np.testing.assert_array_equal(mine.indptr, want.indptr)
        np.testing.assert_array_equal(mine.indices, want.indices)
        np.testing.assert_array_equal(mine.edge_ids, want.edge_ids)
        np.testing.assert_array_equal(mine.edge_types, kinds[want.edge_ids])
    assert len({(hop.indptr_offset, hop.indices_offset, hop.edge_types_offset) for hop in batch.layout.hops}) == 1


def typed(num_nodes: list[int], edges: dict[tuple[int, int], list[tuple[int, int]]]) -> TypedGraph:
    """A graph of edges by source and destination type, whose ends are told by number within their type."""
    first, ends = [0, *itertools.accumulate(num_nodes)], list(edges)
    listed = [
        TypedEdge(first[ends[kind][0]] + src, first[ends[kind][1]] + dst, kind, None, i)
        for kind, pairs in enumerate(edges.values())
        for i, (src, dst) in enumerate(pairs)
    ]
    return TypedGraph(num_nodes, ends, listed, [False] * len(ends))


@settings(max_examples=100)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data) -> None:
    most_edges = data.draw(st.sampled_from([90, 250]))
    graph = random_typed_graph(np.random.default_rng(data.draw(st.integers(0, 10**6))), most_edges=most_edges)
    seeds = data.draw(st.lists(st.integers(0, graph.size - 1), unique=True, max_size=12))
    counts = st.lists(
        st.sampled_from([0, 1, 2, 3, 9, 40]), min_size=len(graph.num_nodes), max_size=len(graph.num_nodes)
    )
    num_samples, key = data.draw(st.lists(counts, max_size=4)), any_key(data, most_hop=LAST_HOP)
    names = any_names(data, graph.size)
    options = {"max_neighbors": data.draw(st.sampled_from([-1, 1, 2, 3, 520])), "names": names}
    options["num_layers"] = data.draw(st.integers(1, 4))
    dtypes = data.draw(st.sampled_from([(np.int32, np.uint32), (np.int64, np.int64)]))
    table = data.draw(st.sampled_from(["stamp", "hash"]))
    batch = sample(graph, seeds, num_samples, key, table, dtypes=dtypes, **options)
    assert_equals(batch, graph, *wanted(graph, seeds, num_samples, key, **options))


@pytest.mark.parametrize("name", instruction_sets())
@pytest.mark.parametrize("max_neighbors", [-1, 64, 65, 520])
def test_hubs_on_every_instruction_set(name: str, max_neighbors: int) -> None:
    # Lists around the bound, far above it, and more runs than a group holds.
    rng = np.random.default_rng(3)
    degrees = [63, 64, 65, 66, 519, 520, 521, 1500, *[2] * 300]
    pairs = [(int(leaf), hub) for hub, degree in enumerate(degrees) for leaf in rng.integers(0, 4000, degree)]
    graph = typed([len(degrees), 4000], {(1, 0): pairs, (0, 1): [(hub, leaf) for leaf, hub in pairs[::3]]})
    num_samples, seeds = [[9, 60], [4, 30]], np.arange(len(degrees) - 5)
    with instruction_set(name):
        batch = sample(graph, seeds, num_samples, max_neighbors=max_neighbors)
    assert_equals(batch, graph, *wanted(graph, seeds, num_samples, max_neighbors=max_neighbors))


def dense_graph() -> TypedGraph:
    """95 nodes of three types, of which a few are left out of every batch of ten seeds and three of a type a hop."""
    rng, sizes = np.random.default_rng(8), [30, 40, 25]
    ends = [(0, 1), (1, 0), (1, 1), (2, 0), (1, 2)]
    return typed(
        sizes,
        {(u, v): [(int(rng.integers(sizes[u])), int(rng.integers(sizes[v]))) for _ in range(150)] for u, v in ends},
    )


# By hand


def test_a_graph_by_hand() -> None:
    # Authors 0 to 2 are nodes 0 to 2, papers 0 to 3 are nodes 3 to 6. The seed is paper 0.
    writes, cites, back = (0, 1), (1, 1), (1, 0)
    graph = typed(
        [3, 4],
        {writes: [(0, 0), (1, 0), (2, 1)], cites: [(1, 0), (0, 1), (3, 1)], back: [(2, 0), (0, 0), (0, 1), (1, 2)]},
    )
    # Hop 1: authors 0 and 1 have budgets, and paper 1. Hop 2: author 2, by paper 1; papers 2, by author 0, and 3, by
    # paper 1. All are taken.
    batch = sample(graph, [3], [[5, 5], [5, 5]])
    assert batch.nodes.tolist() == [3, 0, 1, 4, 2, 5, 6]
    every = batch.hops[1]
    owners = batch.nodes[np.repeat(np.arange(7), np.diff(every.indptr))]
    found = np.stack([batch.nodes[every.indices], owners, every.edge_types]).T.tolist()  # type: ignore[list-item]
    assert sorted(found) == sorted([edge.src, edge.dst, edge.kind] for edge in graph.edges)
    assert [len(hop.indices) for hop in batch.hops] == [3, 10]  # the nearest has the edges into the seed alone
    # One hop; then none of a type; then none at all.
    assert sample(graph, [3], [[5, 5]]).nodes.tolist() == [3, 0, 1, 4]
    assert sample(graph, [3], [[0, 5], [5, 0]]).nodes.tolist() == [3, 4, 0, 1, 2]
    assert sample(graph, [3], [[0, 0], [0, 0]]).nodes.tolist() == [3]
    assert sample(graph, [3], []).nodes.tolist() == [3]


def test_budgets_by_hand() -> None:
    # Two seeds with 2 and 4 in-neighbours by one type, and the first with a third by another.
    graph = typed([2, 5], {(1, 0): [(0, 0), (1, 0), (1, 1), (2, 1), (3, 1), (1, 1)], (0, 0): [(1, 0)]})
    edge_type = np.array([edge.kind for edge in graph.stored])
    budgets = oracle.budgets_of(*graph.csc(), edge_type, [[0, 1]], KEY, 520)
    # Leaf 1 is an in-neighbour of both, of the second seed twice; a seed has no budget.
    assert {node: budget / 2**32 for node, budget in budgets.items()} == {2: 0.5, 3: 0.5 + 2 / 4, 4: 0.25, 5: 0.25}
    bounded = oracle.budgets_of(*graph.csc(), edge_type, [[1]], KEY, 2)
    assert sum(bounded.values()) == 2**32
    assert set(bounded.values()) <= {2**31, 2**32}


def test_seeds_and_taken_nodes_are_not_taken_again() -> None:
    # A ring: each node gives its budget to the next, and the last one's is a seed.
    ring = typed([6], {(0, 0): [(i, (i + 1) % 6) for i in range(6)]})
    assert sample(ring, [2], [[3]] * 8).nodes.tolist() == [2, 1, 0, 5, 4, 3]
    loops = typed([2], {(0, 0): [(0, 0), (0, 0), (1, 0)]})
    batch = sample(loops, [0], [[2], [2]])
    assert batch.nodes.tolist() == [0, 1]
    assert batch.hops[1].indices.tolist() == [0, 0, 1]


def test_types_that_no_edge_leads_from() -> None:
    # Papers cite papers, authors know authors: no paper finds an author. And a type without nodes.
    apart = typed([4, 0, 4], {(0, 0): [(1, 0), (2, 0)], (2, 2): [(0, 1), (1, 2)], (1, 0): []})
    assert sample(apart, [0, 3], [[9, 9, 9]] * 2).nodes.tolist() == [0, 3, 1, 2]
    assert sample(apart, [], [[9, 9, 9]]).nodes.tolist() == []
    empty = typed([0, 1], {(0, 1): []})
    assert sample(empty, [0], [[1, 1]]).nodes.tolist() == [0]


# The law


def law_of(weights: list[float], count: int) -> dict[tuple[int, ...], float]:
    """The chance of each set of ``count``: drawn one after the other by weight, without replacement."""
    chances = dict[tuple[int, ...], float]()
    for order in itertools.permutations(range(len(weights)), count):
        left, chance = sum(weights), 1.0
        for i in order:
            chance, left = chance * weights[i] / left, left - weights[i]
        chances[tuple(sorted(order))] = chances.get(tuple(sorted(order)), 0.0) + chance
    return chances


def taken_at(steps: int, graph: TypedGraph, num_seeds: int, count: int, **options: Any) -> np.ndarray:
    """The nodes of type 1, by their numbers, that one hop takes at each step: as many at all, ``[steps, taken]``."""
    arena, lists, counts = Arena.of(1 << 14).bytes, graph.lists(), np.array([[0, count]])
    of_graph = Workspace(graph.size), *graph.csc(), np.arange(num_seeds)
    taken = []
    for step in range(steps):
        inputs = SamplerInput(*of_graph, DrawKey(5, 0, step), arena)
        num_nodes = sample_hgt(inputs, lists, counts, num_layers=1, **options).num_nodes
        taken.append(arena[8 * num_seeds : 8 * num_nodes].view(np.int64) - graph.num_nodes[0])
    return np.array(taken)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nodes_are_drawn_by_their_squared_budgets(count: int) -> None:
    # Hub 0 has all four leaves, hub 1 leaves 0 and 1, hub 2 leaf 0: budgets 1/4 + 1/2 + 1, 1/4 + 1/2, 1/4, 1/4.
    pairs = [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (0, 2)]
    graph, num_draws = typed([3, 4], {(1, 0): pairs}), 4000
    taken = [tuple(each) for each in taken_at(num_draws, graph, 3, count).tolist()]
    # Each of up to six sets beyond five standard deviations: error probability below 4e-6. Budgets that are not
    # squared, or shares that are not of the in-degree, are off by more than 20.
    for wanted_set, chance in law_of([(7 / 4) ** 2, (3 / 4) ** 2, 1 / 16, 1 / 16], count).items():
        deviation = math.sqrt(num_draws * chance * (1 - chance))
        assert abs(taken.count(wanted_set) - num_draws * chance) < 5 * deviation + 1, wanted_set


def test_neighbours_of_a_hub_are_given_budgets_alike() -> None:
    # A hub of 60 leaves gives to 6, and all of these are taken: each leaf with chance 1/10.
    num_draws, p = 6000, 6 / 60
    graph = typed([1, 60], {(1, 0): [(leaf, 0) for leaf in range(60)]})
    taken = taken_at(num_draws, graph, 1, 60, max_neighbors=6)
    assert taken.shape == (num_draws, 6)
    seen = np.bincount(taken.ravel(), minlength=60)
    # Any of 60 leaves beyond five standard deviations: error probability below 4e-5.
    assert np.abs(seen - num_draws * p).max() < 5 * math.sqrt(num_draws * p * (1 - p))


def test_exponential_variates_are_logarithms() -> None:
    rng = np.random.default_rng(0)
    words = [0, 2**64 - 1, 2**63, 2**63 - 1, *rng.integers(0, 2**64, 2000, np.uint64).tolist()]
    for word in words:
        u = ((int(word) >> 12) + 0.5) * 2.0**-52
        assert math.isclose(oracle.exponential(int(word)), -math.log(u), rel_tol=1e-15)


# What a draw does not depend on


def test_the_order_of_seeds_does_not_matter() -> None:
    # Sums in floating point would: thirds and sevenths come in another order.
    graph = dense_graph()
    seeds = np.random.default_rng(0).permutation(graph.size)[:10]
    for step in range(20):
        key = DrawKey(7, 1, step)
        batch, other = (sample(graph, each, [[3, 3, 3]] * 3, key, max_neighbors=4) for each in (seeds, np.sort(seeds)))
        assert batch.nodes[10:].tolist() == other.nodes[10:].tolist()
        assert len(batch.nodes) == 37


def test_each_number_of_the_key_matters() -> None:
    graph, seeds = dense_graph(), np.arange(10)
    keys = [KEY, DrawKey(8, 1, 2), DrawKey(7 + 2**32, 1, 2), DrawKey(7, 2, 2), DrawKey(7, 1, 3), DrawKey(7, 1, 2, 1)]
    drawn = {tuple(sample(graph, seeds, [[3, 3, 3]] * 2, key).nodes.tolist()) for key in keys}
    assert len(drawn) == len(keys)


# Memory and errors


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("edge_ids", [False, True])
def test_arenas_of_every_size(table: str, edge_ids: bool) -> None:
    graph = random_typed_graph(np.random.default_rng(8))
    counts, seeds = np.full((2, len(graph.num_nodes)), 4), np.arange(5)
    want = sample(graph, seeds, counts, edge_ids=edge_ids)
    workspace = Workspace(graph.size, table)  # type: ignore[arg-type]

    def sample_into(arena: np.ndarray) -> SampleLayout:
        inputs = SamplerInput(workspace, *graph.csc(), seeds, KEY, arena)
        return sample_hgt(inputs, graph.lists(), counts, num_layers=2, edge_ids=edge_ids)

    for batch in in_every_size(sample_into):
        assert batch.nodes.tolist() == want.nodes.tolist()
        for mine, other in zip(batch.hops, want.hops, strict=True):
            np.testing.assert_array_equal(mine.indices, other.indices)
            np.testing.assert_array_equal(mine.edge_types, other.edge_types)
            assert (mine.edge_ids is not None) == edge_ids


@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_a_failure_leaves_the_workspace_clean(table: Any) -> None:
    graph = random_typed_graph(np.random.default_rng(8))
    num_samples, workspace = [[3] * len(graph.num_nodes)] * 2, Workspace(graph.size, table)
    with pytest.raises(SeedError, match=r"seeds\[2\] is 7, the same node as seeds\[0\]"):
        sample(graph, [7, 8, 7], num_samples, workspace=workspace)
    with pytest.raises(SeedError, match=r"seeds\[0\] is -1"):
        sample(graph, [-1], num_samples, workspace=workspace)
    other = typed([graph.size], {(0, 0): [(i, 0) for i in range(graph.size)]})  # all are candidates
    sample(other, [0], [[2]], workspace=workspace)
    batch = sample(graph, [7, 4], num_samples, workspace=workspace)
    assert_equals(batch, graph, *wanted(graph, [7, 4], num_samples))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": [[1, -1]]}, "num_samples hold -1"),
        ({"num_samples": [[1, 1]] * 17}, "17 hops, but at most 16"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"max_neighbors": 0}, "max_neighbors is 0, but must lie in"),
        ({"max_neighbors": -2}, "max_neighbors is -2"),
        ({"max_neighbors": 2**26 + 1}, "max_neighbors is 67108865"),
        ({"max_neighbors": 1.5}, r"max_neighbors is 1\.5"),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    graph = typed([2, 3], {(1, 0): [(0, 0)]})
    with pytest.raises(SamplerConfigError, match=message):
        sample(graph, [0], **({"num_samples": [[1, 1]]} | options))


def test_settings_of_another_graph() -> None:
    graph, other = typed([2, 3], {(1, 0): [(0, 0)]}), typed([5, 3], {(1, 0): [(0, 0)]})
    inputs = SamplerInput(Workspace(5), *graph.csc(), np.array([0]), KEY, Arena.of(4096).bytes)
    with pytest.raises(SamplerConfigError, match=r"shape \[1, 3\].*2 node types"):
        sample_hgt(inputs, graph.lists(), np.ones((1, 3), np.int64), num_layers=1)
    with pytest.raises(SamplerConfigError, match="nodes"):
        sample_hgt(inputs, other.lists(), np.ones((1, 2), np.int64), num_layers=1)
    with pytest.raises(SamplerConfigError, match="num_samples"):
        sample_hgt(inputs, graph.lists(), [[1, 1]], num_layers=1)  # type: ignore[arg-type]


def test_batches_beyond_int32_are_refused() -> None:
    # The limit is lowered, since a real case would take many GiB: one seed has budgets for 30 nodes, and takes 3.
    graph = typed([1, 30], {(1, 0): [(leaf, 0) for leaf in range(30)]})

    def sample_up_to(max_local: int) -> int:
        inputs = SamplerInput(Workspace(31), *graph.csc(), np.array([0]), KEY, Arena.of(4096).bytes)
        inputs.native.max_local = max_local
        return sample_hgt(inputs, graph.lists(), np.array([[0, 3]]), num_layers=2).num_nodes

    assert sample_up_to(31) == 4
    with pytest.raises(SamplerConfigError, match="budgets for more than 30 nodes"):
        sample_up_to(30)
