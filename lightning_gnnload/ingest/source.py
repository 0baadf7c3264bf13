"""Source: a table that DuckDB reads, whose columns are known by name and type before any row is read."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.csv_problems import csv_problem, uneven
from lightning_gnnload.ingest.settings import did_you_mean
from lightning_gnnload.ingest.sql import (
    FETCH_FIRST,
    checked_query,
    is_query,
    listed,
    literal,
    matching_files,
    one_line,
    quoted,
    whole_path,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

IdType = Literal["integer", "text"]  # int64, or UTF-8

# Integers that 64 bits with a sign hold, whatever their value.
_FITTING = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_NUMBERS = itertools.count()  # tables of one connection need names of their own
_ROW = "gnnload_row"
_INTEGER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$")
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".feather": "arrow"}
_FORMATS |= {".arrow": "arrow", ".ipc": "arrow"}
# A zone follows the time of the day: the end of 2026-03-01 is none.
_CLOCKED_ZONE = r"'\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$'"


def is_whole(type_: str) -> bool:
    """Whether a type of DuckDB's is one of integers."""
    return bool(_INTEGER.match(type_))


def is_list(type_: str) -> bool:
    """Whether a type of DuckDB's is one of lists, whose name is that of their entries' and more."""
    return type_.endswith("]")


def is_text(type_: str) -> bool:
    """Whether a type of DuckDB's is one of ids that are texts."""
    return type_ in ("VARCHAR", "UUID") or (type_.startswith("ENUM") and not is_list(type_))


def strict(sql: str, tried: str) -> str:
    """Returns the SQL of ``tried`` that fails where there is a value, but it cannot be read."""
    return f"case when {tried} is null and {sql} is not null then error('unreadable') else {tried} end"


@dataclass(frozen=True)
class Reading:
    """How a column is read."""

    column: str  # its name
    sql: str  # of its values
    tried: str = ""  # likewise, but missing where ``sql`` fails; empty where that does not happen
    needed: str = ""  # what values must be, for errors
    id_type: IdType = "text"


class Source:
    """A table to read: files of Parquet, CSV or Arrow, what an SQL query gives, or a table in memory.

    Its rows have an order, which all readings share: that of files by name, of rows in them. What a query gives is
    stored once, as a join gives other orders each time; but not where it starts with ``from``, which is for what gives
    the same order each time, as ``from read_csv(...)`` does.

    Args:
        table: a path, a glob, a list of them, a text that starts with ``select``, ``with`` or ``from``, or a table of
            pandas, polars or pyarrow.
        where: it stands in graph.yaml, for errors: ``"nodes.user"``.
        keys: columns that hold ids. CSV says no types, so that they are read as text there: ``007`` stays so.
        peek: look at the columns alone: a query is not run.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        table: Any,
        where: str,
        home: Path = Path(),
        keys: Sequence[str] = (),
        *,
        peek: bool = False,
    ) -> None:
        import duckdb

        self.con, self.where, self.home = con, where, home
        self._name = f"source_{next(_NUMBERS)}"
        self.is_csv = False
        self.files: list[str] | None = None  # of Parquet, which can be read from any row on
        self.first_row, self._where = 0, ""
        try:
            self._from = self._open(table, home, keys, peek)
            self.types = {str(row[0]): str(row[1]) for row in self._run(f"describe from {self._from}").fetchall()}
        except duckdb.Error as error:
            raise self._explain(error) from error

    def at(self, where: str) -> Source:
        """Returns the same table as one that stands elsewhere in graph.yaml."""
        source = copy(self)
        source.where = where
        return source

    def within(self, condition: str, first_row: int) -> Source:
        """Returns the same table, of which :meth:`batches` gives the rows of an SQL condition alone; ``first_row`` is
        the first of them."""
        source = copy(self)
        source.first_row, source._where = first_row, f"where {condition}"
        return source

    @property
    def num_rows(self) -> int:
        return int(self.ask("count(*)")[0][0])

    def check_column(self, name: str) -> str:
        """Returns the name of a column; raises TableError where there is none, with the nearest."""
        if name not in self.types:
            raise TableError(
                f"{self.where}: there is no column {name!r}{did_you_mean(name, self.types)} There are: "
                f"{', '.join(self.types)}."
            )
        return name

    def column(self, name: str) -> str:
        """Returns the SQL of a column; raises as :meth:`check_column` does."""
        return quoted(self.check_column(name))

    def key(self, name: str, id_type: IdType | None = None, *, cast: bool = False) -> Reading:
        """Reads a column of ids as ``id_type``, or as what it holds; with ``cast`` other types are converted. Raises
        TableError for a column that holds no ids, or ids of the other type."""
        sql, type_ = self.column(name), self.types[name]
        if not is_text(type_) and not is_whole(type_):
            raise self._no_ids(name)
        actual: IdType = "text" if is_text(type_) else "integer"
        if id_type is not None and id_type != actual and not (cast or self.is_csv):
            raise TableError(
                f"{self.where}: column {name!r} is {actual} ({type_}), but the ids of its nodes are {id_type}: none "
                f"would match. Say id_type: {actual} or {id_type} at the nodes, so that both are read as that."
            )
        if (id_type or actual) == "text":
            return Reading(name, f"{sql}::varchar")
        if type_ in _FITTING:
            return Reading(name, f"{sql}::bigint", id_type="integer")
        needed = "an integer of 64 bits; where ids are other things, say id_type: text at the nodes"
        tried = f"try_cast({sql} as bigint)"
        return Reading(name, strict(sql, tried), tried, needed, id_type="integer")

    def _no_ids(self, name: str) -> TableError:
        sql, type_ = self.column(name), self.types[name]
        reason = f' Cast it: from: "select * replace ({sql}::varchar as {sql}) from ..."'
        if type_ in ("FLOAT", "DOUBLE"):
            reason = (
                " Equal ids may differ as floats. Integers with gaps read so: cast them, "
                f'from: "select * replace ({sql}::bigint as {sql}) from ..."'
            )
        return TableError(f"{self.where}: column {name!r} is {type_}, but ids are integers, text or UUIDs.{reason}.")

    def time(self, name: str, unit: str | None = None, zone: str | None = None) -> Reading:
        """Reads a timestamp, a date, text or integers as int64 microseconds since 1970, UTC.

        ``unit`` is that of integers, ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; ``zone`` that of times without one, as
        ``"UTC"`` or ``"Europe/Berlin"``. Raises TableError where the column holds other things, or a unit or zone is
        missing, or belongs to other columns.
        """
        sql, type_ = self.column(name), self.types[name]
        is_integer = is_whole(type_)
        if (unit is not None) != is_integer:
            say = "say what they count: time_unit: s, ms, us or ns" if is_integer else "leave time_unit out"
            raise TableError(f"{self.where}: time {name!r} is {type_}: {say}.")
        if zone is not None:
            self._check_zone(zone)
        tried, needed = self._integer_time(sql, str(unit)) if is_integer else self._date(name, zone)
        return Reading(name, strict(sql, tried), tried, needed)

    def _integer_time(self, sql: str, unit: str) -> tuple[str, str]:
        # By way of 128 bits: seconds of the far future overflow 64 as microseconds, which the cast back then finds.
        factor = {"s": "* 1000000", "ms": "* 1000", "us": "", "ns": "// 1000"}[unit]
        return f"try_cast({sql}::hugeint {factor} as bigint)", f"a time in {unit} that 64 bits hold in microseconds"

    def _date(self, name: str, zone: str | None) -> tuple[str, str]:
        """Returns the SQL of a column of dates, missing where it cannot be read, and what values must be."""
        sql, type_ = self.column(name), self.types[name]
        finite = "a time that is not infinite, or none: make others null in SQL"
        is_timestamp = type_.startswith("TIMESTAMP") and not is_list(type_)
        if is_timestamp and type_.startswith(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")):
            return f"epoch_us({sql}::timestamptz)", finite
        if is_timestamp or type_ == "DATE":
            if zone is None:
                raise TableError(f"{self.where}: time {name!r} is {type_}, without a zone. Say its own: timezone: UTC.")
            return f"epoch_us({sql}::timestamp at time zone {literal(zone)})", finite
        if type_ == "VARCHAR":
            return self._text_time(sql, zone)
        cast = f' Cast it: select * replace ({sql}::bigint as {sql}), and say time_unit."' if "DOUBLE" in type_ else ""
        raise TableError(
            f"{self.where}: time {name!r} is {type_}; a timestamp, a date, text or integers are needed.{cast}"
        )

    def _text_time(self, sql: str, zone: str | None) -> tuple[str, str]:
        with_zone = f"regexp_matches({sql}, {_CLOCKED_ZONE})"
        without = "null" if zone is None else f"try_cast({sql} as timestamp) at time zone {literal(zone)}"
        zone_needed = ", with its zone, as +00:00 (for those without say timezone: UTC)" if zone is None else ""
        return (
            f"epoch_us(case when {with_zone} then try_cast({sql} as timestamptz) else {without} end)",
            f"YYYY-MM-DD or YYYY-MM-DD HH:MM:SS{zone_needed}; others by SQL, such as select * replace (strptime("
            f"{sql}, '%d.%m.%Y') as {sql}) from TABLE",
        )

    def time_form(self, name: str, unit: str | None = None, zone: str | None = None) -> TimeForm:
        """Returns the form of times that :meth:`time` reads: text becomes dates, and dates with a zone those of UTC."""
        type_ = self.types[name]
        if unit is not None:
            return TimeForm(unit, is_number=True)
        if "WITH TIME ZONE" in type_ or type_ == "TIMESTAMPTZ" or (type_ == "VARCHAR" and zone is None):
            return TimeForm("us", "UTC")
        # What has no zone is that of the table, but for one where clocks are changed: then hours come twice.
        own_zone = None if zone in (None, "UTC") else zone
        if type_ == "DATE" and own_zone is None:
            return TimeForm("D")
        return TimeForm({"TIMESTAMP_S": "s", "TIMESTAMP_MS": "ms", "TIMESTAMP_NS": "ns"}.get(type_, "us"), own_zone)

    def batches(self, readings: Sequence[Reading]) -> Iterator[pa.RecordBatch]:
        """Yields all rows, in their order, in batches of a column for each reading; raises TableError for a value that
        cannot be read, with how many there are and the first."""
        import duckdb
        import pyarrow as pa

        columns = ", ".join(f"{reading.sql} as c{number}" for number, reading in enumerate(readings))
        try:
            # From DuckDB's own stream: to_arrow_reader would take three times as long.
            yield from pa.RecordBatchReader.from_stream(self._run(self.select(columns, self._where)))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._explain(error, readings) from error

    def ask(
        self, columns: str, tail: str = "", *, table: str | None = None, readings: Sequence[Reading] = ()
    ) -> list[tuple[Any, ...]]:
        """Returns the rows of ``select columns from this table tail``, or from ``table`` of :meth:`only`; ``readings``
        are those that the SQL is made of, for errors."""
        import duckdb

        try:
            return self._run(self.select(columns, tail, table=table)).fetchall()
        except duckdb.Error as error:
            raise self._explain(error, readings) from error

    def select(self, columns: str, tail: str = "", *, table: str | None = None) -> str:
        """Returns the SQL that :meth:`ask` runs."""
        return f"select {columns} from {table or self._from} {tail}"

    @contextmanager
    def only(self, rows: np.ndarray | None) -> Iterator[str]:
        """Yields the SQL of some of the rows, by their numbers ``[n]``; of all with None."""
        import pyarrow as pa

        if rows is None:
            yield self._from
            return
        name = f"rows_of_{self._name}"
        # Numbers of rows in a table of their own: as a list in the SQL, millions would have to be parsed.
        self.con.register(name, pa.table({"row": rows}))
        try:
            numbered = f"(select *, row_number() over () - 1 as {_ROW} from {self._from})"
            yield f"(select * from {numbered} where {_ROW} in (select row from {name}))"
        finally:
            self.con.unregister(name)

    # How it is opened.

    def _open(self, table: Any, home: Path, keys: Sequence[str], peek: bool) -> str:
        """Returns the SQL that ``from`` takes."""
        if is_query(table):
            query = checked_query(self.con, table.strip().rstrip(";"), home, self.where)
            if re.match(r"from\b", query, re.IGNORECASE):
                return f"(\n{query}\n)"  # lines of their own: a comment ends with its line
            self._run(f"create temp {'view' if peek else 'table'} {self._name} as\n{query}\n")
            return self._name
        if not isinstance(table, (str, Path, list, tuple)):
            return self._register(self._as_arrow(table))
        paths = [table] if isinstance(table, (str, Path)) else table
        files = [file for path in paths for file in self._files(str(path), home)]
        match self._format(files):
            case "arrow":
                return self._register(self._arrow_files(files, peek))
            case "parquet":
                self.files = files
                return f"read_parquet({listed(files)})"
        return self._csv(files, keys)

    def _format(self, files: list[str]) -> str:
        formats = {_format(file) for file in files}
        if len(formats) > 1 or None in formats:
            problem = "they are of several formats" if len(formats) > 1 else f"{files[0]!r} is of none"
            raise TableError(
                f"{self.where}: files are told apart by their ends, {', '.join(_FORMATS)} (CSV also with .gz or .zst), "
                f'but {problem}. Read others by SQL: from: "select * from read_csv(...)".'
            )
        return str(formats.pop())

    def _csv(self, files: list[str], keys: Sequence[str]) -> str:
        self.is_csv = True
        if empty := next((file for file in files if not os.path.getsize(file)), None):
            raise TableError(f"{self.where}: {empty} is empty; a line of column names and rows are needed.")
        columns = {str(row[0]) for row in self._run(f"describe from read_csv({listed(files)})").fetchall()}
        # DuckDB takes a file with a broken line for one of a single column, and says nothing.
        if len(columns) == 1 and (problem := uneven(files, *columns)):
            raise TableError(f"{self.where}: {problem}")
        as_text = [f"{literal(key)}: 'VARCHAR'" for key in dict.fromkeys(keys) if key in columns]
        types = f", types={{{', '.join(as_text)}}}" if as_text else ""
        return f"read_csv({listed(files)}{types})"

    def _arrow_files(self, files: list[str], peek: bool) -> Any:
        """Opens files of Arrow. All rows are looked at first, unless columns alone are: Arrow and DuckDB follow the
        offsets that a file holds, and one that leads out of its buffer ends the process."""
        import pyarrow as pa
        from pyarrow import dataset

        try:
            opened = dataset.dataset(files, format="feather")
            for batch in () if peek else opened.to_batches():
                batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TableError(
                f"{self.where}: {files[0]}{' or another of the files' if len(files) > 1 else ''} is damaged, or no "
                f"file of Arrow: {one_line(error)}. Write it anew."
            ) from error
        return opened

    def _as_arrow(self, table: Any) -> Any:
        """Returns a table in memory as one of pyarrow, which knows text from objects by all rows, not by the first."""
        import pyarrow as pa

        try:
            if type(table).__module__.partition(".")[0] == "pandas":
                return pa.Table.from_pandas(table, preserve_index=table.index.name is not None)
            arrow = table if isinstance(table, pa.Table) else pa.table(table)
            arrow.validate(full=True)  # it may have been read of a damaged file
            return arrow
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableError(
                f"{self.where}: a table of the type {type(table).__name__} cannot be read as Arrow's: {error}. Give "
                "each column a name of its own, and values of one kind."
            ) from error

    def _files(self, path: str, home: Path) -> list[str]:
        if "://" in path:
            raise TableError(f"{self.where}: from: {path!r} is not on this machine; {FETCH_FIRST}")
        files = [] if "\0" in path else matching_files(path, home)
        if not files or not all(map(os.path.isfile, files)):
            is_folder = os.path.isdir(files[0] if files else "")
            say = f"it is a folder; give its files, as {path}/*.parquet" if is_folder else "there is no such file"
            raise TableError(f"{self.where}: from: {path!r} in {home.absolute()}: {say}.")
        return [whole_path(file) for file in files]

    def _register(self, table: Any) -> str:
        self.con.register(self._name, table)
        return self._name

    # What errors say.

    def _check_zone(self, zone: str) -> None:
        import duckdb

        try:
            self._run(f"select epoch_us(timestamp '2026-01-01' at time zone {literal(zone)})").fetchall()
        except duckdb.Error as error:
            raise GraphSpecError(
                f"{self.where}.timezone: {zone!r} is no time zone that is known; give one as UTC or Europe/Berlin."
            ) from error

    def _explain(self, error: Exception, readings: Sequence[Reading] = ()) -> TableError:
        """Returns an error in our words: what DuckDB says is of its queries, which the user has not written."""
        if problem := csv_problem(str(error)):
            return TableError(f"{self.where}: {problem}")
        for reading in readings:
            if reading.tried and (problem := self._unreadable(reading)):
                return TableError(f"{self.where}: {problem}")
        return TableError(f"{self.where}: the table cannot be read. DuckDB says: {one_line(error)}.")

    def _run(self, sql: str) -> Any:
        """Runs one statement of ours. Raises duckdb.Error where what a description says has made it several."""
        import duckdb

        if len(self.con.extract_statements(sql)) != 1:
            raise duckdb.Error("this is more than one statement")
        return self.con.sql(sql)

    def _unreadable(self, reading: Reading) -> str:
        import duckdb

        column = quoted(reading.column)
        rows = f"select row_number() over () - 1 as row, {column}::varchar as value, {reading.tried} as read"
        try:
            count, row, value = self._run(
                f"select count(*), min(row), arg_min(value, row) from ({rows} from {self._from}) "
                "where read is null and value is not null"
            ).fetchall()[0]
        except duckdb.Error:
            return ""
        if not count:
            return ""
        return (
            f"{count} of {self.num_rows} values of column {reading.column!r} cannot be read; the first is "
            f"{value!r:.100} in row {row}. Needed is {reading.needed.rstrip('.')}."
        )


def _format(file: str) -> str | None:
    name = re.sub(r"(\.csv|\.tsv)\.(gz|zst)$", r"\1", file.partition("?")[0].lower())
    return _FORMATS.get(Path(name).suffix)
