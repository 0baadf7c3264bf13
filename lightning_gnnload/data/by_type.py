"""What is given by node or edge type, in the flat form that everything else speaks of: tables by dotted names, labels
and splits by the ids of the graph.

Shapes: N graph nodes, N_t nodes of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids, as_rows, tensor_view
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, SamplerConfigError


def table_of_type(column: str, of_type: Any) -> str:
    """Returns the name of the table that holds a column of one node or edge type; that of features is ``"x"``.

    Example:
        >>> table_of_type("x", "paper"), table_of_type("year", ("author", "writes", "paper"))
        ('x.paper', 'year.author__writes__paper')
    """
    return f"{column}.{of_type if isinstance(of_type, str) else '__'.join(of_type)}"


def columns_of_type(tables: Mapping[str, Any], of_type: Any) -> dict[str, Any]:
    """Returns the tables of one type by the names of their columns; the reverse of :func:`table_of_type`."""
    end = table_of_type("", of_type)
    split = ((name.partition("."), table) for name, table in tables.items())
    return {column: table for (column, dot, rest), table in split if dot + rest == end}


def flat_tables(x: Any, tables: Any, types: GraphTypes | None, *, of_edges: bool) -> tuple[Any, Any]:
    """Returns x and tables with those that are given by type under names of their own among the tables.

    Args:
        x: rows, or a dict of rows by type.
        tables: rows by name, or dicts of them by type.
        types: of the graph.
        of_edges: types are edge types.
    """
    what = "edge_x" if of_edges else "x"
    by_type: dict[Any, Mapping[str, Any]] = {}
    if isinstance(x, Mapping):
        by_type = {kind: {"x": rows} for kind, rows in x.items() if rows is not None}
        x = None
    named = {} if tables is None else tables
    found: dict[str, Any] = {}
    for kind, columns in by_type.items():
        found |= _of_type(kind, columns, types, what)
    if not isinstance(named, Mapping):
        return x, named  # which is refused where tables are checked
    for name, rows in named.items():
        if isinstance(rows, Mapping):
            found |= _of_type(name, rows, types, "edge_tables" if of_edges else "tables")
        else:
            found[name] = rows
    return x, found


def _of_type(kind: Any, columns: Mapping[str, Any], types: GraphTypes | None, what: str) -> dict[str, Any]:
    name = type_name(kind, types, what)
    return {table_of_type(column, name): rows for column, rows in columns.items()}


def type_name(kind: Any, types: GraphTypes | None, what: str) -> Any:
    """Returns the node type, or the edge type as a triple where ``what`` is of edges.

    Raises:
        GraphDataError: there is no such type, or the graph has none.
    """
    if types is None:
        raise GraphDataError(
            f"{what} is a dict by type, but the graph has no types. Build it with Graph.from_hetero, or give {what} of "
            f"all at once."
        )
    try:
        if what.startswith("edge"):
            return types.edge_types[types.edge_type_number(kind)]
        return types.node_types[types.node_type_number(kind)]
    except SamplerConfigError as error:
        raise GraphDataError(f"{what}: {error}") from error


def flat_labels(y: Mapping[str, Any], types: GraphTypes | None) -> torch.Tensor:
    """Returns the labels of all nodes, ``[N]`` or ``[N, C]``: those of types left out are NaN, or -1 of whole numbers.

    Raises:
        GraphDataError: labels of several dtypes or widths, or not one a node of their type.
    """
    given = {type_name(name, types, "y"): as_rows(rows, what=f"labels y of {name!r}") for name, rows in y.items()}
    if types is None or not given:
        raise GraphDataError("labels y: a dict of labels by node type is empty. Give y=None for data without labels.")
    kinds = {(rows.dtype, rows.shape[1:]) for rows in given.values()}
    if len(kinds) > 1:
        raise GraphDataError(
            f"labels y of {', '.join(map(repr, given))} differ in dtype or width: "
            f"{', '.join(f'{dtype} {list(shape)}' for dtype, shape in kinds)}. Give all of one."
        )
    ((dtype, shape),) = kinds
    has_nan = dtype.is_floating_point
    fills = dtype if has_nan or dtype in (torch.int16, torch.int32) else torch.int64  # which can all say -1
    flat = torch.full((int(types.first_node[-1]), *shape), float("nan") if has_nan else -1, dtype=fills)
    for name, rows in given.items():
        nodes = types.range_of(name)
        if rows.shape[:1] != (len(nodes),):
            raise GraphDataError(
                f"labels y of {name!r} has the shape {list(rows.shape)}, but there are {len(nodes)} nodes of it; "
                f"one row a node is needed, NaN or -1 where there is no label."
            )
        flat[nodes.start : nodes.stop] = rows
    return flat


def flat_split(name: str, ids: Mapping[str, Any], types: GraphTypes | None) -> np.ndarray:
    """Returns ids in the graph, int64, of ids by node type, which count within their type.

    Raises:
        GraphDataError: an id that its type has not.
    """
    found = [np.empty(0, np.int64)]
    for given, local in ids.items():
        node_type = type_name(given, types, name)
        assert types is not None
        nodes = types.range_of(node_type)
        found.append(nodes.start + as_ids(local, what=f"{name} ids of {node_type!r}", num_nodes=len(nodes)))
    return np.concatenate(found)


def check_labels(y: torch.Tensor, split: str, ids: np.ndarray, types: GraphTypes) -> None:
    """Raises GraphDataError: a node of a split has no label: NaN, or a negative whole number."""
    if not len(ids) or not y.dtype.is_signed:
        return  # a dtype without signs has no number for none
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
