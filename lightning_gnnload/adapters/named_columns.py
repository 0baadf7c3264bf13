"""Columns of Python's own values, such as attributes in dicts, as arrays: all there and numbers, or refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lightning_gnnload.adapters.columns import as_names
from lightning_gnnload.data.arrays import as_single
from lightning_gnnload.errors import GraphDataError


def columns_of_dicts(
    rows: Sequence[Mapping[Any, Any]], names: Sequence[Any], what: str, without: Iterable[str]
) -> dict[str, np.ndarray]:
    """Returns the attributes of nodes or edges as columns, by name.

    Args:
        rows: the attributes of each.
        names: what the user calls each, for messages.
        what: ``"nodes"`` or ``"edges"``.
        without: attributes that are left out.

    Raises:
        GraphDataError: an attribute that some lack, or that makes no array of numbers.
    """
    found = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in without):
        lacking = [at for at, row in enumerate(rows) if name not in row]
        if lacking:
            raise GraphDataError(
                f"{len(lacking)} of {len(rows)} {what} have no attribute {name!r}, the first is {names[lacking[0]]!r}. "
                f"Give it to all of them, or leave it out: without=[{name!r}]."
            )
        found[name] = as_numbers([row[name] for row in rows], f"attribute {name!r} of {what}", name)
    return found


def as_numbers(values: Any, what: str, name: Any) -> np.ndarray:
    """Returns values as an array of numbers, ``[B, ...]``.

    Raises:
        GraphDataError: some are no numbers, or lists of different lengths.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    if array.dtype.kind == "M" and not np.isnat(array).any():
        return array.view(np.int64)  # in the column's own unit
    if array.dtype.kind in "iufb":
        return array
    raise GraphDataError(
        f"{what} is {_first_odd(values)}, but a number is needed, or a list of as many numbers for each. Give a number "
        f"for each text or category, or leave it out: without=[{name!r}]."
    )


def _first_odd(values: Any) -> str:
    for value in values:
        if not isinstance(value, int | float | np.number | np.bool_):
            return f"{value!r}, a {type(value).__name__}"
    return "no array of numbers"


def left_out(without: Iterable[str], known: Iterable[Any], where: str) -> list[str]:
    """Returns the names of what is left out.

    Raises:
        GraphDataError: one that is not there.
    """
    names, held = as_names(without) or [], set(known)
    for name in names:
        if name not in held:
            raise GraphDataError(f"without={name!r}, but {where} holds only {sorted(map(str, held))}.")
    return names


def as_features(column: np.ndarray | None, what: str) -> np.ndarray | None:
    """Returns features ``[B, F]``, of torch's usual precision; one number each is a column of width 1."""
    return single(column[:, None] if column is not None and column.ndim == 1 else column, what)


def single(column: np.ndarray | None, what: str) -> np.ndarray | None:
    """Returns floats in torch's usual precision, as models compute in it; Python's have none of their own to keep."""
    return None if column is None else as_single(column, name=what)
