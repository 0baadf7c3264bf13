"""Translation between ids of the whole graph and a part's own, for samplers that work with the latter.

Shapes: S seeds, E edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import PartReachError, SeedError
from lightning_gnnload.ops import SampleLayout


def local_seeds(
    graph: Graph, seeds: np.ndarray, reach: int | None, reader: Any, *, may_repeat: bool = False
) -> np.ndarray:
    """Returns the seeds (int64 ``[S]``, ids of the whole graph) by their ids in the part, int64 ``[S]``.

    ``reach``: hops of in-neighbours that ``reader`` will read; None: unknown. Raises PartReachError where the part
    lacks some of them, SeedError where a seed repeats, unless it ``may_repeat``.
    """
    if graph.origin is None:
        return seeds
    if reach is None:
        raise PartReachError(
            f"{reader} may read any node of a graph (its reach is None), but this graph is a part of another. "
            "Sample from the whole graph; or, where a sampler of your own reads so many hops of in-neighbours and no "
            "more, say so by its property reach."
        )
    # Before ids become the part's: a sampler that found the repeat would name an id that the user does not know.
    ordered = np.sort(seeds)
    if not may_repeat and len(repeated := ordered[1:][ordered[1:] == ordered[:-1]]):
        raise SeedError(
            f"seeds holds node {repeated[0]} more than once. The seeds of a batch must be distinct: remove repeats, "
            "for example with numpy.unique."
        )
    local = graph.local_ids(seeds)
    num_hops = graph.origin.reach[local]
    if len(short := np.flatnonzero(num_hops < reach)):
        raise PartReachError(
            f"{reader} reads {reach} hops of in-neighbours, but of node {seeds[short[0]]} this part holds "
            f"{num_hops[short[0]]}; it holds too few of {len(short)} of the {len(seeds)} seeds. Give seeds of this "
            f"part, and make parts with hops={reach} or more."
        )
    return local


def name_batch(graph: Graph, layout: SampleLayout, arena: np.ndarray) -> None:
    """Writes ids of the whole graph over a part's own in ``arena``: nodes and edge ids. Does nothing for a whole
    graph."""
    if graph.names is None:
        return
    # Edges first: they are named by the local ids of their destinations, which the last line overwrites.
    nodes = arena[: 8 * layout.num_nodes].view(np.int64)
    # Hops may share their edges, each a prefix of the next.
    last = {hop.edge_ids_offset: hop for hop in layout.hops if hop.edge_ids_offset >= 0}
    for hop in last.values():
        counts = np.diff(_view(arena, hop.indptr_offset, hop.num_dst + 1, np.int32))
        edges = _view(arena, hop.edge_ids_offset, hop.num_edges, np.int64)
        edges[:] = edge_names(graph, np.repeat(nodes[: hop.num_dst], counts), edges)
    ops.gather_rows(graph.names, nodes.copy(), nodes)  # lets other threads run meanwhile


def edge_names(graph: Graph, destinations: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the positions of a part's ``edges``, int64 ``[E]`` into nodes ``destinations``, in the whole graph's
    ``indices``."""
    if graph.origin is None:
        return edges
    return edges - graph.indptr[destinations] + graph.origin.edge_starts[destinations]


def _view(arena: np.ndarray, offset: int, count: int, dtype: type) -> np.ndarray:
    return arena[offset : offset + count * np.dtype(dtype).itemsize].view(dtype)
