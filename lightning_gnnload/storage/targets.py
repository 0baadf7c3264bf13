"""Checks where a folder may be written: where nothing is, or in place of a folder of ours that has nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.storage.manifest import FORMAT, MANIFEST, part_folder
from lightning_gnnload.storage.open_folder import OpenFolder

FolderType = Literal["graph", "features", "partition"]
REPORT, FIGURE = "quality.json", "quality.png"
"""Files that ``gnnload partition`` adds to a partition's folder."""
BUILD_REPORT, TRANSFORMS = "report.json", "transforms.json"
"""Files that ``gnnload build`` adds to a graph's folder."""
_REMEDY = "Give another folder, or move it away yourself."


def check_target(
    folder: str | os.PathLike[str], folder_type: FolderType, *, overwrite: bool, repair: bool = False
) -> None:
    """Checks, without a change, that a folder can be written and that no file of anyone's would be lost.

    With ``overwrite``, an empty folder may be replaced, and one of ours of the same type that has only the files that
    its manifest lists. ``repair`` also replaces a folder with a broken manifest if all its files are named as arrays:
    for folders that this package has named.

    Raises StoreFormatError: something is there that stays, or nothing can be written there.
    """
    target = Path(folder)
    if target.name in ("", "..") or "\0" in str(target):
        raise StoreFormatError(f"{str(folder)!r} does not name a folder that could be written. Give one with a name.")
    with folder_lock(
        target.parent, fcntl.LOCK_SH
    ):  # who exchanges folders waits, so that this sees the one or the other
        check_locked_target(target, folder_type, overwrite=overwrite, repair=repair)


def check_locked_target(target: Path, folder_type: FolderType, *, overwrite: bool, repair: bool) -> None:
    """Checks as :func:`check_target`, for a caller that has the lock of the parent folder."""
    if not os.path.lexists(target):
        check_creatable(target)
        return
    if not overwrite:
        raise StoreFormatError(
            f"{target} exists already. Give another folder, or overwrite=True (--overwrite) to replace it."
        )
    if target.is_symlink():
        raise StoreFormatError(f"{target} is a link, to {os.readlink(target)}. Give the folder that it leads to.")
    if not target.is_dir():
        raise StoreFormatError(f"{target} is no folder, and files are never replaced by one. {_REMEDY}")
    check_creatable(target)
    with OpenFolder(target) as opened:
        if names := opened.names():
            _check_content(opened, names, folder_type, repair)


@contextmanager
def folder_lock(folder: Path, operation: int) -> Iterator[bool]:
    """Takes a folder's lock by ``fcntl.flock``; yields whether it got it.

    It gets none where the folder is gone or may not be read, or where the file system has no such locks.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, operation)
            is_ours = True
        except OSError:
            is_ours = False
        yield is_ours
    finally:
        with suppress(OSError):
            # Not by closing alone: a fork of this process may have the descriptor, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def check_creatable(target: Path) -> None:
    """Raises StoreFormatError: no file or folder can be made at ``target``. Call it before the work on the content."""
    parent = target.absolute().parent
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        problem = "may not be written to" if parent.is_dir() else "is no folder"
        raise StoreFormatError(f"{target} cannot be made: {parent} {problem}. Give a place elsewhere.")


class _Listing(NamedTuple):
    """The type of a folder, and the names that its manifest lists, as far as it can be read."""

    is_ours: bool
    folder_type: FolderType
    files: set[str]
    parts: set[str]


def _listing(folder: OpenFolder, repair: bool) -> _Listing:
    manifest: Any = None
    try:
        manifest = json.loads(folder.manifest_bytes)
        is_ours = manifest["format"] == FORMAT and type(manifest["version"]) is int
        files = {MANIFEST, *(entry["file"] for entry in manifest["arrays"].values())}
        described = manifest["attributes"].get("partition")
        parts = {part_folder(number) for number in range(len(described["parts"]))} if described else set()
        files |= {REPORT, FIGURE} if parts else set()
        files |= {BUILD_REPORT, TRANSFORMS} if manifest["attributes"].get("built_from") == "tables" else set()
        folder_type: FolderType = (
            "partition" if described else "graph" if "indptr" in manifest["arrays"] else "features"
        )
        return _Listing(is_ours, folder_type, files, parts)
    except (StoreFormatError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        # A disk may have broken a manifest of ours; but a sound one of another program says so in its format.
        manifest = manifest if isinstance(manifest, dict) else {}
        return _Listing(repair and manifest.get("format", FORMAT) == FORMAT, "graph", {MANIFEST}, set())


def _check_content(folder: OpenFolder, names: dict[str, int], folder_type: FolderType | None, repair: bool) -> None:
    """Raises StoreFormatError: the folder is not ours, has another type, or has other files as well."""
    is_ours, present_type, files, parts = _listing(folder, repair)
    if not is_ours:
        raise StoreFormatError(
            f"{folder.path} is not replaced, because it has no sound {MANIFEST} of this package, and its content would "
            f"be lost. {_REMEDY}"
        )
    if folder_type not in (None, present_type) and not repair:
        raise StoreFormatError(
            f"{folder.path} holds a {present_type.removesuffix('s')} folder, which a {folder_type} does not replace. "
            f"{_REMEDY}"
        )
    if repair:
        files |= {name for name in names if name.endswith(".bin")}
    strangers = [name for name, mode in names.items() if name not in (parts if stat.S_ISDIR(mode) else files)]
    if strangers:
        raise StoreFormatError(
            f"{folder.path} also holds {', '.join(sorted(strangers)[:5])}{', ...' * (len(strangers) > 5)}, which its "
            f"{MANIFEST} does not list. The folder is not replaced, since these would be lost. Move them away first."
        )
    for name in parts & names.keys():
        with OpenFolder(name, folder) as part:
            _check_content(part, part.names(), None, repair=False)
