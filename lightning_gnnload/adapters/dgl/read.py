"""DGL's graphs as GraphData."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from lightning_gnnload.adapters.columns import (
    UNTYPED,
    check_column_names,
    chosen,
    columns_named,
    drawable_types,
    drawable_weights,
    edge_columns,
    graph_data,
    graph_of_columns,
    node_tables,
    removed_names,
)
from lightning_gnnload.adapters.dgl.relations import EDGE_FEATURE_NAME, FEATURE_NAME, LABEL_NAME, import_dgl
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError, warn


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
            one. With types, ids by node type, or tables of links by edge type. Likewise ``val`` and ``test``.
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
    # First, as user_ids= or without= may name dgl.NID, of which there is then nothing to warn.
    graph, ids = _set_apart(graph, user_ids, without)
    _warn_of_rest(graph)
    # What DGL calls a type, by what GraphData calls it.
    node_types: dict[Any, Any] = {name: name for name in graph.ntypes}
    edge_types: dict[Any, Any] = {name: name for name in graph.canonical_etypes}
    if len(node_types) == len(edge_types) == 1:
        [node_type], [edge_type] = node_types, edge_types
        node_types, edge_types, ids = {UNTYPED: node_type}, {UNTYPED: edge_type}, {UNTYPED: ids.get(node_type)}
    nodes = {key: _columns(graph.nodes[name].data, dgl.NID) for key, name in node_types.items()}
    edges = {key: _columns(graph.edges[name].data, dgl.EID) for key, name in edge_types.items()}
    carried = node_tables(nodes, None, excluded=(feature_name, label_name))
    check_column_names(
        "the graph's ndata",
        ("feature_name", None if feature_name == FEATURE_NAME else feature_name, nodes.values()),
        ("label_name", None if label_name == LABEL_NAME else label_name, nodes.values()),
        ("tables", tables, carried.values()),
    )
    check_column_names(
        "the graph's edata",
        ("edge_tables", edge_tables, edges.values()),
        ("edge_feature_name", edge_feature_name, edges.values()),
        ("edge_weight_name", edge_weight_name, edges.values()),
    )
    check_column_names("the graph", ("time_name", time_name, [*nodes.values(), *edges.values()]))
    num_nodes = {key: graph.num_nodes(name) for key, name in node_types.items()}
    weights = _weights(edges, edge_weight_name)
    if UNTYPED in edges and time_name is None:
        topology = dgl_topology(graph, weights.get(UNTYPED), drawable_types(edges[UNTYPED].get(dgl.ETYPE)))
    else:  # lists are cut by time or by type
        topology = graph_of_columns(
            num_nodes,
            {key: graph.edges(etype=name, order="eid") for key, name in edge_types.items()},
            edge_weight=weights,
            edge_time=columns_named(edges, time_name),
            node_time=columns_named(nodes, time_name),
        )
    edge_x, carried_edges = edge_columns(edges, edge_tables, edge_feature_name, EDGE_FEATURE_NAME)
    return graph_data(
        topology,
        nodes,
        num_nodes,
        {"train": train, "val": val, "test": test},
        names=(feature_name, label_name),
        tables=node_tables(carried, tables),
        edge_x=edge_x,
        edge_tables=carried_edges,
        user_ids=ids,
    )


def _columns(frame: Any, ids: str) -> dict[str, Any]:
    """Returns the columns of a frame by name, without those that DGL calls ids of another graph."""
    return {name: rows for name, rows in frame.items() if name != ids}


def _weights(edges: dict[Any, dict[str, Any]], name: str | None) -> dict[Any, Any]:
    """Returns the weights that samplers can draw by, of those types that have some."""
    labels = {key: repr(name) if key is UNTYPED else f"{name!r} of {key}" for key in edges}
    weights = {key: drawable_weights(labels[key], rows) for key, rows in columns_named(edges, name).items()}
    return {key: rows for key, rows in weights.items() if rows is not None}


def dgl_topology(graph: Any, edge_weight: Any, edge_type: Any) -> Graph:
    """Returns a graph without types or times over DGL's own arrays, where these are int64."""
    csc = zip(("indptr", "indices", "edge ids"), graph.adj_tensors("csc"), strict=True)
    indptr, indices, edge_ids = (as_array(part, name=f"the DGL graph's {name}") for name, part in csc)
    # DGL leaves edge ids out where they count up in this very order.
    edge_order = edge_ids.astype(np.int64, copy=False) if len(edge_ids) else None
    columns: dict[str, Any] = {
        name: as_array(column if edge_order is None else column[edge_order], name=name)
        for name, column in (("edge_weight", edge_weight), ("edge_type", edge_type))
        if column is not None
    }
    return Graph(indptr.astype(np.int64, copy=False), indices, edge_order=edge_order, **columns)


def _set_apart(graph: Any, user_ids: str | None, without: Iterable[str]) -> tuple[Any, dict[Any, Any]]:
    """Returns the graph without the columns ``without`` and that of the user's ids of nodes, and these by node type;
    raises GraphDataError where there is no column of such a name."""
    names = removed_names(without, user_ids)
    if not names:
        return graph, {}
    reduced = graph.local_var()  # the caller's own keeps its columns
    by_type = {node_type: reduced.nodes[node_type].data for node_type in reduced.ntypes}
    frames = [*by_type.values(), *(reduced.edges[edge_type].data for edge_type in reduced.canonical_etypes)]
    if user_ids is not None:
        chosen(dict.fromkeys(chain.from_iterable(by_type.values())), user_ids, "user_ids", "ndata")
    chosen(dict.fromkeys(chain.from_iterable(frames)), names, "without", "the graph")
    columns = columns_named(by_type, user_ids)
    ids = {node_type: UserIds.of(rows, column=str(user_ids)) for node_type, rows in columns.items()}
    for frame in frames:
        for name in names:
            frame.pop(name, None)
    return reduced, ids


def _warn_of_rest(graph: Any) -> None:
    """Warns of what a DGL graph says that GraphData has no place for."""
    dgl = import_dgl("Reading a DGL graph")
    if dgl.NID in _names(graph):
        warn(
            f"the graph has columns {dgl.NID!r} (dgl.NID, dgl.EID), ids in the graph that it was cut from. They are "
            f"not read: in mini-batches these columns hold ids of this graph. To keep those of nodes, give user_ids="
            f"{dgl.NID!r}; to do without, without=[{dgl.NID!r}]."
        )
    if graph.batch_size > 1:
        warn(
            f"the graph is a batch of {graph.batch_size} graphs, and which node is of which is not carried. Where a "
            f"model needs it, add a column: graph.ndata['graph']."
        )


def _names(graph: Any) -> set[str]:
    frames = [graph.nodes[node_type].data for node_type in graph.ntypes]
    frames += [graph.edges[node_type].data for node_type in graph.canonical_etypes]
    return {name for frame in frames for name in frame}
