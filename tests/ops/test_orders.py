"""Breadth-first orders of seeds."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import GraphFormatError, SeedError
from lightning_gnnload.ops import breadth_first, coo_to_csc
from tests import oracle


def random_topology(rng, num_nodes, num_edges, dtype):
    src, dst = rng.integers(0, num_nodes, (2, num_edges)).astype(dtype)
    forth, back = coo_to_csc(src, dst, num_nodes), coo_to_csc(dst, src, num_nodes)
    return forth[:2], back[:2]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("both_ways", [False, True])
def test_a_search_equals_the_oracle(dtype, both_ways):
    rng = np.random.default_rng(0)
    num_trees = []
    for num_nodes in (1, 2, 63, 64, 65, 1000):
        for density in (0, 0.5, 1.5, 8):  # from nodes alone over many components to one
            graph, back = random_topology(rng, num_nodes, int(density * num_nodes), dtype)
            seeds = rng.permutation(num_nodes)[: rng.integers(1, num_nodes + 1)]
            position = np.full(num_nodes, -1, np.int32)
            position[seeds] = np.arange(len(seeds))
            roots = rng.permutation(seeds)
            given = *graph, position, roots, len(seeds), *(back if both_ways else ())
            found = breadth_first(*given)
            for ours, wanted in zip(found, oracle.breadth_first(*given), strict=True):
                assert ours.dtype == np.int32
                np.testing.assert_array_equal(ours, wanted)
            assert sorted(found[0]) == list(range(len(seeds)))
            num_trees.append(found[1].max() + 1)
    assert min(num_trees) == 1
    assert max(num_trees) > 100  # a search that stops with its first tree is not what was compared


def test_a_search_starts_anywhere_and_ends_with_its_seeds_or_roots():
    ring = np.arange(11), np.roll(np.arange(10), 1)  # the one in-neighbour of a node is the one before
    position = np.full(10, -1, np.int32)
    position[[7, 2]] = [0, 1]
    for roots, num_seeds, wanted in (
        ([5], 2, [1, 0]),  # 5, 4, 3, 2, ..., 8, 7: the root is no seed
        ([5], 1, [1]),
        ([], 2, []),
        ([5], 0, []),
        ([5], 3, [1, 0]),  # there are no more
    ):
        given = *ring, position, np.array(roots, np.int64), num_seeds
        order, tree = breadth_first(*given)
        assert order.tolist() == wanted
        assert tree.tolist() == [0] * len(wanted)
        np.testing.assert_array_equal(order, oracle.breadth_first(*given)[0])


def test_wrong_arguments_of_a_search():
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    position, roots = np.array([0, 1], np.int32), np.array([0, 1])
    for bad in (-1, 2, 2**40, -(2**63)):
        with pytest.raises(SeedError, match=rf"roots\[1\] is {bad}, but the graph has 2 nodes"):
            # The first root leads nowhere, or the search would end before the second.
            breadth_first(np.zeros(3, np.int64), np.empty(0, np.int64), position, np.array([0, bad]), 2)
    with pytest.raises(SeedError, match="position has 1 entries, but the graph has 2"):
        breadth_first(indptr, indices, position[:1], roots, 2)
    with pytest.raises(SeedError, match="dtype int64"):
        breadth_first(indptr, indices, position.astype(np.int64), roots, 2)
    for bad in (-1, 3, 2**40):
        with pytest.raises(SeedError, match=rf"num_seeds is {bad}, but must lie in \[0, 2\]"):
            breadth_first(indptr, indices, position, roots, bad)
    with pytest.raises(GraphFormatError, match="empty"):
        breadth_first(indptr[:0], indices, position, roots, 2)
    with pytest.raises(GraphFormatError, match="the reversed graph has 1 nodes and 1 edges"):
        breadth_first(indptr, indices, position, roots, 2, indptr[:2], indices[:1])
    with pytest.raises(GraphFormatError, match="reversed_indices has dtype int32"):
        breadth_first(indptr, indices, position, roots, 2, indptr, indices.astype(np.int32))
    with pytest.raises(GraphFormatError, match="reversed_indices is a NoneType"):
        breadth_first(indptr, indices, position, roots, 2, indptr)
    with pytest.raises(GraphFormatError, match=r"indptr\[-1\] is 1"):
        breadth_first(indptr, indices, position, roots, 2, np.array([0, 0, 1]), indices)
