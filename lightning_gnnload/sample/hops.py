"""Hops that are drawn one by one, where lists lie in parts: what one draws, and how a sampler draws one alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.pages import buffer_memory
from lightning_gnnload.ops import ArenaTooSmall, DrawKey
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.naming import edge_names

_FIRST_ARENA_BYTES = 1 << 20
_threads = threading.local()


@dataclass(frozen=True)
class HopEdges:
    """What the nodes of a frontier draw at one hop, those of the first node first.

    Attributes:
        counts: integer ``[D]``, edges of each node.
        neighbors: integer ``[E]``, node ids.
        edge_ids: integer ``[E]``, positions in the whole graph's ``indices``; None where nobody asked.
        edge_weight: float ``[E]``, or None.
        edge_type: integer ``[E]``, or None.

    Shapes: D nodes of the frontier, E edges.
    """

    counts: np.ndarray
    neighbors: np.ndarray
    edge_ids: np.ndarray | None = None
    edge_weight: np.ndarray | None = None
    edge_type: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, without those that there are not."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in held.items() if array is not None}

    def after(self, before: HopEdges | None) -> HopEdges:
        """The edges of a frontier and those of the nodes before it, which have drawn already."""
        if before is None:
            return self
        known = before.arrays()
        return HopEdges(**{name: np.concatenate([known[name], array]) for name, array in self.arrays().items()})


def draw_hop(sampler: Sampler, graph: Graph, rows: np.ndarray, key: DrawKey) -> HopEdges:
    """What some nodes of a part draw, by a sampler of one hop.

    Args:
        sampler: of one layer.
        graph: with an origin, n nodes.
        rows: int64 ``[D]``, distinct nodes of it, whose lists it holds.
        key: ``key.hop`` says which hop this is.

    Returns:
        ``neighbors`` in the graph's own ids, ``edge_ids`` in the whole graph's.
    """
    arena = getattr(_threads, "arena", None)
    while True:
        if arena is None:
            # Not the thread's other arena, in which the batch that asks for this may lie.
            _threads.arena = arena = np.frombuffer(buffer_memory(_FIRST_ARENA_BYTES), np.uint8)
        try:
            layout = sampler.sample_into(graph, rows, key, arena)
            break
        except ArenaTooSmall as small:
            size = max(2 * arena.nbytes, small.needed_bytes)
            _threads.arena = arena = np.frombuffer(buffer_memory(size), np.uint8)
    batch = MiniBatch.view(arena, layout, len(rows))
    [block] = batch.blocks
    counts = np.diff(block.indptr.numpy())
    edge_ids = None if block.edge_ids is None else edge_names(graph, np.repeat(rows, counts), block.edge_ids.numpy())
    return HopEdges(
        counts,
        batch.nodes.numpy()[block.indices.numpy()],
        edge_ids,
        *(None if column is None else column.numpy().copy() for column in (block.edge_weight, block.edge_type)),
    )


def join_lists(places: Sequence[np.ndarray], parts: Sequence[HopEdges], num_nodes: int) -> HopEdges:
    """Edges that several ranks drew, in the order of the frontier.

    Args:
        places: of each rank's nodes in the frontier, int64.
        parts: what each rank drew for them.
        num_nodes: D, of the frontier.
    """
    counts = np.zeros(num_nodes, np.int64)
    for at, edges in zip(places, parts, strict=True):
        counts[at] = edges.counts
    begins = np.cumsum(counts) - counts
    targets = [
        np.repeat(begins[at] - (np.cumsum(counts[at]) - counts[at]), counts[at]) + np.arange(len(edges.neighbors))
        for at, edges in zip(places, parts, strict=True)
    ]
    joined = {"counts": counts, "neighbors": np.empty(0, np.int64)}
    columns = [edges.arrays() for edges in parts]
    for name in columns[0] if columns else ():
        if name != "counts":
            # Each rank sends whole numbers in the smallest dtype that holds its own.
            joined[name] = np.empty(int(counts.sum()), np.result_type(*(column[name] for column in columns)))
            for target, column in zip(targets, columns, strict=True):
                joined[name][target] = column[name]
    return HopEdges(**joined)
