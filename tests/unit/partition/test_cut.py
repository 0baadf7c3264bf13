"""What a partition cuts, against counts made edge by edge."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import Graph, LayerSampler, NeighborSampler, Sampler
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition import cut
from tests.unit.toy import toy_graph


def owners(graph: Graph, num_parts: int = 3) -> np.ndarray:
    return np.random.default_rng(5).integers(0, num_parts, graph.num_nodes)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_cross_edges_are_those_between_owners(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that begin and end within lists, and nodes without any, at the end as well."""
    graph = Graph.from_coo(*np.random.default_rng(0).integers(0, 40, (2, 150)), num_nodes=50)
    part_of = owners(graph)
    monkeypatch.setattr(cut, "_EDGES_A_CHUNK", chunk)
    expected = sum(
        int(part_of[node] != part_of[neighbor]) for node in range(50) for neighbor in graph.in_neighbors(node)
    )
    shares: list[float] = []
    assert 0 < cut.count_cross_edges(graph, part_of, advance=shares.append) == expected
    assert shares[-1] == 1
    assert shares == sorted(shares)


def test_more_parts_than_a_byte_numbers() -> None:
    graph = Graph.from_coo([0], [1])
    assert cut.count_cross_edges(graph, np.array([0, 256])) == 1  # equal in their lowest byte
    assert cut.count_cross_edges(graph, np.array([256, 256])) == 0


def test_a_graph_without_edges_cuts_none() -> None:
    assert cut.count_cross_edges(Graph.from_csc(np.zeros(4, np.int64), np.empty(0, np.int32)), np.arange(3)) == 0


@pytest.mark.parametrize("sampler", [NeighborSampler([3, 2]), NeighborSampler([2, 2], expand="new"), LayerSampler([9])])
@pytest.mark.parametrize("most", [None, 1])
def test_sampled_edges_and_lists_are_counted_by_trainer(sampler: Sampler, most: int | None) -> None:
    graph = toy_graph()
    part_of, seeds = owners(graph), np.arange(0, 300, 3)
    counted = cut.count_sampled_cross_edges(graph, part_of, seeds, sampler, batch_size=16, seed=4, max_batches=most)
    edges = cross = lists = foreign = batches = 0
    shuffled = Shuffled().order(seeds, seed=4, epoch=0)
    for part in range(3):
        own = [node for node in shuffled.tolist() if part_of[node] == part]
        for step in range(1 if most else -(-len(own) // 16)):
            batch = sampler.sample(graph, own[16 * step : 16 * step + 16], seed=4, epoch=0, step=step)
            batches += 1
            here = [int(part_of[node]) for node in batch.nodes.tolist()]
            for block in batch.blocks:
                for end, begin in zip(block.edge_dst().tolist(), block.indices.tolist(), strict=True):
                    edges, cross = edges + 1, cross + (here[end] != here[begin])
                lists += block.num_dst
                foreign += sum(owner != part for owner in here[: block.num_dst])
    assert counted == cut.SampledCut(edges, cross, lists, foreign, batches)
    assert 0.5 < counted.cross_share < 0.8  # two thirds, for three random parts


def test_one_part_asks_no_other() -> None:
    graph = toy_graph()
    counted = cut.count_sampled_cross_edges(
        graph, np.zeros(300, np.int64), np.arange(100), NeighborSampler([2, 2]), batch_size=50
    )
    assert (counted.cross_edges, counted.foreign_lists, counted.cross_share) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("part_of", "said"), [(np.zeros(299, np.int64), "each of the 300"), (np.full(300, -1), "settle open nodes")]
)
def test_owners_that_are_none_are_refused(part_of: np.ndarray, said: str) -> None:
    with pytest.raises(PartitionError, match=said):
        cut.count_cross_edges(toy_graph(), part_of)
