"""Samples a workload ahead: which nodes' rows will be gathered, and how often."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import chain
from typing import TypeVar

import numpy as np

from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.host.progress import progress as progress_bar
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.sample.workload import Workload

Sampled = TypeVar("Sampled")


def node_lists(
    workload: Workload, requests: Iterable[BatchRequest], *, num_threads: int | None = None
) -> Iterator[tuple[BatchRequest, np.ndarray]]:
    """Samples mini-batches of ``requests``, of any epochs; yields each request with its input nodes, int64, in order.

    Threads, by default one a core, sample up to ``2 * num_threads`` mini-batches ahead of the caller, so requests may
    be endless; closing the iterator ends them. Raises SeedError where a seed is not a node of the graph.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> from lightning_gnnload.data.orders.seeds import Sequential
        >>> ring = Graph.from_coo(src=[0, 1, 2, 3], dst=[1, 2, 3, 0])
        >>> workload = Workload(ring, NeighborSampler([1]), np.arange(4), batch_size=2, order=Sequential())
        >>> [nodes.tolist() for _, nodes in node_lists(workload, workload.requests(epoch=0))]
        [[0, 1, 3], [2, 3, 1]]
    """
    return sampled_ahead(workload.nodes_of, requests, num_threads=num_threads)


def sampled_ahead(
    sample: Callable[[BatchRequest], Sampled], requests: Iterable[BatchRequest], *, num_threads: int | None = None
) -> Iterator[tuple[BatchRequest, Sampled]]:
    """Yields each request with what ``sample`` returns for it, in order, from threads as :func:`node_lists` has
    them."""
    num_threads = num_threads or len(os.sched_getaffinity(0))
    threads = Threads(num_threads, "gnnload-ahead")
    ahead: deque[tuple[BatchRequest, Future[Sampled]]] = deque()
    try:
        for request in requests:
            ahead.append((request, threads.submit(sample, request)))
            # For each thread one in work and one in line, so that none idles while the caller counts.
            if len(ahead) > 2 * num_threads:
                yield _next_result(ahead, threads)
        while ahead:
            yield _next_result(ahead, threads)
    finally:
        threads.shutdown(cancel_futures=True)


def visit_counts(
    workload: Workload, epochs: Iterable[int], *, num_threads: int | None = None, progress: bool = True
) -> np.ndarray:
    """Counts how often the mini-batches of these epochs will gather each node's row, int32 ``[N]``: exact, not a guess.
    Raises SeedError as :func:`node_lists`, and for fewer seeds than ranks."""
    epochs = list(epochs)
    counts = np.zeros(workload.graph.num_nodes, np.int32)
    one = np.int32(1)  # of the counts' dtype: add.at would cast another one, at 40 ns a node
    total = len(epochs) * workload.num_ranks * workload.plan(workload.num_ranks).num_steps
    with progress_bar("Sampling ahead", total, show=progress) as advance:
        for _, nodes in node_lists(
            workload, chain.from_iterable(map(workload.requests, epochs)), num_threads=num_threads
        ):
            np.add.at(counts, nodes, one)
            advance(1)
    return counts


def similarity(before: np.ndarray, after: np.ndarray, share: float = 0.1) -> float:
    """Computes which share of the visits to epoch ``after``'s hottest nodes epoch ``before`` predicts, in [0, 1].

    ``sum over T_i and T_j of min(f_i(v), f_j(v)) / sum over T_j of f_j(v)``, where f counts visits, ``[N]``, and T is
    the ``share`` of all nodes with most.

    Source: GNNLab (EuroSys'22), section 6.2, Table 2.

    Example:
        >>> similarity(np.array([4, 2, 0, 0]), np.array([3, 0, 1, 0]), share=0.5)
        0.75
    """
    count = round(share * len(after))
    hot = hottest(after, len(after), count)
    both = np.intersect1d(hottest(before, len(after), count), hot)
    visits = int(after[hot].sum())
    return float(np.minimum(before[both], after[both]).sum() / visits) if visits else 1.0


def _next_result(ahead: deque[tuple[BatchRequest, Future[Sampled]]], threads: Threads) -> tuple[BatchRequest, Sampled]:
    request, result = ahead.popleft()
    return request, threads.result(result)


_CLASSES_AN_OCTAVE = 4  # coarse enough that a class has many nodes, fine enough that their degrees are alike


def smoothed(counts: np.ndarray, degrees: np.ndarray, num_batches: int) -> np.ndarray:
    """Moves each count towards the mean of its degree class, the further the more of the class's spread is chance.

    Of a node's count, part is the node's and part is luck. In a class whose counts spread no more than luck would, all
    nodes get the mean; where nodes truly differ, because seeds are near or weights favour some, counts stay nearly as
    they are. ``counts`` are visits ``[N]``, ``degrees`` out-degrees ``[N]``; ``num_batches`` is how many mini-batches
    were sampled. Returns float64 ``[N]`` with the same sum.

    Source: empirical Bayes, as in Efron and Morris, "Stein's estimation rule and its competitors" (JASA 68, 1973).

    Example:
        >>> smoothed(np.array([2, 4, 3, 3, 9]), np.array([5, 5, 5, 5, 40]), num_batches=100).tolist()
        [3.0, 3.0, 3.0, 3.0, 9.0]
    """
    fraction, octave = np.frexp(degrees.astype(np.float64))  # exact, so that all machines class alike
    classes = octave * _CLASSES_AN_OCTAVE + ((2 * fraction - 1) * _CLASSES_AN_OCTAVE).astype(np.int64)
    # Nodes without edges would be in a negative class, which bincount refuses; no other is in class 0.
    classes = np.where(degrees > 0, classes, 0)
    size = np.maximum(np.bincount(classes), 1)
    counts = counts.astype(np.float64)
    mean = np.bincount(classes, counts) / size
    square = np.bincount(classes, counts**2) / size
    spread = square - mean**2
    # Binomial variance of a count among so many chances; where counts exceed the chances, nothing counts as luck.
    luck = np.maximum(mean - square / num_batches, 0)
    own_share = np.divide(spread - luck, spread, out=np.zeros(len(size)), where=spread > luck)[classes]
    return own_share * counts + (1 - own_share) * mean[classes]
