"""What mini-batches in some order read: neighbourhoods as a usual sampler draws them, and a cache's misses on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil, sqrt

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.sequences import EARLY_EPOCH
from lightning_gnnload.data.pages import buffer_memory

CACHE_RATIO, EVICTION = 0.1, "clock"
"""The cache by which orders are compared: a share of all rows, and who leaves it."""
_TURNOVERS, _LEAST_BATCHES = 3, 256
_WARM_UP_TURNOVERS, _LEAST_COUNTED = 1.5, 16  # of a stretch
_FANOUTS = (10, 10)
_GOLDEN = (sqrt(5) - 1) / 2
_FIRST_ARENA_BYTES = 1 << 24


@dataclass(frozen=True)
class CacheReads:
    """Counts what mini-batches read from a feature table behind a cache.

    Attributes:
        batches: how many were counted.
        rows: that they read.
        missed: of these, rows that the cache did not have.
    """

    batches: int
    rows: int
    missed: int

    @property
    def hit_rate(self) -> float:
        return 1 - self.missed / max(self.rows, 1)


def cache_reads(
    batches: Iterable[np.ndarray], warm_up: int, num_nodes: int, ratio: float = CACHE_RATIO, eviction: str = EVICTION
) -> CacheReads:
    """Simulates a cache over mini-batches.

    Args:
        batches: the nodes of each, int64.
        warm_up: so many of the first fill the cache, and do not count.
        num_nodes: of the graph.
        ratio: of all rows, what the cache has places for.
        eviction: who leaves it, one of :data:`.ops.EVICTIONS`.
    """
    cache = ops.DynamicCache(num_nodes, max(int(ratio * num_nodes), 1), row_bytes=0, eviction=eviction)
    sizes, hits = [], []
    for nodes in batches:
        sizes.append(len(nodes))
        hits.append(cache.visit(nodes))
    rows = sum(sizes[warm_up:])
    return CacheReads(len(sizes[warm_up:]), rows, rows - sum(hits[warm_up:]))


def enough_batches(rows: int, num_nodes: int, ratio: float = CACHE_RATIO) -> int:
    """Returns how many mini-batches of so many rows tell what a cache misses: half to fill it, half to be counted."""
    return max(ceil(_TURNOVERS * ratio * num_nodes / rows), _LEAST_BATCHES)


@dataclass(frozen=True)
class BatchSpan:
    """A stretch of mini-batches that follow each other, from epoch to epoch: what a cache misses in one is an estimate.

    Attributes:
        begin: the first one, as a place in the sequence of all epochs' full mini-batches.
        warm_up: so many fill the cache, and do not count.
        counted: that follow.
    """

    begin: int
    warm_up: int
    counted: int


def batch_spans(rows: int, num_nodes: int, num_steps: int, ratio: float = CACHE_RATIO) -> Iterator[BatchSpan]:
    """Yields stretches at places all over the epoch, each of another epoch, without end.

    Args:
        rows: of a mini-batch, as an estimate.
        num_nodes: of the graph.
        num_steps: full mini-batches of an epoch.
        ratio: of all rows, what the cache has places for.

    The places are a sequence of low discrepancy, as an order by proximity is elsewhere in the graph at each: any first
    few of them are spread evenly. Source: Weyl (Math. Ann. 77, 1916).
    """
    warm_up = ceil(_WARM_UP_TURNOVERS * ratio * num_nodes / rows) + 1
    for number in count():
        start = int(number * _GOLDEN % 1 * num_steps)
        # The first epochs are those that warm it up.
        epoch = -(-warm_up // num_steps) + number
        yield BatchSpan(epoch * num_steps + start - warm_up, warm_up, max(warm_up // 2, _LEAST_COUNTED))


def neighborhoods(
    graph: Graph, order: Callable[[int], np.ndarray], batch_size: int, stretch: BatchSpan
) -> Iterator[np.ndarray]:
    """Yields the nodes of the mini-batches of a stretch, int64, as a usual sampler draws them: two hops of 10
    neighbours a node.

    Args:
        graph: N nodes.
        order: the seeds of an epoch in their order, int64 ``[S]``.
        batch_size: seeds of a step; where there are fewer in all, they are one mini-batch.
        stretch: of which mini-batches.
    """
    workspace, arena = ops.Workspace(graph.num_nodes), np.frombuffer(buffer_memory(_FIRST_ARENA_BYTES), np.uint8)
    ordered, ordered_epoch = order(0), 0
    num_steps = max(len(ordered) // batch_size, 1)
    for number in range(stretch.begin, stretch.begin + stretch.warm_up + stretch.counted):
        epoch, step = divmod(number, num_steps)
        if epoch != ordered_epoch:
            ordered, ordered_epoch = order(epoch), epoch
        seeds, key = ordered[step * batch_size : (step + 1) * batch_size], ops.DrawKey(0, EARLY_EPOCH, number)
        while True:
            inputs = ops.SamplerInput(workspace, graph.indptr, graph.indices, seeds, key, arena)
            try:
                layout = ops.sample_neighbors(inputs, _FANOUTS)
                break
            except ops.ArenaTooSmall as small:
                # needed_bytes tells of the part that failed alone.
                arena = np.frombuffer(buffer_memory(max(2 * arena.nbytes, small.needed_bytes)), np.uint8)
        yield arena[: 8 * layout.num_nodes].view(np.int64).copy()
