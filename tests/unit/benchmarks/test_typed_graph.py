"""The graphs with types that peers map: the same edges, by type, in the same order as in the graph itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.seeds import ends_of_links
from tests.benchmarks.typed_graph import Market


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    dataset = Market(scale=0.0005, root=tmp_path_factory.mktemp("market"))
    dataset.prepare()
    return dataset


def test_columns_of_a_type_are_its_edges_by_target_and_time(market):
    arrays = market.arrays
    for k in range(len(arrays.edge_types)):
        (src, dst), time = arrays.pairs(k), arrays.time_given(k)
        order = np.lexsort((np.arange(len(src)), time, dst))  # ties keep the order in which they were given
        assert np.array_equal(arrays.given(k), order)
        assert np.array_equal(arrays.columns(k).indices, src[order])
        assert np.array_equal(arrays.time(k), time[order])
        assert np.array_equal(
            np.diff(arrays.columns(k).indptr), np.bincount(dst, minlength=len(arrays.columns(k).indptr) - 1)
        )


def test_graph_has_the_same_lists(market):
    arrays, graph = market.arrays, market.load().graph
    for k, (src, _, dst) in enumerate(arrays.edge_types):
        slots, nodes = graph.types.slots_of(dst), graph.types.range_of(dst)
        run = graph.types.first_run[graph.types.node_type_number(dst)] + slots.index(k)
        columns = arrays.columns(k)
        for node in range(0, len(nodes), max(len(nodes) // 20, 1)):
            begin, end = graph.run_ptr[run + node * len(slots)], graph.run_ptr[run + node * len(slots) + 1]
            of_node = slice(columns.indptr[node], columns.indptr[node + 1])
            assert np.array_equal(graph.indices[begin:end] - graph.types.range_of(src).start, columns.indices[of_node])
            assert np.array_equal(graph.edge_time[begin:end] + graph.clock.first, arrays.time(k)[of_node])


def test_reverse_of_a_link_turns_it_round(market):
    arrays, k = market.arrays, market.link_type
    (src, dst), (back_src, back_dst) = arrays.pairs(k), arrays.pairs(arrays.reverse[k])
    assert np.array_equal(src, back_dst)
    assert np.array_equal(dst, back_src)


def test_ends_of_links_are_those_of_the_links_and_the_negatives():
    indptr, indices = np.array([0, 2, 2, 3]), np.array([7, 5, 9])
    sources, targets = ends_of_links(np.array([2, 0]), 0, indptr, indices)
    assert sources.tolist() == [7, 9]
    assert targets.tolist() == [0, 2]
    assert set(ends_of_links(np.array([2, 0]), 50, indptr, indices)[1].tolist()) == {0, 1, 2}
