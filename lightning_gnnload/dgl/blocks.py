"""What was drawn, as DGL's blocks and subgraphs over the columns of the user's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dgl
import torch

from lightning_gnnload.adapters.base import cut_by_type
from lightning_gnnload.adapters.columns import original_edge_ids
from lightning_gnnload.adapters.dgl.relations import block_of, dgl_graph_of
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.features import gather
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import SamplerConfigError

Excluded = Mapping[Any, torch.Tensor]
"""Edges that are left out of what was drawn, int64 ids by canonical edge type."""


def blocks_of(batch: MiniBatch, g: Any, graph: Graph, excluded: Excluded) -> tuple[Any, list[Any]]:
    """Returns the input nodes, a tensor or a dict by type, and the blocks, outermost hop first.

    Ids have the user's integer type, and columns of blocks are those of ``g``: DGL gathers one when it is looked at.

    Args:
        batch: of ``graph``, with ``edge_ids``.
        g: the user's DGLGraph.
        graph: as it was drawn from.
        excluded: as :data:`Excluded` has it.
    """
    typed = _cut(batch, g, graph)
    nodes = {name: ids.to(g.idtype) for name, ids in typed.nodes.items()}
    blocks = []
    for hop, by_type in enumerate(typed.blocks):
        num_src, num_dst = typed.num_src[hop], typed.num_dst[hop]
        ids = {name: original_edge_ids(block.edge_ids, graph) for name, block in by_type.items()}  # type: ignore[arg-type]
        for name in by_type.keys() & excluded.keys():
            by_type[name], ids[name] = _without(by_type[name], ids[name], excluded[name])
        block = block_of(by_type, num_src, num_dst)
        if g.idtype is torch.int32:
            block = block.int()
        block._node_frames = [
            _frame(g._node_frames[g.get_ntype_id(name)], nodes[name][: count[name]], dgl.NID)
            for names, count in ((block.srctypes, num_src), (block.dsttypes, num_dst))
            for name in names
        ]
        block._edge_frames = [
            _frame(g._edge_frames[g.get_etype_id(name)], ids[name].to(g.idtype), dgl.EID)
            for name in block.canonical_etypes
        ]
        for name, part in by_type.items():
            if part.edge_weight is not None:
                block.edges[name].data["edge_weights"] = part.edge_weight
        blocks.append(block)
    return _as_dgl(nodes), blocks


def subgraph_of(batch: MiniBatch, g: Any, graph: Graph, excluded: Excluded) -> tuple[Any, Any]:
    """Returns the input nodes, and the subgraph of all edges between them but for those excluded."""
    nodes = {name: ids.to(g.idtype) for name, ids in _cut(batch, g, graph).nodes.items()}
    subgraph = g.subgraph(nodes, relabel_nodes=True)
    if excluded:
        remaining = {
            name: (~torch.isin(subgraph.edges[name].data[dgl.EID].long(), excluded[name])).nonzero().view(-1)
            if name in excluded
            else subgraph.edges(etype=name, form="eid")
            for name in g.canonical_etypes
        }
        ids = {name: subgraph.edges[name].data[dgl.EID][rows.long()] for name, rows in remaining.items()}
        subgraph = subgraph.edge_subgraph(
            {name: rows.to(g.idtype) for name, rows in remaining.items()}, relabel_nodes=False
        )
        for name, rows in ids.items():
            subgraph.edges[name].data[dgl.EID] = rows
    return _as_dgl(nodes), subgraph


def pair_graph_of(g: Any, edges: Mapping[Any, Any], seeds: Mapping[str, torch.Tensor], ids: Any) -> Any:
    """Returns a graph of pairs of seeds, with all types of ``g``.

    Args:
        edges: sources and destinations by canonical edge type, positions among the seeds of their types.
        seeds: their ids by node type.
        ids: of pairs that are edges, by type, which then have the columns of ``g``; None for those that are none.
    """
    none = torch.empty(0, dtype=torch.int64)
    counts = {name: len(seeds.get(name, none)) for name in g.ntypes}
    graph = dgl_graph_of({name: edges.get(name, (none, none)) for name in g.canonical_etypes}, counts)
    if g.idtype is torch.int32:
        graph = graph.int()
    for number, name in enumerate(graph.ntypes):
        frame, rows = g._node_frames[g.get_ntype_id(name)], seeds.get(name, none).to(g.idtype)
        graph._node_frames[number] = _frame(frame, rows, dgl.NID) if ids is not None else graph._node_frames[number]
        graph.nodes[name].data[dgl.NID] = rows
    if ids is not None:
        graph._edge_frames = [
            _frame(g._edge_frames[g.get_etype_id(name)], ids.get(name, none).to(g.idtype), dgl.EID)
            for name in graph.canonical_etypes
        ]
    return graph


def fetch_columns(
    names: Any, views: Callable[[Any], Any], tables: Callable[[Any], Any], types: list[Any], ids: str
) -> None:
    """Gathers the columns of these names for the rows of views: names of the only type, or dicts of them by type.

    ``views(type)`` is a frame of a mini-batch, whose column ``ids`` says which rows of ``tables(type)`` it has.
    """
    by_type = names if isinstance(names, Mapping) else {types[0]: names or ()}
    for type_name, columns in by_type.items():
        frame, table = views(type_name).data, tables(type_name).data
        for name in columns:
            if name not in table:
                raise SamplerConfigError(
                    f"{name!r} is to be gathered ahead, but {type_name!r} has no such column. Those are "
                    f"{', '.join(map(repr, table)) or 'none'}; prefetch_* take lists of names, or dicts of these by "
                    "type."
                )
            frame[name] = _rows(table[name], frame[ids].long())


def _rows(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    if table.device.type != "cpu" or not table.is_contiguous() or table.requires_grad or table.layout != torch.strided:
        return table[ids]
    out = torch.empty((len(ids), *table.shape[1:]), dtype=table.dtype)
    gather(table, ids, out)
    return out


def _cut(batch: MiniBatch, g: Any, graph: Graph) -> TypedMiniBatch:
    return cut_by_type(batch, graph, None, g.ntypes[0], g.canonical_etypes[0])


def _as_dgl(nodes: dict[str, torch.Tensor]) -> Any:
    return nodes if len(nodes) > 1 else next(iter(nodes.values()))


def _frame(frame: Any, rows: torch.Tensor, ids: str) -> Any:
    """Returns the rows of a frame, which DGL gathers column by column when one is looked at; and their ids."""
    part = frame.subframe(rows)
    part[ids] = rows
    return part


def _without(block: Block, ids: torch.Tensor, excluded: torch.Tensor) -> tuple[Block, torch.Tensor]:
    """Returns a block without edges that are excluded, and the ids of the others."""
    remaining = ~torch.isin(ids, excluded)
    counts = torch.zeros(block.num_edges + 1, dtype=torch.int32)
    torch.cumsum(remaining, 0, dtype=torch.int32, out=counts[1:])
    weight = None if block.edge_weight is None else block.edge_weight[remaining]
    rest = Block(
        counts[block.indptr.long()], block.indices[remaining], block.num_dst, block.num_src, edge_weight=weight
    )
    return rest, ids[remaining]
