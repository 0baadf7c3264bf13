"""A mini-batch that an owner has made, as it is on the wire: its layout, and whether that is sound.

An answer begins with the number of bytes of its head, int64. The head has the arrays at either end of the arena that
the mini-batch was drawn into; the rows of each table follow.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.ops import ARENA_ALIGNMENT, HopLayout, SampleLayout

BATCH = "batch"
"""The operation that makes a whole mini-batch, beside those of :class:`.Owner`."""


def checksum(ids: np.ndarray) -> int:
    """Of the ids whose rows a table has in a mini-batch, by which both ends know that they mean the same."""
    return zlib.crc32(np.ascontiguousarray(ids).view(np.uint8).data)


def aligned_end(memory: np.ndarray) -> int:
    """Where an arena's arrays end that lie at its end."""
    return len(memory) // ARENA_ALIGNMENT * ARENA_ALIGNMENT


def written(layout: SampleLayout) -> list[Any]:
    """A compact layout as JSON's numbers."""
    hops = [list(vars(hop).values()) for hop in layout.hops]
    return [layout.num_nodes, hops, layout.free_begin, layout.queries_offset]


def read_layout(
    numbers: Any, begin: np.ndarray, end: np.ndarray, seeds: np.ndarray, num_graph_nodes: int
) -> SampleLayout:
    """Returns the layout that :func:`written` has written, whose arrays are ``begin`` and ``end``, uint8, checked
    before ids in it index memory. ExchangeError: it is none, not of these seeds, or not sound."""
    try:
        num_nodes, hops, free_begin, queries_offset = numbers
        hops = tuple(HopLayout(*hop) for hop in hops)
        layout = SampleLayout(num_nodes, hops, free_begin, free_begin, queries_offset)
        is_sound = _are_nodes(layout, begin, seeds, num_graph_nodes) and all(_is_hop(layout, hop, end) for hop in hops)
    except (LookupError, TypeError, ValueError) as error:
        raise ExchangeError(f"an owner sent what is no mini-batch: {type(error).__name__}: {error}") from error
    if not is_sound:
        raise ExchangeError("an owner sent a mini-batch that is not sound. Do all owners run the same version?")
    return layout


def _are_nodes(layout: SampleLayout, begin: np.ndarray, seeds: np.ndarray, num_graph_nodes: int) -> bool:
    """Returns whether ``begin`` has the nodes that a layout says, and their queries, seeds first."""
    nodes = begin[: 8 * layout.num_nodes].view(np.int64)
    if len(begin) != layout.free_begin or len(nodes) != layout.num_nodes:
        return False
    if layout.queries_offset + 4 * layout.num_nodes > len(begin):  # -1 where nodes have none
        return False
    return np.array_equal(nodes[: len(seeds)], seeds) and _are_below(nodes, num_graph_nodes)


def _is_hop(layout: SampleLayout, hop: HopLayout, end: np.ndarray) -> bool:
    """Returns whether ``end`` has the arrays of a hop, and these fit each other."""
    if not (0 <= hop.num_dst <= hop.num_src <= layout.num_nodes and hop.num_edges >= 0):
        return False
    columns = [(hop.edge_ids_offset, 8), (hop.edge_weights_offset, 4), (hop.edge_types_offset, 4)]
    spans = [(hop.indptr_offset, 4 * (hop.num_dst + 1)), (hop.indices_offset, 4 * hop.num_edges)]
    spans += [(at, width * hop.num_edges) for at, width in columns if at >= 0]
    first = layout.free_begin  # where what the layout describes goes on in ``end``
    if not all(first <= at and at - first + size <= len(end) for at, size in spans):
        return False
    indptr, indices = (end[at - first : at - first + size].view(np.int32) for at, size in spans[:2])
    ascends = indptr[0] == 0 and indptr[-1] == hop.num_edges and bool((np.diff(indptr) >= 0).all())
    return bool(ascends) and _are_below(indices, hop.num_src)


def _are_below(ids: np.ndarray, count: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < count)
