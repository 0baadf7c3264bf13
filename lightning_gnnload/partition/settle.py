"""Settling: which part owns a node that no method has dealt out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.partitioner import OPEN

ROUNDS = 3
"""Further ones move few nodes: measured, the share of cross-part edges falls by less than a hundredth."""
_SLACK = 20  # a part may own a 20th more nodes than the mean
_SLICE_EDGES = 1 << 27  # half a second or so: how long an interrupt may wait


def settle(
    graph: Graph, part: np.ndarray, held: np.ndarray | None, num_parts: int, advance: Callable[[str, float], None]
) -> np.ndarray:
    """Gives each open node to a part that holds it: to the one that owns most of its in-neighbours.

    Nodes vote for where their out-neighbours go, in rounds: by ascending id, each open node goes where most votes are,
    of the parts that hold it, or of all where none does, as long as they own no more than 1.05 N / K nodes. What has
    had no vote after the last round goes to the part that owns fewest, of those that hold it, or of all.

    So owners come to hold what lies together, though few of the nodes are seeds, and each part finds most of the rows
    that it gathers among its own.

    Args:
        graph: N nodes; ``indices`` may be a mapped file, and is read once a round, in turn.
        part: int32 ``[N]``, in ``[0, K)`` or :data:`.partitioner.OPEN`.
        held: uint64 ``[N]``, bit ``p`` where part ``p`` holds the node; None if that is not known.
        num_parts: K, 1 to 64.
        advance: is told what is being done, and which share of it.

    Returns:
        int32 ``[N]``, in ``[0, K)``; ``part`` itself where nothing is open.

    Raises:
        PartitionError: arrays that do not fit each other, or a part that is none.
    """
    is_open = part == OPEN
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
                graph.indptr, graph.indices, part, is_open, held, num_parts, capacity=capacity, begin=begin, end=end
            )
    advance(task, 1.0)
    return ops.settle_nodes(part, held, num_parts)


def _slices(indptr: np.ndarray) -> list[int]:
    """Returns node ids, from 0 to N, between two successive of which about ``_SLICE_EDGES`` edges end."""
    num_nodes = len(indptr) - 1
    steps = np.searchsorted(indptr, np.arange(_SLICE_EDGES, int(indptr[-1]), _SLICE_EDGES))
    return sorted({0, *steps.tolist(), num_nodes})
