"""Writing a folder of raw arrays and one manifest, beside its final place and then renamed: all of it or nothing."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.pages import let_go
from lightning_gnnload.data.storage.manifest import FORMAT, MANIFEST, VERSION
from lightning_gnnload.errors import StoreFormatError

CHUNK_BYTES = 1 << 24  # large enough for a disk's full speed, small enough for Ctrl-C to be heard at once
_SUFFIX = ".partial"


@contextmanager
def new_folder(folder: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """Gives an empty folder to write to, which moves to its place when the ``with`` block ends; if that raises, it is
    removed. What a process that was killed left of the same folder is removed first.

    Raises:
        StoreFormatError: ``folder`` exists and ``overwrite`` is false.
    """
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(target)
    if target.exists() and not overwrite:
        raise StoreFormatError(f"{target} exists already. Give another folder, or overwrite=True to replace it.")
    with _workshop(target) as workshop:
        partial = workshop / "new"
        partial.mkdir(mode=0o700)  # readable by its owner alone, and so it stays
        yield partial
        _move_into_place(partial, target, workshop / "old")


def write_manifest(
    folder: Path,
    arrays: dict[str, Any],
    *,
    num_nodes: int,
    num_classes: int | None = None,
    attributes: dict[str, Any] | None = None,
    quantized: dict[str, str] | None = None,
    tables: dict[str, int | None] | None = None,
    edge_tables: list[str] | None = None,
    lost_order: bool = False,
    types: dict[str, Any] | None = None,
    clock: dict[str, Any] | None = None,
    seed_tables: dict[str, Any] | None = None,
) -> None:
    """Writes ``manifest.json``; ``arrays`` are entries of :func:`array_entry`."""
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "num_nodes": num_nodes,
        "num_classes": num_classes,
        "attributes": attributes or {},
        "arrays": arrays,
        "quantized": quantized or {},
        "tables": tables or {},
        "edge_tables": edge_tables,
        "lost_order": lost_order,
        "types": types,
        "clock": clock,
        "seed_tables": seed_tables or {},
    }
    with open(folder / MANIFEST, "w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def array_entry(file: Path, dtype: torch.dtype, shape: Iterable[int], checksum: int) -> dict[str, Any]:
    """Makes the manifest's entry of an array."""
    return {
        "file": file.name,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(shape),
        "crc32": checksum,
    }


def write_chunks(file: Path, chunks: Iterable[memoryview], size_bytes: int = 0) -> int:
    """Writes bytes to a new file and through to the disk; returns their CRC-32.

    Args:
        file: must not exist.
        chunks: the bytes; each chunk is done with when the next is asked for.
        size_bytes: of all, where it is known: a disk without room for them is then an error before the first.

    Raises:
        OSError: no room, or the disk fails.
    """
    checksum = 0
    with open(file, "xb") as out:
        if size_bytes:
            os.posix_fallocate(out.fileno(), 0, size_bytes)  # ftruncate would leave holes, and reserve nothing
        for chunk in chunks:
            checksum = zlib.crc32(chunk, checksum)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
        let_go(out.fileno())
    return checksum


def byte_chunks(array: torch.Tensor | FeatureStore) -> Iterator[memoryview]:
    """Yields the bytes of all rows in turn, a few megabytes at a time; a chunk is valid until the next is asked for."""
    if isinstance(array, MemoryFeatureStore):
        array = array.rows
    if isinstance(array, torch.Tensor):
        raw = raw_bytes(array)
        yield from (raw[start : start + CHUNK_BYTES] for start in range(0, len(raw), CHUNK_BYTES))
        return
    num_rows, width = array.shape
    rows_a_chunk = max(CHUNK_BYTES // max(array.row_bytes, 1), 1)
    out = torch.empty(min(rows_a_chunk, num_rows), width, dtype=array.dtype)
    for start in range(0, num_rows, rows_a_chunk):
        ids = torch.arange(start, min(start + rows_a_chunk, num_rows))
        array.gather(ids, out[: len(ids)])
        yield raw_bytes(out[: len(ids)])


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a tensor, without a copy where it is contiguous."""
    if tensor.numel() == 0:
        return memoryview(b"")
    # By strides of its own: of a single row any stride counts as contiguous, but not to view() as another dtype.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    """Gives a folder beside ``target`` that is removed in the end. Its lock tells other processes that it is in use;
    the kernel releases the lock of a process that dies."""
    while True:
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=_SUFFIX, dir=target.parent))
        descriptor = os.open(workshop, os.O_RDONLY)
        try:
            _lock(descriptor, fcntl.LOCK_EX)
            if not workshop.exists():  # another process took it for a leftover before the lock was ours
                continue
            try:
                yield workshop
            finally:
                shutil.rmtree(workshop, ignore_errors=True)
            return
        finally:
            os.close(descriptor)


def _clear_leftovers(target: Path) -> None:
    """Removes what processes that were killed left beside ``target``, and puts back what one had moved away."""
    name = re.compile(rf"\.{re.escape(target.name)}-\w{{8}}{re.escape(_SUFFIX)}")
    for workshop in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        if workshop.is_symlink():
            continue
        try:
            descriptor = os.open(workshop, os.O_RDONLY)
        except OSError:  # its owner was faster, or is another user
            continue
        try:
            # A process that still writes holds this lock; the kernel released that of a process that died.
            if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                # It was killed between the two renames of _move_into_place.
                if (workshop / "old").exists() and not target.exists():
                    os.rename(workshop / "old", target)
                shutil.rmtree(workshop, ignore_errors=True)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, operation: int) -> bool:
    """Takes a lock; returns whether it is ours, which it never is where the file system has no locks for folders."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        return False
    return True


def _move_into_place(partial: Path, target: Path, old: Path) -> None:
    """Renames are atomic; where a folder stands already, it is moved away first."""
    if not target.exists():
        os.rename(partial, target)
        return
    os.rename(target, old)
    try:
        os.rename(partial, target)
    except BaseException:
        os.rename(old, target)
        raise
