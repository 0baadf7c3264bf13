"""BGL's blocks and how they are dealt out, with the streams and random parts that it is compared with."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition import bgl
from lightning_gnnload.partition.bgl import Bgl, deal_blocks
from lightning_gnnload.partition.coarsen import MOST_LARGE_BLOCKS, coarsen
from lightning_gnnload.partition.cut import count_cross_edges
from lightning_gnnload.partition.ldg import Ldg
from lightning_gnnload.partition.partitioner import Partitioner
from lightning_gnnload.partition.random import RandomParts


def communities(num_communities: int = 30, size: int = 40, within: float = 0.9, seed: int = 0) -> Graph:
    """Node ``v`` is of community ``v % C``; ten edges of each node, both ways, go to its own with that chance."""
    rng = np.random.default_rng(seed)
    num_nodes = num_communities * size
    src = np.repeat(np.arange(num_nodes), 5)
    own = src % num_communities + num_communities * rng.integers(0, size, len(src))
    dst = np.where(rng.random(len(src)) < within, own, rng.integers(0, num_nodes, len(src)))
    return Graph.from_coo(np.concatenate([src, dst]), np.concatenate([dst, src]), num_nodes)


def assign(method: Partitioner, graph: Graph, train: np.ndarray, num_parts: int, seed: int = 0) -> np.ndarray:
    part = method.assign(graph, {"train": train}, num_parts, hops=0, seed=seed, advance=lambda what, share: None)
    assert part.dtype == np.int32
    assert part.shape == (graph.num_nodes,)
    if part.size:
        assert part.min() >= 0
        assert part.max() < num_parts
    return part


METHODS = (RandomParts(), Ldg(), Ldg(streams=3, slack=0.05), Bgl(), Bgl(streams=3), Bgl(block_size=20, score_hops=3))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_parts_are_balanced_deterministic_and_of_few_cross_edges(method: Partitioner) -> None:
    graph = communities()
    train = np.random.default_rng(1).permutation(graph.num_nodes)[:300]
    part = assign(method, graph, train, 4)
    np.testing.assert_array_equal(part, assign(method, graph, train, 4))
    if not isinstance(method, Ldg):  # which is not random
        assert (part != assign(method, graph, train, 4, seed=1)).any()
    nodes, seeds = np.bincount(part), np.bincount(part[train])
    if isinstance(method, RandomParts):
        assert np.ptp(nodes) <= 1
        assert np.ptp(seeds) <= 1
        return
    assert nodes.max() <= 1.06 * graph.num_nodes / 4  # a share of 1/32 and one block more
    assert seeds.max() <= 1.10 * len(train) / 4
    if not isinstance(method, Bgl) or method.streams:
        assert seeds.max() <= 75
    cross = count_cross_edges(graph, part)
    assert cross <= 0.75 * count_cross_edges(graph, assign(RandomParts(), graph, train, 4))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_graphs_at_the_edge(method: Partitioner) -> None:
    none = np.empty(0, np.int64)
    assert assign(method, Graph.from_coo(none, none, 0), none, 2).size == 0
    assert assign(method, Graph.from_coo(none, none, 1), np.array([0]), 3).size == 1
    alone = Graph.from_coo(none, none, 100)
    most = 40 if isinstance(method, Bgl) and method.block_size else 28  # in blocks of 20
    assert np.bincount(assign(method, alone, np.arange(50), 4)).max() <= most
    assert np.bincount(assign(method, alone, none, 4)).max() <= most
    # All leaves border on the hub alone: they must not come to one block, nor all blocks to one part.
    hub, leaves = np.zeros(1199, np.int64), np.arange(1, 1200)
    for star in (Graph.from_coo(hub, leaves), Graph.from_coo(leaves, hub)):
        part = assign(method, star, np.arange(0, 1200, 3), 4)
        assert np.bincount(part).max() <= 1.07 * 300
        assert np.bincount(part[::3]).max() <= 1.20 * 100


def test_all_blocks_come_out_of_coarsening_with_room() -> None:
    def sizes(graph: Graph, block_size: int, large_share: float = 0.1, most: int = 500) -> np.ndarray:
        block_of = coarsen(graph, block_size, large_share, most, seed=3, advance=lambda what, share: None)
        return np.bincount(block_of)

    graph = communities()
    found = sizes(graph, 30)
    assert found.min() > 0  # numbered without gaps, from the largest on
    assert (np.diff(found) <= 0).all()
    assert found.max() <= 500
    assert 40 <= len(found) <= 2 * 40 + 1  # 1200 nodes
    assert len(sizes(graph, 1)) == graph.num_nodes
    none = np.empty(0, np.int64)
    # Ten of a hundred blocks are large, and the others' number is what they fill.
    assert sizes(Graph.from_coo(none, none, 100), 30).tolist() == [30] * 3 + [1] * 10
    many = Graph.from_coo(none, none, 20 * MOST_LARGE_BLOCKS)
    for block_size, large_share in ((1, 0.1), (20, 0.9), (20, 0.01)):
        assert len(sizes(many, block_size, large_share)) <= 2 * MOST_LARGE_BLOCKS + 1


def dealt(links: np.ndarray, sizes: list[int], train: list[int], num_parts: int, hops: int) -> list[int]:
    """Its definition: probabilities of walks as matrix powers, in fractions."""
    both = (links + links.T).astype(object)
    np.fill_diagonal(both, 0)
    step = np.array([[Fraction(int(edges), max(int(sum(row)), 1)) for edges in row] for row in both])
    part = [-1] * len(sizes)
    while -1 in part:
        done = [number for number, of in enumerate(part) if of >= 0]
        block = max((b for b in range(len(sizes)) if part[b] < 0), key=lambda b: (sum(step[b][done]), -b))
        walk, reach = np.eye(len(sizes), dtype=object), np.zeros_like(step)
        for _ in range(hops):
            walk = walk @ step
            reach = reach + walk
        best = []
        for number in range(num_parts):
            own = [b for b in done if part[b] == number]
            room = [1 - Fraction(sum(load[b] for b in own) * num_parts, sum(load)) for load in (sizes, train)]
            room[1] = room[1] if train[block] else Fraction(1)
            score = sum(reach[block][own]) if own else 0
            if min(room) > 0:
                best.append((score * room[0] * room[1], room[0] * room[1], -number))
            else:
                best.append((-1, min(room), -number))
        part[block] = -max(best)[-1]
    return part


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_blocks_are_dealt_out_by_chances_of_walks(hops: int) -> None:
    rng = np.random.default_rng(hops)
    for num_parts in (2, 3):
        # Powers of 2 at every step: rounding to 2**-20 changes nothing, and so no tie.
        ring = np.roll(np.eye(16, dtype=np.int64), 1, 0) + np.roll(np.eye(16, dtype=np.int64), 3, 0)
        sizes, train = rng.integers(1, 9, 16), rng.integers(0, 4, 16)
        found = deal_blocks(ring.copy(), sizes, train, num_parts, hops)
        assert found.tolist() == dealt(ring, sizes.tolist(), train.tolist(), num_parts, hops)


def test_a_walk_of_two_steps_decides_where_one_step_does_not() -> None:
    # Blocks 0 and 1 open two parts; 2 borders on 0 and 1 alike, and by 3, which is dealt out to 1's, on 1's once more.
    links = np.zeros((5, 5), np.int64)
    for a, b, edges in ((2, 0, 4), (2, 1, 4), (2, 3, 1), (3, 1, 99), (0, 4, 99)):
        links[a, b] = edges
    sizes, train = np.array([6, 5, 5, 5, 5]), np.ones(5, np.int64)
    for hops in (1, 2):
        found = deal_blocks(links.copy(), sizes, train, 2, hops)
        assert found.tolist() == dealt(links, sizes.tolist(), train.tolist(), 2, hops)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bgl(block_size=0), "block_size is 0, but must be 1 or more"),
        (lambda: Bgl(score_hops=0), "score_hops is 0"),
        (lambda: Bgl(streams=-1), "streams is -1"),
        (lambda: Bgl(large_share=0.0), r"large_share is 0.0, but must lie in \(0, 1\]"),
        (lambda: Bgl(large_share=float("nan")), "large_share is nan"),
        (lambda: Ldg(streams=0), "streams is 0"),
        (lambda: Ldg(slack=-0.1), "slack is -0.1"),
        (lambda: Ldg(slack=float("inf")), "slack is inf"),
    ],
)
def test_settings_out_of_range(make, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        make()


def test_both_directions_of_edges_between_blocks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks 0 and 3, 1 and 2 belong together, by edges below the diagonal alone; no slice of rows holds both ends.
    links = np.zeros((4, 4), np.int64)
    links[3, 0], links[2, 1], links[1, 0] = 9, 9, 1
    for rows in (1, 3, 256):
        monkeypatch.setattr(bgl, "_ROWS", rows)
        assert deal_blocks(links.copy(), np.ones(4, np.int64), np.ones(4, np.int64), 2, 2).tolist() == [0, 1, 1, 0]
        assert deal_blocks(links.T.copy(), np.ones(4, np.int64), np.ones(4, np.int64), 2, 2).tolist() == [0, 1, 1, 0]
