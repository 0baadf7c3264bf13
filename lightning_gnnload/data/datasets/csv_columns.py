"""Columns of a CSV file with a header, as arrays: ids as they are written, numbers, truth values and lists of numbers.

Python's own reader cuts the cells and NumPy reads the numbers, so that no further package is needed.
"""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.arrays import as_single
from lightning_gnnload.data.datasets.foreign import reading
from lightning_gnnload.data.progress import progress
from lightning_gnnload.errors import DatasetError

_PIECE = 1 << 16  # rows whose cells are held as texts at once
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_LONGEST_CELL = 1 << 30
_LONGEST_TEXT = 1000  # characters of an id or a number: an array of texts has room for the longest in every row
_limit = threading.RLock()  # of the csv module's one setting


class CsvColumns:
    """Holds the columns of a CSV file with a header, which is read once.

    Args:
        file: comma-separated values in UTF-8, whose first line names the columns.
        separator: one character.
        ids: names of the columns that hold ids, of any kind.

    Attributes:
        ids: by name, texts ``[R]`` as they are written.
        values: the other columns by name: int64, bool or float64 ``[R]``, or ``[R, C]`` of lists.
        left_out: names of columns that hold other texts, and places of those without a name.
        num_rows: R.

    Raises:
        DatasetError: the file is missing or broken, or lacks an id or a number; the message names line and column.

    Shapes: R rows, C numbers of a cell that lists some.
    """

    def __init__(self, file: Path, separator: str, ids: Container[str]) -> None:
        self.file, self._separator = file, separator
        self.ids: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}
        self.left_out: list[str] = []
        self.num_rows = 0
        pieces: dict[str, list[np.ndarray]] = {}
        with (
            reading(file, "Values in UTF-8, with a header, are needed."),
            self._opened() as (reader, bytes_read),
            progress(f"Reading {file.name}", file.stat().st_size) as advance,
        ):
            names = self._names(next(reader, []))
            kinds: dict[str, tuple[Callable[[list[str]], np.ndarray], str]] = {}
            last = 0
            while piece := list(islice(reader, _PIECE)):
                rows = self._whole(piece, len(names))
                for place, name in enumerate(names):
                    if not rows or not name or name in self.left_out:
                        continue
                    cells = list(map(itemgetter(place), rows))
                    if name not in kinds:
                        sample = next(filter(str.strip, cells), "")
                        kinds[name] = _texts if name in ids else _reader_of(sample), sample
                        if name not in ids and _shape(*kinds[name]) is None:
                            self.left_out.append(name)
                            continue
                    pieces.setdefault(name, []).append(self._read(*kinds[name], name, cells))
                self.num_rows += len(rows)
                advance((at := bytes_read()) - last)
                last = at
        for name in filter(None, names):
            if name not in self.left_out:
                held = self.ids if name in ids else self.values
                held[name] = np.concatenate(pieces.get(name, [np.empty(0, np.int64)]))

    def take(self, name: str | None) -> np.ndarray | None:
        """Takes a column of numbers out, float32 for fractions; None where there is none.

        Raises:
            DatasetError: it holds texts.
        """
        if name in self.left_out:
            raise DatasetError(
                f"{self.file}: column {name!r} holds texts, but numbers are needed. Classes are counted from 0."
            )
        column = None if name is None else self.values.pop(name, None)
        return None if column is None else self.single(name, column)

    def single(self, name: str | None, column: np.ndarray) -> np.ndarray:
        """Returns a column with float32 for float64. Raises DatasetError: a number that it does not hold."""
        return as_single(column, what=f"{self.file}: column {name!r}", error=DatasetError)

    def mask(self, name: str) -> np.ndarray | None:
        """Takes a mask out, as the numbers of the rows that it names, int64."""
        column = self.take(name)
        if column is not None and (column.ndim != 1 or not np.isin(column, (0, 1)).all()):
            raise DatasetError(f"{self.file}: column {name!r} must hold True and False, or 1 and 0.")
        return None if column is None else np.flatnonzero(column)

    def line_of(self, row: int) -> int:
        """Returns the line of the file that a row ends on, counted from 1. Reads the file again: it is for errors."""
        with self._opened() as (reader, _):
            next(islice(filter(None, reader), row + 1, None), None)  # the header is one more
            return int(reader.line_num)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Callable[[], int]]]:
        """Opens the file: a reader of rows, and what says how many bytes it has read."""
        with open(self.file, "rb") as raw, _long_cells():
            lines = TextIOWrapper(raw, encoding="utf-8-sig", newline="")  # skips a mark that spreadsheets write
            yield csv.reader(lines, delimiter=self._separator, strict=True), raw.tell

    def _whole(self, rows: list[list[str]], num_columns: int) -> list[list[str]]:
        """Returns the rows without empty lines."""
        if {*map(len, rows)} == {num_columns}:
            return rows
        rows = list(filter(None, rows))
        odd = next((at for at, row in enumerate(rows) if len(row) != num_columns), None)
        if odd is not None:
            raise DatasetError(
                f"{self.file}: line {self.line_of(self.num_rows + odd)} has {len(rows[odd])} cells, but the header "
                f"names {num_columns} columns."
            )
        return rows

    def _names(self, header: list[str]) -> list[str]:
        names = [name.strip() for name in header]
        twice = sorted({name for name in names if name and names.count(name) > 1})
        if twice:
            raise DatasetError(f"{self.file}: the header has {twice[0]!r} more than once. Name each column once.")
        self.left_out += [f"column {place} without a name" for place, name in enumerate(names, 1) if not name]
        return names

    def _read(self, kind: Callable[[list[str]], np.ndarray], sample: str, name: str, cells: list[str]) -> np.ndarray:
        shape = _shape(kind, sample)
        try:
            values = kind(cells)
            if values.shape[1:] != shape:
                raise ValueError("lists of another length")
            return values
        except (ValueError, KeyError, OverflowError):
            row = next((at for at, cell in enumerate(cells) if _shape(kind, cell) != shape), 0)
            what = f"{cells[row]!r:.80}" if cells[row].strip() else "nothing"
            problem = (
                f"but an id, of up to {_LONGEST_TEXT} characters, is needed."
                if kind is _texts
                else f"unlike {sample!r:.80}. Write as many numbers in each row: nan, or -1, where one is missing."
            )
            raise DatasetError(
                f"{self.file}: line {self.line_of(self.num_rows + row)}, column {name!r} has {what}, {problem}"
            ) from None


def whole_or_fractions(texts: np.ndarray) -> np.ndarray:
    """Converts texts that are numbers to int64, or else float64.

    Raises:
        ValueError: others. ``1_000`` and digits of other scripts, which Python reads, are no numbers in a file.
    """
    letters = texts.view(np.uint32)
    if ((letters == ord("_")) | (letters > 127)).any():
        raise ValueError("no number")
    try:
        return texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts.astype(np.float64)


def _texts(cells: list[str]) -> np.ndarray:
    if not all(map(str.strip, cells)) or max(map(len, cells)) > _LONGEST_TEXT:
        raise ValueError("no id")
    return np.array(cells)


def _numbers(cells: list[str]) -> np.ndarray:
    return whole_or_fractions(_texts(cells))


def _truth(cells: list[str]) -> np.ndarray:
    return np.array([_TRUTH[cell.strip()] for cell in cells])


def _lists(cells: list[str]) -> np.ndarray:
    texts = [_inner(cell) for cell in cells]
    if not all(texts):  # NumPy would pass over them
        raise ValueError("an empty list")
    try:
        return np.loadtxt(texts, np.int64, comments=None, delimiter=",", ndmin=2)
    except ValueError:
        return np.loadtxt(texts, np.float64, comments=None, delimiter=",", ndmin=2)


def _inner(cell: str) -> str:
    text = cell.strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
    return text.strip().removesuffix(",")


def _reader_of(cell: str) -> Callable[[list[str]], np.ndarray]:
    """Returns what reads a column that begins with this cell."""
    text = cell.strip()
    if text in _TRUTH:
        return _truth
    return _lists if "," in text or text[:1] in ("[", "(") else _numbers


def _shape(kind: Callable[[list[str]], np.ndarray], cell: str) -> tuple[int, ...] | None:
    """Returns the shape of what a cell holds; None where it is none of this kind."""
    try:
        return kind([cell]).shape[1:]
    except (ValueError, KeyError, OverflowError):
        return None


@contextmanager
def _long_cells() -> Iterator[None]:
    """Lets cells be longer than the csv module's default, as those that list thousands of numbers are."""
    with _limit:
        before = csv.field_size_limit(_LONGEST_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(before)
