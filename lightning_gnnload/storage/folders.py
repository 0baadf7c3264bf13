"""Writes a folder of raw arrays and a manifest to a staging folder, then moves it to its target: all or nothing."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.errors import FeatureFileError, StoreFormatError
from lightning_gnnload.host.pages import drop_page_cache
from lightning_gnnload.storage.manifest import FORMAT, MANIFEST, STRETCH_BYTES, VERSION, with_checksum
from lightning_gnnload.storage.targets import FolderType, check_locked_target, check_target, folder_lock

CHUNK_BYTES = 1 << 24  # large enough for a disk's full speed, small enough for Ctrl-C to work at once
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a full disk, of a user's quota, and of a file system that has no larger files."""
_SUFFIX = ".partial"
_LONGEST_NAME = 255
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # in the kernel, or in this file system


@contextmanager
def new_folder(
    folder: str | os.PathLike[str],
    folder_type: FolderType,
    *,
    overwrite: bool,
    repair: bool = False,
    alone: bool = False,
    keep: bool = True,
) -> Iterator[Path]:
    """Yields an empty folder, which replaces ``folder`` when the block ends, or is removed when the block raises.

    Readers find the old folder or the new one, as the two are exchanged at once, where the file system can do so (not
    NFS). If several processes write the same folder, the last one's stays; with ``alone``, only the first may write.
    Without ``keep`` the new folder is a trial, and removed. Leftovers of killed processes are removed first.

    Raises:
        StoreFormatError: :func:`.check_target` refuses ``folder``, before the block or after it; or, with ``alone``,
            another process is writing it.
        FeatureFileError: no room, or the disk fails; nothing is then left behind.
    """
    target = Path(folder)
    rules: dict[str, Any] = {"folder_type": folder_type, "overwrite": overwrite, "repair": repair}
    check_target(folder, **rules)
    try:
        # A trial makes no folders: it goes beside the nearest one that exists, which is on the same disk.
        while not keep and not target.absolute().parent.is_dir():
            target = target.absolute().parent.parent / target.name
        target.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(target)  # may put an old folder back
        check_target(folder, **rules)
        with _sole_staging_folder(target) if alone else staging_folder(target) as staging:
            new = staging / "new"
            new.mkdir(mode=0o700)  # readable by its owner alone, also after the move
            yield new
            if keep:
                _move_into_place(new, target, staging / "old", rules)
    except FeatureFileError:
        raise  # rows that could not be read
    except OSError as error:
        remedy = "on a disk with room" if error.errno in NO_ROOM else "that you may write to, on a disk that works"
        raise FeatureFileError(f"{folder} cannot be written: {error}. Give a folder {remedy}.") from error


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
    user_ids: dict[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    tasks: dict[str, Any] | None = None,
    task: str | None = None,
    aggregates: dict[str, Any] | None = None,
    vocabularies: Mapping[str, Sequence[str | None]] | None = None,
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
        "user_ids": user_ids or {},
        "class_names": None if class_names is None else list(class_names),
        "tasks": tasks or {},
        "task": task,
        **({"aggregates": aggregates} if aggregates else {}),
        **({"vocabularies": {name: list(names) for name, names in vocabularies.items()}} if vocabularies else {}),
    }
    with open(folder / MANIFEST, "w") as file:
        json.dump(with_checksum(manifest), file, indent=1)
        # On the disk before the folder moves, or a crash of the machine could leave an empty manifest in place.
        file.flush()
        os.fsync(file.fileno())


def array_file(name: str) -> str:
    """Returns the name of an array's file. Raises StoreFormatError: the array's name is too long, or no text."""
    # Quoted, as names of types, which may be any text, are part of an array's name.
    try:
        file = f"{quote(name, safe='', errors='surrogateescape')}.bin"
    except UnicodeEncodeError:
        file = ""
    if not 4 < len(file) <= _LONGEST_NAME:
        raise StoreFormatError(
            f"{name!r} cannot name an array: its file would need a name of {len(file)} bytes, of which there may be "
            f"{_LONGEST_NAME}. Use a shorter name, of ordinary characters."
        )
    return file


def array_entry(
    file: Path, dtype: torch.dtype | np.dtype, shape: Iterable[int], checksums: Sequence[int]
) -> dict[str, Any]:
    """Returns the manifest's entry of an array; ``checksums`` are those of :func:`write_chunks`."""
    *after, whole = checksums
    return {
        "file": file.name,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(shape),
        "crc32": whole,
        **({"crc32_after": after} if after else {}),
    }


def write_chunks(file: Path, chunks: Iterable[memoryview], size_bytes: int = 0) -> list[int]:
    """Writes chunks to a new file and through to the disk.

    With ``size_bytes``, a disk without room for all is an error before the first chunk. Returns the CRC-32 of all bytes
    up to the end of each stretch of ``STRETCH_BYTES``: each goes on from the one before, so that a stretch can be
    checked by itself, and the last one is that of the file.
    """
    with _ChunkWriter(file) as out:
        if size_bytes:
            # ftruncate would leave holes, and reserve nothing.
            os.posix_fallocate(out.file.fileno(), 0, size_bytes)
        for chunk in chunks:
            out.write(chunk)
        return out.finish()


class _ChunkWriter:
    """Writes chunks to a new file, and notes the CRC-32 so far at the end of each stretch."""

    def __init__(self, file: Path) -> None:
        self.file = open(file, "xb")  # noqa: SIM115  closed by __exit__
        self._checksums: list[int] = []
        self._checksum, self._left = 0, STRETCH_BYTES

    def write(self, chunk: memoryview) -> None:
        self.file.write(chunk)
        while len(chunk):
            if self._left == 0:
                self._checksums.append(self._checksum)
                self._left = STRETCH_BYTES
            piece, chunk = chunk[: self._left], chunk[self._left :]
            self._checksum, self._left = zlib.crc32(piece, self._checksum), self._left - len(piece)

    def finish(self) -> list[int]:
        """Writes through to the disk, and returns the checksums as :func:`write_chunks` does."""
        self.file.flush()
        os.fsync(self.file.fileno())
        drop_page_cache(self.file.fileno())
        return [*self._checksums, self._checksum]

    def __enter__(self) -> _ChunkWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()


class ArrayWriter:
    """Writes an array to a :func:`new_folder`, some rows at a time; use it in a ``with`` block."""

    def __init__(self, folder: Path, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.row_shape, self.num_rows = folder / array_file(name), np.dtype(dtype), row_shape, 0
        self._out = _ChunkWriter(self.path)

    def append(self, rows: np.ndarray) -> None:
        """Converts rows ``[n, *row_shape]`` to the dtype, and writes them."""
        rows = np.ascontiguousarray(rows, self.dtype)
        assert rows.shape[1:] == self.row_shape, f"{self.path.name}: rows of {rows.shape[1:]}, not {self.row_shape}"
        self.num_rows += len(rows)
        if rows.size:
            self._out.write(rows.reshape(-1).view(np.uint8).data)

    def entry(self) -> dict[str, Any]:
        """Writes through to the disk, and returns the manifest's entry; nothing can be appended any more."""
        return array_entry(self.path, self.dtype, (self.num_rows, *self.row_shape), self._out.finish())

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._out.__exit__()


def byte_chunks(array: torch.Tensor | FeatureStore) -> Iterator[memoryview]:
    """Yields the bytes of all rows, some megabytes at a time; the next chunk may overwrite the last."""
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
    # as_strided, as a single row is contiguous with any stride, which view() as another dtype refuses.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """Yields a folder beside ``target`` that is removed when the block ends."""
    # Its lock tells other processes that it is in use; the kernel releases the lock of a process that dies.
    while True:
        # Named before it is made, so that a signal between the two finds the folder to remove.
        staging = target.parent / f".{target.name}-{secrets.token_hex(8)}{_SUFFIX}"
        try:
            staging.mkdir(mode=0o700)
            with folder_lock(staging, fcntl.LOCK_EX):
                if not staging.exists():  # another process took it for a leftover before the lock was ours
                    continue
                try:
                    yield staging
                    return
                finally:
                    _remove(staging)
        finally:
            _remove(staging)


def _remove(staging: Path) -> None:
    """Removes a folder completely; an interrupt meanwhile is raised afterwards."""
    interrupted = None
    while os.path.lexists(staging):
        try:
            shutil.rmtree(staging, ignore_errors=True)
            break
        except BaseException as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted


@contextmanager
def _sole_staging_folder(target: Path) -> Iterator[Path]:
    """Yields a :func:`staging_folder`, unless another process has one for the target."""
    with ExitStack() as stack:
        # Under the lock, so that of processes that begin at once the first one gets it.
        with folder_lock(target.parent, fcntl.LOCK_EX):
            clear_leftovers(target)
            if rivals := _staging_folders(target):
                raise StoreFormatError(
                    f"{target} is being written by another process, in {rivals[0]}. Wait until it is done, give "
                    "another folder, or remove that one if no process has it any more."
                )
            staging = stack.enter_context(staging_folder(target))
        yield staging


def _staging_folders(target: Path) -> list[Path]:
    """Returns the staging folders of ``target``, those of killed processes among them."""
    name = re.compile(rf"\.{re.escape(target.name)}-\w{{8,16}}{re.escape(_SUFFIX)}")
    return [path for path in target.parent.iterdir() if name.fullmatch(path.name) and not path.is_symlink()]


def clear_leftovers(target: Path) -> None:
    """Removes the staging folders of killed processes; an old folder that one had moved away is put back."""
    for staging in _staging_folders(target):
        with folder_lock(staging, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
            # A process that still writes holds this lock; the kernel released that of a process that died.
            if is_ours:
                # The process was killed between the two renames of _move_into_place.
                if (staging / "old").exists() and not os.path.lexists(target):
                    with suppress(OSError):  # another process has moved its own there since
                        os.rename(staging / "old", target)
                shutil.rmtree(staging, ignore_errors=True)


def _move_into_place(new: Path, target: Path, old: Path, rules: dict[str, Any]) -> None:
    """Moves ``new`` to ``target``; a folder that was there is then at ``new``, or at ``old``."""
    # Others that write the same folder wait for the lock, so that none comes between the check and the exchange.
    with folder_lock(target.parent, fcntl.LOCK_EX):
        check_locked_target(target, **rules)  # again, as writing may have taken hours
        if not os.path.lexists(target):
            os.rename(new, target)
        elif not exchange(new, target):
            os.rename(target, old)
            try:
                os.rename(new, target)
            except BaseException:
                os.rename(old, target)
                raise


def exchange(first: Path, second: Path) -> bool:
    """Exchanges two folders in one step; returns False where the system cannot. Raises OSError."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # of glibc since 2.28, and Linux alone
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))
