"""Seed tables in a folder: their arrays, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import GraphDataError, SeedError, StoreFormatError

_ARRAYS = ("nodes", "src", "dst", "dst_ptr", "edge_ids", "time", "y")
"""Arguments of a :class:`SeedTable` that are arrays."""


def seed_arrays(tables: Mapping[str, SeedTable]) -> dict[str, torch.Tensor]:
    """Returns the arrays of seed tables by split, as ``seeds.<split>.<argument>``; columns are ``column.<name>``."""
    found: dict[str, torch.Tensor] = {}
    for split, table in tables.items():
        rows: dict[str, Any] = {"src" if table.is_links else "nodes": table.ends[:, 0], "dst": table.targets}
        rows |= {name: getattr(table, name) for name in ("dst_ptr", "edge_ids", "time", "y")}
        rows |= {f"column.{name}": column for name, column in table.columns.items() if name != "time"}
        for name, values in rows.items():
            if values is not None:
                tensor = values if isinstance(values, torch.Tensor) else tensor_view(values)
                found[f"seeds.{split}.{name}"] = tensor.contiguous()
    return found


def described_seeds(tables: Mapping[str, SeedTable]) -> dict[str, Any]:
    """Returns what the manifest says of seed tables beside their arrays: JSON values by split."""
    return {
        split: {
            "node_type": table.node_type,
            "edge_type": list(table.edge_type) if isinstance(table.edge_type, tuple) else table.edge_type,
            "columns": [name for name in table.columns if name != "time"],
        }
        for split, table in tables.items()
    }


def open_seeds(path: Path, described: Any, arrays: Mapping[str, torch.Tensor]) -> dict[str, SeedTable]:
    """Makes the seed tables of a folder.

    Args:
        path: of the folder.
        described: what the manifest says of them.
        arrays: of the folder, by name.

    Raises:
        StoreFormatError: an array is missing, or they make no table.
    """
    try:
        return {split: _table(f"seeds.{split}.", each, arrays) for split, each in described.items()}
    except (GraphDataError, SeedError, AttributeError, KeyError, TypeError) as error:
        raise StoreFormatError(f"{path} has a seed table that is broken: {error} Prepare it again.") from error


def _table(prefix: str, described: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> SeedTable:
    given: dict[str, Any] = {name: arrays[prefix + name] for name in _ARRAYS if prefix + name in arrays}
    columns = {name: arrays[f"{prefix}column.{name}"] for name in described["columns"]}
    edge_type = described["edge_type"]
    return SeedTable(
        **given,
        node_type=described["node_type"],
        edge_type=tuple(edge_type) if isinstance(edge_type, list) else edge_type,
        weight=columns.pop("weight", None),
        columns=columns,
    )
