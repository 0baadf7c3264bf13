"""The files of results: one for a graph without types, and else one for each type."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.output import OutputFile, check_output, writing
from lightning_gnnload.errors import OutputError
from lightning_gnnload.inference.rows import StoredRows

_VALUES = "embedding"
_CHUNK_ROWS = 1 << 16


def check_places(out: str | os.PathLike[str] | None, types: Iterable[str]) -> dict[str, Path]:
    """Returns the file of each node type, ``out`` itself where there is one type; none where nothing is to be written.

    Raises:
        OutputError: a suffix that is none of results.
    """
    if out is None:
        return {}
    path = Path(out)
    if path.suffix not in (".npy", ".parquet"):
        raise OutputError(f"{path} must end in .npy or .parquet, as rows of all nodes are written in turn.")
    names = list(types)
    several = len(names) > 1
    return {name: check_output(path.with_suffix(f".{name}{path.suffix}") if several else path) for name in names}


def save(
    files: Mapping[str, Path], rows: Mapping[str, StoredRows], wanted: Mapping[str, np.ndarray | None], data: GraphData
) -> dict[str, torch.Tensor]:
    """Writes rows with their nodes' ids, the user's own where the data have them; returns the rows.

    A ``.npy`` file is the one that holds the rows already; ids lie beside it, unless they count up from 0.
    """
    found = {}
    for name, path in files.items():
        held, ids, own = rows[name], wanted[name], data.user_ids.get(name)
        column = "node" if own is None else own.column
        values = _VALUES if column != _VALUES else "row"
        is_array = path.suffix == ".npy"
        if not is_array or ids is not None or own is not None:
            place = path.with_suffix(f".{column}.npy") if is_array else path
            with OutputFile(place, values=column) as file:
                for begin in range(0, max(len(held.rows), 1), _CHUNK_ROWS):
                    part = slice(begin, min(begin + _CHUNK_ROWS, len(held.rows)))
                    of_part = np.arange(part.start, part.stop) if ids is None else ids[part]
                    columns = {column: of_part if own is None else own.take(of_part)}
                    file.write(columns if is_array else columns | {values: held.rows[part]})
        if is_array:
            with writing(path):
                held.path.replace(path)
        found[name] = held.rows
    return found
