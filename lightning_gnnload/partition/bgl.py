"""Bgl: connected blocks of nodes, dealt out to where their neighbours of several hops are (BGL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition.coarsen import MOST_LARGE_BLOCKS, coarsen
from lightning_gnnload.partition.ldg import stream_nodes
from lightning_gnnload.partition.partitioner import Advance, Partitioner, SeedIds

LARGEST_BLOCK_SIZE = 100_000
# Chances are integers in units of 2**-20: a row of links, below 2**40 edges, times a unit stays below 2**63.
_UNIT_BITS = 20
_JOINED_SHARE = 32  # parts are balanced to one such share of theirs: a block is dealt out whole
_STREAM_SLACK = 0.03
_ROWS = 256  # added to their transpose at a time: all at once would take a second matrix


@dataclass(frozen=True)
class Bgl(Partitioner):
    """BGL's partitioner: grows connected blocks, merges small ones, and assigns each block to the part that maximizes

        ``(sum over j = 1 to score_hops of R_j) * (1 - |T(i)| / C_T) * (1 - |P(i)| / C)``

    with ``R_j`` the chance that a walk of ``j`` steps from block to block ends in the part, ``T(i)`` and ``P(i)`` its
    training nodes and nodes so far, and ``C_T`` and ``C`` a part's exact share of all; for a block without training
    nodes, their factor is 1. Parts at a share get no more while others are not; so training nodes and nodes are
    balanced within some per cent, a block being dealt out whole.

    What the paper leaves open, or does otherwise:

    - Its ``R_j`` counts blocks, ``|P(i) & j-hop neighbour blocks|``. Where each block borders on most others, as hubs
      make them, that says nothing; here a border counts by its edges.
    - It names no order of blocks. Here the next is always the one whose edges lead to blocks already dealt out, by the
      largest share. (By size, all go to the first part until that is full, for others score 0.)
    - It grows blocks to 100,000 nodes, of graphs of a hundred million. Here, ``num_nodes / 4096``, if that is less.
    - A large block takes small ones up to 1/32 of a part's nodes, so that no hub draws all leaves into one block.
    - Blocks grow along in-neighbours alone, as sampling does. To follow edges both ways costs another copy of a graph
      that is not undirected, and gained nothing on those tried.

    Takes 12 bytes a node and up to 40 a block before merging; for the graph of blocks 130 MB, or 540 where few of them
    can be merged; and three visits to each edge, two of them in turn.

    Args:
        block_size: nodes at which a block is full; None: 100,000, or less on small graphs, as above.
        large_share: of the blocks, which are large, so that small ones join them.
        score_hops: steps of walks from block to block, ``j``. Above 2, time grows by the square of the blocks.
        streams: restreams of single nodes after all, as :class:`.Ldg` has it, with 3 % of slack for nodes and none for
            training nodes. Not of BGL, so 0; they take less time than the rest and cut far less: give 3.

    Source: BGL (NSDI'23), section 3.3.
    """

    name: ClassVar[str] = "bgl"

    block_size: int | None = None
    large_share: float = 0.1
    score_hops: int = 2
    streams: int = 0

    def __post_init__(self) -> None:
        limits = {"score_hops": 1, "streams": 0}
        if self.block_size is not None:
            limits["block_size"] = 1
        for name, least in limits.items():
            if ops.as_integer(f"Bgl: {name}", getattr(self, name), PartitionError) < least:
                raise PartitionError(f"Bgl: {name} is {getattr(self, name)}, but must be {least} or more.")
        if not 0 < self.large_share <= 1:
            raise PartitionError(f"Bgl: large_share is {self.large_share}, but must lie in (0, 1].")

    def assign(
        self, graph: Graph, seeds: SeedIds, num_parts: int, *, hops: int, seed: int, advance: Advance
    ) -> np.ndarray:
        if not graph.num_nodes:
            return np.empty(0, np.int32)
        block_size = self.block_size or min(LARGEST_BLOCK_SIZE, -(-graph.num_nodes // MOST_LARGE_BLOCKS))
        most_joined = max(block_size, graph.num_nodes // (_JOINED_SHARE * num_parts))
        block_of = coarsen(graph, block_size, self.large_share, most_joined, seed=seed, advance=advance)
        advance("Linking blocks", 0.0)
        sizes = np.bincount(block_of)
        num_train = np.bincount(block_of[seeds["train"]], minlength=len(sizes))
        links = ops.link_blocks(graph.indptr, graph.indices, block_of, len(sizes))
        part_of = deal_blocks(links, sizes, num_train, num_parts, self.score_hops, advance)[block_of]
        del links, block_of  # the largest arrays, which the streams do not need
        if self.streams:
            stream_nodes(graph, seeds["train"], part_of, num_parts, self.streams, _STREAM_SLACK, advance)
        return part_of


def deal_blocks(
    links: np.ndarray,
    sizes: np.ndarray,
    num_train: np.ndarray,
    num_parts: int,
    score_hops: int,
    advance: Advance = lambda task, share: None,
) -> np.ndarray:
    """Assigns each of B blocks to the part with the highest score when its turn comes; int32 ``[B]``.

    ``links`` counts the edges from each block to each, int64 ``[B, B]``, and is overwritten; ``sizes`` and
    ``num_train`` are nodes and training nodes, int64 ``[B]``.

    Source: BGL (NSDI'23), section 3.3.2.

    Example:
        >>> links = np.array([[0, 9, 1, 0], [9, 0, 0, 1], [1, 0, 0, 9], [0, 1, 9, 0]])  # two pairs
        >>> deal_blocks(links, np.full(4, 5), np.ones(4, int), num_parts=2, score_hops=2)
        array([0, 0, 1, 1], dtype=int32)
    """
    _add_transposed(links)
    np.fill_diagonal(links, 0)
    degrees = np.maximum(links.sum(1), 1)
    part_of = np.full(len(sizes), -1, np.int32)
    # Integers, whose sums do not depend on their order as those of floats do.
    # In units of 2**-20: chances that walks of 0 to score_hops - 1 steps from each block end in each part.
    reach = np.zeros((len(sizes), num_parts), np.int64)
    attached = np.zeros(len(sizes), np.int64)
    assigned = np.zeros((2, num_parts), np.int64)  # nodes, training nodes
    totals = np.maximum([[sizes.sum()], [num_train.sum()]], 1)
    for turn in range(len(sizes)):
        if turn % 256 == 0:
            advance("Dealing out blocks", turn / len(sizes))
        block = int(np.argmax(attached))  # of equal ones the first, and so the largest
        steps = (links[block] << _UNIT_BITS) // degrees[block]
        room = 1 - assigned * num_parts / totals
        # A part that has its training nodes may still take blocks without any: these fill up the nodes.
        if not num_train[block]:
            room[1] = 1
        part = _best(steps @ reach, room)
        part_of[block] = part
        assigned[:, part] += sizes[block], num_train[block]
        reach[block, part] += 1 << _UNIT_BITS
        walk = (links[block] << _UNIT_BITS) // degrees  # one step of each block leads to this one so often
        attached += walk
        attached[block] = np.iinfo(np.int64).min >> 1  # dealt out: never again the most attached
        for _ in range(score_hops - 1):
            reach[:, part] += walk
            if score_hops > 2:  # with 2 the loop runs once, and the product with all links would go unused
                walk = links @ walk // degrees
    advance("Dealing out blocks", 1.0)
    return part_of


def _add_transposed(matrix: np.ndarray) -> None:
    """Computes ``matrix += matrix.T`` without a copy of the whole."""
    for begin in range(0, len(matrix), _ROWS):
        rows = matrix[begin : begin + _ROWS, begin:]
        columns = matrix[begin:, begin : begin + _ROWS]
        rows[:] = rows + columns.T
        columns[:] = rows.T


def _best(scores: np.ndarray, room: np.ndarray) -> int:
    """Returns the part whose score times its rooms, float ``[2, K]``, is highest; of equal ones, that with most
    room."""
    has_room = (room > 0).all(0)
    if not has_room.any():
        return int(np.argmax(room.min(0)))
    both = np.where(has_room, room[0] * room[1], -1.0)
    best = np.where(has_room, scores * both, -1.0)
    return int(np.argmax(np.where(best == best.max(), both, -1.0)))
