"""Seeds of several tables in one, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import GraphDataError


def joined_arguments(tables: Sequence[Mapping[str, Any]], fill: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a :class:`.SeedTable` of the links of several, one behind the other, but for their type.

    Args:
        tables: the arguments of each.
        fill: what stands in columns that some lack, by the column's name.

    Raises:
        GraphDataError: as :meth:`.SeedTable.of_types` has it.
    """
    counts = [len(arguments["src"]) for arguments in tables]
    names = ("src", "dst", "edge_ids", "time", "y")
    joined = {name: _one_column(name, [arguments[name] for arguments in tables]) for name in names}
    forms = {arguments["time_form"] for arguments in tables}
    if len(forms) > 1:
        raise GraphDataError(f"SeedTable.of_types: times are given in the forms {forms}. Give all in one unit.")
    columns = _columns(tables)
    if not isinstance(fill, Mapping) or not fill.keys() <= columns.keys():
        raise GraphDataError(
            f"SeedTable.of_types: fill={fill!r:.200}: a dict by name is needed, of columns that some tables have: "
            f"{', '.join(columns) or 'there are none'}."
        )
    filled = {name: _one_column(name, parts, counts, fill.get(name)) for name, parts in columns.items()}
    return joined | {"time_form": forms.pop(), "weight": filled.pop("weight", None), "columns": filled}


def _columns(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[torch.Tensor | None]]:
    """Returns what mini-batches carry by row, by its name: the column of each table, None of those without."""
    carried = [{"weight": arguments["weight"], **arguments["columns"]} for arguments in tables]
    names = dict.fromkeys(name for rows in carried for name in rows if rows[name] is not None)
    return {name: [rows.get(name) for rows in carried] for name in names}


def _one_column(name: str, parts: list[Any], counts: Sequence[int] = (), fill: Any = None) -> Any:
    """Joins a column of several tables; ``fill`` is an entry of those without, which have so many rows.

    Raises:
        GraphDataError: some lack it, or have it in another form.
    """
    like = next((part for part in parts if part is not None), None)
    if like is None:
        return None
    if fill is not None:
        entry = _entry(name, like, fill)
        filled = (like.new_full((count, *like.shape[1:]), entry) for count in counts)
        parts = [instead if part is None else part for part, instead in zip(parts, filled, strict=True)]
    forms = {"missing" if part is None else f"{part.dtype} {['R', *part.shape[1:]]}" for part in parts}
    if len(forms) > 1:
        otherwise = f"; or say what stands there: fill={{{name!r}: 0}}" if counts else ""
        raise GraphDataError(
            f"SeedTable.of_types: {name!r} is {' and '.join(sorted(forms))}. Give it to all tables, of one dtype and "
            f"shape, or to none{otherwise}."
        )
    return torch.cat(parts) if isinstance(like, torch.Tensor) else np.concatenate(parts)


def _entry(name: str, like: torch.Tensor, fill: Any) -> Any:
    """Returns what fills a column, as a plain number; raises GraphDataError where the column cannot hold it."""
    try:
        number = fill.item() if isinstance(fill, torch.Tensor | np.ndarray | np.generic) else fill
        entry = like.new_full((), number).item()
        # Floats are rounded, as all are that lie in such a column.
        is_held = (abs(entry) == np.inf) == (abs(number) == np.inf) if like.is_floating_point() else entry == number
    except (TypeError, ValueError, RuntimeError, OverflowError):
        is_held = False
    if not is_held:
        raise GraphDataError(
            f"SeedTable.of_types: fill={{{name!r}: {fill!r:.100}}}, but that column is {like.dtype}, which does not "
            "hold it. Give one number that it holds, or that column to all tables."
        )
    return number
