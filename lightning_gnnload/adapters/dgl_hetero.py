"""DGL's graphs with types: as GraphData, and mini-batches as its own DataLoader yields them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from lightning_gnnload.adapters.columns import (
    as_names,
    chosen,
    drawable_weights,
    edge_columns,
    labels_of_seeds,
    of_name,
    split_types,
    typed_seed_fields,
)
from lightning_gnnload.adapters.dgl_frames import (
    EDGE_FEATURE_NAME,
    FEATURE_NAME,
    LABEL_NAME,
    add_columns,
    check_blocks,
    edge_frame,
    import_dgl,
    node_columns,
)
from lightning_gnnload.adapters.dgl_relations import block_of
from lightning_gnnload.adapters.links import ANY_LINKS, LinkForm, dgl_link_graphs
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import ColumnOf
from lightning_gnnload.data.userids import UserIds


class ToTypedDGL:
    """Converts a MiniBatch of a graph with types to the triple ``(input_nodes, output_nodes, blocks)`` of DGL's
    DataLoader: dicts of ids by node type, and DGLBlocks with all types of the graph, outermost hop first.

    Of each node type, ``srcnodes[type].data`` and ``dstnodes[type].data`` have what :class:`.ToDGL` gives, with ids
    within the type as ``dgl.NID``; labels and columns of rows are in ``blocks[-1].dstnodes[type].data``. Likewise
    ``edges[type].data``, with edge ids of the type's own list as ``dgl.EID``. As with DGL, ``input_nodes`` is a tensor
    where there is one node type.

    Args:
        graph: has types; its ``edge_order`` turns edge ids into those of the user's DGL graph.
        columns: of tables that have rows of one type, see :meth:`.TypedMiniBatch.of`.
        feature_name: the name of features of nodes.
        label_name: the name of labels.
        edge_feature_name: the name of features of edges.
        links: the form of seeds that are links.

    Raises:
        MissingExtraError: DGL cannot be imported.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
        >>> import dgl
        >>> batch = NeighborSampler([-1], edge_ids=True).sample(graph, [4])
        >>> input_nodes, output_nodes, blocks = ToTypedDGL(graph)(batch)
        >>> input_nodes["user"].tolist(), output_nodes, blocks[0].num_edges("buys")
        ([0, 1], {'item': tensor([2])}, 2)
    """

    def __init__(
        self,
        graph: Graph,
        columns: ColumnOf | None = None,
        feature_name: str = FEATURE_NAME,
        label_name: str = LABEL_NAME,
        edge_feature_name: str = EDGE_FEATURE_NAME,
        links: LinkForm = ANY_LINKS,
    ) -> None:
        import_dgl("batch_format='dgl'")  # now, not in a sampling thread
        self.graph = graph
        self.columns = columns
        self.feature_name = feature_name
        self.label_name = label_name
        self.edge_feature_name = edge_feature_name
        self.links = links

    def __call__(self, batch: MiniBatch) -> tuple[Any, ...]:
        """Converts one mini-batch; of links, pair graphs come instead of ``output_nodes``, as with :class:`.ToDGL`.

        Raises:
            SamplerConfigError: the batch has features or labels, but no block to carry them.
            GraphDataError: two columns of one name.
        """
        check_blocks(batch)
        typed, dgl = TypedMiniBatch.of(batch, self.graph, self.columns), import_dgl("batch_format='dgl'")
        blocks = [self._block(dgl, typed, hop) for hop in range(len(typed.blocks))]
        if "src" in batch.seed_columns:
            return typed.nodes, *self._pairs(typed), blocks
        for kind, y in typed.y.items():
            add_columns(blocks[-1].dstnodes[kind].data, {self.label_name: y})
        of_seeds = typed_seed_fields(batch, self.graph.types) if blocks else {}  # type: ignore[arg-type]
        for kind, fields in of_seeds.items():
            add_columns(blocks[-1].dstnodes[kind].data, fields)
        if len(typed.nodes) == 1:
            return batch.nodes, batch.seeds, blocks
        return typed.nodes, typed.seeds, blocks

    def _pairs(self, typed: TypedMiniBatch) -> tuple[Any, ...]:
        seeds = {kind: nodes[: typed.num_seeds[kind]] for kind, nodes in typed.nodes.items()}
        kinds, columns = self.graph.types.edge_types, typed.seed_columns  # type: ignore[union-attr]
        return dgl_link_graphs(columns, columns.get("y"), seeds, self.label_name, self.links, kinds)

    def _block(self, dgl: ModuleType, typed: TypedMiniBatch, hop: int) -> Any:
        num_src, num_dst = typed.num_src[hop], typed.num_dst[hop]
        made = block_of(typed.blocks[hop], num_src, num_dst)
        for kind, nodes in typed.nodes.items():
            columns = node_columns(typed.tables[kind], self.feature_name, typed.x.get(kind), typed.rows.get(kind))
            columns |= {dgl.NID: nodes}
            made.srcnodes[kind].data.update({name: rows[: num_src[kind]] for name, rows in columns.items()})
            made.dstnodes[kind].data.update({name: rows[: num_dst[kind]] for name, rows in columns.items()})
        for triple, block in typed.blocks[hop].items():
            if frame := edge_frame(dgl, block, self.graph.edge_order, self.edge_feature_name):
                made.edges[triple].data.update(frame)
        return made


def read_typed_dgl(
    graph: Any,
    feature_name: str,
    label_name: str,
    *,
    tables: Iterable[str] | None,
    edge_tables: Iterable[str] | None,
    edge_feature_name: str | None,
    edge_weight_name: str | None,
    time_name: str | None,
    splits: Mapping[str, Mapping[str, Any] | SeedTable | None],
    user_ids: Mapping[str, UserIds],
) -> GraphData:
    """Converts a DGL graph with types to GraphData; see :meth:`.GraphData.from_dgl`.

    Raises:
        GraphDataError: as there.
    """
    dgl = import_dgl("Reading a DGL graph")
    ndata, edata, edge_tables = "the graph's ndata", "the graph's edata", as_names(edge_tables)
    nodes = {kind: _without(dgl.NID, graph.nodes[kind].data) for kind in graph.ntypes}
    edges = {kind: _without(dgl.EID, graph.edges[kind].data) for kind in graph.canonical_etypes}
    of_nodes, of_edges = _all_names(nodes), _all_names(edges)
    for argument, name, default, columns, where in (
        ("feature_name", feature_name, FEATURE_NAME, of_nodes, ndata),
        ("label_name", label_name, LABEL_NAME, of_nodes, ndata),
        ("edge_feature_name", edge_feature_name, None, of_edges, edata),
        ("edge_weight_name", edge_weight_name, None, of_edges, edata),
        ("time_name", time_name, None, of_nodes | of_edges, "the graph"),
    ):
        if name != default:
            chosen(columns, name, argument, where)
    names = chosen({name: None for name in of_nodes if name not in (feature_name, label_name)}, tables, "tables", ndata)
    chosen(of_edges, edge_tables, "edge_tables", edata)
    carried = {kind: _edge_columns(rows, edge_tables, edge_feature_name) for kind, rows in edges.items()}
    num_nodes = {kind: graph.num_nodes(kind) for kind in graph.ntypes}
    seeds = split_types(splits, nodes, num_nodes)
    return GraphData(
        Graph.from_hetero(
            num_nodes,
            {kind: graph.edges(etype=kind, order="eid") for kind in graph.canonical_etypes},
            edge_weight=_drawable(edges, edge_weight_name),
            edge_time=of_name(edges, time_name),
            node_time=of_name(nodes, time_name),
            keep_order=True,
        ),
        x=of_name(nodes, feature_name),
        y=labels_of_seeds(of_name(nodes, label_name), seeds, label_name),
        **seeds,  # type: ignore[arg-type]
        tables={kind: {name: column for name, column in rows.items() if name in names} for kind, rows in nodes.items()},
        edge_x={kind: x for kind, (x, _) in carried.items() if x is not None},
        edge_tables={kind: columns for kind, (_, columns) in carried.items()},
        user_ids=user_ids,
    )


def _without(name: str, frame: Any) -> dict[str, Any]:
    return {key: rows for key, rows in frame.items() if key != name}


def _all_names(columns: Mapping[Any, Mapping[str, Any]]) -> dict[str, None]:
    return {name: None for rows in columns.values() for name in rows}


def _edge_columns(rows: dict[str, Any], names: list[str] | None, features: str | None) -> tuple[Any, dict[str, Any]]:
    """Returns the features and the other columns of an edge type, of those ``names`` that it has."""
    named = None if names is None else [name for name in rows if name in names]
    wanted = features if features in rows else None
    return edge_columns(rows, named, wanted, EDGE_FEATURE_NAME, "the graph's edata")


def _drawable(edges: Mapping[Any, Mapping[str, Any]], name: str | None) -> dict[Any, Any]:
    weights = {kind: drawable_weights(f"{name!r} of {kind}", rows) for kind, rows in of_name(edges, name).items()}
    return {kind: rows for kind, rows in weights.items() if rows is not None}
