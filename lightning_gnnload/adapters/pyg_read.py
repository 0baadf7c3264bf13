"""PyG's Data and HeteroData as GraphData."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.columns import (
    UNTYPED,
    as_names,
    build_graph,
    check_names,
    chosen,
    drawable_types,
    drawable_weights,
    edge_columns,
    graph_data,
    node_tables,
    of_name,
)
from lightning_gnnload.adapters.pyg_stores import (
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

_BY_ROW = ("x", "edge_attr", "edge_weight", "edge_type", "train_mask", "val_mask", "test_mask")
"""What has a row for each node or edge wherever PyG speaks of it."""


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
    _warn_of_rest(data, splits)
    node_stores, edge_stores = stores_of(data)
    nodes = {kind: _row_attributes(store, store.is_node_attr) for kind, store in node_stores.items()}
    edges = {kind: _row_attributes(store, store.is_edge_attr) for kind, store in edge_stores.items()}
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
            _check_rows(data, store, columns[kind])
    ends, weights, types = {}, {}, None
    for kind, store in edge_stores.items():
        rows = edges[kind], edge_x.get(kind), carried_edges[kind]
        src, dst, weight = _edge_list(store, *rows, adds_weight=edge_tables is None)
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


def check_graph(data: Any) -> None:
    """Raises GraphDataError: it is neither a Data nor a HeteroData."""
    kinds = import_pyg("Reading a PyG graph").data
    if not isinstance(data, kinds.Data | kinds.HeteroData):
        raise GraphDataError(
            f"a Data or HeteroData of torch_geometric is needed, but a {type(data).__name__} was given."
        )


def part_whole(data: Any, user_ids: str | None = None) -> tuple[Any, Any]:
    """Returns a copy of a PyG ``Data`` or ``HeteroData`` without the attributes of the graph, or of a type, as a whole,
    and a copy that keeps only these; ``user_ids`` are none."""
    by_row, template = copy(data), copy(data)
    for rows, whole in zip(by_row.stores, template.stores, strict=True):
        names = [name for name in _whole_of(rows) if name != user_ids]
        for name in [key for key in whole.keys() if key not in names]:  # noqa: SIM118
            del whole[name]
        for name in names:
            del rows[name]
    return by_row, template


def _whole_of(store: Any) -> list[str]:
    """Returns the names of a store's attributes that have no row for each node or edge.

    Raises:
        GraphDataError: an attribute that by its name has, but has not.
    """
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
    """Returns the graph less the attributes ``without`` and that of the user's ids of nodes, and these by node type;
    those of a Data under None.

    Raises:
        GraphDataError: there is no attribute of such a name.
    """
    gone = [*(as_names(without) or ()), *([] if user_ids is None else [user_ids])]
    if not gone:
        return data, {}
    less, ids = copy(data), {}  # the caller's own keeps its attributes
    chosen({name: None for store in less.stores for name in store}, gone, "without", "the PyG graph")
    for store in less.stores:
        if hasattr(store, "is_node_attr") and not isinstance(store._key, tuple):
            store.num_nodes = store.num_nodes  # which may be known by what goes
            if user_ids in store:
                ids[store._key] = UserIds.of(store[user_ids], column=str(user_ids))
        for name in gone:
            if name in store:
                del store[name]
    return less, ids


def _warn_of_rest(data: Any, splits: Mapping[str, Any]) -> None:
    """Warns of what a PyG graph says that GraphData has no place for, and that is not given as splits."""
    if whole := [f"{name!r}{type_of(store)}" for store in data.stores for name in _whole_of(store)]:
        warn(
            f"{', '.join(whole)} of the PyG graph: no attribute of nodes or edges, but of all together, which "
            f"GraphData does not carry. GraphDataModule.from_pyg(data, ...) repeats it in every mini-batch of PyG's "
            f"format; without=[...] leaves it out."
        )
    numbers = {name for store in data.stores for name in numbers_of_nodes(store)}
    if "edge_label_index" in numbers and not any(isinstance(split, SeedTable) for split in splits.values()):
        warn(
            "'edge_label_index' of the PyG graph: links to be asked about are not read. Give them as a table: "
            "train=SeedTable(src=data.edge_label_index[0], dst=data.edge_label_index[1], y=data.edge_label)."
        )
    told = {f"{name}_{kind}" for name, ids in splits.items() if ids is not None for kind in ("idx", "index")}
    told |= {name.replace("val_", "valid_") for name in told}
    if others := sorted(name for name in numbers - told if not name.startswith("edge_label")):
        warn(
            f"{', '.join(map(repr, others))} of the PyG graph: by their names, these number the nodes of the whole "
            "graph, which have other numbers in a mini-batch, and are not read. Give lists of seeds as train=, val=, "
            "test=; rename what numbers no nodes."
        )
    if any(store.get("edge_index") is not None and store.get("adj_t") is not None for store in data.stores):
        warn("'adj_t' of the PyG graph is not read, as there is an edge_index.")


def _sizes(store: Any) -> str:
    counts = {"nodes": getattr(store, "num_nodes", None), "edges": getattr(store, "num_edges", None)}
    return "there are " + " and ".join(f"{count} {what}" for what, count in counts.items() if count is not None)


def _edge_list(
    store: Any, of_edges: Mapping[str, Any], edge_x: Any, carried: dict[str, Any], *, adds_weight: bool
) -> tuple[Any, Any, Any]:
    """Returns the sources, the targets and, where there are any, the weights of a store's edges: values of ``adj_t``,
    where that is all, which then are ``carried``, too, if ``adds_weight``.

    Raises:
        GraphDataError: neither is there, or attributes of edges beside ``adj_t``.
    """
    src, dst, values = edges_of_store(store)
    if store.get("edge_index") is not None:
        return src, dst, of_edges.get("edge_weight")
    if carried or edge_x is not None:
        raise GraphDataError(
            f"{min(of_edges)!r}: which row belongs to which entry of adj_t is not known. Give the PyG graph an "
            f"edge_index, in the order of these rows, or leave them out: edge_tables=[]."
        )
    if adds_weight:
        carried["edge_weight"] = values
    return src, dst, values


def _check_rows(data: Any, store: Any, columns: Mapping[str, Any]) -> None:
    """Raises GraphDataError: what PyG takes for rows of a store's nodes or edges is no table of them."""
    for key, rows in columns.items():
        if not isinstance(rows, torch.Tensor | np.ndarray):
            what = f"a {type(rows).__name__}, but a tensor or an array is needed"
        elif data.__cat_dim__(key, rows, store) != 0:
            what = f"{list(rows.shape)} with its entries in another dimension than the first"
        else:
            continue
        raise GraphDataError(
            f"{key!r} of the PyG graph is {what}: mini-batches cannot carry it. Leave it out: without=[{key!r}]; or, "
            f"if it is what you call the nodes: user_ids={key!r}."
        )
