"""DGL: its graphs as GraphData, and mini-batches as its own DataLoader yields them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.base import BatchFormat
from lightning_gnnload.adapters.columns import (
    chosen,
    drawable_types,
    drawable_weights,
    edge_columns,
    original_edge_ids,
    split_ids,
)
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import CudaUnavailableError, GraphDataError, MissingExtraError, SamplerConfigError

FEATURE_NAME, LABEL_NAME = "feat", "label"
EDGE_FEATURE_NAME = "feat"  # as DGL's data sets name them; in edata, where no node's features lie
EDGE_WEIGHT_NAMES = ("edge_weights", "weights")  # as DGL's LaborSampler and its PinSAGESampler name them


class ToDGL:
    """Converts a MiniBatch to the triple ``(input_nodes, output_nodes, blocks)`` of DGL's DataLoader.

    ``blocks`` are DGLBlocks with int64 ids, outermost hop first. Every block has features, tables of nodes under their
    names, and node ids as ``dgl.NID`` in ``srcdata`` and ``dstdata``; labels are ``blocks[-1].dstdata``. ``edata``, in
    the order of ``Block.indices``, has edge features, tables of edges, edge ids as ``dgl.EID``, and, where the sampler
    gives them, types as ``dgl.ETYPE``, int64, and weights. These have two names, ``"edge_weights"`` and ``"weights"``,
    as DGL's LaborSampler and its PinSAGESampler give them one each, and come instead of tables of these names; edge
    features come instead of either. Features, labels, node ids, weights and tables are views of the mini-batch.

    Args:
        feature_name: the name of the features in ``srcdata`` and ``dstdata``.
        label_name: the name of the labels in ``dstdata``.
        edge_order: ``Graph.edge_order``, int64 ``[E]``, which turns edge ids into those of the user's DGL
            graph; None leaves positions in ``Graph.indices``.
        edge_feature_name: the name of edge features in ``edata``.

    Raises:
        MissingExtraError: DGL cannot be imported.

    Example:
        >>> import torch
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> batch = NeighborSampler([-1, -1]).sample(Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 1]), [0])
        >>> import dgl
        >>> input_nodes, output_nodes, blocks = ToDGL()(batch)
        >>> input_nodes.tolist(), output_nodes.tolist(), [block.num_edges() for block in blocks]
        ([0, 1, 2, 3], [0], [3, 2])
    """

    def __init__(
        self,
        feature_name: str = FEATURE_NAME,
        label_name: str = LABEL_NAME,
        edge_order: np.ndarray | None = None,
        edge_feature_name: str = EDGE_FEATURE_NAME,
    ) -> None:
        _import_dgl("batch_format='dgl'")  # now, not in a sampling thread
        self.feature_name = feature_name
        self.label_name = label_name
        self.edge_order = edge_order
        self.edge_feature_name = edge_feature_name

    def __call__(self, batch: MiniBatch) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        """Converts one mini-batch.

        Raises:
            SamplerConfigError: the batch has features or labels, but no block to carry them.
            GraphDataError: a table that ``srcdata`` cannot carry: of one node type, or of a name that is taken.
        """
        if not batch.blocks and (batch.x is not None or batch.y is not None or batch.tables):
            raise SamplerConfigError(
                "batch_format='dgl' carries features and labels on blocks, but the sampler drew no hops. "
                "Give the sampler a fanout for each layer of the model, or take batch_format='blocks'."
            )
        dgl = _import_dgl("batch_format='dgl'")
        if batch.positions:
            raise GraphDataError(
                f"batch_format='dgl' carries one row a node, but table {min(batch.positions)!r} has rows for one node "
                f"type alone. Take batch_format='blocks' or 'pyg'."
            )
        if batch.x is not None and self.feature_name in batch.tables:
            raise GraphDataError(
                f"table {self.feature_name!r} has the name of the features; give another feature_name."
            )
        blocks = [self._block(dgl, block, batch.nodes) for block in batch.blocks]
        columns = batch.tables if batch.x is None else {self.feature_name: batch.x, **batch.tables}
        for block in blocks:  # a block's nodes are a prefix of the mini-batch's
            for name, rows in columns.items():
                block.srcdata[name] = rows[: block.num_src_nodes()]
                block.dstdata[name] = rows[: block.num_dst_nodes()]
        if batch.y is not None:
            blocks[-1].dstdata[self.label_name] = batch.y
        return batch.nodes, batch.seeds, blocks

    def _block(self, dgl: ModuleType, block: Block, nodes: torch.Tensor) -> Any:
        # Edges are numbered as they lie, so that edata follows our order. DGL takes an empty array for the same, but
        # its CPU kernels then refuse every message made of edata. Each block owns its numbers: DGL may sort them.
        csc = (block.indptr.long(), block.indices.long(), torch.arange(block.num_edges, device=nodes.device))
        made = dgl.create_block(
            ("csc", csc), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst, device=nodes.device
        )
        made.srcdata[dgl.NID] = nodes[: block.num_src]
        made.dstdata[dgl.NID] = nodes[: block.num_dst]
        if block.edge_ids is not None:
            made.edata[dgl.EID] = original_edge_ids(block.edge_ids, self.edge_order)
        if block.edge_type is not None:
            made.edata[dgl.ETYPE] = block.edge_type.long()
        # Later columns replace earlier ones of the same name: tables yield to weights, and either to features.
        for name, rows in block.tables.items():
            made.edata[name] = rows
        if block.edge_weight is not None:
            made.edata.update(dict.fromkeys(EDGE_WEIGHT_NAMES, block.edge_weight))
        if block.x is not None:
            made.edata[self.edge_feature_name] = block.x
        return made


class DGLFormat(BatchFormat):
    """Implements ``batch_format="dgl"``: see :class:`ToDGL`."""

    library = "dgl"

    def check_device(self, device: torch.device) -> None:
        dgl = _import_dgl("batch_format='dgl'")
        # Only making a block tells whether this build of DGL knows the device.
        none = torch.zeros(0, dtype=torch.int64, device=device)
        try:
            dgl.create_block(("csc", (none.new_zeros(2), none, none)), num_src_nodes=1, num_dst_nodes=1, device=device)
        except Exception as error:  # whatever a build without CUDA raises
            reason = "".join(str(error).strip().splitlines()[-1:]) or type(error).__name__
            raise CudaUnavailableError(
                f"DGL {dgl.__version__} makes no blocks on {device} ({reason}). Install a DGL that is built for CUDA, "
                f"or take another batch_format."
            ) from error

    def adapter(self, edge_order: np.ndarray | None, template: Any = None, **names: str) -> ToDGL:
        return ToDGL(edge_order=edge_order, **names)

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        for block in batch[2]:
            for frame in (block.srcdata, block.dstdata, block.edata):
                frame.update({name: convert(rows) for name, rows in frame.items()})
        return batch


def graph_data_from_dgl(
    graph: Any,
    feature_name: str = FEATURE_NAME,
    label_name: str = LABEL_NAME,
    *,
    tables: Iterable[str] | None = None,
    edge_tables: Iterable[str] | None = None,
    edge_feature_name: str | None = None,
    edge_weight_name: str | None = None,
    train: Any = None,
    val: Any = None,
    test: Any = None,
) -> GraphData:
    """Converts a homogeneous DGL graph to GraphData; its columns and an int64 topology share its memory.

    DGL makes and keeps the graph's CSC form if it has none yet. ``Graph.edge_order`` holds DGL's edge ids. Samplers
    draw by type where ``edata`` has ``dgl.ETYPE``, as it has after ``dgl.to_homogeneous``. Columns ``dgl.NID`` and
    ``dgl.EID`` are not read: in mini-batches, as in DGL's own, they hold ids of this graph.

    Args:
        graph: a DGLGraph of N nodes and E edges on the CPU.
        feature_name: features ``[N, F]`` in ``ndata``; a graph without the default name has none.
        label_name: labels ``[N]`` or ``[N, C]`` in ``ndata``; likewise.
        tables: names of the other columns ``[N, ...]`` of ``ndata`` that mini-batches carry; None for all.
        edge_tables: likewise those ``[E, ...]`` of ``edata``.
        edge_feature_name: edge features ``[E, F]`` in ``edata``; None for ``"feat"``, if there is one.
        edge_weight_name: the column ``[E]`` of ``edata`` that samplers draw by; None for none.
        train: node ids, or a mask ``[N]``; None for ``ndata["train_mask"]``, if there is one. Likewise ``val`` and
            ``test``.

    Raises:
        GraphDataError: no DGLGraph, one with several node or edge types, one on a GPU, or one that lacks a
            column asked for.
        MissingExtraError: DGL cannot be imported.
    """
    dgl = _import_dgl("Reading a DGL graph")
    if not isinstance(graph, dgl.DGLGraph):
        raise GraphDataError(f"a DGLGraph is needed, but a {type(graph).__name__} was given.")
    if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
        raise GraphDataError(
            f"the DGL graph is heterogeneous (node types {graph.ntypes}, edge types {graph.etypes}), but one "
            f"node type and one edge type are needed. dgl.to_homogeneous(graph, ndata=[...]) merges types."
        )
    of_nodes = {name: rows for name, rows in graph.ndata.items() if name != dgl.NID}
    of_edges = {name: rows for name, rows in graph.edata.items() if name != dgl.EID}
    ndata, edata = "the graph's ndata", "the graph's edata"
    for argument, name, default in (
        ("feature_name", feature_name, FEATURE_NAME),
        ("label_name", label_name, LABEL_NAME),
    ):
        if name != default:
            chosen(of_nodes, [name], argument, ndata)
    edge_x, carried_edges = edge_columns(of_edges, edge_tables, edge_feature_name, EDGE_FEATURE_NAME, edata)
    draws_by = {"edge_weight": None, "edge_type": drawable_types(of_edges.get(dgl.ETYPE))}
    if edge_weight_name is not None:
        weight = chosen(of_edges, [edge_weight_name], "edge_weight_name", edata)[edge_weight_name]
        draws_by["edge_weight"] = drawable_weights(repr(edge_weight_name), weight)
    csc = zip(("indptr", "indices", "edge ids"), graph.adj_tensors("csc"), strict=True)
    indptr, indices, edge_ids = (as_array(part, what=f"the DGL graph's {name}") for name, part in csc)
    # DGL leaves edge ids out where they count up in this very order.
    edge_order = edge_ids.astype(np.int64, copy=False) if len(edge_ids) else None
    for name, column in draws_by.items():
        if column is not None:
            draws_by[name] = as_array(column if edge_order is None else column[edge_order], what=name)
    others = {name: rows for name, rows in of_nodes.items() if name not in (feature_name, label_name)}
    return GraphData(
        Graph(indptr.astype(np.int64, copy=False), indices, edge_order=edge_order, **draws_by),
        x=of_nodes.get(feature_name),
        y=of_nodes.get(label_name),
        **split_ids({"train": train, "val": val, "test": test}, of_nodes, graph.num_nodes()),
        tables=chosen(others, tables, "tables", ndata),
        edge_x=edge_x,
        edge_tables=carried_edges,
    )


def _import_dgl(purpose: str) -> ModuleType:
    try:
        import dgl
    except (ImportError, OSError) as error:  # OSError: DGL 2.x finds no library built for a newer torch
        if isinstance(error, ModuleNotFoundError) and error.name == "dgl":
            raise MissingExtraError("dgl", "dgl", purpose, error) from error
        try:
            found = f"dgl {importlib.metadata.version('dgl')}"
        except importlib.metadata.PackageNotFoundError:
            found = "dgl"
        broken = ImportError(f"{found} with torch {torch.__version__}: {error}; dgl 2.x needs torch <= 2.2.1")
        broken.__cause__ = error
        raise MissingExtraError("dgl", "dgl", purpose, broken) from error
    return dgl
