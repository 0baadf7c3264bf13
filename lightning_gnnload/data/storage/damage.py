"""Comparing what lies in a folder's files with the checksums of what was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import NamedTuple

from lightning_gnnload.data.storage.manifest import STRETCH_BYTES
from lightning_gnnload.data.storage.opened import StoredArray
from lightning_gnnload.errors import StoreFormatError

_READ_BYTES = 1 << 22  # at once: small enough for Ctrl-C to be heard
ReadAt = Callable[[int, memoryview, int], int]
"""Reads from a descriptor into memory, from a place on; returns how many bytes."""


class Stretch(NamedTuple):
    """A range of an array's bytes, ``start`` to ``stop - 1``, that are not what was written."""

    start: int
    stop: int


def find_damage(
    array: StoredArray,
    advance: Callable[[int], object] = lambda num_bytes: None,
    read: ReadAt = lambda fd, memory, at: os.preadv(fd, [memory], at),
) -> list[Stretch]:
    """Reads an array's file once and returns the stretches, of 16 MiB or less, that are not what was written.

    A folder that was written before stretches had checksums of their own has one stretch an array.

    Args:
        array: of a folder that is open.
        advance: is told how many bytes were read since the last call; may raise to end it.
        read: how.

    Raises:
        StoreFormatError: the file is gone or cannot be read.
    """
    damaged, start, before = [], 0, 0
    memory = memoryview(bytearray(min(_READ_BYTES, array.size_bytes)))
    try:
        fd = array.open()
        try:
            for number, wanted in enumerate(array.checksums, 1):
                last = number == len(array.checksums)
                stop = array.size_bytes if last else number * STRETCH_BYTES
                found, at = before, start
                while at < stop and (count := read(fd, memory[: stop - at], at)):
                    found, at = zlib.crc32(memory[:count], found), at + count
                    advance(count)
                if found != wanted or at < stop:
                    damaged.append(Stretch(start, stop))
                start, before = stop, wanted  # each stretch by itself, whatever the one before is
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreFormatError(f"{array.file} cannot be read: {error}. Prepare it again.") from error
    return damaged


def damage_error(array: StoredArray, damaged: list[Stretch]) -> StoreFormatError:
    """Makes the error that names the file, the array and the stretches."""
    places = ", ".join(f"{start} to {stop - 1}" for start, stop in damaged[:5]) + ", ..." * (len(damaged) > 5)
    return StoreFormatError(
        f"{array.file} is damaged: bytes {places} of array {array.name!r} are not what was written, by their checksum. "
        f"Prepare it again, or copy it again from where it is whole."
    )
