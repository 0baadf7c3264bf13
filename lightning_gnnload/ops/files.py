"""Rows of a file: by direct reads, of which many are in flight at once, or from a map of it.

Shapes: N rows of the file, B requested ids, R rows of the output, F feature width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import GnnLoadError, SamplerConfigError, SeedError
from .checks import as_flag, as_integer, check_apart, check_array, check_kind
from .dispatch import as_bytes, check_positions, kernels

MOST_IN_FLIGHT: int = kernels.MOST_IN_FLIGHT
_MAX_ROW_BYTES = 1 << 24
_MAX_UNIT = 1 << 16
_MAX_FILE_BYTES = 1 << 62


@dataclass(frozen=True)
class RowFile:
    """An open file of rows of equal size.

    Args:
        fd: open for reading; whoever opened it closes it.
        name: of the file, for messages.
        offset: byte of the file at which row 0 starts.
        num_rows: N.
        row_bytes: size of a row, up to 16 MiB.
        unit: reads start and end at multiples of so many bytes: a power of two up to 64 KiB, which for a file that
            is open for direct reads its file system sets (512 or 4096 as a rule); 1 for any other.

    Raises:
        SamplerConfigError: numbers that no file has.
    """

    fd: int
    name: str
    offset: int
    num_rows: int
    row_bytes: int
    unit: int = 1

    def __post_init__(self) -> None:
        limits = {
            "fd": 2**31 - 1,
            "offset": _MAX_FILE_BYTES,
            "num_rows": _MAX_FILE_BYTES,
            "row_bytes": _MAX_ROW_BYTES,
            "unit": _MAX_UNIT,
        }
        for name, limit in limits.items():
            value = as_integer(f"RowFile: {name}", getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0 <= value <= limit:
                raise SamplerConfigError(f"RowFile: {name} is {value}, but must lie in [0, {limit}].")
        if self.unit.bit_count() != 1:
            raise SamplerConfigError(f"RowFile: unit is {self.unit}, but must be a power of two.")
        if self.offset + self.num_rows * self.row_bytes > _MAX_FILE_BYTES:
            raise SamplerConfigError(f"RowFile: {self.num_rows} rows of {self.row_bytes} bytes are too many.")


class RowReader:
    """The buffers by which one thread reads rows from a file; each buffer takes one read at a time.

    One call at a time may use it; a second one, from another thread, is refused. After a FeatureFileError it may be
    used again; where io_uring itself failed, each call says that another is to be made.

    Args:
        row_bytes: of the files it is used with.
        unit: likewise.
        in_flight: reads at once, 1 to MOST_IN_FLIGHT; each has a buffer of 32 KiB, or of one row where that is more.
        use_ring: read by io_uring, where the system lets this process have it; otherwise, up to eight threads read,
            each for itself. What is read is the same.
    """

    def __init__(self, row_bytes: int, unit: int, in_flight: int = 128, *, use_ring: bool = True) -> None:
        # For its checks alone: there is no file yet.
        checked = RowFile(0, "", 0, 0, row_bytes, unit)
        in_flight = as_integer("RowReader: in_flight", in_flight)
        if not 1 <= in_flight <= MOST_IN_FLIGHT:
            raise SamplerConfigError(f"RowReader: in_flight is {in_flight}, but must lie in [1, {MOST_IN_FLIGHT}].")
        use_ring = as_flag("RowReader: use_ring", use_ring)
        self.native = kernels.RowReader(checked.row_bytes, checked.unit, in_flight, use_ring)

    @property
    def has_ring(self) -> bool:
        """Whether it reads by io_uring."""
        return self.native.has_ring


class Tally(NamedTuple):
    """Counts what one call read from a file: ``num_reads`` reads, of ``num_bytes`` together, in whole units of the
    file."""

    num_reads: int
    num_bytes: int


def read_rows(
    reader: RowReader, file: RowFile, ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray
) -> Tally:
    """Reads row ``ids[b]`` of a file into ``out[b]``, or into ``out[positions[b]]``.

    Reads go through the file in order, and one read serves all wanted rows in units that touch.

    Args:
        reader: this thread's.
        file: which must have the row size and unit that ``reader`` was made for.
        ids: int64 ``[B]``, in any order, repeated or not.
        positions: int64 ``[B]``, distinct, in ``[0, R)``; other rows of ``out`` are left as they are.
        out: ``[B, F]``, with ``positions`` ``[R, F]``; rows of ``row_bytes``, any dtype.

    Raises:
        SeedError: an id outside ``[0, N)`` or a position outside ``[0, R)``; nothing is then read.
        FeatureFileError: the file was cut off, or cannot be read; ``out`` is then written in part.
        GnnLoadError: shapes or dtypes that do not fit each other.
    """
    check_kind("reader", reader, RowReader)
    check_kind("file", file, RowFile)
    _check_rows(ids, positions, out, file.row_bytes)
    return Tally(
        *reader.native.read(
            file.fd,
            file.name,
            file.offset,
            file.num_rows,
            file.row_bytes,
            file.unit,
            ids,
            positions,
            as_bytes(out),
            len(out),
        )
    )


def gather_mapped(table: np.ndarray, ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray) -> bool:
    """Gathers rows as :func:`.gather_rows` does, of a map whose file may be cut off, or become unreadable, meanwhile.

    Without this, a read of a page that its file no longer has (SIGBUS) ends the process. From the first call on
    this process has a handler for that signal, which leaves all others to whoever handled them before.

    Args:
        table: ``[N, F]``, a memory map.
        ids: int64 ``[B]``.
        positions: int64 ``[B]``, distinct, in ``[0, R)``.
        out: ``[B, F]``, with ``positions`` ``[R, F]``, dtype of ``table``.

    Returns:
        Whether all rows were there; ``out`` is otherwise written in part.

    Raises:
        SeedError: an id outside ``[0, N)`` or a position outside ``[0, R)``.
        GnnLoadError: shapes or dtypes that do not fit each other.
    """
    check_array("table", table, None, 2, GnnLoadError, aligned=False)
    _check_rows(ids, positions, out, table.shape[1] * table.itemsize)
    check_array("table", table, (out.dtype,), 2, GnnLoadError, aligned=False)
    check_apart("out", out, ("table", table))
    return kernels.gather_mapped(as_bytes(table), len(table), ids, positions, as_bytes(out), len(out))


def watch_map(mapped: np.ndarray, name: str) -> int:
    """Makes a read of a page of this map that its file no longer has (SIGBUS) name the file on stderr.

    The process then ends as it would have. :func:`gather_mapped` alone goes on.

    Args:
        mapped: uint8 ``[bytes]``, a memory map.
        name: of the file.

    Returns:
        What :func:`unwatch_map` is to be given before the map goes.
    """
    check_array("mapped", mapped, (np.uint8,), 1, GnnLoadError)
    return kernels.watch_map(mapped, name)


def unwatch_map(number: int) -> None:
    """Forgets a map that is about to go: other memory may get its place."""
    kernels.unwatch_map(number)


def _check_rows(ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray, row_bytes: int) -> None:
    check_array("ids", ids, (np.int64,), 1, SeedError)
    check_array("out", out, None, 2, GnnLoadError, writable=True, aligned=False)
    if out.dtype.hasobject or out.shape[1] * out.itemsize != row_bytes:
        raise GnnLoadError(
            f"out has rows of {out.shape[1]} numbers of {out.dtype}, but rows of {row_bytes} bytes are to be written."
        )
    check_positions(positions, ids, out)
    check_apart("out", out, ("ids", ids))
