"""All edges between the nodes of a mini-batch, whichever of them were drawn."""

from __future__ import annotations

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.sample.base import thread_workspace


def induced_block(graph: Graph, batch: MiniBatch, until: np.ndarray | None = None) -> Block:
    """Returns the subgraph that a mini-batch's nodes induce: all edges of the graph between them.

    Every node is a destination, in the order of ``batch.nodes``, and keeps its in-neighbours in adjacency order,
    repeated edges and loops included. Where rows have nodes of their own, both endpoints are of one row. Edges are of
    all types; :meth:`.Graph.edge_types_of` tells which. ``until`` ``[R]`` has, for each row, the code of
    :meth:`.Clock.until` from which on its edges are left out.

    Raises SeedError for a node that the graph lacks or that a row has twice (``order="path"``), SamplerConfigError for
    edges beyond int32.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> graph = Graph.from_coo(src=[1, 2, 0, 2], dst=[0, 0, 1, 1])
        >>> batch = NeighborSampler([2], expand="new").sample(graph, [0])
        >>> block = induced_block(graph, batch)
        >>> batch.blocks[0].num_edges, block.num_edges, block.edge_ids.tolist()
        (2, 4, [0, 1, 2, 3])
    """
    nodes, workspace = batch.nodes.numpy(), thread_workspace(graph.num_nodes)
    if batch.rows is None:
        edges = ops.induced_edges(graph.indptr, graph.indices, nodes, workspace=workspace)
    else:
        rows = batch.rows.numpy()
        by_row = np.argsort(rows, kind="stable")
        stops = np.flatnonzero(np.diff(rows[by_row], append=-1)) + 1
        grouped = ops.induced_edges(
            graph.indptr, graph.indices, nodes[by_row], np.concatenate([[0], stops]), workspace=workspace
        )
        edges = _reordered(grouped, by_row)
        if until is not None:
            edges = _earlier(edges, graph, until[rows])
    indptr, indices, edge_ids = map(torch.from_numpy, edges)
    return Block(indptr, indices, len(nodes), len(nodes), edge_ids)


def _reordered(edges: ops.InducedEdges, positions: np.ndarray) -> ops.InducedEdges:
    """Returns the edges among the nodes in another order, in which node ``i`` stands at ``positions[i]``."""
    order = np.empty_like(positions)
    order[positions] = np.arange(len(positions))
    counts = np.diff(edges.indptr)[order]
    indptr = np.zeros_like(edges.indptr)
    np.cumsum(counts, out=indptr[1:])
    at = np.repeat(edges.indptr[:-1][order] - indptr[:-1], counts) + np.arange(len(edges.indices))
    return ops.InducedEdges(indptr, positions[edges.indices[at]].astype(np.int32), edges.edge_ids[at])


def _earlier(edges: ops.InducedEdges, graph: Graph, until: np.ndarray) -> ops.InducedEdges:
    """Returns the edges that are there before their destinations' times, and those of types without times."""
    assert graph.clock is not None
    assert graph.edge_time is not None
    is_earlier = graph.edge_time[edges.edge_ids] < np.repeat(until, np.diff(edges.indptr))
    if graph.types is not None:
        is_earlier |= ~graph.clock.timed[graph.edge_types_of(edges.edge_ids)]
    num_before = np.concatenate([[0], np.cumsum(is_earlier)]).astype(np.int32)
    return ops.InducedEdges(num_before[edges.indptr], edges.indices[is_earlier], edges.edge_ids[is_earlier])
