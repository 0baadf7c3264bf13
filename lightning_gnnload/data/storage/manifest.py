"""``manifest.json`` of a graph folder, read as something that anyone may have written.

Nothing that it says is used before it was checked: names stay inside the folder, sizes are those of the files.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.errors import StoreFormatError

FORMAT = "lightning_gnnload.graph"
VERSION = 1
MANIFEST = "manifest.json"
_MAX_BYTES = 1 << 24  # a manifest is read whole, and a file of anyone's could be any size
_MAX_ROWS = 1 << 48  # products with row sizes stay within int64
_MAX_DIMS = 8  # shapes come from a file that anyone may have written
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES = _INTEGERS | {"float16", "bfloat16", "float32", "float64", "bool"}


@dataclass(frozen=True)
class StoredArray:
    """Describes one array as the manifest lists it: its file, dtype, shape and checksum."""

    file: Path
    dtype: torch.dtype
    shape: list[int]
    crc32: int

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest and checks its form, but not yet its arrays: see :func:`stored_arrays`.

    Raises:
        StoreFormatError: it is missing, foreign, of a newer version, or broken.
    """
    path = folder / MANIFEST
    try:
        found_bytes = _file_bytes(folder, MANIFEST)
        if found_bytes is not None and found_bytes > _MAX_BYTES:
            raise ValueError(f"it has {found_bytes} bytes, more than any manifest of ours")
        manifest = json.loads(path.read_text()) if found_bytes is not None else None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreFormatError(f"{path} cannot be read: {error}. Prepare the data set again.") from error
    if found_bytes is None:
        raise StoreFormatError(
            f"{folder} is not a graph folder: it has no {MANIFEST}. "
            f"Write one with save_graph_data, or of features alone with save_features, or prepare the data set."
        )
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreFormatError(f"{path} does not say format {FORMAT!r}: this is another program's folder.")
    if manifest.get("version") != VERSION:
        raise StoreFormatError(
            f"{folder} has format version {manifest.get('version')}, but this release reads version {VERSION}. "
            f"Prepare it again with this release, or install the release that wrote it."
        )
    sound = {
        "num_nodes": _is_count(manifest.get("num_nodes")),
        # null says that none was given; a missing key, which would read as None too, makes a broken manifest.
        "num_classes": manifest.get("num_classes", ...) is None or _is_count(manifest.get("num_classes")),
        "attributes": isinstance(manifest.get("attributes"), dict),
        "arrays": isinstance(manifest.get("arrays"), dict),
        "quantized": _are_floats(manifest.get("quantized", {})),
        "lost_order": isinstance(manifest.get("lost_order", False), bool),
        "tables": _are_first_nodes(manifest.get("tables", {})),
        "edge_tables": _are_names(manifest.get("edge_tables")),
        "seed_tables": isinstance(manifest.get("seed_tables", {}), dict)
        and manifest.get("seed_tables", {}).keys() <= {"train", "val", "test"},
        # Folders of graphs without types or times may lack these. What is in them is checked where they are read.
        "types": isinstance(manifest.get("types"), dict | None),
        "clock": isinstance(manifest.get("clock"), dict | None),
    }
    for key in sound:
        if not sound[key]:
            raise StoreFormatError(
                f"{path}: {key!r} is missing or of the wrong kind; the folder is broken. Prepare it again."
            )
    return manifest


def stored_arrays(folder: Path, manifest: dict[str, Any]) -> dict[str, StoredArray]:
    """Checks the arrays that a manifest lists, and returns them by name.

    Raises:
        StoreFormatError: an entry is malformed; a file is missing, of another size, or not of this folder.
    """
    return {name: _stored_array(folder, name, entry) for name, entry in manifest["arrays"].items()}


def _stored_array(folder: Path, name: str, entry: Any) -> StoredArray:
    try:
        file_name, dtype_name, shape, checksum = entry["file"], entry["dtype"], entry["shape"], entry["crc32"]
        sound = file_name == os.path.basename(file_name) and dtype_name in _DTYPES
        sound = sound and isinstance(shape, list) and len(shape) <= _MAX_DIMS and all(map(_is_count, shape))
        sound = sound and type(checksum) is int and 0 <= checksum < 1 << 32
    except (TypeError, KeyError):
        sound = False
    if not sound:
        raise StoreFormatError(
            f"{folder / MANIFEST}: the entry of array {name!r} is malformed; the folder is broken. Prepare it again."
        )
    array = StoredArray(folder / file_name, getattr(torch, dtype_name), shape, checksum)
    try:
        found_bytes = _file_bytes(folder, file_name)
    except OSError as error:
        raise StoreFormatError(f"{array.file} cannot be read: {error}. Prepare the data set again.") from error
    if found_bytes != array.size_bytes:
        found = "is missing" if found_bytes is None else f"has {found_bytes} bytes"
        raise StoreFormatError(
            f"{array.file} {found}, but the manifest says {array.size_bytes} ({dtype_name} {shape}): the folder is "
            f"broken, perhaps by an interrupted copy. Prepare it again."
        )
    return array


def _are_first_nodes(tables: Any) -> bool:
    """Checks the first node that each table has rows for; None where it has rows for all."""
    return isinstance(tables, dict) and all(first is None or _is_count(first) for first in tables.values())


def _are_names(tables: Any) -> bool:
    """Checks the names of the tables of edges; None where none were named."""
    return tables is None or (isinstance(tables, list) and all(isinstance(name, str) for name in tables))


def _are_floats(quantized: Any) -> bool:
    """Checks the dtype that each quantised array stands for."""
    return isinstance(quantized, dict) and all(
        dtype in ("float32", "float16", "bfloat16") for dtype in quantized.values()
    )


def _is_count(value: Any) -> bool:
    # Not isinstance: JSON's true and false are integers to it.
    return type(value) is int and 0 <= value < _MAX_ROWS


def _file_bytes(folder: Path, name: str) -> int | None:
    """Returns the size of a file of this folder, or None without one. A pipe or a device is none: reading may not end.

    Raises:
        StoreFormatError: a link leads out of the folder, where it would pass off any file for the data set's.
    """
    file = folder / name
    if not file.is_file():
        return None
    if file.is_symlink() and file.resolve().parent != folder.resolve():
        raise StoreFormatError(f"{file} is a link out of its folder, to {file.resolve()}. Copy that file in its place.")
    return file.stat().st_size
