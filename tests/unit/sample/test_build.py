"""ArenaBuilder and draw_words: the same batches as the kernels', from the same choices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lightning_gnnload import Graph, MiniBatch, NeighborSampler, Sampler
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import ArenaTooSmall, Draw, DrawKey
from lightning_gnnload.ops.philox import stream_keys
from lightning_gnnload.sample.build import ArenaBuilder, draw_words
from tests import oracle
from tests.unit.toy import content, toy_graph

GRAPH = toy_graph()
SEEDS = np.array([17, 3, 250, 99])


class AllNeighbors(Sampler):
    """What NeighborSampler([-1, ...]) draws, in Python."""

    def __init__(self, num_layers: int, edge_ids: bool) -> None:
        self.depth, self.edge_ids = num_layers, edge_ids

    @property
    def num_layers(self) -> int:
        return self.depth

    def draw(self, graph, draw, memory):
        build = ArenaBuilder(graph, draw.seeds, memory)
        for _ in range(self.depth):
            lists = [np.arange(graph.indptr[node], graph.indptr[node + 1]) for node in build.nodes]
            edges = np.concatenate(lists) if lists else np.empty(0, np.int64)
            build.add_hop(list(map(len, lists)), graph.indices[edges], edge_ids=edges if self.edge_ids else None)
        return build.layout()


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("seeds", [[], [7], SEEDS])
def test_equals_the_kernel_where_the_choice_is_the_same(seeds, edge_ids: bool) -> None:
    mine, kernel = AllNeighbors(2, edge_ids), NeighborSampler([-1, -1], edge_ids=edge_ids)
    assert content(mine.sample(GRAPH, seeds, 1, 2, 3)) == content(kernel.sample(GRAPH, seeds, 1, 2, 3))


def test_the_free_part_lies_between_nodes_and_hops() -> None:
    arena = np.empty(1 << 16, np.uint8)
    layout = AllNeighbors(1, True).draw(GRAPH, Draw(SEEDS, DrawKey(0, 0, 0)), arena)
    assert layout.free_begin >= 8 * layout.num_nodes
    offsets = [(hop.indptr_offset, hop.indices_offset, hop.edge_ids_offset) for hop in layout.hops]
    assert layout.free_end == min(itertools.chain(*offsets))
    assert layout.free_begin % 64 == layout.free_end % 64 == 0
    # A layout is of the arena's size, and a batch read from it is whole.
    assert MiniBatch.view(arena, layout, len(SEEDS)).num_nodes == layout.num_nodes


def test_words_are_those_of_the_kernels() -> None:
    key, nodes = DrawKey(2**40 + 3, 5, 7), np.array([0, 9, 2**33 + 1])
    words = draw_words(key, 2, nodes, 10)
    draw_key, _ = stream_keys(key.seed, key.epoch)
    for node, mine in zip(nodes.tolist(), words, strict=True):
        np.testing.assert_array_equal(mine, oracle.NodeDraws(draw_key, key.step, 2, node).words(10))
    assert draw_words(key, 0, nodes[:0], 4).shape == (0, 4)
    assert draw_words(key, 0, nodes, 0).shape == (3, 0)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([0, 300], r"seeds\[1\] is 300"), ([-1], r"seeds\[0\] is -1"), ([4, 5, 4], r"seeds\[2\] is 4, the same node")],
)
def test_bad_seeds(seeds, message: str) -> None:
    with pytest.raises(SeedError, match=message):
        ArenaBuilder(GRAPH, np.array(seeds), np.empty(1024, np.uint8))


@pytest.mark.parametrize(
    ("counts", "neighbors", "columns", "message"),
    [
        ([1], [5], {}, "needs a number for each of the 2 known nodes"),
        ([1, 1], [5], {}, "sums to 2"),
        ([-1, 2], [5], {}, "counts"),
        ([1, 0], [300], {}, r"neighbors\[0\] is 300"),
        ([1, 0], [-1], {}, r"neighbors\[0\] is -1"),
        ([1, 0], [5], {"edge_ids": [1, 2]}, "edge_ids has shape"),
        ([1, 0], [5], {"edge_weight": 0.5}, "edge_weights has shape"),
    ],
)
def test_hops_that_do_not_fit(counts, neighbors, columns, message: str) -> None:
    build = ArenaBuilder(GRAPH, np.array([1, 2]), np.empty(1024, np.uint8))
    with pytest.raises(SamplerConfigError, match=message):
        build.add_hop(counts, neighbors, **columns)


def test_columns_of_edges_arrive() -> None:
    arena = np.empty(4096, np.uint8)
    build = ArenaBuilder(GRAPH, np.array([1, 2]), arena)
    build.add_hop([2, 1], [9, 2, 9], edge_ids=[4, 5, 6], edge_weight=[0.5, 1, 2], edge_type=[3, 3, 0])
    (block,) = MiniBatch.view(arena, build.layout(), 2).blocks
    assert block.indices.tolist() == [2, 1, 2]
    assert block.edge_ids.tolist() == [4, 5, 6]
    assert block.edge_weight.tolist() == [0.5, 1, 2]
    assert block.edge_type.tolist() == [3, 3, 0]


def test_too_small_an_arena_says_what_it_needs() -> None:
    graph = Graph.from_coo(np.arange(1, 50), np.zeros(49, np.int64), 50)
    for num_bytes in range(0, 1000, 33):
        arena = np.empty(num_bytes, np.uint8)
        try:
            build = ArenaBuilder(graph, np.array([0]), arena)
            build.add_hop([49], graph.indices)
            needed_bytes = 0
        except ArenaTooSmall as small:
            needed_bytes = small.needed_bytes
        # 7 lines of 64 bytes for 50 nodes, one for indptr, 4 for the indices.
        assert (needed_bytes == 0) if num_bytes >= 12 * 64 else (num_bytes < needed_bytes <= 12 * 64)


def test_a_sampler_of_the_old_form_works_and_is_told_of_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old.sample_into.*still works. Define draw\(graph, draw, memory\)"):

        class Old(Sampler):
            num_layers = 1

            def sample_into(self, graph, seeds, key, arena):
                return AllNeighbors(1, False).draw(graph, Draw(seeds, key), arena)

    assert content(Old().sample(GRAPH, SEEDS)) == content(AllNeighbors(1, False).sample(GRAPH, SEEDS))
