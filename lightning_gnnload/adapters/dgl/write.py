"""DGL: mini-batches as its own DataLoader yields them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType
from typing import Any

import torch

from lightning_gnnload.adapters.base import BatchFormat, cut_by_type, pop_arguments
from lightning_gnnload.adapters.columns import foreign_names, original_edge_ids, seed_fields, without_none
from lightning_gnnload.adapters.dgl.read import from_dgl
from lightning_gnnload.adapters.dgl.relations import (
    EDGE_FEATURE_NAME,
    FEATURE_NAME,
    LABEL_NAME,
    block_of,
    dgl_graph_of,
    import_dgl,
)
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedform import COLUMNS, LinkForm
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import ColumnOf, columns_of
from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.errors import CudaUnavailableError, GraphDataError, SamplerConfigError

# What models of DGL's users call features, blocks and a graph.
ROW_NAMES = ("x", "h", "feat", "feats", "features", "inputs", "in_feat", "input_features", "node_feats")
BLOCK_NAMES, _GRAPHS = ("blocks", "mfgs"), ("g", "graph", "block")
_NAMES = ("feature_name", "label_name", "edge_feature_name")
EDGE_WEIGHT_NAMES = ("edge_weights", "weights")  # as DGL's LaborSampler and its PinSAGESampler name them
_NODE, _EDGE = "_N", ("_N", "_E", "_N")  # what DGL calls the types of a graph without


class ToDGL:
    """Converts a MiniBatch to the triple ``(input_nodes, output_nodes, blocks)`` of DGL's DataLoader.

    ``blocks`` are DGLBlocks with int64 ids, outermost hop first. Every block has features, tables of nodes under their
    names, and node ids as ``dgl.NID`` in ``srcdata`` and ``dstdata``; where every seed has nodes of its own, also
    ``"row"``, int64, the seed that a node was drawn for. Labels are in ``blocks[-1].dstdata``, and so are, of a
    :class:`.SeedTable` of nodes, ``input_id``, ``seed_time`` and further columns. ``edata``, in the order of
    ``Block.indices``, has edge features, tables of edges, edge ids as ``dgl.EID``, and, where the sampler gives them,
    types as ``dgl.ETYPE``, int64, and weights. These have two names, ``"edge_weights"`` and ``"weights"``, as DGL's
    LaborSampler and its PinSAGESampler give them one each, and come instead of tables of these names; edge features
    come instead of either. Features, labels, node ids, weights and tables are views of the mini-batch.

    Of a graph with types, nodes are dicts of ids by node type, and blocks have all types of the graph, in whose
    ``srcnodes[type].data``, ``dstnodes[type].data`` and ``edges[type].data`` all this lies; ids count within the type.
    As with DGL, ``input_nodes`` is a tensor where there is one node type.

    Without ``graph`` there are no types, and edge ids are positions in ``Graph.indices``, not the user's. ``columns``
    says which tables have rows of one type.

    Example:
        >>> import dgl
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> batch = NeighborSampler([-1, -1]).sample(Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 1]), [0])
        >>> input_nodes, output_nodes, blocks = ToDGL()(batch)
        >>> input_nodes.tolist(), output_nodes.tolist(), [block.num_edges() for block in blocks]
        ([0, 1, 2, 3], [0], [3, 2])
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
        >>> batch = NeighborSampler([-1], edge_ids=True).sample(graph, [4])
        >>> input_nodes, output_nodes, blocks = ToDGL(graph=graph)(batch)
        >>> input_nodes["user"].tolist(), output_nodes, blocks[0].num_edges("buys")
        ([0, 1], {'item': tensor([2])}, 2)
    """

    def __init__(
        self,
        feature_name: str = FEATURE_NAME,
        label_name: str = LABEL_NAME,
        graph: Graph | None = None,
        columns: ColumnOf | None = None,
        edge_feature_name: str = EDGE_FEATURE_NAME,
    ) -> None:
        import_dgl("batch_format='dgl'")  # now, not in a sampling thread
        self.feature_name = feature_name
        self.label_name = label_name
        self.graph = graph
        self.columns = columns
        self.edge_feature_name = edge_feature_name

    def __call__(self, batch: MiniBatch) -> tuple[Any, ...]:
        """Converts one mini-batch; of links, pair graphs come instead of ``output_nodes``: of positive pairs and, where
        there are negatives, of those.

        Raises:
            SamplerConfigError: the batch has features or labels, but no block to carry them.
            GraphDataError: a table that ``srcdata`` cannot carry, of some nodes alone or of a name with another use; a
                column of seeds with the name of another one.
        """
        dgl, types = import_dgl("batch_format='dgl'"), None if self.graph is None else self.graph.types
        if not batch.blocks and (batch.x is not None or batch.y is not None or batch.tables):
            raise SamplerConfigError(
                "batch_format='dgl' carries features and labels on blocks, but the sampler drew no hops. "
                "Give the sampler a fanout for each layer of the model, or take batch_format='blocks'."
            )
        if types is None and batch.positions:
            raise GraphDataError(
                f"batch_format='dgl' carries one row a node, but table {min(batch.positions)!r} has rows for one node "
                f"type alone. Take batch_format='blocks' or 'pyg'."
            )
        typed = cut_by_type(batch, self.graph, self.columns, _NODE, _EDGE)
        columns = {name: {**self._columns(typed, name), dgl.NID: nodes} for name, nodes in typed.nodes.items()}
        blocks = [self._block(dgl, typed, hop, columns) for hop in range(len(typed.blocks))]
        return _SEED_WRITERS[batch.seed_form.name](self, batch, typed, types, blocks)

    def write_nodes(
        self, batch: MiniBatch, typed: TypedMiniBatch, types: GraphTypes | None, blocks: list[Any]
    ) -> tuple[Any, ...]:
        """Adds labels and columns of seeds that are nodes to the last block."""
        if blocks:
            for name, fields in seed_fields(batch, types, _NODE).items():
                labels = {self.label_name: typed.y[name]} if name in typed.y else {}
                _add_columns(blocks[-1].dstnodes[name].data, labels, fields)
        if len(typed.nodes) == 1:
            return batch.nodes, batch.seeds, blocks
        return typed.nodes, typed.seeds, blocks

    def write_links(
        self, batch: MiniBatch, typed: TypedMiniBatch, types: GraphTypes | None, blocks: list[Any]
    ) -> tuple[Any, ...]:
        """Makes the pair graphs of seeds that are links."""
        seeds = {name: nodes[: typed.num_seeds[name]] for name, nodes in typed.nodes.items()}
        positive, negative = dict[EdgeType, Pairs](), dict[EdgeType, Pairs]()
        for link, columns in batch.seed_form.by_type(typed.seed_columns):
            edge_type = link.edge_type or _EDGE
            positive[edge_type], false = link_pairs(columns, link, self.label_name)
            if false is not None:
                negative[edge_type] = false
        edge_types = (_EDGE,) if types is None else types.edge_types
        graphs = [pair_graph(pairs, seeds, edge_types) for pairs in (positive, negative) if pairs]
        return batch.nodes if types is None else typed.nodes, *graphs, blocks

    def _columns(self, typed: TypedMiniBatch, node_type: str) -> dict[str, torch.Tensor]:
        """Returns the columns of nodes: tables, features, and as ``"row"``, int64, the rows that nodes belong to.
        GraphDataError: a table has the name of another column."""
        columns, tables = {}, typed.tables[node_type]
        if node_type in typed.x:
            columns[self.feature_name] = typed.x[node_type]
        if node_type in typed.rows:
            columns["row"] = typed.rows[node_type].long()
        if twice := columns.keys() & tables.keys():
            column = "the features; give another feature_name"
            if min(twice) == "row":
                column = "the rows that nodes belong to; name the table anew"
            raise GraphDataError(f"table {min(twice)!r} has the name of {column}.")
        return columns | tables

    def _block(self, dgl: ModuleType, typed: TypedMiniBatch, hop: int, columns: dict[Any, dict[str, Any]]) -> Any:
        blocks, num_src, num_dst = typed.blocks[hop], typed.num_src[hop], typed.num_dst[hop]
        dgl_block = block_of(blocks, num_src, num_dst)
        for node_type, rows in columns.items():
            sources, targets = dgl_block.srcnodes[node_type].data, dgl_block.dstnodes[node_type].data
            for name, column in rows.items():  # a block's nodes are a prefix of the mini-batch's
                sources[name], targets[name] = column[: num_src[node_type]], column[: num_dst[node_type]]
        for edge_type, block in blocks.items():
            if frame := self._edge_columns(dgl, block):
                dgl_block.edges[edge_type].data.update(frame)
        return dgl_block

    def _edge_columns(self, dgl: ModuleType, block: Block) -> dict[str, torch.Tensor]:
        frame = {}
        if block.edge_ids is not None:
            frame[dgl.EID] = original_edge_ids(block.edge_ids, self.graph)
        if block.edge_type is not None:
            frame[dgl.ETYPE] = block.edge_type.long()
        # Later columns replace earlier ones of the same name: tables yield to weights, and either to features.
        frame |= block.tables
        if block.edge_weight is not None:
            frame |= dict.fromkeys(EDGE_WEIGHT_NAMES, block.edge_weight)
        if block.x is not None:
            frame[self.edge_feature_name] = block.x
        return frame


def _add_columns(frame: Any, *columns: dict[str, torch.Tensor]) -> None:
    """Adds columns of seeds to the frame of their nodes; raises GraphDataError for a name that it has already."""
    for new in columns:
        if twice := new.keys() & set(frame):
            raise GraphDataError(
                f"{min(twice)!r} names a column of nodes and one of seeds (labels are of seeds), which a DGLBlock "
                "cannot tell apart. Name one of them anew."
            )
        frame.update(new)


Pairs = tuple[torch.Tensor, torch.Tensor, Mapping[str, torch.Tensor]]
"""The sources and destinations of links, int64 ``[P]`` each, positions among the seeds of their type; and columns."""


def link_pairs(columns: Mapping[str, torch.Tensor], link: LinkForm, label_name: str) -> tuple[Pairs, Pairs | None]:
    """Returns the rows of links of one type, with their columns, labels and times as ``label_name`` and
    ``"seed_time"``; and the negative pairs, row by row, without those that are not there; None where there can be none.

    Args:
        columns: ``TypedMiniBatch.seed_columns``, of links.
        link: what they are.
        label_name: of labels, ``columns["y"]``.
    """
    src, dst, num_rows = columns["src"], columns["dst"], len(columns["input_id"])
    carried = {name: rows for name, rows in columns.items() if name not in COLUMNS["links"] and name != "y"}
    carried = foreign_names(carried) | without_none({label_name: columns.get("y")})
    if "negatives" in columns:
        negatives = columns["negatives"].where(columns["negative_mask"], -1)
        num_dst = negatives.shape[1] if link.num_dst is None else link.num_dst
        false_src, false_dst = negative_pairs(src, dst, negatives, num_dst)
        is_there = (false_src >= 0) & (false_dst >= 0)
        return (src, dst, carried), (false_src[is_there], false_dst[is_there], {})
    negative: Pairs | None = None if "label" not in columns else (src[num_rows:], dst[num_rows:], {})
    return (src[:num_rows], dst[:num_rows], carried), negative


def pair_graph(
    pairs: Mapping[EdgeType, Pairs], nodes: Mapping[str, torch.Tensor], edge_types: Iterable[EdgeType]
) -> Any:
    """Returns a pair graph of DGL's ``as_edge_prediction_sampler``, whose nodes are the seeds of the mini-batch in its
    order, with their ids as ``ndata[dgl.NID]``. Its edges are the pairs in their order, of all types of the graph.

    Args:
        pairs: by edge type; none of other types.
        nodes: ids of the seeds by node type, int64 ``[S_t]``.
        edge_types: of the graph.

    Raises:
        MissingExtraError: DGL cannot be imported.
    """
    dgl = import_dgl("batch_format='dgl'")
    none = next(iter(pairs.values()))[0][:0]
    graph = dgl_graph_of(
        {edge_type: pairs[edge_type][:2] if edge_type in pairs else (none, none) for edge_type in edge_types},
        {node_type: len(ids) for node_type, ids in nodes.items()},
    )
    for node_type, ids in nodes.items():
        graph.nodes[node_type].data[dgl.NID] = ids
    for edge_type, (_, _, columns) in pairs.items():
        graph.edges[edge_type].data.update(columns)
    return graph


def negative_pairs(
    src: torch.Tensor, dst: torch.Tensor, negatives: torch.Tensor, num_dst: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sources and destinations of all negative pairs, int64 ``[P, num]`` each; -1 in one of both for none.

    Example:
        >>> src, dst = negative_pairs(torch.tensor([5]), torch.tensor([6]), torch.tensor([[7, 8]]), num_dst=1)
        >>> src.tolist(), dst.tolist()
        ([[5, 8]], [[7, 6]])
    """
    is_dst = torch.arange(negatives.shape[1], device=negatives.device) < num_dst
    return torch.where(is_dst, src[:, None], negatives), torch.where(is_dst, negatives, dst[:, None])


_SEED_WRITERS = {"nodes": ToDGL.write_nodes, "links": ToDGL.write_links}
"""What converts each kind of seed."""


class DGLFormat(BatchFormat):
    """Implements ``batch_format="dgl"``: see :class:`ToDGL`."""

    library = "dgl"
    words = frozenset(("srcdata", "dstdata", "ndata", "edata"))

    def check_device(self, device: torch.device) -> None:
        dgl = import_dgl("batch_format='dgl'")
        # Only making a block tells whether this build of DGL knows the device.
        try:
            none = torch.zeros(0, dtype=torch.int64, device=device)
            dgl.create_block(("csc", (none.new_zeros(2), none, none)), num_src_nodes=1, num_dst_nodes=1, device=device)
        except Exception as error:  # whatever a build of either without CUDA raises
            reason = "".join(str(error).strip().splitlines()[-1:]) or type(error).__name__
            raise CudaUnavailableError(
                f"DGL {dgl.__version__} makes no blocks on {device} ({reason}). Install a DGL that is built for CUDA, "
                f"or take another batch_format."
            ) from error

    def adapter(self, data: GraphData, template: Any = None, **names: str) -> ToDGL:
        return ToDGL(graph=data.graph, columns=columns_of(data), **names)

    def read(self, graph: Any, settings: dict[str, Any]) -> tuple[GraphData, None]:
        options = pop_arguments(settings, from_dgl)
        settings |= {name: options[name] for name in _NAMES if name in options}  # by which its batches go, too
        return from_dgl(graph, **options), None

    def is_one_graph(self, arguments: Collection[str]) -> bool:
        return any(name in _GRAPHS for name in arguments)

    def argument(self, batch: Any, name: str, feature_name: str) -> Any:
        blocks = batch[-1]
        if name in _GRAPHS:
            return _one_graph(blocks)
        frame = blocks[0].srcdata
        return (
            blocks
            if name in BLOCK_NAMES
            else frame.get(feature_name if name in ROW_NAMES and name not in frame else name)
        )

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        for block in batch[-1]:
            frames = [block.srcnodes[node_type].data for node_type in block.srctypes]
            frames += [block.dstnodes[node_type].data for node_type in block.dsttypes]
            frames += [block.edges[node_type].data for node_type in block.canonical_etypes]
            for frame in frames:
                frame.update({name: convert(rows) for name, rows in frame.items()})
        return batch


def _one_graph(blocks: Any) -> Any:
    """Returns the outermost block where all layers have it, and else a graph of all nodes, whose outermost ones have a
    loop: DGL's convolutions refuse nodes without in-neighbours."""
    outermost = blocks[0]
    num_src, num_dst = outermost.num_src_nodes(), outermost.num_dst_nodes()
    if num_dst == blocks[-1].num_dst_nodes():
        return outermost
    src, dst = outermost.edges(order="eid")
    loops = torch.arange(num_dst, num_src, device=src.device)
    return import_dgl("A model of a DGLGraph").graph(
        (torch.cat([src, loops]), torch.cat([dst, loops])), num_nodes=num_src
    )
