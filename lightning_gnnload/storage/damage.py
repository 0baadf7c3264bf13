"""Compares a folder's files with the checksums of what was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.storage.manifest import MANIFEST, STRETCH_BYTES
from lightning_gnnload.storage.open_folder import OpenFolder, StoredArray

_READ_BYTES = 1 << 22  # at once: small enough for Ctrl-C to be heard
Advance = Callable[[int], object]
ReadAt = Callable[[memoryview, int], int]
"""Reads a file into memory from an offset on; returns how many bytes it read."""
Reader = Callable[[int], ReadAt]
"""Returns the function that reads the file of a descriptor."""


class FileCheck(NamedTuple):
    """The result of checking one file."""

    file: Path
    array: str | None  # None: a manifest
    size_bytes: int
    error: StoreFormatError | None  # None: no damage


class ByteRange(NamedTuple):
    """Damaged bytes of an array, ``start`` to ``stop - 1``."""

    start: int
    stop: int


def _no_progress(num_bytes: int) -> None:
    pass


def _plain_reader(fd: int) -> ReadAt:
    return lambda memory, at: os.preadv(fd, [memory], at)


def find_damage(
    array: StoredArray,
    advance: Advance = _no_progress,
    reader: Reader = _plain_reader,
) -> list[ByteRange]:
    """Reads the file of an array, whose folder is open, and returns the damaged stretches of 16 MiB or less.

    ``advance`` gets the number of bytes after each read, and may raise to end it. Old folders have one checksum an
    array, and so one stretch.
    """
    damaged, start, before = [], 0, 0
    memory = memoryview(bytearray(min(_READ_BYTES, array.size_bytes)))
    try:
        fd = array.open()
        try:
            read = reader(fd)
            for number, expected in enumerate(array.checksums, 1):
                last = number == len(array.checksums)
                stop = array.size_bytes if last else number * STRETCH_BYTES
                checksum, at = before, start
                while at < stop and (count := read(memory[: stop - at], at)):
                    checksum, at = zlib.crc32(memory[:count], checksum), at + count
                    advance(count)
                if checksum != expected or at < stop:
                    damaged.append(ByteRange(start, stop))
                # Goes on from what was written, not from what was read, so that damage does not spread to what follows.
                start, before = stop, expected
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreFormatError(f"{array.file} cannot be read: {error}. Prepare it again.") from error
    return damaged


def check_folder(
    folder: OpenFolder, advance: Advance = _no_progress, reader: Reader = _plain_reader
) -> Iterator[FileCheck]:
    """Reads all of a folder, which stays open, and of a partition its parts; yields the result of each array."""
    for name in folder.manifest["arrays"]:
        size_bytes, file, error = 0, folder.path / MANIFEST, None
        try:
            array = folder.array(name)
            size_bytes, file = array.size_bytes, array.file
            damaged = find_damage(array, advance, reader)
            error = damage_error(array, damaged) if damaged else None
        except StoreFormatError as failure:
            error = failure
        yield FileCheck(file, name, size_bytes, error)
    for name, checksum in folder.parts.items():
        try:
            with OpenFolder(name, folder) as part:
                if zlib.crc32(part.manifest_bytes) != checksum:
                    raise StoreFormatError(f"{part.path / MANIFEST} is not the one of this partition, or is damaged.")
                yield from check_folder(part, advance, reader)
        except StoreFormatError as error:
            yield FileCheck(folder.path / name / MANIFEST, None, 0, error)


def damage_error(array: StoredArray, damaged: list[ByteRange]) -> StoreFormatError:
    """Returns the error for an array whose bytes are not those that were written."""
    ranges = ", ".join(f"{start} to {stop - 1}" for start, stop in damaged[:5]) + ", ..." * (len(damaged) > 5)
    return StoreFormatError(
        f"{array.file} is damaged: bytes {ranges} of array {array.name!r} are not what was written, by their checksum. "
        f"Prepare it again, or copy it again from where it is whole."
    )
