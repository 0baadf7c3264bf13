"""``manifest.json`` of a graph folder, which is checked as a file that anyone may have written."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.errors import StoreFormatError

FORMAT = "lightning_gnnload.graph"
VERSION = 1
MANIFEST = "manifest.json"
STRETCH_BYTES = 1 << 24  # of an array, which have a checksum each
CHECKSUM = "checksum"
"""The key of a JSON file's own checksum."""
_SPLITS = {"train", "val", "test", "predict"}
_MAX_ROWS = 1 << 48  # products with row sizes stay within int64
_MAX_DIMS = 8  # shapes come from a file that anyone may have written
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES = _INTEGERS | {"float16", "bfloat16", "float32", "float64", "bool"}


def with_checksum(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values for a JSON file, with a checksum of all of them."""
    return {**values, CHECKSUM: _checksum(values)}


def check_checksum(path: Path, values: dict[str, Any]) -> None:
    """Raises StoreFormatError: the file's values are not those that were written."""
    # Files of the first releases have no checksum.
    if CHECKSUM in values and values[CHECKSUM] != _checksum(values):
        raise StoreFormatError(
            f"{path} is damaged: what it says is not what was written, by its checksum. Prepare it again, or copy it "
            "again from where it is whole."
        )


def _checksum(values: dict[str, Any]) -> int:
    content = {key: value for key, value in values.items() if key != CHECKSUM}
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def parse_manifest(path: Path, content: bytes) -> dict[str, Any]:
    """Parses the content of ``manifest.json`` at ``path`` and checks its form, but not the entries of its arrays.

    Raises StoreFormatError: it is foreign, of a newer version, or broken.
    """
    manifest = _parse_current(path, content)
    broken = [key for key, (default, has_form) in _FORMS.items() if not has_form(manifest.get(key, default))]
    if not broken and manifest.get("task") not in (None, *manifest.get("tasks", {})):
        broken = ["task"]
    if broken:
        raise StoreFormatError(
            f"{path}: {broken[0]!r} is missing or of the wrong kind; the folder is broken. Prepare it again."
        )
    if missing := sorted(KEYS - LATER - manifest.keys()) if CHECKSUM in manifest else []:
        raise StoreFormatError(
            f"{path}: the keys {', '.join(map(repr, missing))} are missing; the folder is broken. Prepare it again."
        )
    check_checksum(path, manifest)
    return {key: value for key, value in manifest.items() if key != CHECKSUM}


def _parse_current(path: Path, content: bytes) -> dict[str, Any]:
    """Parses a manifest of this version, without a key that this release does not know."""
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreFormatError(f"{path} cannot be read: {error}. Prepare the data set again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreFormatError(f"{path} does not say format {FORMAT!r}: this is another program's folder.")
    if manifest.get("version") != VERSION:
        raise StoreFormatError(
            f"{path.parent} has format version {manifest.get('version')}, but this release reads version {VERSION}. "
            f"Prepare it again with this release, or install the release that wrote it."
        )
    if unknown := sorted(manifest.keys() - KEYS):
        raise StoreFormatError(
            f"{path}: there is no key {', '.join(map(repr, unknown))}; the folder is broken, or of a newer release. "
            "Prepare it again."
        )
    return manifest


def array_of_entry(path: Path, name: str, entry: Any) -> tuple[str, torch.dtype, list[int], tuple[int, ...]]:
    """Checks the entry of one array in the manifest at ``path``; returns its file, dtype, shape and checksums.

    The checksums are those of :func:`.write_chunks`, or the last of them alone.
    """
    try:
        file_name, dtype_name, shape, checksum = entry["file"], entry["dtype"], entry["shape"], entry["crc32"]
        checksums = (*entry.get("crc32_after", ()), checksum)
        sound = file_name == os.path.basename(file_name) and dtype_name in _DTYPES
        sound = sound and isinstance(shape, list) and len(shape) <= _MAX_DIMS and all(map(_is_count, shape))
        sound = sound and all(type(crc) is int and 0 <= crc < 1 << 32 for crc in checksums)
        if sound:
            dtype: torch.dtype = getattr(torch, dtype_name)
            # Older folders have the last one alone.
            sound = len(checksums) in (1, _num_stretches(math.prod(shape) * dtype.itemsize))
    except (TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise StoreFormatError(
            f"{path}: the entry of array {name!r} is malformed; the folder is broken. Prepare it again."
        )
    return file_name, dtype, shape, checksums


def array_shape(path: Path, name: str, entry: Any) -> tuple[torch.dtype, list[int]]:
    """Checks what the manifest at ``path`` says of an array that lies elsewhere; returns its dtype and shape."""
    values: Any = entry if isinstance(entry, dict) else {}
    dtype, shape = values.get("dtype"), values.get("shape")
    is_shape = isinstance(shape, list) and 0 < len(shape) <= _MAX_DIMS and all(map(_is_count, shape))
    if is_shape and dtype in _DTYPES and math.prod(shape) < 1 << 60:
        return getattr(torch, dtype), shape
    raise StoreFormatError(f"{path}: the rows of {name!r} are malformed; the folder is broken. Prepare it again.")


def _num_stretches(size_bytes: int) -> int:
    """Returns the number of stretches of so many bytes; an empty array has one."""
    return max(-(-size_bytes // STRETCH_BYTES), 1)


def part_folder(number: int) -> str:
    """Names the folder of a part within its partition."""
    return f"part-{number:04d}"


def _are_first_nodes(tables: Any) -> bool:
    """Returns whether each table has the first node of its range, or None where it has rows for all nodes."""
    return isinstance(tables, dict) and all(map(_is_count_or_none, tables.values()))


def _are_names(tables: Any) -> bool:
    return tables is None or (isinstance(tables, list) and all(isinstance(name, str) for name in tables))


def _are_user_ids(described: Any) -> bool:
    """Returns whether each node type's ids have their type and the name of their column."""
    return isinstance(described, dict) and all(
        isinstance(ids, dict) and ids.get("kind") in ("integer", "text") and isinstance(ids.get("column"), str)
        for ids in described.values()
    )


def _are_tasks(described: Any) -> bool:
    return isinstance(described, dict) and all(
        isinstance(task, dict)
        and _are_splits(task.get("seed_tables"))
        and _is_count_or_none(task.get("num_classes", ...))
        and "class_names" in task
        and _are_names(task["class_names"])
        and _are_names(task.get("label_names"))
        and (task.get("as_of") is None or type(task["as_of"]) in (int, float))
        for task in described.values()
    )


def _are_splits(tables: Any) -> bool:
    return isinstance(tables, dict) and tables.keys() <= _SPLITS


def _are_vocabularies(described: Any) -> bool:
    """Returns whether each table has a list of names of vocabularies, or None, for its columns."""
    return isinstance(described, dict) and all(
        isinstance(names, list) and all(isinstance(name, str | None) for name in names) for names in described.values()
    )


def _are_floats(quantized: Any) -> bool:
    """Returns whether each quantised array has the dtype that it is decoded to."""
    return isinstance(quantized, dict) and all(
        dtype in ("float32", "float16", "bfloat16") for dtype in quantized.values()
    )


def _is_count(value: Any) -> bool:
    # Not isinstance, to which JSON's true and false are integers.
    return type(value) is int and 0 <= value < _MAX_ROWS


def _is_count_or_none(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_dict_or_none(value: Any) -> bool:
    return isinstance(value, dict | None)


# The default of a missing key, and the check of its form. Keys came with releases, so that old folders lack some; null
# for num_classes says that none was given, and a missing one is broken.
_FORMS: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "num_nodes": (None, _is_count),
    "num_classes": (..., _is_count_or_none),
    "attributes": (None, _is_dict),
    "arrays": (None, _is_dict),
    "quantized": ({}, _are_floats),
    "lost_order": (False, lambda value: isinstance(value, bool)),
    "tables": ({}, _are_first_nodes),
    "edge_tables": (None, _are_names),
    "seed_tables": ({}, _are_splits),
    "user_ids": ({}, _are_user_ids),
    "class_names": (None, _are_names),
    "tasks": ({}, _are_tasks),
    "task": (None, lambda value: isinstance(value, str | None)),
    # The content of these three is checked where they are read.
    "types": (None, _is_dict_or_none),
    "clock": (None, _is_dict_or_none),
    "aggregates": ({}, _is_dict),
    "vocabularies": ({}, _are_vocabularies),
}
LATER = {"aggregates", "vocabularies"}
"""Keys that folders need not have, since releases before them wrote a checksum, too."""
KEYS = {"format", "version", CHECKSUM, *_FORMS}
