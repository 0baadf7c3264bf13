"""The files of results: one for a graph without types, and else one for each type."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.id_columns import RESERVED
from lightning_gnnload.data.predicted import CLASS, PREDICTION, named_predictions
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import OutputError
from lightning_gnnload.inference.rows import StoredRows
from lightning_gnnload.storage.output import (
    TABLE_SUFFIXES,
    OutputFile,
    beside,
    check_output,
    explain_write_errors,
    suffix_of,
)

EMBEDDING = "embedding"
_CHUNK_ROWS = 1 << 16


def check_files(out: str | os.PathLike[str] | None, types: Iterable[str]) -> dict[str, Path]:
    """Returns the file of each node type, ``out`` itself for one type; none without ``out``. A suffix that results
    cannot have raises OutputError."""
    if out is None:
        return {}
    path = Path(out)
    if suffix_of(path) not in (".npy", *TABLE_SUFFIXES):
        raise OutputError(
            f"{path} must end in .npy, {', '.join(TABLE_SUFFIXES[:-1])} or {TABLE_SUFFIXES[-1]}, as rows of all nodes "
            "are written in turn."
        )
    names = list(types)
    several = len(names) > 1
    return {name: check_output(beside(path, name) if several else path) for name in names}


def save_rows(
    files: Mapping[str, Path],
    rows: Mapping[str, StoredRows],
    requested: Mapping[str, np.ndarray | None],
    data: GraphData,
    values: str,
) -> dict[str, torch.Tensor]:
    """Writes rows with their nodes' ids, the user's own where the data have them; returns the rows.

    Of predictions that have as many numbers as the data name classes, a column says which is the largest, and tables
    have a column for each class, as :func:`.named_predictions` has them. A ``.npy`` file is the one that the rows are
    in already; ids come beside it, unless they count up from 0, and classes.
    ``values`` is the column of the rows: :data:`PREDICTION` or :data:`EMBEDDING`.
    """
    output = {}
    for name, path in files.items():
        tensor, ids, user_ids = rows[name].rows, requested[name], data.user_ids.get(name)
        # A column of ids with the name of another one would replace it.
        column = "node" if user_ids is None or user_ids.column in (*RESERVED, values) else user_ids.column
        classes = _classes(data, values, tensor.shape[1:])
        part_columns = partial(_columns, tensor, ids, user_ids, classes, (column, values))
        if path.suffix != ".npy":
            _write(path, values, part_columns, len(tensor), data if values == PREDICTION else None)
        else:
            if ids is not None or user_ids is not None:
                _write(path.with_suffix(f".{column}.npy"), column, part_columns, len(tensor))
            if classes is not None:
                _write(path.with_suffix(f".{CLASS}.npy"), CLASS, part_columns, len(tensor))
            # The rows are in a file of this format already: it is renamed, not copied.
            with explain_write_errors(path):
                rows[name].path.replace(path)
        output[name] = tensor
    return output


def _classes(data: GraphData, values: str, row_shape: torch.Size) -> np.ndarray | None:
    """Returns the names of the classes, if rows are predictions with a number for each."""
    if data.class_names is None or values != PREDICTION or row_shape != (len(data.class_names),):
        return None
    return np.array(data.class_names, object)


def _columns(
    rows: torch.Tensor,
    ids: np.ndarray | None,
    user_ids: UserIds | None,
    classes: np.ndarray | None,
    names: tuple[str, str],
    part: slice,
) -> dict[str, Any]:
    """Returns the columns of a part of the rows; ``names`` are those of ids and of rows."""
    nodes = np.arange(part.start, part.stop) if ids is None else ids[part]
    columns = {names[0]: nodes if user_ids is None else user_ids.take(nodes), names[1]: rows[part]}
    return columns if classes is None else {**columns, CLASS: classes[rows[part].argmax(1).numpy()]}


def _write(
    path: Path,
    values: str,
    part_columns: Callable[[slice], dict[str, Any]],
    num_rows: int,
    names: GraphData | None = None,
) -> None:
    """Writes all columns of rows; to a ``.npy`` file the one of its name. ``names`` are data that name predictions."""
    with OutputFile(path, values=values) as file:
        for begin in range(0, max(num_rows, 1), _CHUNK_ROWS):
            columns = part_columns(slice(begin, min(begin + _CHUNK_ROWS, num_rows)))
            if names is not None:
                columns = named_predictions(columns, names.class_names, names.label_names)
            file.write({values: columns[values]} if path.suffix == ".npy" else columns)
