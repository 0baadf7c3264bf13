"""Pieces: an array's file that several processes write, each its own bytes, and one checksum of them all."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightning_gnnload.host.pages import drop_page_cache
from lightning_gnnload.storage.folders import array_entry, array_file
from lightning_gnnload.storage.manifest import STRETCH_BYTES

_POLYNOMIAL = 0xEDB88320  # of CRC-32, its lowest power first


class Piece(NamedTuple):
    """Bytes that were written within one stretch of a file: how many, and their CRC-32."""

    num_bytes: int
    crc32: int


def reserve(folder: Path, name: str, num_bytes: int) -> None:
    """Makes an array's file of its whole size, for :class:`PieceWriter`; raises OSError where there is no room."""
    with open(folder / array_file(name), "xb") as file:
        if num_bytes:
            os.posix_fallocate(file.fileno(), 0, num_bytes)


class PieceWriter:
    """Writes consecutive rows of an array whose file is :func:`reserve`'d, from row ``first`` on; use it in a ``with``
    block. Processes may write other rows at once, and a piece that is written again comes to the same."""

    def __init__(self, folder: Path, name: str, dtype: Any, row_shape: tuple[int, ...] = (), *, first: int) -> None:
        self.path, self.dtype, self.row_shape = folder / array_file(name), np.dtype(dtype), row_shape
        self._at = first * int(np.prod(row_shape, dtype=np.int64)) * self.dtype.itemsize
        self._file = open(self.path, "r+b")  # noqa: SIM115  closed by __exit__
        self._file.seek(self._at)
        self._pieces: list[Piece] = []

    def append(self, rows: np.ndarray) -> None:
        """Converts rows ``[n, *row_shape]`` to the dtype, and writes them."""
        rows = np.ascontiguousarray(rows, self.dtype)
        chunk = rows.reshape(-1).view(np.uint8).data if rows.size else memoryview(b"")
        self._file.write(chunk)
        while len(chunk):
            within = self._at % STRETCH_BYTES
            part, chunk = chunk[: STRETCH_BYTES - within], chunk[STRETCH_BYTES - within :]
            before = self._pieces.pop() if within and self._pieces else Piece(0, 0)
            self._pieces.append(Piece(before.num_bytes + len(part), zlib.crc32(part, before.crc32)))
            self._at += len(part)

    def finish(self) -> list[Piece]:
        """Writes through to the disk, and returns what was written, in turn."""
        self._file.flush()
        os.fsync(self._file.fileno())
        drop_page_cache(self._file.fileno())
        return self._pieces

    def __enter__(self) -> PieceWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def joined_entry(folder: Path, name: str, dtype: Any, shape: Iterable[int], pieces: Iterable[Piece]) -> dict[str, Any]:
    """Returns the manifest's entry of an array that was written in ``pieces``, which are given in their order."""
    checksums, checksum, remaining = [], 0, STRETCH_BYTES
    for piece in pieces:
        if remaining == 0:
            checksums.append(checksum)
            remaining = STRETCH_BYTES
        checksum = joined_crc32(checksum, piece.crc32, piece.num_bytes)
        remaining -= piece.num_bytes
    return array_entry(folder / array_file(name), np.dtype(dtype), shape, [*checksums, checksum])


def joined_crc32(first: int, second: int, num_bytes: int) -> int:
    """Returns the CRC-32 of some bytes and ``num_bytes`` behind them, by that of each.

    Source: Adler, zlib's crc32_combine: zeros behind bytes are a linear map of their checksum, by bits.

    Example:
        >>> joined_crc32(zlib.crc32(b"part"), zlib.crc32(b"ition"), 5) == zlib.crc32(b"partition")
        True
    """
    power = 0
    while num_bytes:
        if num_bytes & 1:
            first = _applied(_zeros(power), first)
        num_bytes >>= 1
        power += 1
    return first ^ second


def _applied(columns: tuple[int, ...], bits: int) -> int:
    """Multiplies a matrix of bits, by its columns, by a vector."""
    result = 0
    for column in columns:
        if bits & 1:
            result ^= column
        bits >>= 1
    return result


@lru_cache(64)
def _zeros(power: int) -> tuple[int, ...]:
    """Returns what ``2**power`` zero bytes do to a checksum: the image of each of its 32 bits."""
    if power == 0:
        images = []
        for bit in range(32):
            value = 1 << bit
            for _ in range(8):
                value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
            images.append(value)
        return tuple(images)
    half = _zeros(power - 1)
    return tuple(_applied(half, column) for column in half)
