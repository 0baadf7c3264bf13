"""Sampling ahead: the nodes of mini-batches before they are made, in order, by any number of threads."""

from __future__ import annotations

import threading
from itertools import count, islice

import numpy as np
import pytest

from lightning_gnnload import GraphData
from lightning_gnnload.cache.trace import node_lists, similarity, visit_counts
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import ForkError, SeedError
from tests.forked import in_child
from tests.unit.toy import toy_data, toy_source, toy_workload


def loaded_nodes(request: BatchRequest) -> list[int]:
    """What training gathers: the nodes of the mini-batch that a source makes."""
    source = toy_source()
    nodes = source.workload.sampler.sample(
        source.data.graph,
        source.workload.seeds_of(request),
        seed=source.workload.seed,
        epoch=request.epoch,
        step=request.step,
    ).nodes
    return nodes.tolist()


@pytest.mark.parametrize("num_threads", [1, 3])
def test_nodes_are_those_of_the_mini_batches_in_order(num_threads: int) -> None:
    # Another key, another slice of the seeds, or lists in the order in which threads finish: all differ.
    workload = toy_workload(num_ranks=2)
    requests = [*workload.requests(0), *workload.requests(1)]
    found = list(node_lists(workload, requests, num_threads=num_threads))
    assert [request for request, _ in found] == requests
    assert [nodes.tolist() for _, nodes in found] == [loaded_nodes(request) for request in requests]
    assert all(nodes.dtype == np.int64 for _, nodes in found)


def test_counts_are_those_of_the_node_lists() -> None:
    workload = toy_workload()
    expected = np.zeros(300, int)
    for epoch in (4, 2):
        for request in workload.requests(epoch):
            expected[loaded_nodes(request)] += 1
    counts = visit_counts(workload, (4, 2), num_threads=2, progress=False)
    assert counts.dtype == np.int32
    assert counts.tolist() == expected.tolist()
    assert counts.sum() > 2 * len(workload.seeds)  # neighbours are counted, not seeds alone


def test_endless_requests_are_sampled_no_further_than_asked() -> None:
    # A list of all requests, or threads that run ahead without bound, would never come back.
    workload = toy_workload()
    asked = []

    def requests():
        for epoch in count():
            for request in workload.requests(epoch):
                asked.append(request)
                yield request

    before = threading.active_count()
    lists = node_lists(workload, requests(), num_threads=2)
    assert len(list(islice(lists, 10))) == 10
    lists.close()
    assert len(asked) <= 10 + 2 * 2 + 1
    assert threading.active_count() == before


def test_a_fork_does_not_wait_for_its_parents_threads() -> None:
    workload = toy_workload()
    reading = node_lists(workload, workload.requests(0), num_threads=2)
    num_read = len([next(reading)])

    def go_on() -> None:
        with pytest.raises(ForkError, match="gnnload-ahead"):
            list(reading)

    assert in_child(go_on) == (0, "")
    assert num_read + len(list(reading)) == len(list(workload.requests(0)))


def test_an_error_of_a_thread_is_raised_and_threads_end() -> None:
    data = toy_data()
    bad = GraphData(data.graph, data.x, data.y, train=data.train)
    bad.train = np.array([5, 999])
    before = threading.active_count()
    with pytest.raises(SeedError, match="999"):
        visit_counts(toy_workload(bad, batch_size=2), [0], progress=False)
    assert threading.active_count() == before


def test_similarity_is_the_share_of_hot_visits_that_came_before() -> None:
    # By the formula of GNNLab 6.2 with two of four nodes: T_before = {0, 1}, T_after = {1, 2}, both = {1}.
    assert similarity(np.array([9, 3, 0, 1]), np.array([0, 5, 5, 2]), share=0.5) == 0.3
    assert similarity(np.array([9, 3, 0, 1]), np.array([9, 3, 0, 1]), share=0.5) == 1
    assert similarity(np.zeros(4, int), np.zeros(4, int), share=0.5) == 1
