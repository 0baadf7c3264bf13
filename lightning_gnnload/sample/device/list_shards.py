"""ListShards: which in-neighbour lists lie in the memory of which device, where several read each other's.

Shapes: N graph nodes, S shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops.cuda.sampling.topology import OFFSET_BITS
from lightning_gnnload.sample.device.hotness import fitting_lists, hottest_lists

_GOLDEN_SHARE = 0.6180339887498949  # (sqrt(5) - 1) / 2


@dataclass(frozen=True)
class ListShards:
    """Where each list lies, as one rank reads it. A shard has lists beside each other, in the order of nodes."""

    own_shard: int  # this rank's shard
    location: np.ndarray  # int64 [N], of a Topology; negative: in no shard
    in_own: np.ndarray  # bool [N], lists in this rank's shard
    num_edges: tuple[int, ...]  # in each shard, [S]

    @classmethod
    def deal(cls, graph: Graph, rooms: Sequence[int], own_shard: int, reads: np.ndarray) -> ListShards:
        """Deals lists to shards that have room for so many edges each, ``[S]``; the same in all
        ranks, but for ``own_shard``.

        Where all lists have room, each lies in some shard, and the most read ones are copied to every shard, as many as
        there is room left for; else the most read ones lie in one shard each. ``reads`` are expected reads of each
        list, float64 ``[N]``.

        Source: DSP (PPoPP'23), section 3.1: the topology partitioned over the devices, hot lists before others.

        Example:
            >>> graph = Graph.from_coo(src=[1, 2, 3, 3, 0], dst=[0, 0, 1, 2, 3])
            >>> lists = ListShards.deal(graph, rooms=[3, 3], own_shard=0, reads=np.array([4.0, 1.0, 1.0, 1.0]))
            >>> lists.num_edges, (lists.location >> OFFSET_BITS).tolist()
            ((3, 2), [0, 1, 0, 1])
        """
        degrees, num_shards = graph.in_degrees, len(rooms)
        room = np.array(rooms, np.int64)
        # A shard may keep less than a list's room, as lists are not cut: so much is left free in each.
        spare = int(room.sum()) - graph.num_edges - num_shards * int(degrees.max(initial=0))
        copied = np.zeros(graph.num_nodes, bool)
        if num_shards > 1 and spare >= num_shards - 1:
            # An edge that is copied takes the room of one in each shard, but for the one that it would lie in.
            copied = hottest_lists(graph, reads, min(spare // (num_shards - 1), int(room.min())))
            room -= int(degrees[copied].sum())
            dealt = (degrees > 0) & ~copied
        elif room.sum() >= graph.num_edges:
            dealt = degrees > 0
        else:
            dealt = hottest_lists(graph, reads, int(room.sum()))
        shard_of = _shard_of(np.flatnonzero(dealt), degrees, room)
        location, in_own, num_edges = np.full(graph.num_nodes, -1, np.int64), copied, []
        for shard in range(num_shards):
            in_shard = copied | (shard_of == shard)
            stops = np.cumsum(np.where(in_shard, degrees, 0))
            num_edges.append(int(stops[-1]) if len(stops) else 0)
            read = in_shard if shard == own_shard else in_shard & ~copied
            location[read] = (shard << OFFSET_BITS) + (stops - degrees)[read]
            in_own = in_shard if shard == own_shard else in_own
        return cls(own_shard, location, in_own, tuple(num_edges))

    @property
    def placed(self) -> np.ndarray:
        """Which lists lie in some shard, bool ``[N]``."""
        return self.location >= 0


def _shard_of(nodes: np.ndarray, degrees: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Deals the lists of ``nodes`` in proportion to the room, int16 ``[N]``; -1 for those that no shard has room
    for."""
    shard_of, room_left = np.full(len(degrees), -1, np.int16), room.copy()
    # Long lists first, so that short ones fill what these leave.
    order = nodes[np.argsort(-degrees[nodes], kind="stable")]
    room_ends = np.cumsum(room)
    # Multiples of the golden ratio fall into every interval as often as it is long, in any run of them: so shards get
    # alike shares of long lists and short ones, and of reads.
    turn = np.searchsorted(room_ends, np.arange(len(order)) * _GOLDEN_SHARE % 1 * room_ends[-1], side="right")
    for only_its_turn in (True, False):  # then lists whose shard was full
        for shard in range(len(room)):
            waiting = order[(shard_of[order] < 0) & ((turn == shard) | (not only_its_turn))]
            chosen_nodes = fitting_lists(waiting, degrees, int(room_left[shard]))
            shard_of[chosen_nodes] = shard
            room_left[shard] -= degrees[chosen_nodes].sum()
    return shard_of
