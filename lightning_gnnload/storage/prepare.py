"""save_features: writes feature rows of any form and size to disk."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import FeatureFileError, GraphDataError, StoreFormatError
from lightning_gnnload.host.progress import progress as progress_bar
from lightning_gnnload.storage.folders import (
    NO_ROOM,
    array_entry,
    array_file,
    byte_chunks,
    new_folder,
    write_chunks,
    write_manifest,
)
from lightning_gnnload.storage.targets import check_target


def save_features(
    rows: Any,
    folder: str | os.PathLike[str],
    *,
    name: str = "x",
    overwrite: bool = False,
    progress: bool = True,
) -> None:
    """Writes a table of feature rows as a folder for :class:`.DiskFeatureStore`, atomically.

    Args:
        rows: ``[N, F]``, an array, tensor or :class:`.FeatureStore`; or an iterable of such tables, one after the
            other, of one width and dtype. No more than one of them, or a few megabytes, are in memory at once.
        folder: must not exist, unless ``overwrite``. Its disk needs room for all rows; the old ones go last.
        name: of the array in the folder.
        overwrite: replace the folder, if it is one of features and holds nothing else.
        progress: show a bar on stderr.

    Raises:
        StoreFormatError: ``folder`` exists and ``overwrite`` is false, or is not replaced, as :func:`.check_target` has
            it; ``name`` is none of a file.
        GraphDataError: no rows of numbers, or chunks of different widths or dtypes.
        FeatureFileError: no room, or the disk fails; nothing is then left behind.

    Example:
        >>> from lightning_gnnload import DiskFeatureStore
        >>> save_features((np.full((2, 3), chunk, np.float32) for chunk in range(4)), "chunks", progress=False)
        >>> DiskFeatureStore("chunks").shape
        (8, 3)
    """
    target = Path(folder)
    if not isinstance(name, str) or not name or name in (".", "..") or {*name} & {"/", "\0"}:
        raise StoreFormatError(f"name is {name!r}, but must name an array: a text without / or NUL.")
    file_name = array_file(name)
    check_target(target, "features", overwrite=overwrite)  # before the rows are made, which may take long
    table = _RowChunks(rows)
    bar = progress_bar("Writing features", table.size_bytes, show=progress)
    try:
        with new_folder(target, "features", overwrite=overwrite) as new, bar as advance:
            checksums = write_chunks(new / file_name, table.chunks(advance), table.size_bytes or 0)
            assert table.dtype is not None
            entry = array_entry(new / file_name, table.dtype, (table.num_rows, table.width), checksums)
            write_manifest(new, {name: entry}, num_nodes=table.num_rows)
    except FeatureFileError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in NO_ROOM:
            raise
        needed = "more" if table.size_bytes is None else f"{table.size_bytes / 2**20:.1f} MiB"
        free = shutil.disk_usage(target.parent).free / 2**20
        raise FeatureFileError(
            f"there is no room for {target}: it needs {needed}, and its disk has {free:.1f} MiB left, or fewer for "
            f"this user ({error.__cause__.strerror}). Nothing was left behind. Free some, or give a folder on another "
            f"disk."
        ) from error


class _RowChunks:
    """Rows of any form as bytes; their number is known at the end, or at once where they have a shape."""

    def __init__(self, rows: Any) -> None:
        self.num_rows, self.width = 0, 0
        self.dtype: torch.dtype | None = None
        self.size_bytes: int | None = None
        self._parts: Iterator[FeatureStore | torch.Tensor]
        if isinstance(rows, FeatureStore | torch.Tensor | np.ndarray):
            part = _as_chunk(rows)
            self.size_bytes = part.shape[0] * part.shape[1] * part.dtype.itemsize
            self._parts = iter([part])
        elif isinstance(rows, Iterable):
            self._parts = map(_as_chunk, rows)
        else:
            raise GraphDataError(f"features are a {type(rows).__name__}; give an array, a store or chunks of rows.")
        first = next(self._parts, None)
        if first is None:
            raise GraphDataError("features have no chunk at all, so that their width is unknown. Give one, if empty.")
        # Read before any byte is written, so that every chunk is checked against them.
        self.width, self.dtype = first.shape[1], first.dtype
        self._parts = itertools.chain([first], self._parts)

    def chunks(self, advance: Callable[[int], Any]) -> Iterator[memoryview]:
        for part in self._parts:
            if (part.shape[1], part.dtype) != (self.width, self.dtype):
                raise GraphDataError(
                    f"features from row {self.num_rows} on are {part.shape[1]} numbers of {part.dtype}, but those "
                    f"before are {self.width} of {self.dtype}: all rows need the same."
                )
            for chunk in byte_chunks(part):
                yield chunk
                advance(len(chunk))
            self.num_rows += part.shape[0]


def _as_chunk(rows: Any) -> FeatureStore | torch.Tensor:
    if isinstance(rows, FeatureStore):
        return rows
    table = as_rows(rows, name="features")
    if table.ndim != 2:
        raise GraphDataError(f"features, or each chunk of them, must be [N, F], but the shape is {list(table.shape)}.")
    return table
