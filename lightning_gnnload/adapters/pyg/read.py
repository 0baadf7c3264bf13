"""PyG's Data and HeteroData as GraphData."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

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
from lightning_gnnload.adapters.pyg.stores import (
    attributes,
    count_nodes,
    edges_of_store,
    import_pyg,
    is_by_row,
    numbers_of_nodes,
    stores_of,
    type_of,
)
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError, warn

# What has a row for each node or edge in all of PyG: another length is a mistake, not an attribute of the graph.
_BY_ROW = ("x", "edge_attr", "edge_weight", "edge_type", "train_mask", "val_mask", "test_mask")


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
            HeteroData by node type, tables of links by edge type. Likewise ``val`` and ``test``.
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
    check_pyg_graph(data)
    splits = {"train": train, "val": val, "test": test}
    data, ids = set_apart(data, user_ids, without)
    _warn_of_rest(data)
    _warn_of_numbers(data, splits)
    node_stores, edge_stores = stores_of(data)
    nodes = {key: _row_attributes(store, store.is_node_attr) for key, store in node_stores.items()}
    edges = {key: _row_attributes(store, store.is_edge_attr) for key, store in edge_stores.items()}
    check_column_names(
        "the PyG graph",
        ("tables", tables, nodes.values()),
        ("edge_tables", edge_tables, edges.values()),
        ("edge_feature_name", edge_feature_name, edges.values()),
        ("time_attr", time_attr, [*nodes.values(), *edges.values()]),
    )
    num_nodes = {key: count_nodes(store) for key, store in node_stores.items()}
    carried = node_tables(nodes, tables, excluded=("x", "y"))
    edge_x, carried_edges = edge_columns(edges, edge_tables, edge_feature_name, "edge_attr")
    for stores, columns in ((node_stores, carried), (edge_stores, carried_edges)):
        for key, store in stores.items():
            _check_rows(data, store, columns[key])
    endpoints, weights, types = {}, {}, None
    for key, store in edge_stores.items():
        rows = edges[key], edge_x.get(key), carried_edges[key]
        src, dst, weight = _edge_list(store, *rows, adds_weight=edge_tables is None)
        endpoints[key], weights[key] = (src, dst), drawable_weights(f"edge_weight{type_of(store)}", weight)
        if key is UNTYPED and time_attr is None and "edge_index" in store:  # lists are cut by time or by type
            types = drawable_types(edges[key].get("edge_type"))
    graph = graph_of_columns(
        num_nodes,
        endpoints,
        edge_type=types,
        edge_weight={key: weight for key, weight in weights.items() if weight is not None},
        edge_time=columns_named(edges, time_attr),
        node_time=columns_named(nodes, time_attr),
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


def check_pyg_graph(data: Any) -> None:
    """Raises GraphDataError: it is neither a Data nor a HeteroData."""
    classes = import_pyg("Reading a PyG graph").data
    if not isinstance(data, classes.Data | classes.HeteroData):
        raise GraphDataError(
            f"a Data or HeteroData of torch_geometric is needed, but a {type(data).__name__} was given."
        )


def part_whole(data: Any, user_ids: str | None = None) -> tuple[Any, Any]:
    """Returns a copy of a PyG ``Data`` or ``HeteroData`` without the attributes of the graph, or of a type, as a whole,
    and a copy that has only these; the user's ids are of nodes."""
    # Shallow copies: stores are new, tensors are the user's.
    by_row, template = copy(data), copy(data)
    for rows, whole in zip(by_row.stores, template.stores, strict=True):
        names = [name for name in _whole_of(rows) if name != user_ids]
        for name in [key for key in whole.keys() if key not in names]:  # noqa: SIM118
            del whole[name]
        for name in names:
            del rows[name]
    return by_row, template


def _whole_of(store: Any) -> list[str]:
    """Returns the names of a store's attributes that have no row for each node or edge; raises GraphDataError for one
    that by its name should have."""
    names = [name for name in attributes(store) if not is_by_row(store, name)]
    for name in names:
        if name in _BY_ROW and getattr(store[name], "ndim", 1) > 0:
            raise GraphDataError(
                f"{name!r} of the PyG graph{type_of(store)} has {len(store[name])} rows, but {_sizes(store)}: one row "
                f"each is needed. Correct it, or leave it out: without=[{name!r}]."
            )
    return names


def _row_attributes(store: Any, has_rows: Callable[[str], bool]) -> dict[str, Any]:
    """Returns the attributes that have rows by PyG's ``is_node_attr`` or ``is_edge_attr``, by name."""
    return {key: store[key] for key in attributes(store) if has_rows(key)}


def set_apart(data: Any, user_ids: str | None, without: Iterable[str]) -> tuple[Any, dict[Any, UserIds]]:
    """Returns the graph without the attributes ``without`` and that of the user's ids of nodes, and these by node type,
    of a Data under None; raises GraphDataError where there is no attribute of such a name."""
    names = removed_names(without, user_ids)
    if not names:
        return data, {}
    reduced, ids = copy(data), {}  # the caller's own keeps its attributes
    chosen({name: None for store in reduced.stores for name in store}, names, "without", "the PyG graph")
    for store in reduced.stores:
        if hasattr(store, "is_node_attr") and not isinstance(store._key, tuple):
            store.num_nodes = store.num_nodes  # PyG may count nodes by an attribute that is removed below
            if user_ids in store:
                ids[store._key] = UserIds.of(store[user_ids], column=str(user_ids))
        for name in names:
            if name in store:
                del store[name]
    return reduced, ids


def _warn_of_rest(data: Any) -> None:
    """Warns of what a PyG graph has that GraphData does not carry."""
    if whole := [f"{name!r}{type_of(store)}" for store in data.stores for name in _whole_of(store)]:
        warn(
            f"{', '.join(whole)} of the PyG graph: no attribute of nodes or edges, but of all together, which "
            f"GraphData does not carry. GraphDataModule.from_pyg(data, ...) repeats it in every mini-batch of PyG's "
            f"format; without=[...] leaves it out."
        )
    if any(store.get("edge_index") is not None and store.get("adj_t") is not None for store in data.stores):
        warn("'adj_t' of the PyG graph is not read, as there is an edge_index.")


def _warn_of_numbers(data: Any, splits: Mapping[str, Any]) -> None:
    """Warns of attributes that number nodes, as lists of seeds do, but that are not among the splits."""
    numbers = {name for store in data.stores for name in numbers_of_nodes(store)}
    if "edge_label_index" in numbers and not any(isinstance(split, SeedTable) for split in splits.values()):
        warn(
            "'edge_label_index' of the PyG graph: links to be asked about are not read. Give them as a table: "
            "train=SeedTable(src=data.edge_label_index[0], dst=data.edge_label_index[1], y=data.edge_label)."
        )
    listed = {f"{name}_{suffix}" for name, ids in splits.items() if ids is not None for suffix in ("idx", "index")}
    listed |= {name.replace("val_", "valid_") for name in listed}
    if unread := sorted(name for name in numbers - listed if not name.startswith("edge_label")):
        warn(
            f"{', '.join(map(repr, unread))} of the PyG graph: by their names, these number the nodes of the whole "
            "graph, which have other numbers in a mini-batch, and are not read. Give lists of seeds as train=, val=, "
            "test=; rename what numbers no nodes."
        )


def _sizes(store: Any) -> str:
    counts = {"nodes": getattr(store, "num_nodes", None), "edges": getattr(store, "num_edges", None)}
    return "there are " + " and ".join(f"{count} {noun}" for noun, count in counts.items() if count is not None)


def _edge_list(
    store: Any, columns: Mapping[str, Any], edge_x: Any, carried: dict[str, Any], *, adds_weight: bool
) -> tuple[Any, Any, Any]:
    """Returns the sources, the targets and, where there are any, the weights of a store's edges: values of ``adj_t``,
    where that is all, which then are ``carried``, too, if ``adds_weight``.

    Attributes of edges beside ``adj_t``, or neither, raise GraphDataError.
    """
    src, dst, values = edges_of_store(store)
    if store.get("edge_index") is not None:
        return src, dst, columns.get("edge_weight")
    if carried or edge_x is not None:
        raise GraphDataError(
            f"{min(columns)!r}: which row belongs to which entry of adj_t is not known. Give the PyG graph an "
            f"edge_index, in the order of these rows, or leave them out: edge_tables=[]."
        )
    if adds_weight:
        carried["edge_weight"] = values
    return src, dst, values


def _check_rows(data: Any, store: Any, columns: Mapping[str, Any]) -> None:
    """Raises GraphDataError: what PyG takes for rows of a store's nodes or edges is no table of them."""
    for key, rows in columns.items():
        if not isinstance(rows, torch.Tensor | np.ndarray):
            problem = f"a {type(rows).__name__}, but a tensor or an array is needed"
        elif data.__cat_dim__(key, rows, store) != 0:
            problem = f"{list(rows.shape)} with its entries in another dimension than the first"
        else:
            continue
        raise GraphDataError(
            f"{key!r} of the PyG graph is {problem}: mini-batches cannot carry it. Leave it out: without=[{key!r}]; "
            f"or, if it is what you call the nodes: user_ids={key!r}."
        )
