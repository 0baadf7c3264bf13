"""Lists dealt to shards: each within its room, none in the way of another, and all ranks of one mind."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.ops.cuda.sampling.topology import OFFSET_BITS
from lightning_gnnload.sample.device.list_shards import ListShards
from tests.unit.toy import toy_graph

EMPTY = Graph.from_coo([], [], num_nodes=4)
HUBS = Graph.from_coo(np.arange(900) % 50, np.r_[np.zeros(400, int), np.full(300, 7), np.arange(200) % 60 + 20])


def dealt(graph: Graph, rooms: list[int], reads: np.ndarray | None = None) -> list[ListShards]:
    """What each rank sees, after it was found to be sound."""
    reads = np.random.default_rng(0).random(graph.num_nodes) if reads is None else reads
    ranks = [ListShards.deal(graph, rooms, own, reads) for own in range(len(rooms))]
    degrees = graph.in_degrees
    copied = np.logical_and.reduce([each.in_own for each in ranks])
    if len(rooms) == 1:
        copied[:] = False
    for own, each in enumerate(ranks):
        shard, offset = each.location >> OFFSET_BITS, each.location % 2**OFFSET_BITS
        assert each.num_edges == ranks[0].num_edges
        assert each.num_edges[own] == degrees[each.in_own].sum() <= rooms[own]
        assert (shard[each.in_own & (degrees > 0)] == own).all()
        # In the order of nodes, one behind the other, as the shard is filled.
        assert offset[each.in_own].tolist() == (np.cumsum(degrees[each.in_own]) - degrees[each.in_own]).tolist()
        # Others find in this shard what it holds, and the copied lists in their own.
        for other in ranks:
            assert (other.location == each.location)[~copied].all()
        assert (each.placed == ranks[0].placed).all()
    return ranks


@pytest.mark.parametrize("graph", [toy_graph(), HUBS, EMPTY], ids=["toy", "hubs", "empty"])
@pytest.mark.parametrize("rooms", [[0], [500], [0, 0, 0], [300, 300], [700, 100, 0, 900], [900, 900, 900]], ids=str)
def test_lists_lie_within_their_rooms(graph: Graph, rooms: list[int]) -> None:
    dealt(graph, rooms)


@pytest.mark.parametrize("num_shards", [2, 3, 8])
@pytest.mark.parametrize("graph", [toy_graph(), HUBS], ids=["toy", "hubs"])
def test_no_list_is_left_out_where_there_is_room_for_one_more_in_each(graph: Graph, num_shards: int) -> None:
    rooms = [-(-graph.num_edges // num_shards) + int(graph.in_degrees.max())] * num_shards
    for each in dealt(graph, rooms):
        assert (each.placed | (graph.in_degrees == 0)).all()


def test_what_room_is_left_goes_to_copies_of_the_most_read_lists() -> None:
    graph, reads = toy_graph(), np.arange(300.0)
    first, second = dealt(graph, [1800, 1800], reads)
    copied = first.in_own & second.in_own & (graph.in_degrees > 0)
    assert copied.sum() > 100
    others = ~copied & (graph.in_degrees > 0)
    density = reads / np.maximum(graph.in_degrees, 1)
    assert density[copied].min() > np.median(density[others])
    spare = 2 * 1800 - graph.num_edges - 2 * graph.in_degrees.max()
    assert spare - graph.in_degrees.max() < graph.in_degrees[copied].sum() <= spare


def test_shares_of_lists_and_reads_are_those_of_the_room() -> None:
    graph = toy_graph(3000, 30_000)
    reads = np.random.default_rng(1).random(3000) * graph.in_degrees
    rooms = [2000, 4000, 6000]
    each = dealt(graph, rooms, reads)[0]
    shard = each.location >> OFFSET_BITS
    total = reads[each.placed].sum()
    for number, room in enumerate(rooms):
        assert reads[shard == number].sum() / total == pytest.approx(room / sum(rooms), abs=0.02)


def test_without_room_for_all_the_most_read_lists_are_kept() -> None:
    graph, reads = toy_graph(), np.arange(300.0)
    each = dealt(graph, [400, 400], reads)[0]
    density = reads / np.maximum(graph.in_degrees, 1)
    left = ~each.placed & (graph.in_degrees > 0)
    assert np.quantile(density[each.placed], 0.05) > np.quantile(density[left], 0.9)
