"""Edges that a mini-batch of links must not see."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.sample.seeds.exclusion import excluded_positions, reverse_of

BUYS, BACK, KNOWS = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "knows", "user")


def ends_of(graph: Graph) -> list[tuple[int, int]]:
    """The source and the destination at each position."""
    dst = np.repeat(np.arange(graph.num_nodes), graph.in_degrees)
    return list(zip(graph.indices.tolist(), dst.tolist(), strict=True))


def as_sets(found: tuple[np.ndarray, np.ndarray], num_rows: int) -> list[set[int]]:
    positions, rows = found
    assert positions.dtype == rows.dtype == np.int64
    sets = [set(positions[rows == row].tolist()) for row in range(num_rows)]
    assert sum(map(len, sets)) == len(positions)  # each once
    assert (np.diff(rows) >= 0).all()
    return sets


def random_shop(rng: np.random.Generator) -> tuple[Graph, dict, tuple[int, int]]:
    num_users, num_items = rng.integers(1, 15, 2).tolist()
    count = int(rng.integers(1, 150))
    bought = rng.integers(0, num_users, count), rng.integers(0, num_items, count)
    edges = {BUYS: bought, BACK: bought[::-1], KNOWS: rng.integers(0, num_users, (2, count))}
    times = {kind: rng.integers(0, 5, count) for kind in edges if rng.random() < 0.5}
    graph = Graph.from_hetero({"user": num_users, "item": num_items}, edges, edge_time=times, keep_order=True)
    return graph, edges, (num_users, count)


def test_seed_edges_and_the_reverses_of_the_same_id_are_found() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        graph, edges, (num_users, count) = random_shop(rng)
        ids = rng.integers(0, count, 10)
        src, dst = edges[BUYS][0][ids], num_users + edges[BUYS][1][ids]
        found = as_sets(excluded_positions(graph, "buys", src, dst, ids, reverse_type="rev_buys"), 10)
        own = as_sets(excluded_positions(graph, "buys", src, dst, ids), 10)
        all_ends = ends_of(graph)
        for u, v, edge, both, one in zip(src.tolist(), dst.tolist(), ids.tolist(), found, own, strict=True):
            forth = {p for p in range(graph.num_edges) if all_ends[p] == (u, v) and graph.edge_order[p] == edge}
            back = {p for p in range(graph.num_edges) if all_ends[p] == (v, u) and graph.edge_order[p] == edge}
            assert len(forth) == len(back) == 1
            assert one == forth
            assert both == forth | back


def test_without_ids_and_in_one_type_all_edges_of_the_ends_are_found() -> None:
    rng = np.random.default_rng(1)
    num_parallel = 0
    for _ in range(100):
        n, count = int(rng.integers(1, 12)), int(rng.integers(1, 100))
        src, dst = rng.integers(0, n, (2, count))
        graph = Graph.from_coo(src, dst, n, keep_order=True)
        ids = rng.integers(0, count, 8)
        u, v = src[ids], dst[ids]
        pairs = as_sets(excluded_positions(graph, 0, u, v, reverse_type=0), 8)
        by_id = as_sets(excluded_positions(graph, 0, u, v, ids, reverse_type=0), 8)
        all_ends = ends_of(graph)
        for i in range(8):
            forth = {p for p, ends in enumerate(all_ends) if ends == (u[i], v[i])}
            back = {p for p, ends in enumerate(all_ends) if ends == (v[i], u[i])}
            itself = {p for p in forth if graph.edge_order[p] == ids[i]}
            assert pairs[i] == forth | back
            assert by_id[i] == itself | back
            num_parallel += len(forth) > 1
    assert num_parallel > 50


def test_a_held_out_edge_is_not_there_to_be_left_out() -> None:
    graph = Graph.from_coo(src=[0], dst=[1], num_nodes=3)
    positions, rows = excluded_positions(graph, 0, np.array([0, 2]), np.array([2, 1]), reverse_type=0)
    assert len(positions) == len(rows) == 0


def test_ids_that_do_not_fit() -> None:
    graph = Graph.from_coo(src=[0, 1], dst=[1, 0], keep_order=True)
    for ids in ([1], [2], [-1], [1 << 40]):
        with pytest.raises(SeedError, match="does not lead from node 0 to node 1"):
            excluded_positions(graph, 0, np.array([0]), np.array([1]), np.array(ids))
    shop = Graph.from_hetero({"user": 2, "item": 3}, {BUYS: ([0, 1], [2, 1])}, keep_order=True)
    with pytest.raises(SeedError, match=r"edge 1 of \('user', 'buys', 'item'\) does not lead from user 0 to item 2"):
        excluded_positions(shop, "buys", np.array([0]), np.array([4]), np.array([1]))
    with pytest.raises(SeedError, match=r"edge 0 .*does not lead from user 1 to item 2"):  # but to it, from another
        excluded_positions(shop, "buys", np.array([1]), np.array([4]), np.array([0]))
    with pytest.raises(SamplerConfigError, match="keep_order=True"):
        excluded_positions(Graph.from_coo([0], [1]), 0, np.array([0]), np.array([1]), np.array([0]))
    with pytest.raises(SeedError, match=r"destinations\[0\] is 2"):
        excluded_positions(graph, 0, np.array([0]), np.array([2]))
    empty = Graph.from_coo(np.empty(0, np.int64), np.empty(0, np.int64), 2, keep_order=True)
    with pytest.raises(SeedError, match="does not lead"):
        excluded_positions(empty, 0, np.array([0]), np.array([1]), np.array([0]))


def test_reverse_types() -> None:
    types = GraphTypes(("user", "item"), (2, 3), (BUYS, BACK, KNOWS, ("item", "likes", "user")))
    assert [reverse_of(types, k) for k in range(4)] == [1, 0, 2, None]
    assert [reverse_of(types, k, {"buys": "likes"}) for k in range(4)] == [3, None, None, None]
    assert reverse_of(None, 0) == 0
    with pytest.raises(SamplerConfigError, match="are no reverses of"):
        reverse_of(types, "buys", {"buys": "knows"})
    with pytest.raises(SamplerConfigError, match="no edge type"):
        reverse_of(types, "buys", {"buys": "sells"})


def test_links_of_all_types_where_these_are_numbers() -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 6, (2, 90))
    graph = Graph.from_coo(src, dst, 6, edge_type=rng.integers(0, 4, 90), keep_order=True)
    rows = np.arange(0, 90, 7)
    ends = ends_of(graph)
    by_id = as_sets(excluded_positions(graph, None, src[rows], dst[rows], rows), len(rows))
    by_ends = as_sets(excluded_positions(graph, None, src[rows], dst[rows]), len(rows))
    assert by_id == [set(np.flatnonzero(graph.edge_order == row)) for row in rows]
    wanted = zip(src[rows].tolist(), dst[rows].tolist(), strict=True)
    assert by_ends == [{at for at, pair in enumerate(ends) if pair == row} for row in wanted]
