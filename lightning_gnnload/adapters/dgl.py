"""DGL: its graphs as GraphData, and mini-batches as its own DataLoader yields them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.ids import ids_of_mask, original_edge_ids
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.errors import GraphDataError, MissingExtraError, SamplerConfigError

FEATURE_NAME, LABEL_NAME = "feat", "label"
EDGE_FEATURE_NAME = "feat"  # as DGL's data sets name them; in edata, where no node's features lie
EDGE_WEIGHT_NAMES = ("edge_weights", "weights")  # as DGL's LaborSampler and its PinSAGESampler name them


class ToDGL:
    """Makes of a MiniBatch the triple ``(input_nodes, output_nodes, blocks)`` that DGL's DataLoader yields.

    ``blocks`` are DGLBlocks with int64 ids, outermost hop first. Features lie in ``blocks[0].srcdata``,
    labels in ``blocks[-1].dstdata``. Every block has node ids in ``srcdata[dgl.NID]`` and
    ``dstdata[dgl.NID]``; ``edata``, in the order of ``Block.indices``, has edge ids as ``dgl.EID``, weights as
    ``"edge_weights"`` and ``"weights"``, and types as ``dgl.ETYPE``, int64, where the sampler gives them. The weights
    have two names, as DGL's LaborSampler and its PinSAGESampler give them one each; edge features of either name take
    its place. Named tables lie in ``blocks[0].srcdata`` under their names, edge features in every block's ``edata``.
    Features, labels, node ids, weights and tables are views of the mini-batch.

    Args:
        feature_name: the name of the features in ``srcdata``.
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
        """
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
        blocks = [self._block(dgl, block, batch.nodes) for block in batch.blocks]
        if batch.x is not None:
            blocks[0].srcdata[self.feature_name] = batch.x
        for name, table in batch.tables.items():
            if name in batch.positions:
                raise GraphDataError(
                    f"batch_format='dgl' carries one row a node, but table {name!r} has rows for one node type alone. "
                    f"Take batch_format='blocks' or 'pyg'."
                )
            if name in blocks[0].srcdata:
                raise GraphDataError(f"table {name!r} has the name of the features; give another feature_name.")
            blocks[0].srcdata[name] = table
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
        if block.edge_weight is not None:
            made.edata.update(dict.fromkeys(EDGE_WEIGHT_NAMES, block.edge_weight))
        if block.edge_type is not None:
            made.edata[dgl.ETYPE] = block.edge_type.long()
        if block.x is not None:
            made.edata[self.edge_feature_name] = block.x
        return made


def why_no_blocks(device: torch.device) -> str | None:
    """Why the installed DGL makes no blocks on ``device``; None where it does."""
    dgl = _import_dgl("batch_format='dgl'")
    none = torch.zeros(0, dtype=torch.int64, device=device)
    try:
        dgl.create_block(("csc", (none.new_zeros(2), none, none)), num_src_nodes=1, num_dst_nodes=1, device=device)
    except Exception as error:  # whatever a build without CUDA raises
        reason = str(error).strip().splitlines()[-1:]
        return f"DGL {dgl.__version__} makes no blocks on {device} ({''.join(reason) or type(error).__name__})"
    return None


def graph_data_from_dgl(
    graph: Any,
    feature_name: str = FEATURE_NAME,
    label_name: str = LABEL_NAME,
    *,
    tables: Iterable[str] = (),
    edge_feature_name: str | None = None,
) -> GraphData:
    """A homogeneous DGL graph as GraphData; features, labels and an int64 topology share its memory.

    DGL makes and keeps the graph's CSC form if it has none yet. ``Graph.edge_order`` holds DGL's edge ids.

    Args:
        graph: a DGLGraph of N nodes on the CPU; splits are ``ndata["train_mask"]``, ``"val_mask"`` and
            ``"test_mask"``, where they are there.
        feature_name: features ``[N, F]`` in ``ndata``; a graph without the default name has none.
        label_name: labels ``[N]`` or ``[N, C]`` in ``ndata``; likewise.
        tables: names of further columns ``[N, F]`` of ``ndata`` that mini-batches need.
        edge_feature_name: edge features ``[E, F]`` in ``edata``; None for none, as not every model pays for them.

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
    csc = zip(("indptr", "indices", "edge ids"), graph.adj_tensors("csc"), strict=True)
    indptr, indices, edge_ids = (as_array(part, what=f"the DGL graph's {name}") for name, part in csc)
    # DGL leaves edge ids out where they count up in this very order.
    edge_order = edge_ids.astype(np.int64, copy=False) if len(edge_ids) else None
    masks = {name: graph.ndata.get(f"{name}_mask") for name in SPLITS}
    train, val, test = (
        ids_of_mask(mask, what=f"{name}_mask", num_nodes=graph.num_nodes()) for name, mask in masks.items()
    )
    return GraphData(
        Graph(indptr.astype(np.int64, copy=False), indices, edge_order=edge_order),
        x=_column(graph, "ndata", feature_name, "feature_name", default=FEATURE_NAME),
        y=_column(graph, "ndata", label_name, "label_name", default=LABEL_NAME),
        train=train,
        val=val,
        test=test,
        tables={name: _column(graph, "ndata", name, "tables") for name in tables},
        edge_x=None if edge_feature_name is None else _column(graph, "edata", edge_feature_name, "edge_feature_name"),
    )


def _column(graph: Any, frame: str, name: str, argument: str, default: str | None = None) -> Any:
    """A column, which the user has named; None where the default name names none."""
    columns = getattr(graph, frame)
    if name not in columns and name != default:
        raise GraphDataError(f"{argument}={name!r}, but the graph's {frame} holds only {sorted(columns)}.")
    return columns.get(name)


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
