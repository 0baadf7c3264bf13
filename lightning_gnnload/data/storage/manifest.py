"""``manifest.json`` of a graph folder, read as something that anyone may have written.

Nothing that it says is used before it was checked: names stay inside the folder, sizes are those of the files.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.errors import StoreFormatError

FORMAT = "lightning_gnnload.graph"
VERSION = 1
MANIFEST = "manifest.json"
STRETCH_BYTES = 1 << 24  # of an array, in which damage is found
CHECKSUM = "checksum"
"""The key of a JSON file's own checksum."""
_SPLITS = {"train", "val", "test"}
KEYS = {"format", "version", "num_nodes", "num_classes", "attributes", "arrays", "quantized", "tables", "edge_tables"}
KEYS |= {"lost_order", "types", "clock", "seed_tables", "user_ids", "class_names", "tasks", "task", CHECKSUM}
_MAX_ROWS = 1 << 48  # products with row sizes stay within int64
_MAX_DIMS = 8  # shapes come from a file that anyone may have written
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES = _INTEGERS | {"float16", "bfloat16", "float32", "float64", "bool"}


def with_checksum(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values for a JSON file with a checksum of all of them, which :func:`check_checksum` compares."""
    return {**values, CHECKSUM: _checksum(values)}


def check_checksum(path: Path, values: dict[str, Any]) -> None:
    """Raises StoreFormatError: the file's values are not those that were written. Those that were written without a
    checksum, as by the first releases, are taken as they are."""
    if CHECKSUM in values and values[CHECKSUM] != _checksum(values):
        raise StoreFormatError(
            f"{path} is damaged: what it says is not what was written, by its checksum. Prepare it again, or copy it "
            "again from where it is whole."
        )


def _checksum(values: dict[str, Any]) -> int:
    content = {key: value for key, value in values.items() if key != CHECKSUM}
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def parse_manifest(path: Path, content: bytes) -> dict[str, Any]:
    """Reads what ``manifest.json`` at ``path`` holds and checks its form, but not yet its arrays.

    Raises:
        StoreFormatError: it is foreign, of a newer version, or broken.
    """
    folder = path.parent
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreFormatError(f"{path} cannot be read: {error}. Prepare the data set again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreFormatError(f"{path} does not say format {FORMAT!r}: this is another program's folder.")
    if manifest.get("version") != VERSION:
        raise StoreFormatError(
            f"{folder} has format version {manifest.get('version')}, but this release reads version {VERSION}. "
            f"Prepare it again with this release, or install the release that wrote it."
        )
    if unknown := sorted(manifest.keys() - KEYS):
        raise StoreFormatError(
            f"{path}: there is no key {', '.join(map(repr, unknown))}; the folder is broken, or of a newer release. "
            "Prepare it again."
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
        and manifest.get("seed_tables", {}).keys() <= _SPLITS,
        "user_ids": _are_user_ids(manifest.get("user_ids", {})),
        "class_names": _are_names(manifest.get("class_names")),
        "tasks": _are_tasks(manifest.get("tasks", {})),
        "task": manifest.get("task") is None
        or (isinstance(manifest["task"], str) and manifest["task"] in manifest.get("tasks", {})),
        # Folders of graphs without types or times may lack these. What is in them is checked where they are read.
        "types": isinstance(manifest.get("types"), dict | None),
        "clock": isinstance(manifest.get("clock"), dict | None),
    }
    for key in sound:
        if not sound[key]:
            raise StoreFormatError(
                f"{path}: {key!r} is missing or of the wrong kind; the folder is broken. Prepare it again."
            )
    if missing := sorted(KEYS - manifest.keys()) if CHECKSUM in manifest else []:
        raise StoreFormatError(
            f"{path}: the keys {', '.join(map(repr, missing))} are missing; the folder is broken. Prepare it again."
        )
    check_checksum(path, manifest)
    return {key: value for key, value in manifest.items() if key != CHECKSUM}


def array_of_entry(path: Path, name: str, entry: Any) -> tuple[str, torch.dtype, list[int], tuple[int, ...]]:
    """Checks the entry of one array in the manifest at ``path``; returns its file, dtype, shape, and the CRC-32 of its
    bytes up to the end of each stretch of ``STRETCH_BYTES``, or of all of them alone.

    Raises:
        StoreFormatError: it is malformed.
    """
    try:
        file_name, dtype_name, shape, checksum = entry["file"], entry["dtype"], entry["shape"], entry["crc32"]
        checksums = (*entry.get("crc32_after", ()), checksum)
        sound = file_name == os.path.basename(file_name) and dtype_name in _DTYPES
        sound = sound and isinstance(shape, list) and len(shape) <= _MAX_DIMS and all(map(_is_count, shape))
        sound = sound and all(type(crc) is int and 0 <= crc < 1 << 32 for crc in checksums)
        if sound:
            dtype: torch.dtype = getattr(torch, dtype_name)
            # Folders of before have the last one alone.
            sound = len(checksums) in (1, _num_stretches(math.prod(shape) * dtype.itemsize))
    except (TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise StoreFormatError(
            f"{path}: the entry of array {name!r} is malformed; the folder is broken. Prepare it again."
        )
    return file_name, dtype, shape, checksums


def _num_stretches(size_bytes: int) -> int:
    """Returns in how many stretches so many bytes are checked; even none at all are one."""
    return max(-(-size_bytes // STRETCH_BYTES), 1)


def part_folder(number: int) -> str:
    """Returns the name of a part's folder in that of its partition."""
    return f"part-{number:04d}"


def _are_first_nodes(tables: Any) -> bool:
    """Checks the first node that each table has rows for; None where it has rows for all."""
    return isinstance(tables, dict) and all(first is None or _is_count(first) for first in tables.values())


def _are_names(tables: Any) -> bool:
    """Checks a list of names; None where none were given."""
    return tables is None or (isinstance(tables, list) and all(isinstance(name, str) for name in tables))


def _are_user_ids(described: Any) -> bool:
    """Checks what the user's ids of each node type are, and the name of their column."""
    return isinstance(described, dict) and all(
        isinstance(ids, dict) and ids.get("kind") in ("integer", "text") and isinstance(ids.get("column"), str)
        for ids in described.values()
    )


def _are_tasks(described: Any) -> bool:
    return isinstance(described, dict) and all(
        isinstance(task, dict)
        and isinstance(task.get("seed_tables"), dict)
        and task["seed_tables"].keys() <= _SPLITS
        and (task.get("num_classes", ...) is None or _is_count(task.get("num_classes")))
        and "class_names" in task
        and _are_names(task["class_names"])
        for task in described.values()
    )


def _are_floats(quantized: Any) -> bool:
    """Checks the dtype that each quantised array stands for."""
    return isinstance(quantized, dict) and all(
        dtype in ("float32", "float16", "bfloat16") for dtype in quantized.values()
    )


def _is_count(value: Any) -> bool:
    # Not isinstance: JSON's true and false are integers to it.
    return type(value) is int and 0 <= value < _MAX_ROWS
