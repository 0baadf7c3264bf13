"""DGL: its graphs as GraphData, and mini-batches as its own DataLoader yields them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.base import BatchFormat, taken
from lightning_gnnload.adapters.columns import (
    chosen,
    drawable_types,
    drawable_weights,
    edge_columns,
    seed_fields,
    split_ids,
    times_of,
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
    set_apart,
    warn_of_rest,
)
from lightning_gnnload.adapters.dgl_hetero import ToTypedDGL, read_typed_dgl
from lightning_gnnload.adapters.dgl_relations import block_of
from lightning_gnnload.adapters.links import ANY_LINKS, LinkForm, dgl_link_graphs
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
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
            add_columns(blocks[-1].dstdata, seed_fields(batch.seed_columns))
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


def from_dgl(
    graph: Any,
    feature_name: str = FEATURE_NAME,
    label_name: str = LABEL_NAME,
    *,
    tables: Iterable[str] | None = None,
    edge_tables: Iterable[str] | None = None,
    edge_feature_name: str | None = None,
    edge_weight_name: str | None = None,
    time_name: str | None = None,
    train: Any = None,
    val: Any = None,
    test: Any = None,
    user_ids: str | None = None,
    without: Iterable[str] = (),
) -> GraphData:
    """Converts a DGL graph; its columns share its memory, and so does an int64 topology without types.

    A graph with several node or edge types becomes one with types, where all that is said here holds type by type,
    of those types that have a column of a name; ``train``, ``val`` and ``test`` are ids or masks by node type, or
    tables.

    DGL makes and keeps the graph's CSC form if it has none yet. ``Graph.edge_order`` holds DGL's edge ids. Samplers
    draw by type where ``edata`` has ``dgl.ETYPE``, as it has after ``dgl.to_homogeneous``. Columns ``dgl.NID`` and
    ``dgl.EID`` are not read, and a warning says so: in mini-batches, as in DGL's own, they hold ids of this graph.

    Args:
        graph: a DGLGraph of N nodes and E edges on the CPU.
        feature_name: features ``[N, F]`` in ``ndata``; a graph without the default name has none.
        label_name: labels ``[N]`` or ``[N, C]`` in ``ndata``; likewise.
        tables: names of the other columns ``[N, ...]`` of ``ndata`` that mini-batches carry; None for all.
        edge_tables: likewise those ``[E, ...]`` of ``edata``.
        edge_feature_name: edge features ``[E, F]`` in ``edata``; None for ``"feat"``, if there is one.
        edge_weight_name: the column ``[E]`` of ``edata`` that samplers draw by; None for none.
        time_name: the columns of ``ndata``, ``edata``, or both, that say since when a node or edge is there, for
            samplers by time; None: times are ignored.
        train: node ids, a mask ``[N]``, or a :class:`.SeedTable`; None for ``ndata["train_mask"]``, if there is
            one. Likewise ``val`` and ``test``.
        user_ids: the column of ``ndata`` that holds your own ids of the nodes; ``dgl.NID`` is one.
        without: names of columns that are left out, of nodes and of edges.

    Raises:
        GraphDataError: no DGLGraph, one on a GPU, or one that lacks a column asked for.
        MissingExtraError: DGL cannot be imported.

    Example:
        >>> import dgl, torch
        >>> from lightning_gnnload import GraphData
        >>> graph = dgl.graph(([0, 1], [1, 2]))
        >>> graph.ndata["label"] = torch.tensor([0, 1, 1])
        >>> GraphData.from_dgl(graph).y.tolist()
        [0, 1, 1]
    """
    dgl = import_dgl("Reading a DGL graph")
    if not isinstance(graph, dgl.DGLGraph):
        raise GraphDataError(f"a DGLGraph is needed, but a {type(graph).__name__} was given.")
    if graph.is_block:
        raise GraphDataError("a whole DGLGraph is needed, but a block of one was given.")
    graph, ids = set_apart(graph, user_ids, without)
    warn_of_rest(graph)
    if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
        return read_typed_dgl(
            graph,
            feature_name,
            label_name,
            tables=tables,
            edge_tables=edge_tables,
            edge_feature_name=edge_feature_name,
            edge_weight_name=edge_weight_name,
            time_name=time_name,
            splits={"train": train, "val": val, "test": test},
            user_ids=ids,
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
    chosen(of_nodes | of_edges, [] if time_name is None else [time_name], "time_name", "the graph")
    times = {"edge_time": times_of(of_edges, time_name), "node_time": times_of(of_nodes, time_name)}
    made = _topology(graph, draws_by) if time_name is None else _timed_topology(graph, draws_by, times)
    others = {name: rows for name, rows in of_nodes.items() if name not in (feature_name, label_name)}
    return GraphData(
        made,
        x=of_nodes.get(feature_name),
        y=of_nodes.get(label_name),
        **split_ids({"train": train, "val": val, "test": test}, of_nodes, graph.num_nodes()),
        tables=chosen(others, tables, "tables", ndata),
        edge_x=edge_x,
        edge_tables=carried_edges,
        user_ids=ids.get(graph.ntypes[0]),
    )


def _topology(graph: Any, draws_by: dict[str, Any]) -> Graph:
    """Returns the graph over DGL's own arrays, where these are int64."""
    csc = zip(("indptr", "indices", "edge ids"), graph.adj_tensors("csc"), strict=True)
    indptr, indices, edge_ids = (as_array(part, what=f"the DGL graph's {name}") for name, part in csc)
    # DGL leaves edge ids out where they count up in this very order.
    edge_order = edge_ids.astype(np.int64, copy=False) if len(edge_ids) else None
    for name, column in draws_by.items():
        if column is not None:
            draws_by[name] = as_array(column if edge_order is None else column[edge_order], what=name)
    return Graph(indptr.astype(np.int64, copy=False), indices, edge_order=edge_order, **draws_by)


def _timed_topology(graph: Any, draws_by: dict[str, Any], times: dict[str, Any]) -> Graph:
    """Returns the graph with each list in the order of its times."""
    src, dst = graph.edges(order="eid")
    weight = draws_by["edge_weight"]  # lists are cut by time or by type
    return Graph.from_coo(src, dst, graph.num_nodes(), edge_weight=weight, keep_order=True, **times)
