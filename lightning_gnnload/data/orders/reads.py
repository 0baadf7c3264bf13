"""Simulates what mini-batches in some order read: their neighbourhoods, and a cache's misses on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil, sqrt

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.sequences import EARLY_EPOCH
from lightning_gnnload.host.pages import buffer_memory

CACHE_RATIO, EVICTION = 0.1, "clock"
"""The cache by which orders are compared: its share of all rows, and its eviction rule."""
_TURNOVERS, _LEAST_BATCHES = 3, 256
_WARM_UP_TURNOVERS, _LEAST_COUNTED = 1.5, 16  # of a span
_FANOUTS = (10, 10)
_GOLDEN = (sqrt(5) - 1) / 2
_FIRST_ARENA_BYTES = 1 << 24


@dataclass(frozen=True)
class CacheReads:
    """Counts the rows that mini-batches read from a feature table, and the cache's misses among them."""

    batches: int
    rows: int
    missed: int

    @property
    def hit_rate(self) -> float:
        return 1 - self.missed / max(self.rows, 1)


def cache_reads(
    batches: Iterable[np.ndarray], warm_up: int, num_nodes: int, ratio: float = CACHE_RATIO, eviction: str = EVICTION
) -> CacheReads:
    """Simulates a cache of ``ratio`` of all rows over mini-batches, each the int64 ids of its nodes.

    The first ``warm_up`` mini-batches fill the cache, and do not count.
    """
    # With rows of 0 bytes, as it matters only which ones are cached.
    cache = ops.EvictingSlots(num_nodes, max(int(ratio * num_nodes), 1), row_bytes=0, eviction=eviction)
    sizes, hits = [], []
    for nodes in batches:
        sizes.append(len(nodes))
        hits.append(cache.visit(nodes))
    rows = sum(sizes[warm_up:])
    return CacheReads(len(sizes[warm_up:]), rows, rows - sum(hits[warm_up:]))


def enough_batches(rows: int, num_nodes: int, ratio: float = CACHE_RATIO) -> int:
    """Returns how many mini-batches of ``rows`` rows measure a cache: half to fill it, half to count."""
    return max(ceil(_TURNOVERS * ratio * num_nodes / rows), _LEAST_BATCHES)


@dataclass(frozen=True)
class BatchSpan:
    """Successive mini-batches, also across epochs, on which a cache's misses are estimated."""

    begin: int  # the first one, among the full mini-batches of all epochs
    warm_up: int  # how many fill the cache, and do not count
    counted: int  # how many follow


def batch_spans(rows: int, num_nodes: int, num_steps: int, ratio: float = CACHE_RATIO) -> Iterator[BatchSpan]:
    """Yields spans without end, each in another epoch of ``num_steps``, spread evenly over the epoch.

    ``rows`` is an estimate of a mini-batch's rows. Source: Weyl (Math. Ann. 77, 1916), for the sequence of starts.
    """
    warm_up = ceil(_WARM_UP_TURNOVERS * ratio * num_nodes / rows) + 1
    # A sequence of low discrepancy: any first few starts are spread evenly, and an order by proximity is elsewhere in
    # the graph at each.
    for number in count():
        start = int(number * _GOLDEN % 1 * num_steps)
        # Far enough for the warm-up to begin at 0 or later.
        epoch = -(-warm_up // num_steps) + number
        yield BatchSpan(epoch * num_steps + start - warm_up, warm_up, max(warm_up // 2, _LEAST_COUNTED))


def neighborhoods(
    graph: Graph, order: Callable[[int], np.ndarray], batch_size: int, span: BatchSpan
) -> Iterator[np.ndarray]:
    """Yields the int64 nodes of a span's mini-batches, of two hops with fanout 10.

    ``order`` returns the ordered seeds of an epoch, int64 ``[S]``. Fewer seeds than ``batch_size`` are one mini-batch.
    """
    workspace, arena = ops.Workspace(graph.num_nodes), np.frombuffer(buffer_memory(_FIRST_ARENA_BYTES), np.uint8)
    ordered, ordered_epoch = order(0), 0
    num_steps = max(len(ordered) // batch_size, 1)
    for number in range(span.begin, span.begin + span.warm_up + span.counted):
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
                # needed_bytes covers only the hop that failed.
                arena = np.frombuffer(buffer_memory(max(2 * arena.nbytes, small.needed_bytes)), np.uint8)
        yield arena[: 8 * layout.num_nodes].view(np.int64).copy()
