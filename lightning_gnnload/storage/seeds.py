"""Seed tables in a folder: their arrays, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.task import Task
from lightning_gnnload.errors import GraphDataError, SeedError

_ARRAYS = ("nodes", "src", "dst", "dst_ptr", "edge_ids", "time", "y")
"""Arguments of a :class:`SeedTable` that are arrays."""


def seed_arrays(tables: Mapping[str, SeedTable], prefix: str = "seeds") -> dict[str, torch.Tensor]:
    """Returns the arrays of seed tables by split, as ``<prefix>.<split>.<argument>``; columns are ``column.<name>``."""
    tensors: dict[str, torch.Tensor] = {}
    for split, table in tables.items():
        arguments = table.arguments()
        columns = {"weight": arguments["weight"], **arguments["columns"]}
        rows = arguments | {f"column.{name}": column for name, column in columns.items()}
        for name, values in rows.items():
            if values is not None and (name in _ARRAYS or name.startswith("column.")):
                tensor = values if isinstance(values, torch.Tensor) else tensor_view(values)
                tensors[f"{prefix}.{split}.{name}"] = tensor.contiguous()
    return tensors


def described_seeds(tables: Mapping[str, SeedTable]) -> dict[str, Any]:
    """Returns what the manifest says of seed tables beside their arrays: JSON values by split."""
    return {
        split: {
            "node_type": table.node_type,
            "edge_type": table.edge_type,
            "columns": [name for name in table.columns if name != "time"],
            "time_form": None if table.time_form is None else table.time_form.to_json(),
            # Of several types alone: folders of one are those that earlier releases wrote.
            **({} if len(table.rows_by_type) == 1 else {"edge_types": _counts(table)}),
        }
        for split, table in tables.items()
    }


def _counts(table: SeedTable) -> list[Any]:
    return [[name, len(rows)] for name, rows in table.rows_by_type.items()]


def open_seeds(described: Any, arrays: Mapping[str, torch.Tensor], prefix: str = "seeds") -> dict[str, SeedTable]:
    """Makes the seed tables of a folder, whose arrays' names begin with ``prefix``.

    Raises:
        GraphDataError: an array is missing, or they make no table.
    """
    tables = {}
    for split, table in described.items():
        try:
            tables[split] = _table(f"{prefix}.{split}.", table, arrays)
        except (GraphDataError, SeedError, AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"there is no {error}" if isinstance(error, KeyError) else error
            raise GraphDataError(f"{prefix}.{split} is no seed table: {problem}") from error
    return tables


def task_arrays(tasks: Mapping[str, Task]) -> dict[str, torch.Tensor]:
    """Returns the arrays of all tasks' seed tables, as ``task.<name>.<split>.<argument>``."""
    tensors: dict[str, torch.Tensor] = {}
    for name, task in tasks.items():
        tensors |= seed_arrays(task.splits, f"task.{name}")
    return tensors


def described_tasks(tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Returns what the manifest says of tasks beside their arrays: JSON values by name."""
    return {
        name: {
            "seed_tables": described_seeds(task.splits),
            "num_classes": task.num_classes,
            "class_names": None if task.class_names is None else list(task.class_names),
            "label_names": None if task.label_names is None else list(task.label_names),
            **({} if task.as_of is None else {"as_of": task.as_of}),
        }
        for name, task in tasks.items()
    }


def open_tasks(described: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> dict[str, Task]:
    """Makes the tasks of a folder, whose description passed :func:`.parse_manifest`, as :func:`open_seeds` does."""
    return {
        name: Task(
            open_seeds(task["seed_tables"], arrays, f"task.{name}"),
            task["num_classes"],
            _names(task["class_names"]),
            _names(task.get("label_names")),  # which the first releases did not write
            task.get("as_of"),
        )
        for name, task in described.items()
    }


def _table(prefix: str, described: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> SeedTable:
    arguments: dict[str, Any] = {name: arrays[prefix + name] for name in _ARRAYS if prefix + name in arrays}
    columns = {name: arrays[f"{prefix}column.{name}"] for name in described["columns"]}
    by_type = {_type_of(name): count for name, count in described.get("edge_types", ())}  # of one alone or several
    return SeedTable(
        **arguments,
        time_form=TimeForm.from_json(described.get("time_form")),  # which the first releases did not write
        node_type=described["node_type"],
        edge_type=by_type if len(by_type) > 1 else _type_of(described["edge_type"]),
        weight=columns.pop("weight", None),
        columns=columns,
    )


def _names(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _type_of(edge_type: Any) -> Any:
    """Returns the edge type that JSON has as a list."""
    return tuple(edge_type) if isinstance(edge_type, list) else edge_type
