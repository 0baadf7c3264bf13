"""Sampling by edge type, by time and for queries equals the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import (
    DrawKey,
    Queries,
    SamplerInput,
    SparseLists,
    Workspace,
    fanout_table,
    instruction_sets,
    sample_typed_neighbors,
    sort_by_type,
)
from tests import oracle
from tests.oracle import TypedEdge

from .graphs import KEY, Arena, Batch, in_every_size, instruction_set, random_graph, sample, sampled
from .typed_graphs import TypedGraph, at_the_end, paths_back_to_seeds, random_queries, random_typed_graph

FANOUTS, SHARES = [-1, 0, 1, 2, 3, 5, 10, 17, 70], [0.05, 0.08, 0.12, 0.15, 0.2, 0.18, 0.13, 0.05, 0.04]


def assert_equals_oracle(
    graph: TypedGraph, seeds: Any, fanouts: np.ndarray, want: Any, lists: Any = None, **options: Any
) -> None:
    """``want``: what the oracle made."""
    nodes, queries, hops = want
    for name in instruction_sets():
        with instruction_set(name):
            got = graph.sample(seeds, fanouts, lists=lists, **options)
        assert got.nodes.tolist() == nodes
        assert got.queries is None or got.queries.tolist() == queries
        assert (got.queries is None) == (options.get("queries") is None)
        for hop, wanted in zip(got.hops, hops, strict=True):
            assert hop.num_src == wanted.num_src
            assert hop.indptr.tolist() == wanted.indptr
            assert hop.indices.tolist() == wanted.indices
            assert hop.edge_ids.tolist() == [graph.position[edge] for edge in wanted.edges]
            if lists is not None and lists.is_untyped:
                assert hop.edge_types is None
            else:
                assert hop.edge_types.tolist() == [edge.kind for edge in wanted.edges]


def random_names(rng: np.random.Generator, size: int) -> np.ndarray | None:
    return rng.permutation(3 * size)[:size] + 2**32 * rng.integers(0, 2**16, size) if rng.random() < 0.2 else None


@settings(max_examples=240)
@given(number=st.integers(0, 2**32 - 1))
def test_equals_the_oracle_on_any_graph(number):
    # Multi-edges, loops, empty types, ties, windows, exclusion, every form of sharing: one in three without queries.
    rng = np.random.default_rng(number)
    untyped = bool(rng.random() < 0.15)
    graph = random_typed_graph(rng, untyped, most_edges=1500 if rng.random() < 0.03 else 250)
    num_hops, num_seeds = int(rng.integers(0, 4)), int(min(rng.integers(0, 14), graph.size))
    fanouts = rng.choice(FANOUTS, (num_hops, len(graph.ends)), p=SHARES)
    seeds, queries, excluded = random_queries(rng, graph, num_seeds)
    if rng.random() < 0.25:
        graph, queries, excluded = at_the_end(graph, queries, excluded)
    if rng.random() < 0.3:
        seeds, queries, excluded = rng.permutation(graph.size)[:num_seeds], None, []
    options = {
        "key": DrawKey(
            *(int(rng.integers(0, 2**bits, dtype=np.uint64)) for bits in (64, 32, 32)), int(rng.integers(3))
        ),
        "pick": str(rng.choice(["uniform", "last"], p=[0.7, 0.3])),
        "expand": str(rng.choice(["all", "new"])),
        "names": random_names(rng, graph.size),
        "queries": queries,
    }
    options["replace"] = options["pick"] == "uniform" and bool(rng.random() < 0.25)
    settings = {name: value for name, value in options.items() if name != "key"}
    want = oracle.TypedSampling(
        graph.edges, fanouts.tolist(), options["key"], untyped=untyped, excluded=excluded, **settings
    ).run(seeds)
    dense = graph.lists(np.uint32 if rng.random() < 0.5 else np.int64, untyped)
    lists = graph.sparse() if not untyped and rng.random() < 0.5 else dense
    table = str(rng.choice(["stamp", "hash"]))
    dtype = np.int32 if rng.random() < 0.5 else np.int64
    assert_equals_oracle(graph, seeds, fanouts, want, lists, table=table, dtype=dtype, **options)


@pytest.mark.parametrize("number", range(12))
def test_no_copy_of_a_seed_draws_what_is_left_out(number):
    rng = np.random.default_rng(number)
    graph, seeds, queries, excluded = paths_back_to_seeds(rng)
    lists = graph.sparse() if number % 4 < 2 else graph.lists()
    fanouts = np.full((3, 3), [-1, 2, 3][number % 3])
    options = {"queries": queries, "pick": ["uniform", "last"][number % 2], "expand": ["all", "new"][number // 6]}
    want = oracle.TypedSampling(graph.edges, fanouts.tolist(), KEY, excluded=excluded, **options).run(seeds)
    assert_equals_oracle(graph, seeds, fanouts, want, lists, **options)
    batch, left_out = graph.sample(seeds, fanouts, **options), set(excluded)
    for hop in batch.hops:
        of_edge = np.repeat(batch.queries[: len(hop.indptr) - 1], np.diff(hop.indptr)).tolist()
        assert not left_out & {(query, graph.stored[edge]) for query, edge in zip(of_edge, hop.edge_ids, strict=True)}


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("in_order", [True, False])
def test_many_runs_and_queries(in_order, layout):
    # More runs than are drawn from at once, chunks of every size, runs over many lines of codes, a table that grows
    # or, where seeds are in order of rows, that each row has for itself.
    rng = np.random.default_rng(0)
    ends = [(0, 0), (1, 0), (0, 1), (1, 1)]
    first, sizes = np.array([0, 600]), np.array([600, 300])
    edges = [
        TypedEdge(int(u), int(v), kind, time, i)
        for kind, (src, dst) in enumerate(ends)
        for i, (u, v, time) in enumerate(
            zip(
                first[src] + rng.integers(0, sizes[src], 12_000),
                first[dst] + (rng.random(12_000) ** 3 * sizes[dst]).astype(int),
                [None] * 12_000 if kind == 3 else rng.integers(0, 500, 12_000).tolist(),
                strict=True,
            )
        )
    ]
    graph = TypedGraph([600, 300], ends, edges, [True, True, True, False])
    num_rows, fanouts = 850, np.array([[6, 0, 3, 2], [3, 4, -1, 18]])
    rows = np.arange(num_rows, dtype=np.int32)
    until = rng.integers(0, 600, num_rows).astype(np.uint32)
    of_seed = rows if in_order else rows[::-1].copy()
    queries = Queries(of_seed, rows.astype(np.uint32), True, since=until // 3, until=until)
    seeds = rng.integers(0, 900, num_rows)
    want = oracle.TypedSampling(edges, fanouts.tolist(), KEY, expand="new", queries=queries).run(seeds)
    assert len(want[0]) > 1 << 15  # half of the table's first size
    lists = graph.sparse() if layout == "sparse" else graph.lists()
    assert_equals_oracle(graph, seeds, fanouts, want, lists, expand="new", queries=queries)


@pytest.mark.parametrize("num_slots", [1, 4, 5, 8, 9, 17, 256, 257])
def test_types_of_nodes_with_few_slots_and_many(num_slots):
    # Vectors take four runs of a node at once, or eight; a group of runs has room for 256. The last node's are the last
    # of all.
    rng = np.random.default_rng(num_slots)
    ends = [(0, 0), *[(0, 1)] * num_slots]
    kinds = np.concatenate([np.zeros(60, int), np.arange(num_slots) + 1, rng.integers(1, num_slots + 1, 400)])
    edges = [
        TypedEdge(int(rng.integers(30)), int(rng.integers(30) + 30 * (kind > 0)), int(kind), None, i)
        for i, kind in enumerate(kinds)
    ]
    edges += [TypedEdge(0, 59, num_slots, None, 500 + i) for i in range(20)]
    graph = TypedGraph([30, 30], ends, edges, [False] * len(ends))
    fanouts, seeds = rng.choice(FANOUTS, (2, len(ends)), p=SHARES), rng.permutation(60)
    for replace_some in (False, True):
        options = {"replace": replace_some, "names": random_names(rng, graph.size)}
        want = oracle.TypedSampling(edges, fanouts.tolist(), KEY, **options).run(seeds)
        assert_equals_oracle(graph, seeds, fanouts, want, graph.lists(np.uint32), **options)


def test_rows_of_many_nodes():
    # A row's table that grows in mid-hop and is filled again by the hops after; the second batch has one table for all.
    rng = np.random.default_rng(1)
    dst = np.concatenate([np.repeat(np.arange(3), 5_000), np.arange(6_000)])
    src = rng.integers(0, 6_000, len(dst))
    edges = [TypedEdge(int(u), int(v), 0, None, i) for i, (u, v) in enumerate(zip(src, dst, strict=True))]
    graph, rows = TypedGraph([6_000], [(0, 0)], edges, [False]), np.arange(3, dtype=np.int32)
    queries, fanouts = Queries(rows, rows.astype(np.uint32), True), np.array([[-1], [2], [1]])
    nodes, of_node, hops = oracle.TypedSampling(edges, fanouts.tolist(), KEY, queries=queries).run([0, 1, 2])
    assert len(nodes) > 3 * 3072  # from there on a row has too many
    inputs = (Workspace(6_000), *graph.csc(), np.arange(3), KEY)
    for _ in range(2):
        got = sampled(
            lambda arena: sample_typed_neighbors(SamplerInput(*inputs, arena), graph.lists(), fanouts, queries=queries)
        )
        assert got.nodes.tolist() == nodes
        assert got.queries.tolist() == of_node
        for hop, wanted in zip(got.hops, hops, strict=True):
            assert hop.indices.tolist() == wanted.indices


def chain() -> TypedGraph:
    """3 -> 2 -> 1 -> 0, at times 5, 9 and 7."""
    edges = [TypedEdge(1, 0, 0, 7, 0), TypedEdge(2, 1, 0, 9, 1), TypedEdge(3, 2, 0, 5, 2)]
    return TypedGraph([4], [(0, 0)], edges, [True])


@pytest.mark.parametrize(
    ("until", "along_path", "nodes"),
    [(10, False, [0, 1, 2, 3]), (9, False, [0, 1]), (7, False, [0]), (10, True, [0, 1]), (8, True, [0, 1])],
)
def test_whose_time_bounds_an_edge(until, along_path, nodes):
    queries = Queries(np.zeros(1, np.int32), until=np.array([until], np.uint32), along_path=along_path, path_end=0)
    assert chain().sample([0], [[-1]] * 3, queries=queries).nodes.tolist() == nodes


def test_no_edge_is_later_than_its_seed_allows():
    for number in range(30):
        rng = np.random.default_rng(1_000 + number)
        graph = random_typed_graph(rng)
        seeds, queries, _ = random_queries(rng, graph, min(10, graph.size))
        if queries.until is None:
            continue
        batch = graph.sample(seeds, np.full((3, len(graph.ends)), 4), queries=queries)
        for hop in batch.hops:
            queries_of_dst = np.repeat(batch.queries[: len(hop.indptr) - 1], np.diff(hop.indptr))
            for query, edge, src in zip(queries_of_dst, hop.edge_ids, hop.indices, strict=True):
                time = graph.stored[edge].time
                assert time is None or time < queries.until[query]
                assert batch.queries[src] == query


@pytest.mark.parametrize("along_path", [False, True])
def test_a_row_has_the_same_edges_in_any_company(along_path):
    rng = np.random.default_rng(2)
    graph = random_typed_graph(rng, most_edges=1_000)
    while len(graph.ends) < 3 or not any(graph.timed):
        graph = random_typed_graph(rng, most_edges=1_000)
    rows, fanouts = rng.integers(0, 2**32, 12).astype(np.uint32), np.full((3, len(graph.ends)), 3)
    seeds, until = rng.integers(0, graph.size, 12), rng.integers(1, 10**6, 12).astype(np.uint32)

    def edges_of(which: list[int]) -> dict[int, list[Any]]:
        queries = Queries(
            np.arange(len(which), dtype=np.int32), rows[which], True, until=until[which], along_path=along_path
        )
        batch = graph.sample(seeds[which], fanouts, queries=queries)
        found: dict[int, list[Any]] = {row: [] for row in which}
        for number, hop in enumerate(batch.hops):
            for query, edge in zip(batch.queries[hop.indices], hop.edge_ids, strict=True):
                found[which[query]].append((number, int(edge)))
        return found

    whole = edges_of(list(range(12)))
    assert whole == edges_of(list(range(12))[::-1])
    for row in range(12):
        assert edges_of([row])[row] == whole[row]


def test_without_types_and_queries_it_is_the_plain_batch():
    indptr, indices = random_graph(300, 6_000, seed=4)
    edges = [
        TypedEdge(int(u), int(v), 0, None, i)
        for i, (u, v) in enumerate(zip(indices, np.repeat(np.arange(300), np.diff(indptr)), strict=True))
    ]
    graph, key = TypedGraph([300], [(0, 0)], edges, [False]), DrawKey(1, 2, 3)
    for expand in ("all", "new"):
        plain = sample(indptr, indices, [5, 9, 200], [7, 3], key, expand=expand, edge_ids=True)
        ours = graph.sample([5, 9, 200], [[7], [3]], key=key, expand=expand, lists=graph.lists(np.int64, untyped=True))
        np.testing.assert_array_equal(ours.nodes, plain.nodes)
        for mine, theirs in zip(ours.hops, plain.hops, strict=True):
            assert mine.edge_types is None
            np.testing.assert_array_equal(mine.indices, theirs.indices)
            np.testing.assert_array_equal(mine.edge_ids, theirs.edge_ids)


def test_excluded_edges_leave_the_others_as_likely():
    # 4,000 queries ask for 1 of 5 edges, of which 2 are left out: each of the others is expected 1,333 times, and
    # 5 standard deviations are 149: a sound kernel fails with a probability below 2e-6.
    edges = [TypedEdge(i, 0, 0, None, i) for i in range(5)]
    graph, count = TypedGraph([5], [(0, 0)], edges, [False]), 4_000
    out = np.tile([1, 4], count)
    queries = Queries(
        np.arange(count, dtype=np.int32),
        name=np.arange(count, dtype=np.uint32),
        excluded=out,
        excluded_query=np.repeat(np.arange(count, dtype=np.int32), 2),
    )
    [hop] = graph.sample(np.zeros(count, int), [[1]], queries=queries).hops
    drawn = np.bincount(hop.edge_ids, minlength=5)
    assert drawn[[1, 4]].tolist() == [0, 0]
    assert np.abs(drawn[[0, 2, 3]] - count / 3).max() < 149


def by_number(graph: Any, layout: str = "sparse") -> Any:
    indptr, _, edge_type = graph
    lists = SparseLists.of(indptr, edge_type)
    return lists if layout == "sparse" else lists.dense()


def sampled_by_number(
    graph: Any,
    seeds: Any,
    fanouts: Any,
    table: Any = "auto",
    key: DrawKey = KEY,
    layout: str = "sparse",
    **options: Any,
) -> Batch:
    """A batch of a graph whose types are numbers."""
    indptr, indices, _ = graph
    lists, workspace = by_number(graph, layout), Workspace(len(indptr) - 1, table)
    inputs, names = (workspace, indptr, indices, np.asarray(seeds, np.int64), key), options.pop("names", None)
    by_type = fanout_table(fanouts, lists.num_edge_types)
    return sampled(
        lambda arena: sample_typed_neighbors(
            SamplerInput(*inputs, arena, names), lists, by_type, edge_ids=True, **options
        )
    )


def typed_graph(num_nodes: int, num_edges: int, num_types: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indptr, indices = random_graph(num_nodes, num_edges, seed)
    edge_type = np.random.default_rng(seed).integers(0, num_types, num_edges)
    order = sort_by_type(indptr, edge_type)
    return (indptr, indices, edge_type) if order is None else (indptr, indices[order], edge_type[order])


def assert_number_equals_oracle(
    graph: Any,
    seeds: Any,
    fanouts: Any,
    table: Any = "auto",
    key: DrawKey = KEY,
    layout: str = "sparse",
    **options: Any,
) -> None:
    indptr, indices, edge_type = graph
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    edges = [
        TypedEdge(*map(int, edge), None, i) for i, edge in enumerate(zip(indices, targets, edge_type, strict=True))
    ]
    by_type = fanout_table(fanouts, int(edge_type.max(initial=0)) + 1).tolist()
    nodes, _, hops = oracle.TypedSampling(edges, by_type, key, **options).run(seeds)
    for name in instruction_sets():
        with instruction_set(name):
            batch = sampled_by_number(graph, seeds, fanouts, table, key, layout, **options)
        assert batch.nodes.tolist() == nodes
        assert batch.queries is None
        for got, want in zip(batch.hops, hops, strict=True):
            assert got.indptr.tolist() == want.indptr
            assert got.indices.tolist() == want.indices
            assert got.edge_ids.tolist() == [edge.number for edge in want.edges]
            assert got.edge_types.tolist() == [edge.kind for edge in want.edges]


@settings(max_examples=100)
@given(number=st.integers(0, 2**32 - 1))
def test_types_by_number_equal_the_oracle(number):
    rng = np.random.default_rng(number)
    num_nodes, num_types = int(rng.integers(1, 31)), int(rng.integers(1, 6))
    graph = typed_graph(num_nodes, int(rng.integers(0, 200)), num_types, number)
    present = int(graph[2].max(initial=0)) + 1
    fanouts = [
        {k: int(rng.choice([-1, 1, 2, 3, 5, 20])) for k in range(present) if rng.random() < 0.7}
        for _ in range(rng.integers(0, 4))
    ]
    assert_number_equals_oracle(
        graph,
        rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)],
        fanouts,
        str(rng.choice(["stamp", "hash"])),
        DrawKey(number, 1, 2, int(rng.choice([0, 1, 13]))),
        str(rng.choice(["dense", "sparse"])),
        names=random_names(rng, num_nodes),
        replace=bool(rng.random() < 0.3),
        expand=str(rng.choice(["all", "new"])),
    )


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_many_destinations(layout):
    # Runs are drawn from many at a time: here thousands of them, of two fanouts in turn.
    graph = typed_graph(500, 30_000, 4, seed=3)
    assert_number_equals_oracle(graph, np.arange(0, 500, 3), [{0: 5, 1: 17, 2: 5, 3: -1}], layout=layout)


@given(number=st.integers(0, 2**32 - 1))
def test_lists_sorted_by_type(number):
    """Those of a type keep their order, and both layouts have the same runs."""
    rng = np.random.default_rng(number)
    indptr, _ = random_graph(int(rng.integers(1, 20)), int(rng.integers(0, 100)), number)
    edge_type = rng.integers(0, rng.choice([1, 3, 4095]), indptr[-1]).astype(rng.choice([np.uint16, np.int64]))
    nodes = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    wanted, order = np.lexsort((edge_type, nodes)), sort_by_type(indptr, edge_type)
    if order is None:
        order = np.arange(len(edge_type))
    else:
        with pytest.raises(GraphFormatError, match="must ascend within each node"):
            SparseLists.of(indptr, edge_type)
    assert order.tolist() == wanted.tolist()
    lists, asked = SparseLists.of(indptr, edge_type[order]), rng.integers(0, len(indptr) - 1, 5)
    lists = replace(lists, timed=rng.integers(0, 2, lists.num_edge_types).astype(np.uint8))
    if lists.num_edge_types > 100:
        return
    for each in (lists, lists.dense()):
        for number in range(lists.num_edge_types):
            begins, stops = each.bounds(asked, number)
            for node, begin, stop in zip(asked, begins, stops, strict=True):
                own = np.arange(*indptr[node : node + 2])
                assert np.arange(begin, stop).tolist() == own[edge_type[order][own] == number].tolist()
        edges = np.concatenate(
            [
                np.stack([np.full(end - begin, row), np.arange(begin, end)], axis=1)
                for rows, runs in each.timed_runs(asked)
                for row, begin, end in zip(
                    rows, each.run_ptr[runs].tolist(), each.run_ptr[runs + 1].tolist(), strict=True
                )
            ]
            or [np.empty((0, 2), int)]
        )
        of_timed = [
            [row, edge]
            for row, node in enumerate(asked)
            for edge in range(indptr[node], indptr[node + 1])
            if lists.timed[edge_type[order[edge]]]
        ]
        assert sorted(edges.tolist()) == of_timed


def test_types_draw_independently():
    # The same counter for two types would pick the same positions in runs of one length.
    indptr, indices = np.array([0, 2_000]), np.zeros(2_000, np.int64)
    edge_type = np.repeat([0, 1], 1_000)
    [hop] = sampled_by_number((indptr, indices, edge_type), [0], [{0: 100, 1: 100}]).hops
    first, second = hop.edge_ids[:100], hop.edge_ids[100:] - 1_000
    assert len(np.intersect1d(first, second)) < 40  # 10 are expected; 40 or more have a probability below 1e-12


@pytest.mark.parametrize("with_queries", [False, True])
def test_every_arena_size(with_queries):
    rng = np.random.default_rng(8)
    graph = random_typed_graph(rng)
    seeds, queries, _ = random_queries(rng, graph, 5)
    if not with_queries:
        seeds, queries = np.unique(seeds), None
    fanouts = np.full((2, len(graph.ends)), 3)
    want, workspace, lists = graph.sample(seeds, fanouts, queries=queries), Workspace(graph.size), graph.lists()

    def sample_into(arena):
        inputs = SamplerInput(workspace, *graph.csc(), seeds, KEY, arena)
        return sample_typed_neighbors(inputs, lists, fanouts, edge_ids=True, queries=queries)

    for got in in_every_size(sample_into):
        np.testing.assert_array_equal(got.nodes, want.nodes)
        np.testing.assert_array_equal(got.queries, want.queries)
        np.testing.assert_array_equal(got.hops[1].edge_types, want.hops[1].edge_types)
        np.testing.assert_array_equal(got.hops[1].edge_ids, want.hops[1].edge_ids)
        assert got.layout.free_begin <= got.layout.free_end


def test_seeds_are_distinct_within_a_query():
    graph, key = chain(), DrawKey(0, 0, 0)
    name = np.arange(2, dtype=np.uint32)
    batch = graph.sample([1, 1], [[1]], key=key, queries=Queries(np.array([0, 1], np.int32), name))
    assert (batch.nodes.tolist(), batch.queries.tolist()) == ([1, 1, 2, 2], [0, 1, 0, 1])
    with pytest.raises(SeedError, match=r"seeds\[1\] is 1, the same node as seeds\[0\]"):
        graph.sample([1, 1], [[1]], key=key, queries=Queries(np.array([1, 1], np.int32), name))


ONE, TWO = np.zeros(1, np.int32), np.zeros(2, np.uint32)


@pytest.mark.parametrize(
    ("queries", "error", "match"),
    [
        (Queries(np.array([1], np.int32)), SeedError, r"of_seed\[0\] is 1, but must lie in \[0, 1\)"),
        (Queries(np.array([-1], np.int32)), SeedError, r"of_seed\[0\] is -1"),
        (Queries(np.zeros(2, np.int32)), SeedError, "of_seed has 2 entries, but 1 are needed"),
        (Queries(np.zeros(1, np.int64)), SeedError, "of_seed has dtype int64"),
        (Queries(ONE, name=TWO, until=TWO[:1]), SeedError, "until has 1 entries, but 2 are needed"),
        (Queries(ONE, since=TWO.astype(np.int64)), SeedError, "since has dtype int64"),
        (Queries(ONE, since=4), SeedError, "since is a int"),
        (Queries(ONE, excluded=np.array([3]), excluded_query=ONE), SeedError, r"excluded\[0\] is 3"),
        (Queries(ONE, excluded=np.array([2])), SeedError, "given together"),
        (Queries(ONE, excluded=np.array([2]), excluded_query=ONE + 1), SeedError, r"excluded_query\[0\] is 1"),
        (Queries(ONE, excluded=np.array([2, 1]), excluded_query=ONE), SeedError, "excluded_query has 1 entries"),
        (Queries(ONE, along_path=True), SamplerConfigError, "along paths need queries.until"),
        (Queries(ONE, path_end=2), SamplerConfigError, "path_end is 2"),
        (Queries(ONE, by_row="yes"), SamplerConfigError, "by_row"),
        (ONE, SamplerConfigError, "must be a Queries"),
    ],
)
def test_wrong_queries(queries, error, match):
    with pytest.raises(error, match=match):
        chain().sample([0], [[1]], queries=queries)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"run_ptr": np.zeros(5, np.int32)}, "run_ptr has dtype int32"),
        ({"run_ptr": np.zeros(4, np.int64)}, "run_ptr has 4 entries"),
        ({"run_ptr": np.array([0, 2, 1, 3, 3])}, "run_ptr must ascend"),
        ({"first_node": np.array([0, 5])}, "5 runs"),
        ({"first_node": np.array([0])}, "first_node is"),
        ({"slot_ptr": np.array([0, 2])}, "not at 2"),
        ({"slot_type": np.array([1], np.int32)}, "slot_type is"),
        ({"timed": np.ones(2, np.uint8)}, "timed has 2 entries"),
        ({"edge_time": np.zeros(3)}, "edge_time has dtype float64"),
        ({"edge_time": np.zeros(2, np.uint32)}, "edge_time has 2 entries"),
    ],
)
def test_wrong_lists(change, match):
    with pytest.raises(GraphFormatError, match=match):
        replace(chain().lists(), **change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"run_ptr": np.zeros(3, np.uint32)}, "run_ptr has dtype uint32"),
        ({"run_ptr": np.array([0, 2, 1, 3])}, "run_ptr must ascend"),
        ({"first_run": np.array([0, 1, 0, 3, 3])}, "first_run is"),
        ({"first_run": np.array([0, 1, 2, 2, 2])}, "number of runs, which is 3"),
        ({"first_run": np.array([0, 2, 2, 3, 3])}, "run_type is .* must ascend within each node"),
        ({"run_type": np.array([0, 0, 1], np.int32)}, r"run_type is .* lie in \[0, 1\)"),
        ({"run_type": np.zeros(2, np.int32)}, "and 2 by run_type"),
        ({"edge_time": np.zeros(2, np.uint32)}, "edge_time has 2 entries"),
    ],
)
def test_wrong_sparse_lists(change, match):
    with pytest.raises(GraphFormatError, match=match):
        replace(chain().sparse(), **change)


def test_lists_of_another_graph():
    graph = chain()
    of_none = replace(graph.lists(), run_ptr=np.zeros(5, np.int64), edge_time=np.zeros(0, np.uint32))
    with pytest.raises(SamplerConfigError, match="lists are of 0 edges, but the graph has 3"):
        graph.sample([0], [[1]], lists=of_none)


def test_wrong_arguments():
    graph = typed_graph(10, 30, 3, seed=0)
    with pytest.raises(SamplerConfigError, match=r"edge type 3, but the graph's edge types lie in \[0, 3\)"):
        fanout_table([{3: 2}], 3)
    with pytest.raises(SamplerConfigError, match=r"fanouts\[0\] is 0"):
        fanout_table([{0: 0}], 3)
    with pytest.raises(SamplerConfigError, match="at most 16"):
        sampled_by_number(graph, [1], [{0: 1}] * 17)
    with pytest.raises(SamplerConfigError, match="fanouts hold -2"):
        chain().sample([0], [[-2]])
    with pytest.raises(SamplerConfigError, match=r"shape \[1, 3\], but .* has 1 edge types"):
        sample_typed_neighbors(
            SamplerInput(Workspace(4), *chain().csc(), np.array([1]), KEY, Arena.of(4096).bytes),
            chain().lists(),
            np.ones((1, 3), np.int64),
        )
    with pytest.raises(SamplerConfigError, match="each once"):
        chain().sample([0], [[1]], pick="last", replace=True)
    with pytest.raises(GraphFormatError, match=r"lie in \[-1, 2\]"):
        sort_by_type(graph[0], graph[2] * 3 // 2 - 1)
    for dtype in ("U4", "O", "M8[s]", "c8"):
        with pytest.raises(GraphFormatError, match=r"edge types are .* but sampling by type needs integers"):
            sort_by_type(graph[0], graph[2].astype(dtype))
    with pytest.raises(GraphFormatError, match="29 entries"):
        SparseLists.of(graph[0], graph[2][:-1])
    lists = SparseLists.of(np.zeros(5, np.int64), np.empty(0, np.int64))
    inputs = SamplerInput(Workspace(10), *graph[:2], np.array([1]), KEY, Arena.of(4096).bytes)
    with pytest.raises(SamplerConfigError, match="index 4 nodes, but the graph has 10"):
        sample_typed_neighbors(inputs, lists, fanout_table([{0: 1}], 1))
