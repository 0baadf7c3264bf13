"""The columns of users' graphs: splits, weights and types to draw by, and edges as they lay before they were sorted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_rows, is_integer
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.by_type import flat_seeds
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, warn

UNTYPED: Any = None
"""The one type of nodes, and of edges, of a graph without types."""


def chosen(columns: Mapping[str, Any], names: Iterable[str] | None, argument: str, where: str) -> dict[str, Any]:
    """Returns the columns of these names, all for None; raises GraphDataError where ``argument`` has another name."""
    names = as_names(names)
    if names is None:
        return dict(columns)
    for name in names:
        if name not in columns:
            raise GraphDataError(f"{argument}={name!r}, but {where} holds only {sorted(map(str, columns))}.")
    return {name: columns[name] for name in names}


def as_names(names: Iterable[str] | None) -> list[str] | None:
    """Returns a list of names, also of a single one; None, which means all, stays."""
    return names if names is None else [names] if isinstance(names, str) else list(names)


def removed_names(without: Iterable[str], user_ids: str | None) -> list[str]:
    """Returns the names of columns that a reader leaves out: ``without``, and that of the user's ids of nodes."""
    return [*(as_names(without) or ()), *([] if user_ids is None else [user_ids])]


def columns_named(columns: Mapping[Any, Mapping[str, Any]], name: str | None) -> dict[Any, Any]:
    """Returns the columns of this name by type, of those types that have one."""
    return {key: rows[name] for key, rows in columns.items() if name is not None and name in rows}


def time_column(columns: Mapping[str, Any], name: str | None) -> Any:
    """Returns the column of times, None where there is none."""
    return None if name is None else columns.get(name)


def check_column_names(
    where: str, *settings: tuple[str, str | Iterable[str] | None, Iterable[Mapping[str, Any]]]
) -> None:
    """Raises GraphDataError: a setting names a column that is not ``where`` its columns are. Settings are an argument,
    the names it has, and the columns of all types."""
    for argument, names, by_type in settings:
        chosen({name: None for columns in by_type for name in columns}, names or (), argument, where)


def node_tables(
    nodes: Mapping[Any, Mapping[str, Any]], names: str | Iterable[str] | None, excluded: Collection[str] = ()
) -> dict[Any, dict[str, Any]]:
    """Returns the columns of these ``names``, all if None, but ``excluded``, by type."""
    names = as_names(names)
    return {
        key: {name: rows for name, rows in columns.items() if name not in excluded and (names is None or name in names)}
        for key, columns in nodes.items()
    }


def edge_columns(
    edges: Mapping[Any, Mapping[str, Any]], names: Iterable[str] | None, features: str | None, usual: str
) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
    """Returns the features of edges, of those types that have some, and the other columns of these ``names``, all if
    None, by type. Features are the column of that name or, of types without it, the ``usual`` one if it is ``[E, F]``.
    """
    names = as_names(names)
    x, tables = {}, {}
    for key, columns in edges.items():
        tables[key] = carried = {name: rows for name, rows in columns.items() if names is None or name in names}
        if features is not None and features in columns:
            carried.pop(features, None)
            x[key] = columns[features]
        # A usual name may be that of a column of numbers, such as weights, which is a table like any other.
        elif getattr(carried.get(usual), "ndim", 0) == 2:
            x[key] = carried.pop(usual)
    return x, tables


def graph_of_columns(
    num_nodes: Mapping[Any, int | None],
    edges: Mapping[Any, tuple[Any, Any]],
    *,
    edge_type: Any = None,
    **columns: Mapping[Any, Any],
) -> Graph:
    """Builds a graph, which keeps the order of its edges, of the columns ``edge_weight``, ``edge_time`` and
    ``node_time`` by type; without types also of ``edge_type``, ``[E]``."""
    # Users' tables of edges and ids of edges go by the order of their lists, so that the graph has to keep it.
    if UNTYPED not in edges:
        return Graph.from_hetero(num_nodes, edges, **columns, keep_order=True)  # type: ignore[arg-type]
    only = {name: by_type.get(UNTYPED) for name, by_type in columns.items()}
    return Graph.from_coo(*edges[UNTYPED], num_nodes[UNTYPED], edge_type=edge_type, **only, keep_order=True)


def graph_data(
    graph: Graph,
    nodes: Mapping[Any, Mapping[str, Any]],
    num_nodes: Mapping[Any, int],
    splits: Mapping[str, Any],
    names: tuple[str, str],
    **columns: Any,
) -> GraphData:
    """Makes GraphData of columns by type.

    ``nodes`` are the columns of nodes by type and name, with masks for splits that are None; ``splits`` the user's
    ``train``, ``val`` and ``test``; ``names`` those of features and of labels; ``columns`` the arguments ``tables``,
    ``edge_x``, ``edge_tables`` and ``user_ids`` by type.
    """
    columns["x"], labels = (columns_named(nodes, name) for name in names)
    if graph.types is not None:
        seeds = split_types({split: flat_seeds(ids) for split, ids in splits.items()}, nodes, num_nodes)
        return GraphData(graph, **columns | seeds, y=labels_of_seeds(labels, seeds, names[1]))
    only = {name: by_type.get(UNTYPED) for name, by_type in (columns | {"y": labels}).items()}
    return GraphData(graph, **only, **split_ids(splits, nodes[UNTYPED], num_nodes[UNTYPED]))


def split_ids(splits: Mapping[str, Any], columns: Mapping[str, Any], num_nodes: int) -> dict[str, Any]:
    """Returns the ids of ``"train"``, ``"val"`` and ``"test"``: the user's ids, of a mask ``[N]``, or a SeedTable as it
    is; where the user has None, those of the mask among the nodes' columns.

    A mask without one entry a node raises GraphDataError: some data sets have several splits side by side.
    """
    split_rows: dict[str, Any] = {}
    for name in SPLITS:
        ids, source = splits[name], name
        if ids is None and columns.get(f"{name}_mask") is not None:
            ids, source = torch.as_tensor(columns[f"{name}_mask"]).bool(), f"{name}_mask"
        if ids is not None and not isinstance(ids, SeedTable) and (mask := torch.as_tensor(ids)).dtype is torch.bool:
            if mask.shape != (num_nodes,):
                raise GraphDataError(
                    f"{source} has the shape {list(mask.shape)}, but one entry a node, [{num_nodes}], is needed. "
                    f"Where it holds several splits, choose one of them: {name}={name}_mask[:, 0]."
                )
            ids = mask.nonzero().view(-1)
        split_rows[name] = ids
    return split_rows


def split_types(
    splits: Mapping[str, Mapping[str, Any] | SeedTable | None],
    columns: Mapping[str, Mapping[str, Any]],
    num_nodes: Mapping[str, int],
) -> dict[str, dict[str, Any] | SeedTable]:
    """Returns the ids of ``"train"``, ``"val"`` and ``"test"`` by node type, as :func:`split_ids`; ids that are not by
    the graph's types raise GraphDataError."""
    tables = {split: ids for split, ids in splits.items() if isinstance(ids, SeedTable)}
    ids_by_type = {split: ids for split, ids in splits.items() if split not in tables and ids is not None}
    _check_types(ids_by_type, num_nodes)
    by_split: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
    for node_type, count in num_nodes.items():
        users = {split: ids_by_type.get(split, {}).get(node_type) for split in SPLITS}  # type: ignore[union-attr]
        # A split that the user names for some types has no nodes of the others, whatever masks these have.
        names = [f"{split}_mask" for split in SPLITS if splits[split] is None]
        masks = {name: columns[node_type].get(name) for name in names}
        for split, ids in split_ids(users, masks, count).items():
            if ids is not None:
                by_split[split][node_type] = ids
    return by_split | tables


def _check_types(splits: Mapping[str, Any], num_nodes: Mapping[str, int]) -> None:
    for split, ids in splits.items():
        if not (isinstance(ids, Mapping) and ids.keys() <= num_nodes.keys()):
            named = sorted(map(str, ids)) if isinstance(ids, Mapping) else f"a {type(ids).__name__}"
            raise GraphDataError(
                f"{split} must be ids or masks by node type, or a SeedTable, but is {named}; the types are "
                f"{', '.join(num_nodes)}."
            )


def labels_of_seeds(
    labels: Mapping[str, Any], splits: Mapping[str, Mapping[str, Any] | SeedTable], name: str
) -> dict[str, Any] | None:
    """Returns the labels of those types that seeds are of, of all without splits, by type; None for none.

    Warns of labels of other types, which no mini-batch carries.
    """
    named = ([ids.node_type] if isinstance(ids, SeedTable) else ids for ids in splits.values())
    seed_types = {node_type for node_types in named for node_type in node_types} - {None}
    unused = [node_type for node_type in labels if seed_types and node_type not in seed_types]
    if unused:
        warn(
            f"{name!r} of {', '.join(unused)}: mini-batches carry labels of seeds alone, and no split has nodes of "
            f"this type. Rename it for a table of its own."
        )
    return {node_type: rows for node_type, rows in labels.items() if node_type not in unused} or None


def drawable_weights(name: str, weights: Any) -> Any:
    """Returns edge weights ``[E]`` that samplers can draw by, as floats; None, with a warning, where these are none."""
    if weights is None:
        return None
    weights = as_rows(weights, name=name)
    flat = weights.view(-1) if weights.shape == (len(weights), 1) else weights
    if flat.ndim != 1 or not bool((flat.isfinite() & (flat >= 0)).all()):
        warn(
            f"{name} of the graph: mini-batches carry it, but no sampler can draw by it, which needs one finite "
            f"number of at least 0 an edge."
        )
        return None
    # NumPy has no bfloat16; float64 holds integers up to 2**53 exactly.
    return flat.float() if flat.dtype is torch.bfloat16 else flat if flat.is_floating_point() else flat.double()


def drawable_types(types: Any) -> Any:
    """Returns edge types ``[E]`` that samplers can draw by; None where these are none."""
    types = None if types is None else torch.as_tensor(types)
    return None if types is None or types.ndim != 1 or not is_integer(types) else types


def seed_fields(batch: MiniBatch, types: GraphTypes | None, only: Any = UNTYPED) -> dict[Any, dict[str, Any]]:
    """Returns the columns of a mini-batch's rows, of seeds that are nodes, by type: each has those of its own seeds, in
    their order, under the names of :func:`foreign_names`. Without types, ``only`` has all."""
    fields = foreign_names(batch.seed_columns)
    if types is None:
        return {only: fields}
    number = types.number_of(batch.seeds.cpu().numpy())
    by_type: dict[Any, dict[str, Any]] = {}
    for k in np.unique(number).tolist():
        rows = torch.from_numpy(np.flatnonzero(number == k)).to(batch.device)
        by_type[types.node_types[k]] = {name: column[rows] for name, column in fields.items()}
    return by_type


def foreign_names(columns: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the columns of a mini-batch's rows under the names that other libraries' batches have: ``seed_time`` for
    ``time``, as nodes may have times, too."""
    return {"seed_time" if name == "time" else name: rows for name, rows in columns.items()}


def original_edge_ids(edge_ids: torch.Tensor, graph: Graph | None) -> torch.Tensor:
    """Converts positions in ``Graph.indices``, int64 ``[B]``, to positions in the user's list of edges; they stay as
    they are without a graph, or where it has no ``edge_order``."""
    edge_order = None if graph is None else graph.edge_order
    if edge_order is None:
        return edge_ids
    # The order is as long as the graph: ids go to it, whatever their device, and each is a miss of the caches.
    original = np.empty(len(edge_ids), edge_order.dtype)
    ops.gather_rows(edge_order, edge_ids.cpu().numpy(), original)
    return torch.from_numpy(original).long().to(edge_ids.device)


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
