"""Settling: which part owns a node that the method left open."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.partitioner import OPEN, Advance

ROUNDS = 3
"""Further ones move few nodes: measured, the share of cross-part edges falls by less than a hundredth."""
_SLACK = 20  # a part may own a 20th more nodes than the mean
_SLICE_EDGES = 1 << 27  # half a second or so: how long an interrupt may wait


def settle(graph: Graph, part: np.ndarray, holders: np.ndarray | None, num_parts: int, advance: Advance) -> np.ndarray:
    """Returns the part of every node, int32 ``[N]``: open nodes go to the part that owns most of their in-neighbours.

    In some rounds, by ascending id, each open node moves to the part with most of its in-neighbours by then, among the
    parts that hold it, or all where none does, as long as these own no more than 1.05 N / K nodes. What has no
    in-neighbour in a part after the last round goes to the one that owns fewest. So owners come to hold what lies
    together, though few nodes are seeds, and each part finds most of the rows that it gathers among its own.

    ``part`` is int32 ``[N]``, or :data:`.OPEN`; bit ``p`` of ``holders``, uint64 ``[N]``, says that part ``p`` holds
    the node, None that nobody knows. ``indices`` may be a mapped file: each round reads it once, in turn.
    """
    is_open = part == OPEN  # as it was at first: a node that a round has placed may be placed anew in the next
    if not is_open.any():
        return part
    part = part.copy()
    num_nodes, task = graph.num_nodes, "Settling nodes"
    capacity = num_nodes // num_parts + num_nodes // (_SLACK * num_parts) + 1
    bounds = _slices(graph.indptr)
    for turn in range(ROUNDS):
        for begin, end in pairwise(bounds):
            advance(task, (turn + begin / num_nodes) / ROUNDS)
            ops.vote_nodes(
                graph.indptr, graph.indices, part, is_open, holders, num_parts, capacity=capacity, begin=begin, end=end
            )
    advance(task, 1.0)
    return ops.settle_nodes(part, holders, num_parts)


def _slices(indptr: np.ndarray) -> list[int]:
    """Returns node ids, from 0 to N, between two successive of which about ``_SLICE_EDGES`` edges end."""
    num_nodes = len(indptr) - 1
    # A node of more edges is one slice, which several steps then find: a set has it once.
    steps = np.searchsorted(indptr, np.arange(_SLICE_EDGES, int(indptr[-1]), _SLICE_EDGES))
    return sorted({0, *steps.tolist(), num_nodes})
