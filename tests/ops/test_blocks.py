"""Blocks of nodes, their graph, and nodes dealt out in one stream."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, GraphFormatError, PartitionError, SeedError
from lightning_gnnload.ops import (
    MAX_LINKED_BLOCKS,
    coo_to_csc,
    deal_nodes,
    grow_blocks,
    join_blocks,
    link_blocks,
)
from tests import oracle

DTYPES = pytest.mark.parametrize("dtype", [np.int32, np.int64])
PATH = np.array([0, 1, 3, 5, 6]), np.array([1, 0, 2, 1, 3, 2])  # 0 - 1 - 2 - 3


def topologies(dtype):
    """Of one node to many, from nodes alone over many components to one."""
    rng = np.random.default_rng(0)
    for num_nodes in (1, 2, 40, 150):
        for density in (0, 0.6, 2, 8):
            src, dst = rng.integers(0, num_nodes, (2, int(density * num_nodes))).astype(dtype)
            yield coo_to_csc(src, dst, num_nodes)[:2], rng


@DTYPES
def test_blocks_equal_the_oracle_and_end_where_they_must(dtype):
    ended_full, ended_short = 0, 0
    for graph, rng in topologies(dtype):
        num_nodes = len(graph[0]) - 1
        for most in (1, 2, 7, 40, 2**40):
            sources = rng.integers(0, num_nodes, rng.integers(0, 10))  # repeats among them
            block_of, sizes = grow_blocks(*graph, sources, most)
            wanted = oracle.grow_blocks(*graph, sources, most)
            for ours, theirs in zip((block_of, sizes), wanted, strict=True):
                assert ours.dtype == np.int32
                np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(np.bincount(block_of, minlength=len(sizes)), sizes)
            ended_full += int((sizes == most).sum())
            ended_short += int((sizes < most).sum())
            assert sizes.min() >= 1
            assert sizes.max() <= most
    assert min(ended_full, ended_short) > 50


@DTYPES
def test_small_blocks_join_as_the_oracle_has_it(dtype):
    joined, refused = 0, 0
    for graph, rng in topologies(dtype):
        num_nodes = len(graph[0]) - 1
        block_of, sizes = grow_blocks(*graph, rng.integers(0, num_nodes, 5), 6)
        is_large = (rng.random(len(sizes)) < 0.3).astype(np.uint8)
        for most in (0, 9, 2**40):
            joins = join_blocks(*graph, block_of, sizes, is_large, most)
            assert joins.dtype == np.int32
            np.testing.assert_array_equal(
                joins, oracle.join_blocks(*graph, block_of, sizes, is_large, min(most, 2**31))
            )
            assert (joins[is_large == 1] == -1).all()
            joined += int((joins >= 0).sum())
            refused += int((joins < 0).sum() - is_large.sum())
    assert min(joined, refused) > 50


def test_a_small_block_joins_the_one_it_borders_on_most_whichever_way_edges_point():
    # Block 2 has two edges from block 0, and to block 1 one.
    src, dst = np.array([0, 1, 4, 2]), np.array([4, 4, 3, 3])
    graph = coo_to_csc(src, dst, 5)[:2]
    block_of, sizes = np.array([0, 0, 1, 1, 2], np.int32), np.array([2, 2, 1], np.int32)
    for is_large, wanted in (([1, 1, 0], 0), ([0, 1, 0], 1), ([0, 0, 0], -1)):
        joins = join_blocks(*graph, block_of, sizes, np.array(is_large, np.uint8), 3)
        assert joins[2] == wanted
    assert join_blocks(*graph, block_of, sizes, np.array([1, 1, 0], np.uint8), 2)[2] == -1


@DTYPES
def test_the_graph_of_blocks_equals_the_oracle(dtype):
    for graph, rng in topologies(dtype):
        block_of = rng.integers(0, 5, len(graph[0]) - 1).astype(np.int32)
        counts = link_blocks(*graph, block_of, 6)
        np.testing.assert_array_equal(counts, oracle.link_blocks(*graph, block_of, 6))
        assert counts.sum() == len(graph[1])


@DTYPES
def test_a_stream_equals_the_oracle(dtype):
    changes = []
    for graph, rng in topologies(dtype):
        num_nodes = len(graph[0]) - 1
        for num_parts in (1, 4):
            is_seed = (rng.random(num_nodes) < 0.3).astype(np.uint8)
            num_seeds = int(is_seed.sum())
            exact = -(-num_nodes // num_parts), -(-num_seeds // num_parts)
            for capacities in (exact, (num_nodes, num_seeds), (1, 0), (1 + num_nodes // num_parts // 2, 1)):
                ours, theirs = np.full((2, num_nodes), -1, np.int32)
                for _ in range(3):  # from the second on, a restream
                    changed = deal_nodes(*graph, is_seed, ours, num_parts, *capacities)
                    assert changed == oracle.deal_nodes(*graph, is_seed, theirs, num_parts, *capacities)
                    np.testing.assert_array_equal(ours, theirs)
                    changes.append(changed)
                if capacities == exact:
                    assert np.bincount(ours[is_seed == 1], minlength=num_parts).max() <= exact[1]
                assert (np.bincount(ours) <= max(capacities[0], -(-num_nodes // num_parts) + num_seeds)).all()
    assert 0 in changes


def test_wrong_blocks():
    sources, parts = np.array([0]), np.zeros(4, np.int32)
    for bad in (-1, 4, 2**40):
        with pytest.raises(SeedError, match=rf"sources\[0\] is {bad}, but the graph has 4 nodes"):
            grow_blocks(*PATH, np.array([bad]), 3)
    with pytest.raises(PartitionError, match="most is 0"):
        grow_blocks(*PATH, sources, 0)
    with pytest.raises(GraphFormatError, match="empty"):
        grow_blocks(PATH[0][:0], PATH[1], sources, 3)
    sizes, is_large = np.array([4], np.int32), np.ones(1, np.uint8)
    for bad in (-1, 1, -(2**31)):
        wrong = np.array([0, 0, bad, 0], np.int32)
        with pytest.raises(GraphFormatError, match=f"node 2 is of number {bad}, but there are 1, from 0 on"):
            join_blocks(*PATH, wrong, sizes, is_large, 4)
        with pytest.raises(GraphFormatError, match=f"node 2 is of number {bad}"):
            link_blocks(*PATH, wrong, 1)
    with pytest.raises(PartitionError, match="1 sizes, but 2 entries of is_large"):
        join_blocks(*PATH, parts, sizes, np.ones(2, np.uint8), 4)
    with pytest.raises(PartitionError, match="block_of has 3 entries, but the graph has 4 nodes"):
        link_blocks(*PATH, parts[:3], 1)
    with pytest.raises(PartitionError, match="block_of has dtype int64"):
        link_blocks(*PATH, parts.astype(np.int64), 1)
    for bad in (-1, MAX_LINKED_BLOCKS + 1):
        with pytest.raises(PartitionError, match=f"num_blocks is {bad}"):
            link_blocks(*PATH, parts, bad)


def test_wrong_streams():
    parts, is_seed = np.full(4, -1, np.int32), np.zeros(4, np.uint8)
    for bad in (-2, 2, 2**31 - 1):
        with pytest.raises(GraphFormatError, match=rf"part_of\[3\] is {bad}, but there are 2 parts"):
            deal_nodes(*PATH, is_seed, np.array([0, 1, -1, bad], np.int32), 2, 2, 0)
    for numbers, message in (
        ((0, 2, 0), "num_parts is 0"),
        ((2, 0, 0), "node_cap"),
        ((2, 2, -1), "seed_capacity is"),
        ((2, 2, np.ones(2)), "seed_capacity is array"),
        ((2, np.ones(2), 1), "node_capacity is array"),
    ):
        with pytest.raises(PartitionError, match=message):
            deal_nodes(*PATH, is_seed, parts, *numbers)
    with pytest.raises(PartitionError, match="is_seed has 3 entries, but the graph has 4"):
        deal_nodes(*PATH, is_seed[:3], parts, 2, 2, 0)
    with pytest.raises(GnnLoadError, match="share memory"):
        deal_nodes(*PATH, parts.view(np.uint8)[:4], parts, 2, 2, 0)
    parts.flags.writeable = False
    with pytest.raises(PartitionError, match="read-only"):
        deal_nodes(*PATH, is_seed, parts, 2, 2, 0)
