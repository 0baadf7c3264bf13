"""Converts dicts by node or edge type: tables to dotted names, labels and splits to ids in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids, as_rows, tensor_view
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, SamplerConfigError


def table_of_type(column: str, type_key: Any) -> str:
    """Returns the name of the table of a column and a node type, or an edge type's triple.

    Example:
        >>> table_of_type("x", "paper"), table_of_type("year", ("author", "writes", "paper"))
        ('x.paper', 'year.author__writes__paper')
    """
    return f"{column}.{type_key if isinstance(type_key, str) else '__'.join(type_key)}"


def columns_of_type(tables: Mapping[str, Any], type_key: Any) -> dict[str, Any]:
    """Returns the tables of one type by the names of their columns."""
    # The name of a table without a column is the suffix, with its dot.
    end = table_of_type("", type_key)
    split = ((name.partition("."), table) for name, table in tables.items())
    return {column: table for (column, dot, rest), table in split if dot + rest == end}


def flat_tables(x: Any, tables: Any, types: GraphTypes | None, *, for_edges: bool) -> tuple[Any, Any]:
    """Returns x and tables where both may be dicts by type: these become tables with dotted names.

    ``x`` is rows, or rows by type; ``tables`` are rows by name, or, by type, rows by name.
    """
    argument = "edge_x" if for_edges else "x"
    by_type: dict[Any, Mapping[str, Any]] = {}
    if isinstance(x, Mapping):
        by_type = {type_key: {"x": rows} for type_key, rows in x.items() if rows is not None}
        x = None
    named = {} if tables is None else tables
    flat: dict[str, Any] = {}
    for type_key, columns in by_type.items():
        flat |= _typed_tables(type_key, columns, types, argument)
    if not isinstance(named, Mapping):
        return x, named  # an error where tables are checked
    for name, rows in named.items():
        if isinstance(rows, Mapping):
            flat |= _typed_tables(name, rows, types, "edge_tables" if for_edges else "tables")
        else:
            flat[name] = rows
    return x, flat


def _typed_tables(type_key: Any, columns: Mapping[str, Any], types: GraphTypes | None, argument: str) -> dict[str, Any]:
    name = type_name(type_key, types, argument)
    return {table_of_type(column, name): rows for column, rows in columns.items()}


def type_name(type_key: Any, types: GraphTypes | None, argument: str) -> Any:
    """Returns the node type, or, of an argument that begins with "edge", the edge type as a triple.

    Raises GraphDataError: there is no such type, or the graph has none.
    """
    if types is None:
        raise GraphDataError(
            f"{argument} is a dict by type, but the graph has no types. Build it with Graph.from_hetero, or give "
            f"{argument} of all at once."
        )
    try:
        if argument.startswith("edge"):
            return types.edge_types[types.edge_type_number(type_key)]
        return types.node_types[types.node_type_number(type_key)]
    except SamplerConfigError as error:
        raise GraphDataError(f"{argument}: {error}") from error


def flat_labels(y: Mapping[str, Any], types: GraphTypes | None) -> torch.Tensor:
    """Returns the labels of all nodes, ``[N]`` or ``[N, C]``: of types left out, NaN, or -1 in whole numbers."""
    labels = {type_name(name, types, "y"): as_rows(rows, name=f"labels y of {name!r}") for name, rows in y.items()}
    if types is None or not labels:
        raise GraphDataError("labels y: a dict of labels by node type is empty. Give y=None for data without labels.")
    kinds = {(rows.dtype, rows.shape[1:]) for rows in labels.values()}
    if len(kinds) > 1:
        raise GraphDataError(
            f"labels y of {', '.join(map(repr, labels))} differ in dtype or width: "
            f"{', '.join(f'{dtype} {list(shape)}' for dtype, shape in kinds)}. Give all of one."
        )
    ((dtype, shape),) = kinds
    fill: float = float("nan")
    if not dtype.is_floating_point:
        fill, dtype = -1, dtype if dtype in (torch.int16, torch.int32) else torch.int64  # unsigned ones have no -1
    flat = torch.full((int(types.first_node[-1]), *shape), fill, dtype=dtype)
    for name, rows in labels.items():
        nodes = types.range_of(name)
        if rows.shape[:1] != (len(nodes),):
            raise GraphDataError(
                f"labels y of {name!r} has the shape {list(rows.shape)}, but there are {len(nodes)} nodes of it; "
                f"one row a node is needed, NaN or -1 where there is no label."
            )
        flat[nodes.start : nodes.stop] = rows
    return flat


def flat_split(name: str, ids: Mapping[str, Any], types: GraphTypes | None) -> np.ndarray:
    """Returns int64 ids in the graph for ids within each node type. Raises GraphDataError: a type has no such id."""
    per_type = [np.empty(0, np.int64)]  # np.concatenate needs one
    for type_key, local in ids.items():
        node_type = type_name(type_key, types, name)
        assert types is not None
        nodes = types.range_of(node_type)
        per_type.append(nodes.start + as_ids(local, name=f"{name} ids of {node_type!r}", num_nodes=len(nodes)))
    return np.concatenate(per_type)


def check_labels(y: torch.Tensor, split: str, ids: np.ndarray, types: GraphTypes) -> None:
    """Raises GraphDataError where a node of a split has no label: NaN, or a negative whole number."""
    if not len(ids) or not y.dtype.is_signed:
        return  # unsigned numbers cannot say that there is none
    rows = y[tensor_view(ids)].view(len(ids), -1)
    missing = rows.isnan().all(1) if y.is_floating_point() else (rows < 0).all(1)
    if bool(missing.any()):
        at = int(torch.argmax(missing.byte()))
        number = int(types.number_of(ids[at]))
        raise GraphDataError(
            f"{split}: node {ids[at] - types.first_node[number]} of type {types.node_types[number]!r} has no label "
            f"({rows[at].tolist()}), as {int(missing.sum())} of {len(ids)} have none. Leave them out of the split, or "
            f"give y for this type."
        )


def flat_seeds(seeds: Any) -> Any:
    """Returns one table of links that are given by edge type, and other seeds as they are."""
    if (
        isinstance(seeds, Mapping)
        and seeds
        and all(isinstance(table, SeedTable) and table.kind == "links" for table in seeds.values())
    ):
        return SeedTable.of_types(seeds)
    return seeds


def refuse_tables(name: str, seeds: Any) -> None:
    """Raises GraphDataError: tables lie in a list, or in a dict by type, where one table alone is taken."""
    if isinstance(seeds, Mapping):
        for node_type, rows in seeds.items():
            if isinstance(rows, SeedTable):
                raise GraphDataError(
                    f"{name}: a SeedTable says its type itself. Give SeedTable(nodes, node_type={node_type!r}) in the "
                    f"place of {{{node_type!r}: {rows!r}}}."
                )
            refuse_tables(name, rows)
    elif isinstance(seeds, list | tuple) and any(isinstance(table, SeedTable) for table in seeds):
        raise GraphDataError(
            f"{name}: one SeedTable is needed, not a {type(seeds).__name__} of {len(seeds)}: {list(seeds)}. Put all "
            "rows into one. Seeds of another type are another task's, which has its own fit: GraphData(tasks=...) and "
            "GraphDataModule(task=...)."
        )
    elif seeds is SeedTable:
        raise GraphDataError(f"{name} is the class SeedTable; give one of it: SeedTable(nodes, ...).")
