"""Columns of Python's own values, such as attributes in dicts, as arrays: all there and numbers, or refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lightning_gnnload.adapters.columns import chosen
from lightning_gnnload.data.arrays import as_single
from lightning_gnnload.errors import GraphDataError


def columns_of_dicts(
    rows: Sequence[Mapping[Any, Any]], names: Sequence[Any], noun: str, without: Iterable[str]
) -> dict[str, np.ndarray]:
    """Returns the attributes of nodes or edges as columns, by name, but for those ``without``.

    ``names`` are the user's names of the nodes or edges, and ``noun`` is ``"nodes"`` or ``"edges"``, for messages: an
    attribute that some of them lack, or that makes no array of numbers, raises GraphDataError.
    """
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in without):
        lacking = [at for at, row in enumerate(rows) if name not in row]
        if lacking:
            raise GraphDataError(
                f"{len(lacking)} of {len(rows)} {noun} have no attribute {name!r}, the first is {names[lacking[0]]!r}. "
                f"Give it to all of them, or leave it out: without=[{name!r}]."
            )
        columns[name] = numeric_array([row[name] for row in rows], f"attribute {name!r} of {noun}", name)
    return columns


def numeric_array(values: Any, source: str, name: Any) -> np.ndarray:
    """Returns values as an array of numbers, ``[B, ...]``; raises GraphDataError where some are no numbers, or lists of
    different lengths."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    # Times stay numbers in the column's own unit; NaT is none, as int64 it would be the earliest of all.
    if array.dtype.kind == "M" and not np.isnat(array).any():
        return array.view(np.int64)
    if array.dtype.kind in "iufb":
        return array
    raise GraphDataError(
        f"{source} is {_first_odd(values)}, but a number is needed, or a list of as many numbers for each. Give a "
        f"number for each text or category, or leave it out: without=[{name!r}]."
    )


def _first_odd(values: Any) -> str:
    for value in values:
        if not isinstance(value, int | float | np.number | np.bool_):
            return f"{value!r}, a {type(value).__name__}"
    return "no array of numbers"


def omitted(without: Iterable[str], names: Iterable[Any], where: str) -> list[str]:
    """Returns the names that are left out; raises GraphDataError for one that is not ``where`` these ``names`` are."""
    return list(chosen(dict.fromkeys(names), without or (), "without", where))


def as_features(column: np.ndarray | None, source: str) -> np.ndarray | None:
    """Returns features ``[B, F]``, of torch's usual precision; one number each is a column of width 1."""
    return as_floats(column[:, None] if column is not None and column.ndim == 1 else column, source)


def as_floats(column: np.ndarray | None, source: str) -> np.ndarray | None:
    """Returns floats in torch's usual precision, as models compute in it; Python's have none of their own to keep."""
    return None if column is None else as_single(column, name=source)
