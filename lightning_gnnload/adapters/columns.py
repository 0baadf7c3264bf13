"""The columns of users' graphs: splits, weights and types to draw by, and edges as they lay before they were sorted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_rows, is_integer
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, warn

UNTYPED: Any = None
"""The one type of nodes, and of edges, of a graph without types."""


def chosen(columns: Mapping[str, Any], names: Iterable[str] | None, argument: str, where: str) -> dict[str, Any]:
    """Returns the columns of these names; all of them when ``names`` is None.

    Raises:
        GraphDataError: ``argument`` names what is not ``where`` the columns are.
    """
    names = as_names(names)
    if names is None:
        return dict(columns)
    for name in names:
        if name not in columns:
            raise GraphDataError(f"{argument}={name!r}, but {where} holds only {sorted(map(str, columns))}.")
    return {name: columns[name] for name in names}


def as_names(names: Iterable[str] | None) -> list[str] | None:
    """Returns a list of names, of one name, too; None, which means all, stays."""
    return names if names is None else [names] if isinstance(names, str) else list(names)


def of_name(columns: Mapping[Any, Mapping[str, Any]], name: str | None) -> dict[Any, Any]:
    """Returns the columns of this name by type, of those types that have one."""
    return {kind: rows[name] for kind, rows in columns.items() if name is not None and name in rows}


def times_of(columns: Mapping[str, Any], name: str | None) -> Any:
    """Returns the column of times, None where there is none."""
    return None if name is None else columns.get(name)


def check_names(where: str, *settings: tuple[str, str | Iterable[str] | None, Iterable[Mapping[str, Any]]]) -> None:
    """Raises GraphDataError: a setting names what is not ``where`` its columns are. Settings are a name, what it names,
    and the columns of all types."""
    for argument, names, of_types in settings:
        chosen({name: None for columns in of_types for name in columns}, names or (), argument, where)


def node_tables(
    nodes: Mapping[Any, Mapping[str, Any]], names: str | Iterable[str] | None, others: Collection[str] = ()
) -> dict[Any, dict[str, Any]]:
    """Returns the columns of these ``names``, all if None, less ``others``, by type."""
    names = as_names(names)
    return {
        kind: {name: rows for name, rows in columns.items() if name not in others and (names is None or name in names)}
        for kind, columns in nodes.items()
    }


def edge_columns(
    edges: Mapping[Any, Mapping[str, Any]], names: Iterable[str] | None, features: str | None, usual: str
) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
    """Returns the features of edges, of those types that have some, and the other columns of these ``names``, all if
    None, by type. Features are the column of that name or, of types without it, the ``usual`` one if it is ``[E, F]``.
    """
    names = as_names(names)
    x, tables = {}, {}
    for kind, columns in edges.items():
        tables[kind] = carried = {name: rows for name, rows in columns.items() if names is None or name in names}
        if features is not None and features in columns:
            carried.pop(features, None)
            x[kind] = columns[features]
        elif getattr(carried.get(usual), "ndim", 0) == 2:
            x[kind] = carried.pop(usual)
    return x, tables


def build_graph(
    num_nodes: Mapping[Any, int | None],
    edges: Mapping[Any, tuple[Any, Any]],
    *,
    edge_type: Any = None,
    **columns: Mapping[Any, Any],
) -> Graph:
    """Builds a graph, which keeps the order of its edges, of columns by type: of ``edge_weight``, ``edge_time`` and
    ``node_time``; without types also of ``edge_type``, ``[E]``."""
    if UNTYPED not in edges:
        return Graph.from_hetero(num_nodes, edges, **columns, keep_order=True)  # type: ignore[arg-type]
    only = {name: of_type.get(UNTYPED) for name, of_type in columns.items()}
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

    Args:
        graph: the topology.
        nodes: the columns of nodes, by type and name, with masks where splits are None.
        num_nodes: by type.
        splits: the user's ``train``, ``val`` and ``test``.
        names: of features and of labels.
        **columns: ``tables``, ``edge_x``, ``edge_tables`` and ``user_ids``, by type.
    """
    columns["x"], labels = (of_name(nodes, name) for name in names)
    if graph.types is not None:
        seeds = split_types(splits, nodes, num_nodes)
        return GraphData(graph, **columns | seeds, y=labels_of_seeds(labels, seeds, names[1]))
    only = {name: of_type.get(UNTYPED) for name, of_type in (columns | {"y": labels}).items()}
    return GraphData(graph, **only, **split_ids(splits, nodes[UNTYPED], num_nodes[UNTYPED]))


def split_ids(given: Mapping[str, Any], columns: Mapping[str, Any], num_nodes: int) -> dict[str, Any]:
    """Returns the ids of ``"train"``, ``"val"`` and ``"test"``: those given, as ids, a mask ``[N]`` or a SeedTable,
    which stays; where None is, those of the mask among the nodes' columns.

    Raises:
        GraphDataError: a mask without one entry a node, as where a data set brings several splits side by side.
    """
    found: dict[str, Any] = {}
    for name in SPLITS:
        ids, what = given[name], name
        if ids is None and columns.get(f"{name}_mask") is not None:
            ids, what = torch.as_tensor(columns[f"{name}_mask"]).bool(), f"{name}_mask"
        if ids is not None and not isinstance(ids, SeedTable) and (mask := torch.as_tensor(ids)).dtype is torch.bool:
            if mask.shape != (num_nodes,):
                raise GraphDataError(
                    f"{what} has the shape {list(mask.shape)}, but one entry a node, [{num_nodes}], is needed. "
                    f"Where it holds several splits, choose one of them: {name}={name}_mask[:, 0]."
                )
            ids = mask.nonzero().view(-1)
        found[name] = ids
    return found


def split_types(
    given: Mapping[str, Mapping[str, Any] | SeedTable | None],
    columns: Mapping[str, Mapping[str, Any]],
    num_nodes: Mapping[str, int],
) -> dict[str, dict[str, Any] | SeedTable]:
    """Returns the ids of ``"train"``, ``"val"`` and ``"test"`` by node type, see :func:`split_ids`.

    Raises:
        GraphDataError: as :func:`split_ids`; ids not given by type, or of a type that is not there.
    """
    tables = {split: ids for split, ids in given.items() if isinstance(ids, SeedTable)}
    by_type = {split: ids for split, ids in given.items() if split not in tables and ids is not None}
    for split, ids in by_type.items():
        if not (isinstance(ids, Mapping) and ids.keys() <= num_nodes.keys()):
            named = sorted(map(str, ids)) if isinstance(ids, Mapping) else f"a {type(ids).__name__}"
            raise GraphDataError(
                f"{split} must be ids or masks by node type, or a SeedTable, but is {named}; the types are "
                f"{', '.join(num_nodes)}."
            )
    found: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
    for kind, count in num_nodes.items():
        of_type = {split: by_type.get(split, {}).get(kind) for split in SPLITS}  # type: ignore[union-attr]
        masks = {f"{split}_mask": columns[kind].get(f"{split}_mask") for split in SPLITS if given[split] is None}
        for split, ids in split_ids(of_type, masks, count).items():
            if ids is not None:
                found[split][kind] = ids
    return found | tables


def labels_of_seeds(
    labels: Mapping[str, Any], splits: Mapping[str, Mapping[str, Any] | SeedTable], name: str
) -> dict[str, Any] | None:
    """Returns the labels of those types that seeds are of, by type; of all, where there are no splits; None for none.

    Warns of labels of other types, which no mini-batch carries.
    """
    named = ([ids.node_type] if isinstance(ids, SeedTable) else ids for ids in splits.values())
    kinds = {kind for each in named for kind in each} - {None}
    left_out = [kind for kind in labels if kinds and kind not in kinds]
    if left_out:
        warn(
            f"{name!r} of {', '.join(left_out)}: mini-batches carry labels of seeds alone, and no split has nodes of "
            f"this type. Rename it for a table of its own."
        )
    return {kind: rows for kind, rows in labels.items() if kind not in left_out} or None


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
    their order. Names are those of other libraries' batches, see :func:`foreign_names`.

    Without types, the ``only`` one has all.
    """
    fields = foreign_names(batch.seed_columns)
    if types is None:
        return {only: fields}
    number = types.number_of(batch.seeds.cpu().numpy())
    found: dict[Any, dict[str, Any]] = {}
    for kind in np.unique(number).tolist():
        rows = torch.from_numpy(np.flatnonzero(number == kind)).to(batch.device)
        found[types.node_types[kind]] = {name: column[rows] for name, column in fields.items()}
    return found


def foreign_names(columns: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the columns of a mini-batch's rows by the names that other libraries' batches have them by.

    Their times are ``seed_time``, as nodes may have times, too.
    """
    return {"seed_time" if name == "time" else name: rows for name, rows in columns.items()}


def original_edge_ids(edge_ids: torch.Tensor, edge_order: np.ndarray | None) -> torch.Tensor:
    """Converts positions in ``Graph.indices`` to positions in the edge list that the graph was built from.

    Args:
        edge_ids: int64 ``[B]``.
        edge_order: ``Graph.edge_order``, ``[E]``; None leaves the ids as they are.
    """
    if edge_order is None:
        return edge_ids
    # The order is as long as the graph: ids go to it, whatever their device, and each is a miss of the caches.
    found = np.empty(len(edge_ids), edge_order.dtype)
    ops.gather_rows(edge_order, edge_ids.cpu().numpy(), found)
    return torch.from_numpy(found).long().to(edge_ids.device)
