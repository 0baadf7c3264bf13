"""The large graph's generator, at small sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.growth_graph import GrowthGraph

NUM_NODES, NUM_EDGES = 200_003, 2_000_000  # three chunks of degrees and thirty of neighbours, the last not full


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> GrowthGraph:
    made = GrowthGraph(NUM_NODES, NUM_EDGES, num_train=1000, root=tmp_path_factory.mktemp("growth"))
    made.prepare()
    return made


def test_sizes(dataset):
    data = dataset.load()
    graph = data.graph
    assert graph.num_nodes == NUM_NODES
    assert graph.indices.dtype == np.int32
    # Each degree is rounded at random: the sum has a standard deviation of at most sqrt(N) / 2 = 224.
    assert abs(graph.num_edges - NUM_EDGES) < 5 * 224
    assert len(np.unique(data.train)) == 1000
    assert graph.in_degrees[data.train].min() > 0


def test_shuffle_reaches_every_node_once(dataset):
    ids = dataset._ids(np.arange(NUM_NODES))
    assert np.array_equal(np.sort(ids), np.arange(NUM_NODES))


def test_neighbours_follow_the_degrees_law(dataset):
    # Both ends have one law: a node is as often an in-neighbour as it has in-neighbours, but for chance.
    graph = dataset.load().graph
    times_drawn = np.bincount(graph.indices, minlength=NUM_NODES)
    by_rank = dataset._ids(np.arange(NUM_NODES))
    hubs, rest = by_rank[: NUM_NODES // 100], by_rank[NUM_NODES // 100 :]
    for nodes in (hubs, rest):
        expected = graph.in_degrees[nodes].sum()
        assert abs(times_drawn[nodes].sum() - expected) < 5 * np.sqrt(expected)
    assert graph.in_degrees[hubs].mean() > 5 * graph.in_degrees[rest].mean()


def test_threads_make_no_difference(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    again = GrowthGraph(NUM_NODES, NUM_EDGES, num_train=1000, root=tmp_path)
    again.prepare()
    one, other = dataset.load().graph, again.load().graph
    assert np.array_equal(one.indptr, other.indptr)
    assert np.array_equal(one.indices, other.indices)
