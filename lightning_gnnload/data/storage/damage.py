"""Comparing what lies in a folder's files with the checksums of what was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload.data.storage.manifest import MANIFEST, STRETCH_BYTES
from lightning_gnnload.data.storage.open_folder import OpenFolder, StoredArray
from lightning_gnnload.errors import StoreFormatError

_READ_BYTES = 1 << 22  # at once: small enough for Ctrl-C to be heard
Advance = Callable[[int], object]
ReadAt = Callable[[memoryview, int], int]
"""Reads into memory, from a place of a file on; returns how many bytes."""
Reader = Callable[[int], ReadAt]
"""Gives how a file is read, by its descriptor."""


class FileCheck(NamedTuple):
    """What a check found of one file: its array, or None of a manifest; its size; and what is wrong, if anything."""

    file: Path
    array: str | None
    size_bytes: int
    error: StoreFormatError | None


class ByteRange(NamedTuple):
    """A range of an array's bytes, ``start`` to ``stop - 1``, that are not what was written."""

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
    """Reads an array's file once and returns the stretches, of 16 MiB or less, that are not what was written.

    A folder that was written before stretches had checksums of their own has one stretch an array.

    Args:
        array: of a folder that is open.
        advance: is told how many bytes were read since the last call; may raise to end it.
        reader: how.

    Raises:
        StoreFormatError: the file is gone or cannot be read.
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
                start, before = stop, expected  # each stretch by itself, whatever the one before is
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreFormatError(f"{array.file} cannot be read: {error}. Prepare it again.") from error
    return damaged


def check_folder(
    folder: OpenFolder, advance: Advance = _no_progress, reader: Reader = _plain_reader
) -> Iterator[FileCheck]:
    """Reads all of a folder once, and of a partition its parts. Yields what it finds, array by array.

    Args:
        folder: open until the last finding.
        advance: as :func:`find_damage` has it; likewise ``reader``.

    Raises:
        StoreFormatError: of ``folder`` itself, the manifest is missing or broken.
    """
    for name in folder.manifest["arrays"]:
        size_bytes, file, error = 0, folder.path / MANIFEST, None
        try:
            array = folder.array(name)
            size_bytes, file = array.size_bytes, array.file
            damaged = find_damage(array, advance, reader)
            error = damage_error(array, damaged) if damaged else None
        except StoreFormatError as found:
            error = found
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
    """Makes the error that names the file, the array and the stretches."""
    ranges = ", ".join(f"{start} to {stop - 1}" for start, stop in damaged[:5]) + ", ..." * (len(damaged) > 5)
    return StoreFormatError(
        f"{array.file} is damaged: bytes {ranges} of array {array.name!r} are not what was written, by their checksum. "
        f"Prepare it again, or copy it again from where it is whole."
    )
