"""DGL: its graphs as GraphData, and mini-batches as its own DataLoader yields them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.base import BatchFormat, taken
from lightning_gnnload.adapters.columns import (
    named_as_elsewhere,
)
from lightning_gnnload.adapters.dgl_frames import (
    EDGE_FEATURE_NAME,
    FEATURE_NAME,
    LABEL_NAME,
    add_columns,
    check_blocks,
    edge_frame,
    frames_of,
    import_dgl,
    node_columns,
)
from lightning_gnnload.adapters.dgl_hetero import ToTypedDGL
from lightning_gnnload.adapters.dgl_read import from_dgl
from lightning_gnnload.adapters.dgl_relations import block_of
from lightning_gnnload.adapters.links import ANY_LINKS, LinkForm, dgl_link_graphs
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_parts import columns_of
from lightning_gnnload.errors import CudaUnavailableError, GraphDataError

_NAMES = ("feature_name", "label_name", "edge_feature_name")
_UNTYPED = ("_N", "_E", "_N")  # what DGL calls the edges of a graph without types


class ToDGL:
    """Converts a MiniBatch to the triple ``(input_nodes, output_nodes, blocks)`` of DGL's DataLoader.

    ``blocks`` are DGLBlocks with int64 ids, outermost hop first. Every block has features, tables of nodes under their
    names, and node ids as ``dgl.NID`` in ``srcdata`` and ``dstdata``; where every seed has nodes of its own, also
    ``"row"``, int64, the seed that a node was drawn for. Labels are in ``blocks[-1].dstdata``, and so are,
    of a :class:`.SeedTable` of nodes, ``input_id``, ``seed_time`` and further columns. ``edata``, in
    the order of ``Block.indices``, has edge features, tables of edges, edge ids as ``dgl.EID``, and, where the sampler
    gives them, types as ``dgl.ETYPE``, int64, and weights. These have two names, ``"edge_weights"`` and ``"weights"``,
    as DGL's LaborSampler and its PinSAGESampler give them one each, and come instead of tables of these names; edge
    features come instead of either. Features, labels, node ids, weights and tables are views of the mini-batch.

    Args:
        feature_name: the name of the features in ``srcdata`` and ``dstdata``.
        label_name: the name of the labels in ``dstdata``.
        edge_order: ``Graph.edge_order``, ``[E]``, which turns edge ids into those of the user's DGL
            graph; None leaves positions in ``Graph.indices``.
        edge_feature_name: the name of edge features in ``edata``.
        links: the form of seeds that are links.

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
        links: LinkForm = ANY_LINKS,
    ) -> None:
        import_dgl("batch_format='dgl'")  # now, not in a sampling thread
        self.feature_name = feature_name
        self.label_name = label_name
        self.edge_order = edge_order
        self.edge_feature_name = edge_feature_name
        self.links = links

    def __call__(self, batch: MiniBatch) -> tuple[Any, ...]:
        """Converts one mini-batch; of links, pair graphs come instead of ``output_nodes``: of positive pairs and, where
        there are negatives, of those.

        Raises:
            SamplerConfigError: the batch has features or labels, but no block to carry them.
            GraphDataError: a table that ``srcdata`` cannot carry: of one node type, or of a name that is taken; a
                column of seeds with the name of another one.
        """
        check_blocks(batch)
        dgl = import_dgl("batch_format='dgl'")
        if batch.positions:
            raise GraphDataError(
                f"batch_format='dgl' carries one row a node, but table {min(batch.positions)!r} has rows for one node "
                f"type alone. Take batch_format='blocks' or 'pyg'."
            )
        columns = node_columns(batch.tables, self.feature_name, batch.x, batch.rows)
        columns = {dgl.NID: batch.nodes} | columns
        blocks = [self._block(dgl, block, columns) for block in batch.blocks]
        if "src" in batch.seed_columns:
            pairs = dgl_link_graphs(batch.seed_columns, batch.y, batch.seeds, self.label_name, self.links)
            return batch.nodes, *pairs, blocks
        if blocks:
            labels = {} if batch.y is None else {self.label_name: batch.y}
            add_columns(blocks[-1].dstdata, labels)
            add_columns(blocks[-1].dstdata, named_as_elsewhere(batch.seed_columns))
        return batch.nodes, batch.seeds, blocks

    def _block(self, dgl: ModuleType, block: Block, columns: dict[str, torch.Tensor]) -> Any:
        made = block_of({_UNTYPED: block}, {"_N": block.num_src}, {"_N": block.num_dst})
        # A block's nodes are a prefix of the mini-batch's.
        made.srcdata.update({name: rows[: block.num_src] for name, rows in columns.items()})
        made.dstdata.update({name: rows[: block.num_dst] for name, rows in columns.items()})
        if frame := edge_frame(dgl, block, self.edge_order, self.edge_feature_name):
            made.edata.update(frame)
        return made


class DGLFormat(BatchFormat):
    """Implements ``batch_format="dgl"``: see :class:`ToDGL`."""

    library = "dgl"

    def check_device(self, device: torch.device) -> None:
        dgl = import_dgl("batch_format='dgl'")
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

    def adapter(
        self, data: GraphData, template: Any = None, links: LinkForm = ANY_LINKS, **names: str
    ) -> ToDGL | ToTypedDGL:
        if data.graph.types is not None:
            return ToTypedDGL(data.graph, columns_of(data), **names, links=links)
        return ToDGL(edge_order=data.graph.edge_order, **names, links=links)

    def read(self, graph: Any, settings: dict[str, Any]) -> tuple[GraphData, None]:
        options = taken(settings, from_dgl)
        settings |= {name: options[name] for name in _NAMES if name in options}  # by which its batches go, too
        return from_dgl(graph, **options), None

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        for block in batch[-1]:
            for frame in frames_of(block):
                frame.update({name: convert(rows) for name, rows in frame.items()})
        return batch
