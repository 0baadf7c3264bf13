"""Columns of a CSV file with a header, as arrays: ids, numbers, truth values and lists of them, each cell checked."""

from __future__ import annotations

import csv
import glob
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.data.arrays import as_single
from lightning_gnnload.datasets.foreign import reading
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.ingest.ids import Keys
from lightning_gnnload.ingest.source import IdType, Reading, Source, strict
from lightning_gnnload.ingest.sql import literal, quoted
from lightning_gnnload.ops import IdIndex

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# How values of DuckDB's types are written, to Python and to DuckDB, whose casts alone would take 1_000.
_WRITTEN = {
    "boolean": "(?i:true|false)",
    "bigint": "[+-]?[0-9]+",
    "double": r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))",
}
_LONGEST_LINE_BYTES = 1 << 22


class CsvColumns:
    """Holds the columns of a CSV file with a header. DuckDB reads it once, and guesses nothing.

    A column has numbers, truth values or lists if its first cell has that is not empty, and then all of its cells must.
    ``ids`` are the columns of ids with their types; None: integers where all of them are. Raises DatasetError for a
    file without a header, TableError for a broken line or a cell unlike the first.

    Attributes:
        ids: Arrow's, int64 or text ``[R]``, by name.
        values: the other columns by name: int64, bool or float64 ``[R]``, or ``[R, C]`` of lists.
        left_out: names of columns that hold other texts, and places of those without a name.
    """

    def __init__(
        self, con: duckdb.DuckDBPyConnection, file: Path, separator: str, ids: Mapping[str, IdType | None]
    ) -> None:
        self.file = file
        source, self.left_out = _open_csv(con, file, separator)
        forms = _forms(source, ids, self.left_out)
        readings = [form.reading(name) for name, form in forms.items()]
        batches = list(source.batches(readings))
        columns = {
            reading.column: [batch.column(number) for batch in batches] for number, reading in enumerate(readings)
        }
        self.ids = {
            reading.column: _join(columns.pop(reading.column), reading.id_type)
            for reading in readings
            if reading.column in ids
        }
        self.values = {
            name: np.concatenate([*map(_rows, pieces)] or [np.empty(0, np.int64)]) for name, pieces in columns.items()
        }

    def take(self, name: str | None) -> np.ndarray | None:
        """Takes a column of numbers out, float32 for fractions; None where there is none; raises DatasetError for
        texts."""
        if name in self.left_out:
            raise DatasetError(
                f"{self.file}: column {name!r} holds texts, but numbers are needed. Classes are counted from 0."
            )
        column = None if name is None else self.values.pop(name, None)
        return None if column is None else self.single(name, column)

    def single(self, name: str | None, column: np.ndarray) -> np.ndarray:
        """Returns a column with float32 for float64. Raises DatasetError: a number that it does not hold."""
        return as_single(column, name=f"{self.file}: column {name!r}", error=DatasetError)

    def mask(self, name: str) -> np.ndarray | None:
        """Takes a mask out, as the numbers of the rows that it names, int64."""
        column = self.take(name)
        if column is not None and (column.ndim != 1 or not np.isin(column, (0, 1)).all()):
            raise DatasetError(f"{self.file}: column {name!r} must hold True and False, or 1 and 0.")
        return None if column is None else np.flatnonzero(column)


class SortedIds:
    """Numbers ids ``[R]`` by their order: integers by size, texts by the alphabet."""

    def __init__(self, ids: pa.Array) -> None:
        import pyarrow.compute as compute

        order = compute.sort_indices(ids)
        self.order, self.ids = order.to_numpy().astype(np.int64), ids.take(order)
        values, offsets, _ = Keys.of(self.ids)
        self.id_type: IdType = "integer" if offsets is None else "text"
        # A key of its own for every file: nobody can choose ids that all fall into one place of the index.
        self._index = IdIndex(values, offsets, key=secrets.randbits(64))
        self._index.add(self._index.num_ids)

    def repeated(self) -> int | None:
        """Returns a row whose id another one has; None where there is none."""
        rows, _ = self._index.repeats()
        return int(self.order[rows[0]]) if len(rows) else None

    def find(self, keys: pa.Array) -> np.ndarray:
        """Returns the numbers of keys of the same kind, int64 ``[K]``; negative where there is none."""
        return self._index.find(*Keys.of(keys)).rows.astype(np.int64)


class _Form(NamedTuple):
    """How the cells of a column are written."""

    type: str  # of DuckDB's; empty of ids that are texts
    num_entries: int | None = None  # of a list
    sample: str = ""

    def tried(self, name: str) -> str:
        """Returns the SQL of the values, which are missing where a cell is written otherwise."""
        cell = f"trim({quoted(name)})"
        if not self.type:
            return f"case when {cell} <> '' then {quoted(name)} end"
        written, type_ = _WRITTEN[self.type], self.type
        fits = f"regexp_full_match({cell}, '{written}')"
        if self.num_entries is not None:
            inner = f"regexp_replace(regexp_replace({cell}, '^[\\[(](.*)[\\])]$', '\\1'), ',\\s*$', '')"
            fits = f"regexp_full_match({inner}, '\\s*{written}(?:\\s*,\\s*{written})*\\s*')"
            cell, type_ = f"string_split({inner}, ',')", f"{type_}[]"
            fits += f" and len({cell}) = {self.num_entries}"
        return f"try_cast(case when {fits} then {cell} end as {type_})"

    def reading(self, name: str) -> Reading:
        needed = f"one as {self.sample!r:.80}: write as many numbers in each row, nan or -1 where one is missing"
        if not self.sample:
            needed = "a whole number, as the ids of these nodes are" if self.type else "an id"
        id_type: IdType = "integer" if self.type else "text"
        return Reading(name, strict(quoted(name), self.tried(name)), self.tried(name), needed, id_type)


def _forms(source: Source, ids: Mapping[str, IdType | None], left_out: list[str]) -> dict[str, _Form]:
    """Returns the form of each column, by its first cell and, of whole numbers, by all; adds texts to ``left_out``."""
    forms: dict[str, _Form] = {}
    num_rows = source.num_rows
    for name in [name for name in source.types if name not in left_out]:
        form = _id_form(ids[name]) if name in ids else _first_form(source, name)
        if form is None:
            left_out.append(name)
        else:
            forms[name] = form
    # Whole numbers in the first cell may be fractions below it, or ids that are texts.
    whole = [name for name, form in forms.items() if form.type == "bigint" and ids.get(name) is None]
    if whole:
        [counts] = source.ask(", ".join(f"count({forms[name].tried(name)})" for name in whole))
        for name in (name for name, count in zip(whole, counts, strict=True) if count < num_rows):
            forms[name] = forms[name]._replace(type="" if name in ids else "double")
    return forms


def _id_form(id_type: IdType | None) -> _Form:
    return _Form("" if id_type == "text" else "bigint")


def _first_form(source: Source, name: str) -> _Form | None:
    """Returns the form of a column's first cell that is not empty; whole numbers where there is no row."""
    first = source.ask(quoted(name), f"where trim({quoted(name)}) <> '' limit 1")
    if not first:
        return _form_of("") if source.num_rows else _id_form(None)
    return _form_of(first[0][0].strip())


def _form_of(text: str) -> _Form | None:
    """Returns the form of a column whose first cell this is; None where it is a text."""
    entries, count = [text], None
    if "," in text or text[:1] in ("[", "("):
        inner = text[1:-1] if text[:1] + text[-1:] in ("[]", "()") else text
        entries = inner.strip().removesuffix(",").split(",")
        count = len(entries)
    every = (type_ for type_, written in _WRITTEN.items() if all(re.fullmatch(written, e.strip()) for e in entries))
    first = next(every, None)
    return None if first is None else _Form(first, count, text)


def _open_csv(con: duckdb.DuckDBPyConnection, file: Path, separator: str) -> tuple[Source, list[str]]:
    """Opens a file, all columns as texts; returns those without a name, too."""
    with reading(file, "Values in UTF-8, with a header, are needed."):
        with open(file, encoding="utf-8-sig", newline="") as lines:  # skips a mark that spreadsheets write
            header = [name.strip() for name in next(csv.reader(lines, delimiter=separator, strict=True), [])]
        if not header:
            raise DatasetError(f"{file} is empty; a line that names the columns is needed.")
        lower = [name.lower() for name in header if name]  # by which DuckDB tells them apart
        if twice := [name for name in lower if lower.count(name) > 1]:
            raise DatasetError(f"{file}: the header has {twice[0]!r} more than once. Name each column once.")
        unnamed = {number: f"column {number} without a name" for number, name in enumerate(header, 1) if not name}
        names = [unnamed.get(number, name) for number, name in enumerate(header, 1)]
        texts = ", ".join(f"coalesce({quoted(name)}, '') as {quoted(name)}" for name in names)
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
        no_line = f"where {quoted(names[0])} is not null" if len(names) == 1 else ""  # where an empty one is a row
        query = (
            f"from (select {texts} from read_csv({literal(glob.escape(str(file)))}, delim={literal(separator)}, "
            f"auto_detect=false, header=true, quote='\"', escape='\"', max_line_size={_LONGEST_LINE_BYTES}, "
            f"columns={{{columns}}}) {no_line})"
        )
        return Source(con, query, str(file), file.parent), list(unnamed.values())


def _join(pieces: list[pa.Array], id_type: IdType) -> pa.Array:
    import pyarrow as pa

    type_ = pa.int64() if id_type == "integer" else pa.large_string()
    return pa.concat_arrays([piece.cast(type_) for piece in pieces] or [pa.array([], type_)])


def _rows(piece: Any) -> np.ndarray:
    """Returns a piece of a column as an array; lists, which are all of one length, as its rows."""
    entries = piece.flatten() if hasattr(piece, "value_lengths") else piece
    array: np.ndarray = entries.to_numpy(zero_copy_only=False)
    return array if entries is piece else array.reshape(len(piece), -1)
