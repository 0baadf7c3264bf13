"""Coarsening: a graph's nodes in a few thousand connected blocks (BGL)."""

from __future__ import annotations

import math

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.partitioner import Advance

MOST_LARGE_BLOCKS = 4096  # their graph is a dense matrix, of 134 MB
_SOURCES_EPOCH, _MERGING_EPOCH = 2**32 - 2, 2**32 - 3  # which no training reaches: no other draw repeats these


def coarsen(
    graph: Graph,
    block_size: int,
    large_share: float,
    most_joined: int,
    *,
    seed: int,
    advance: Advance,
) -> np.ndarray:
    """Divides nodes into connected blocks, merges small ones, and returns the block of each node, int32 ``[N]``.

    Blocks grow from random sources along in-neighbours to ``block_size`` nodes each, as many at a time as the graph has
    room for. The share ``large_share`` of them, the largest ones, are large, but never fewer than would hold all nodes,
    nor more than :data:`MOST_LARGE_BLOCKS`. Small blocks join a large one that they border on, up to ``most_joined``
    nodes; those that cannot are shuffled and merged with each other. Blocks are numbered from the largest on: at most
    twice as many, and one, as can be large.

    Source: BGL (NSDI'23), section 3.3.1.
    """
    advance("Growing blocks", 0.0)
    num_nodes = graph.num_nodes
    num_sources = min(-(-num_nodes // block_size), MOST_LARGE_BLOCKS)
    keys = ops.random_keys(seed, _SOURCES_EPOCH, np.arange(num_sources))
    sources = np.array([key * num_nodes >> 64 for key in keys.tolist()], np.int64)
    block_of, sizes = ops.grow_blocks(graph.indptr, graph.indices, sources, block_size)
    advance("Merging blocks", 0.0)
    is_large = _largest(sizes, min(max(math.ceil(large_share * len(sizes)), num_sources), MOST_LARGE_BLOCKS))
    joins = ops.join_blocks(graph.indptr, graph.indices, block_of, sizes, is_large, most_joined)
    merged = _merged(sizes, is_large, joins, max(block_size, -(-num_nodes // MOST_LARGE_BLOCKS)), seed)
    advance("Merging blocks", 1.0)
    return merged[block_of]


def _largest(sizes: np.ndarray, count: int) -> np.ndarray:
    """Marks the ``count`` largest blocks with 1, uint8 ``[B]``; of equal ones, those of low numbers."""
    if count >= len(sizes):
        return np.ones(len(sizes), np.uint8)
    # A selection, not a sort: there may be as many blocks as a fraction of the nodes.
    bound = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    is_large = (sizes > bound).astype(np.uint8)
    is_large[np.flatnonzero(sizes == bound)[: count - int(is_large.sum())]] = 1
    return is_large


def _merged(sizes: np.ndarray, is_large: np.ndarray, joins: np.ndarray, merged_size: int, seed: int) -> np.ndarray:
    """Merges small blocks; returns each block's new number, int32 ``[B]``, counted from the largest on."""
    chosen = np.where(is_large == 1, np.arange(len(sizes), dtype=np.int32), joins)
    alone = np.flatnonzero(chosen < 0)
    alone = alone[np.argsort(ops.random_keys(seed, _MERGING_EPOCH, alone), kind="stable")]
    # A merged block ends where the running total passes a multiple of its size: no loop over blocks.
    before = np.cumsum(sizes[alone], dtype=np.int64) - sizes[alone]
    chosen[alone] = len(sizes) + before // merged_size
    _, chosen = np.unique(chosen, return_inverse=True)
    totals = np.bincount(chosen, weights=sizes)
    numbers = np.empty(len(totals), np.int32)
    numbers[np.argsort(-totals, kind="stable")] = np.arange(len(totals), dtype=np.int32)
    return numbers[chosen]
