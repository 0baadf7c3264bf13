"""What each part holds, against a search from its seeds."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.partition.closure import OwnLists, close_parts
from lightning_gnnload.partition.lists import edge_chunks
from tests.unit.partition.whole import distances
from tests.unit.toy import toy_graph


def quiet(what: str, share: float) -> None:
    pass


@pytest.mark.parametrize("num_parts", [1, 3, 64])
@pytest.mark.parametrize("hops", [1, 2, 3, 255])
@pytest.mark.parametrize("num_edges", [0, 200, 900])
def test_parts_hold_their_seeds_hops_and_nothing_else(num_parts: int, hops: int, num_edges: int) -> None:
    graph = toy_graph(300, num_edges)
    rng = np.random.default_rng(hops)
    train, val = np.split(rng.permutation(300)[:110], [80])
    of_train, of_val = rng.integers(0, num_parts, 80), rng.integers(0, num_parts, 30)
    closure = close_parts(graph, [(train, of_train), (val, of_val)], hops, quiet)
    for part in range(num_parts):
        wanted = distances(graph, np.concatenate([train[of_train == part], val[of_val == part]]), hops)
        nodes, reach = closure.of(part)
        assert nodes.tolist() == sorted(wanted)
        assert reach.dtype == np.uint8
        assert dict(zip(nodes.tolist(), reach.tolist(), strict=True)) == {v: hops - d for v, d in wanted.items()}


def test_a_node_that_is_a_seed_of_two_parts_is_held_by_both() -> None:
    graph = Graph.from_coo([0, 1], [1, 2])
    closure = close_parts(graph, [(np.array([2]), np.array([0])), (np.array([2]), np.array([1]))], 1, quiet)
    assert [closure.of(part)[0].tolist() for part in (0, 1)] == [[1, 2], [1, 2]]


def test_parts_of_own_lists_hold_the_nodes_that_these_mention() -> None:
    graph = toy_graph(300, 900)
    owner = np.random.default_rng(0).integers(0, 70, 300).astype(np.int32)
    holdings = OwnLists(graph, owner)
    for part in (0, 1, 69):
        own = np.flatnonzero(owner == part)
        nodes, reach = holdings.of(part)
        assert nodes.tolist() == sorted({*own.tolist(), *(int(u) for v in own for u in graph.in_neighbors(v))})
        assert nodes[reach == 1].tolist() == own.tolist()
        assert set(reach.tolist()) <= {0, 1}


@pytest.mark.parametrize("chunk_edges", [1, 2, 3, 7, 1000])
def test_edges_come_in_turn_whatever_the_chunk(chunk_edges: int) -> None:
    graph = Graph.from_csc([0, 0, 5, 5, 6, 6, 9], [0] * 9)
    nodes, degrees = np.array([5, 0, 1, 2, 3, 4]), np.array([3, 0, 4, 0, 1, 0])  # the last edge of 1 is not wanted
    chunks = list(edge_chunks(graph.indptr, nodes, degrees, chunk_edges))
    assert all(0 < len(edges) <= chunk_edges for edges, _ in chunks)
    assert np.concatenate([edges for edges, _ in chunks]).tolist() == [6, 7, 8, 0, 1, 2, 3, 5]
    assert np.concatenate([lists for _, lists in chunks]).tolist() == [0, 0, 0, 2, 2, 2, 2, 4]


def test_no_nodes_have_no_edges() -> None:
    none = np.empty(0, np.int64)
    assert list(edge_chunks(np.array([0, 1]), none, none)) == []
    assert list(edge_chunks(np.array([0, 1]), np.array([0]), np.array([0]))) == []
