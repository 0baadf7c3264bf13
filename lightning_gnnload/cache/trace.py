"""Sampling a workload ahead: which nodes' rows will be gathered, and how often."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import numpy as np

from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.data.datasets.stored import progress as progress_bar
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.sample.workload import Workload


def node_lists(
    workload: Workload, requests: Iterable[BatchRequest], *, num_threads: int | None = None
) -> Iterator[tuple[BatchRequest, np.ndarray]]:
    """What mini-batches will gather, before they are made: each request with its nodes, int64, in the order given.

    Threads sample up to ``2 * num_threads`` mini-batches ahead of the caller and then wait for it, so the requests
    may be endless. Closing the iterator ends the threads.

    Args:
        workload: whose mini-batches.
        requests: which of them, of any epochs.
        num_threads: that sample; None for one a core.

    Raises:
        SeedError: a seed is not a node of the graph.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> from lightning_gnnload.data.seeds import Sequential
        >>> ring = Graph.from_coo(src=[0, 1, 2, 3], dst=[1, 2, 3, 0])
        >>> workload = Workload(ring, NeighborSampler([1]), np.arange(4), batch_size=2, order=Sequential())
        >>> [nodes.tolist() for _, nodes in node_lists(workload, workload.requests(epoch=0))]
        [[0, 1, 3], [2, 3, 1]]
    """
    num_threads = num_threads or len(os.sched_getaffinity(0))
    threads = ThreadPoolExecutor(num_threads, "gnnload-ahead")
    ahead: deque[tuple[BatchRequest, Future[np.ndarray]]] = deque()
    try:
        for request in requests:
            ahead.append((request, threads.submit(workload.nodes_of, request)))
            if len(ahead) > 2 * num_threads:
                yield _taken(ahead)
        while ahead:
            yield _taken(ahead)
    finally:
        threads.shutdown(cancel_futures=True)


def visit_counts(
    workload: Workload, epochs: Iterable[int], *, num_threads: int | None = None, progress: bool = True
) -> np.ndarray:
    """How many mini-batches of these epochs will gather each node's row, int32 ``[N]``: exact, not a guess.

    Args:
        workload: whose mini-batches.
        epochs: that are sampled, with all their draws.
        num_threads: that sample; None for one a core.
        progress: show a bar on stderr.

    Raises:
        SeedError: a seed is not a node of the graph, or there are fewer seeds than ranks.
    """
    epochs = list(epochs)
    counts = np.zeros(workload.graph.num_nodes, np.int32)
    one = np.int32(1)  # a number of the same dtype spares add.at a cast, and 40 ns a node
    total = len(epochs) * workload.num_ranks * workload.plan(workload.num_ranks).num_steps
    shown: AbstractContextManager[Callable[[int], Any]] = (
        progress_bar("Sampling ahead", total) if progress else nullcontext(lambda amount: None)
    )
    with shown as advance:
        for _, nodes in node_lists(
            workload, chain.from_iterable(map(workload.requests, epochs)), num_threads=num_threads
        ):
            np.add.at(counts, nodes, one)
            advance(1)
    return counts


def similarity(before: np.ndarray, after: np.ndarray, share: float = 0.1) -> float:
    """How much of the visits to epoch ``after``'s hottest nodes epoch ``before`` foretells, in [0, 1].

    ``sum over T_i and T_j of min(f_i(v), f_j(v)) / sum over T_j of f_j(v)``, where f counts visits and T is the
    ``share`` of all nodes with most.

    Args:
        before: visits of an epoch, ``[N]``.
        after: of another.
        share: of the nodes that count as hot.

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


def _taken(ahead: deque[tuple[BatchRequest, Future[np.ndarray]]]) -> tuple[BatchRequest, np.ndarray]:
    request, nodes = ahead.popleft()
    return request, nodes.result()
