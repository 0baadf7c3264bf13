"""The subgraph that a mini-batch's nodes induce, as torch-sparse gives it with ``subgraph_type="induced"``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload import Graph, NeighborSampler
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.sample.induced import induced_block


def edges_by_definition(graph: Graph, batch: MiniBatch) -> list[tuple[int, int, int]]:
    """(source, destination, position) of every edge whose ends are nodes of one row, by destination."""
    nodes = batch.nodes.tolist()
    rows = [0] * len(nodes) if batch.rows is None else batch.rows.tolist()
    place_of = {named: place for place, named in enumerate(zip(rows, nodes, strict=True))}
    assert len(place_of) == len(nodes)
    return [
        (place_of[row, source], place, int(graph.indptr[node]) + at)
        for place, (row, node) in enumerate(zip(rows, nodes, strict=True))
        for at, source in enumerate(graph.in_neighbors(node).tolist())
        if (row, source) in place_of
    ]


def assert_induced(graph: Graph, batch: MiniBatch) -> None:
    block = induced_block(graph, batch)
    assert block.edge_ids is not None
    assert block.num_dst == block.num_src == batch.num_nodes
    found = zip(block.indices.tolist(), block.edge_dst().tolist(), block.edge_ids.tolist(), strict=True)
    assert list(found) == edges_by_definition(graph, batch)


def random_edges(num_nodes: int, num_edges: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    src = random.integers(0, num_nodes, num_edges)
    return src, (num_nodes * random.random(num_edges) ** 2).astype(int)  # with hubs, loops and repeated edges


@pytest.mark.parametrize("sharing", ["plain", "disjoint"])
@pytest.mark.parametrize("fanouts", [[], [3], [4, 2, 2]])
@pytest.mark.parametrize("replace", [False, True])
def test_all_edges_between_what_was_drawn(sharing: Any, fanouts: list[int], replace: bool):
    graph = Graph.from_coo(*random_edges(60, 600), 60)
    sampler = NeighborSampler(fanouts, replace, expand="new", sharing=sharing)
    for step, seeds in enumerate([[5, 1, 40], [0], list(range(20)), []]):
        assert_induced(graph, sampler.sample(graph, seeds, seed=1, step=step))


def test_a_node_in_two_rows_has_the_edges_of_each():
    #  0 <- 1, 0 <- 2, 1 <- 2, 2 <- 0; the rows of seeds 0 and 1 both have node 2
    graph = Graph.from_coo([1, 2, 2, 0], [0, 0, 1, 2])
    batch = NeighborSampler([-1], expand="new", sharing="disjoint").sample(graph, [0, 1])
    assert batch.nodes.tolist() == [0, 1, 1, 2, 2]
    block = induced_block(graph, batch)
    edges = sorted(zip(block.indices.tolist(), block.edge_dst().tolist(), strict=True))
    # Node 1 of row 1 does not see node 0 of row 0; 1 <- 2 is in both rows.
    assert edges == [(0, 3), (2, 0), (3, 0), (3, 2), (4, 1)]


@pytest.mark.parametrize("sharing", ["plain", "disjoint"])
def test_types(sharing: Any):
    random = np.random.default_rng(3)
    ends = [(random.integers(0, 20, 80), random.integers(0, 30, 80)), (random.integers(0, 30, 90),) * 2]
    graph = Graph.from_hetero(
        {"a": 20, "b": 30},
        {("a", "to", "b"): ends[0], ("b", "on", "b"): ends[1], ("b", "of", "a"): ends[0][::-1]},
    )
    batch = NeighborSampler([2, 2], expand="new", sharing=sharing).sample(graph, [3, 25, 44])
    assert_induced(graph, batch)
    block = induced_block(graph, batch)
    assert block.edge_ids is not None
    kinds = graph.edge_types_of(block.edge_ids.numpy())
    assert {*kinds.tolist()} == {0, 1, 2}
    of_a = batch.nodes.numpy() < 20
    # An edge's type says of which types its ends are.
    np.testing.assert_array_equal(of_a[block.indices.numpy()], kinds == 0)
    np.testing.assert_array_equal(of_a[block.edge_dst().numpy()], kinds == 2)
