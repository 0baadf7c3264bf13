"""PyG's Data and HeteroData as GraphData."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lightning_gnnload.adapters.columns import (
    UNTYPED,
    build_graph,
    check_names,
    drawable_types,
    drawable_weights,
    edge_columns,
    graph_data,
    node_tables,
    of_name,
)
from lightning_gnnload.adapters.pyg_stores import (
    by_row,
    check_graph,
    check_rows,
    count_nodes,
    edge_list,
    set_apart,
    stores_of,
    type_of,
    warn_of_rest,
)
from lightning_gnnload.data.graphdata import GraphData


def from_pyg(
    data: Any,
    *,
    tables: Iterable[str] | None = None,
    edge_tables: Iterable[str] | None = None,
    edge_feature_name: str | None = None,
    time_attr: str | None = None,
    train: Any = None,
    val: Any = None,
    test: Any = None,
    user_ids: str | None = None,
    without: Iterable[str] = (),
) -> GraphData:
    """Converts a PyG ``Data``, whose features, labels and attributes share its memory; and a ``HeteroData``, where
    all that is said here holds type by type, of those types that have an attribute of a name.

    PyG's own ``is_node_attr`` and ``is_edge_attr`` say which attributes have a row for each node or edge, so that
    mini-batches carry what those of its NeighborLoader do. Samplers draw by ``edge_weight`` and ``edge_type``,
    where they are there. ``Graph.edge_order`` holds each edge's column in ``edge_index``. What belongs to the graph
    as a whole is left out with a warning; :meth:`.GraphDataModule.from_pyg` repeats it in every mini-batch.

    Args:
        data: N nodes and E edges: ``edge_index`` or, without it, ``adj_t``, whose values then are ``edge_weight``;
            ``x`` and ``y`` where they are there.
        tables: names of the other attributes of nodes, ``[N, ...]``, that mini-batches carry; None for all.
        edge_tables: likewise of edges, ``[E, ...]``.
        edge_feature_name: the attribute of edges ``[E, F]`` that mini-batches carry as ``edge_attr``, and blocks as
            ``x``; None for ``edge_attr``, if there is one.
        time_attr: the attribute of nodes, of edges, or of both, that says since when they are there, for samplers
            by time; mini-batches carry it, too. None: times are ignored.
        train: node ids, a mask ``[N]``, or a :class:`.SeedTable`; None for ``train_mask``, if there is one; in a
            HeteroData by node type. Likewise ``val`` and ``test``.
        user_ids: the attribute that holds your own ids of the nodes, whole numbers or a list of texts.
        without: names of attributes that are left out, of whatever they are.

    Raises:
        GraphDataError: no Data, one without edges, or without an attribute asked for; an attribute that is no table
            of numbers with one row a node or edge; attributes of edges beside ``adj_t``.
        MissingExtraError: PyG cannot be imported.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from lightning_gnnload import GraphData
        >>> data = Data(x=torch.rand(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]), year=torch.arange(3))
        >>> GraphData.from_pyg(data).tables.keys()
        dict_keys(['year'])
    """
    check_graph(data)
    splits = {"train": train, "val": val, "test": test}
    data, ids = set_apart(data, user_ids, without)
    warn_of_rest(data, splits)
    node_stores, edge_stores = stores_of(data)
    nodes = {kind: by_row(store, store.is_node_attr) for kind, store in node_stores.items()}
    edges = {kind: by_row(store, store.is_edge_attr) for kind, store in edge_stores.items()}
    check_names(
        "the PyG graph",
        ("tables", tables, nodes.values()),
        ("edge_tables", edge_tables, edges.values()),
        ("edge_feature_name", edge_feature_name, edges.values()),
        ("time_attr", time_attr, [*nodes.values(), *edges.values()]),
    )
    num_nodes = {kind: count_nodes(store) for kind, store in node_stores.items()}
    carried = node_tables(nodes, tables, others=("x", "y"))
    edge_x, carried_edges = edge_columns(edges, edge_tables, edge_feature_name, "edge_attr")
    for stores, columns in ((node_stores, carried), (edge_stores, carried_edges)):
        for kind, store in stores.items():
            check_rows(data, store, columns[kind])
    ends, weights, types = {}, {}, None
    for kind, store in edge_stores.items():
        rows = edges[kind], edge_x.get(kind), carried_edges[kind]
        src, dst, weight = edge_list(store, *rows, adds_weight=edge_tables is None)
        ends[kind], weights[kind] = (src, dst), drawable_weights(f"edge_weight{type_of(store)}", weight)
        if kind is UNTYPED and time_attr is None and "edge_index" in store:  # lists are cut by time or by type
            types = drawable_types(edges[kind].get("edge_type"))
    graph = build_graph(
        num_nodes,
        ends,
        edge_type=types,
        edge_weight={kind: weight for kind, weight in weights.items() if weight is not None},
        edge_time=of_name(edges, time_attr),
        node_time=of_name(nodes, time_attr),
    )
    return graph_data(
        graph,
        nodes,
        num_nodes,
        splits,
        names=("x", "y"),
        tables=carried,
        edge_x=edge_x,
        edge_tables=carried_edges,
        user_ids=ids,
    )
