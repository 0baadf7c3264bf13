"""Rows of a table of which a part is cached: one look-up a node decides between hit and miss.

Shapes: N graph nodes, B requested ids, R rows of the output, F feature width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import GnnLoadError, SeedError
from .checks import check_apart, check_array
from .dispatch import bytes_view, check_positions, kernels

SLOT_BITS: int = kernels.SLOT_BITS
MAX_SHARDS: int = kernels.MAX_SHARDS
"""A location is ``shard << SLOT_BITS | slot``: up to MAX_SHARDS shards of up to ``2**SLOT_BITS`` rows."""


def gather_tiered(
    location: np.ndarray,
    shards: Sequence[np.ndarray],
    backing: np.ndarray | None,
    ids: np.ndarray,
    out: np.ndarray,
    missed_ids: np.ndarray | None = None,
    missed_positions: np.ndarray | None = None,
    positions: np.ndarray | None = None,
) -> tuple[tuple[int, ...], int]:
    """Copies row ``ids[b]`` of a table to ``out[b]``, or to ``out[positions[b]]``, from the shard that has it. Returns
    the rows taken from each shard, and how many ids no shard had.

    ``location`` is int32 ``[N]``: ``shard << SLOT_BITS | slot``, negative where no shard has the node's row. Shards are
    tables ``[slots, F]`` of the dtype of ``out``. Other rows come from ``backing``, ``[N, F]``; without it they are
    missed: their ids, in order, and their rows of ``out``, which stay, become the first entries of ``missed_ids`` and
    ``missed_positions``, int64 ``[B]``.

    Raises SeedError for an id or position out of range, before anything is written; CacheShareError for a location that
    names no row of a shard, with ``out`` written in part; GnnLoadError for shapes or dtypes that do not fit each other.

    Source: GNNLab (EuroSys'22), section 6.1.

    Example:
        >>> location = np.array([-1, 1, 0], np.int32)  # node 1 is in slot 1, node 2 in slot 0
        >>> out, missed = np.zeros((2, 1)), np.zeros((2, 2), np.int64)
        >>> gather_tiered(location, [np.array([[20.0], [10.0]])], None, np.array([0, 1]), out, missed[0], missed[1])
        ((1,), 1)
        >>> out.tolist(), missed[:, 0].tolist()
        ([[0.0], [10.0]], [0, 0])
    """
    check_array("location", location, (np.int32,), 1, GnnLoadError)
    check_array("ids", ids, (np.int64,), 1, SeedError)
    check_array("out", out, None, 2, GnnLoadError, writable=True, aligned=False)
    if out.dtype.hasobject:
        raise GnnLoadError(f"out has dtype {out.dtype}, but must hold plain numbers.")
    tables = _checked_tables(shards, backing, len(location), out)
    missed: dict[str, Any] = {}
    if backing is None:
        missed = {"missed_ids": missed_ids, "missed_positions": missed_positions}
        for name, array in missed.items():
            check_array(name, array, (np.int64,), 1, GnnLoadError, writable=True)
            _check_length(name, array, len(ids), "id")
    check_positions(positions, ids, out)
    read = {"location": location, "ids": ids, "positions": positions} | tables
    written = {"out": out} | missed
    # Written arrays against each other as well, since the kernel writes all of them while it reads.
    for name, array in written.items():
        check_apart(
            name,
            array,
            *((other_name, values) for other_name, values in (read | written).items() if other_name != name),
        )
    return kernels.gather_tiered(
        location,
        [bytes_view(shard) for shard in shards],
        [len(shard) for shard in shards],
        None if backing is None else bytes_view(backing),
        out.shape[1] * out.itemsize,
        ids,
        positions,
        bytes_view(out),
        len(out),
        *(missed.values() or (None, None)),
    )


def _checked_tables(
    shards: Sequence[np.ndarray], backing: np.ndarray | None, num_nodes: int, out: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the tables by their names in errors. Raises GnnLoadError where their rows are not like those of
    ``out``."""
    if not isinstance(shards, list | tuple):
        raise GnnLoadError(f"shards is a {type(shards).__name__}, but must be a list of NumPy arrays.")
    if len(shards) > MAX_SHARDS:
        raise GnnLoadError(f"{len(shards)} shards were given, but a location can name {MAX_SHARDS} at most.")
    tables = {f"shards[{number}]": shard for number, shard in enumerate(shards)}
    if backing is not None:
        tables["backing"] = backing
    for name, table in tables.items():
        check_array(name, table, (out.dtype,), 2, GnnLoadError, aligned=False)
        if table.shape[1] != out.shape[1]:
            raise GnnLoadError(f"{name} has rows of {table.shape[1]} numbers, but out has rows of {out.shape[1]}.")
    if backing is not None:
        _check_length("backing", backing, num_nodes, "node")
    return tables


def _check_length(name: str, array: np.ndarray, length: int, unit: str) -> None:
    if len(array) != length:
        raise GnnLoadError(f"{name} has {len(array)} entries, but there are {length} {unit}s: one each is needed.")
