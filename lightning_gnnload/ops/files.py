"""Reads rows of a file: directly, with many reads in flight at once, or from a mapping.

Shapes: N rows of the file, B requested ids, R rows of the output, F feature width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import GnnLoadError, SamplerConfigError, SeedError
from .checks import as_flag, as_integer_within, check_apart, check_array, check_kind
from .dispatch import bytes_view, check_positions, kernels

MOST_IN_FLIGHT: int = kernels.MOST_IN_FLIGHT
_MAX_ROW_BYTES = 1 << 24
_MAX_UNIT = 1 << 16
_MAX_FILE_BYTES = 1 << 62


@dataclass(frozen=True)
class RowFile:
    """An open file of rows of equal size. Raises SamplerConfigError for numbers that no file has."""

    fd: int  # open for reading; whoever opened it closes it
    name: str  # for messages
    offset: int  # of row 0, in bytes
    num_rows: int
    row_bytes: int  # up to 16 MiB
    # Reads start and end at multiples of it, a power of two up to 64 KiB: what the file system wants of direct reads,
    # mostly 512 or 4096; 1 otherwise.
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
            object.__setattr__(self, name, as_integer_within(f"RowFile: {name}", getattr(self, name), 0, limit))
        if self.unit.bit_count() != 1:
            raise SamplerConfigError(f"RowFile: unit is {self.unit}, but must be a power of two.")
        # In Python's integers, so that no product in the kernel can overflow int64 afterwards.
        if self.offset + self.num_rows * self.row_bytes > _MAX_FILE_BYTES:
            raise SamplerConfigError(f"RowFile: {self.num_rows} rows of {self.row_bytes} bytes are too many.")


class RowReader:
    """The buffers by which one thread reads rows from files of this ``row_bytes`` and ``unit``.

    ``in_flight`` reads run at once, each with a buffer of 32 KiB, or of one row where that is more. They go through
    io_uring where the system lets this process have it; otherwise up to eight threads read, with the same result. One
    call at a time may use it; a second one from another thread is refused. It may be used again after a
    FeatureFileError, unless io_uring itself failed, which each call then says.
    """

    def __init__(self, row_bytes: int, unit: int, in_flight: int = 128, *, use_ring: bool = True) -> None:
        # There is no file yet: this one is made for its checks.
        checked = RowFile(0, "", 0, 0, row_bytes, unit)
        in_flight = as_integer_within("RowReader: in_flight", in_flight, 1, MOST_IN_FLIGHT)
        use_ring = as_flag("RowReader: use_ring", use_ring)
        self.native = kernels.RowReader(checked.row_bytes, checked.unit, in_flight, use_ring)

    @property
    def has_ring(self) -> bool:
        """Whether it reads by io_uring."""
        return self.native.has_ring


class Tally(NamedTuple):
    """What one call read from a file, in whole units of it."""

    num_reads: int
    num_bytes: int


def read_rows(
    reader: RowReader, file: RowFile, ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray
) -> Tally:
    """Reads row ``ids[b]`` of a file into ``out[b]``, or into ``out[positions[b]]``.

    Reads go through the file in order, and one serves all rows in units that touch. ``ids`` are int64 ``[B]``, in any
    order, repeated or not; ``positions`` int64 ``[B]``, distinct; rows of ``out`` have ``row_bytes`` of any dtype.
    Raises SeedError for an id or position out of range, before anything is read; FeatureFileError where the file was
    cut off or cannot be read, with ``out`` written in part; GnnLoadError for shapes or dtypes that do not fit.
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
            bytes_view(out),
            len(out),
        )
    )


def gather_mapped(table: np.ndarray, ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray) -> bool:
    """Gathers rows as :func:`.gather_rows` does, from a mapping whose file may be cut off or become unreadable
    meanwhile. Returns whether all rows were there; otherwise ``out`` is written in part.

    A read of a page that its file no longer has (SIGBUS) would end the process. From the first call on this process
    handles that signal, and leaves others' to whoever handled them before.
    """
    # Its dtype is compared below, once it is known that both are arrays.
    check_array("table", table, None, 2, GnnLoadError, aligned=False)
    _check_rows(ids, positions, out, table.shape[1] * table.itemsize)
    check_array("table", table, (out.dtype,), 2, GnnLoadError, aligned=False)
    check_apart("out", out, ("table", table))
    return kernels.gather_mapped(bytes_view(table), len(table), ids, positions, bytes_view(out), len(out))


def watch_map(mapped: np.ndarray, name: str) -> int:
    """Makes SIGBUS on a page of this mapping, uint8 ``[bytes]``, name the file on stderr before the process ends as it
    would have. Returns a number for :func:`unwatch_map`, to be called before the mapping goes."""
    check_array("mapped", mapped, (np.uint8,), 1, GnnLoadError)
    return kernels.watch_map(mapped, name)


def unwatch_map(number: int) -> None:
    """Forgets a mapping that is about to go, as other memory may get its addresses."""
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
