"""What a table's rows say of its columns: how many values, which, and what they may be. Large tables by a sample."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.ingest.source import Source, is_list, is_text, is_whole
from lightning_gnnload.ingest.sql import quoted

if TYPE_CHECKING:
    import duckdb

SEEN_ROWS = 500_000
_MOST_LISTED = 1000  # values of a column that are counted one by one
_NUMBER = re.compile(r"FLOAT|DOUBLE|DECIMAL")
_TIME = re.compile(r"(TIMESTAMP|DATE)")
_NUMBERS = itertools.count()
# What whole numbers of times between 1990 and 2100 are, by the unit that they count.
_EPOCHS = {
    unit: (631_152_000 * factor, 4_102_444_800 * factor)
    for unit, factor in (("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9))
}
_TIMELY = re.compile(r"time|date|stamp|(^|_)(ts|at|on|when|epoch|created|since)($|_)", re.IGNORECASE)


@dataclass
class ColumnProfile:
    """One column of a table, as the rows that were read show it."""

    name: str
    type: str  # of DuckDB's
    num_present: int  # rows with a value
    num_values: int  # different ones; from some thousands on, about so many
    low: Any = None  # the least value, of numbers and times
    high: Any = None
    mean_length: float = 0.0  # of texts
    num_unfit: int = 0  # numbers that float32 does not hold
    widths: tuple[int, int] = (0, 0)  # entries of lists, at least and at most
    is_date_text: bool = False  # texts which all are dates
    has_zone: bool = False  # of times
    common: list[tuple[Any, int]] = field(default_factory=list)  # the most frequent values; of few different ones

    @property
    def is_id_like(self) -> bool:
        """Whether its type is one that ids have."""
        return (is_text(self.type) or is_whole(self.type)) and self.num_present > 0

    @property
    def is_whole(self) -> bool:
        return is_whole(self.type)

    @property
    def is_number(self) -> bool:
        return bool(_NUMBER.match(self.type)) and not is_list(self.type)

    @property
    def time_unit(self) -> str | None:
        """What whole numbers count, if name and size are those of times."""
        if not self.is_whole or self.low is None or not _TIMELY.search(self.name):
            return None
        return next((unit for unit, (low, high) in _EPOCHS.items() if low <= self.low and self.high < high), None)

    @property
    def is_time(self) -> bool:
        is_date = bool(_TIME.match(self.type)) and not is_list(self.type)
        return self.num_present > 0 and (is_date or self.is_date_text or self.time_unit is not None)


@dataclass
class TableProfile:
    """A table, and what its columns are."""

    name: str  # a node type or the name of edges that may be made of it
    path: str | list[str]  # as graph.yaml names it
    source: Source
    num_rows: int
    num_seen: int
    sample: str  # the table of DuckDB's that holds these rows
    columns: dict[str, ColumnProfile]

    def ask(self, columns: str, tail: str = "", *, whole: bool = False) -> list[tuple[Any, ...]]:
        """Returns the rows of a query over the rows that were read, or over all."""
        return self.source.ask(columns, tail, table=None if whole else self.sample)

    def is_unique(self, sql: str) -> bool:
        """Returns whether all rows of the table have a value, each another."""
        num_present, num_values = self.ask(f"count({sql}), count(distinct {sql})", whole=True)[0]
        return bool(num_present == num_values == self.num_rows)


def look_at(
    con: duckdb.DuckDBPyConnection, name: str, path: str | list[str], home: Path, *, rows: int = SEEN_ROWS
) -> TableProfile:
    """Reads the first ``rows`` rows of a table, and counts what their columns hold; raises TableError where it cannot
    be read."""
    source = Source(con, path, name, home)
    sample = f"seen_{next(_NUMBERS)}"
    con.execute(f"create temp table {sample} as {source.select('*', f'limit {rows}')}")
    table = TableProfile(name, path, source, source.num_rows, 0, sample, {})
    table.num_seen = int(table.ask("count(*)")[0][0])
    if not table.num_seen:
        table.columns = {column: ColumnProfile(column, type_, 0, 0) for column, type_ in source.types.items()}
        return table
    for column, type_ in source.types.items():
        table.columns[column] = _look_at_column(table, column, type_)
    return table


def _look_at_column(table: TableProfile, name: str, type_: str) -> ColumnProfile:
    sql = quoted(name)
    is_fraction = bool(_NUMBER.match(type_)) and not is_list(type_)
    is_plain = is_whole(type_) or is_fraction or (bool(_TIME.match(type_)) and not is_list(type_))
    figures = [f"count({sql})", f"approx_count_distinct({sql})"]
    figures += [f"min({sql})", f"max({sql})"] if is_plain else ["null", "null"]
    figures.append(f"avg(length({sql}))" if type_ == "VARCHAR" else "null")
    num_present, num_values, low, high, length = table.ask(", ".join(figures))[0]
    column = ColumnProfile(name, type_, num_present, num_values, low, high, float(length or 0))
    # What no later row may undo is asked of all of them: a build would stop there.
    if is_fraction:
        # Not in a where: DuckDB would pass over rows by statistics of Parquet, which know no nan.
        unfit = f"not isfinite({sql}::double) or abs({sql}::double) > {MOST_SINGLE!r}"
        column.num_unfit = table.ask(f"count(*) filter (where {unfit})", whole=True)[0][0]
    if is_list(type_):
        column.widths = table.ask(f"coalesce(min(len({sql})), 0), coalesce(max(len({sql})), 0)", whole=True)[0]
    column.has_zone = "WITH TIME ZONE" in type_ or type_ == "TIMESTAMPTZ"
    if num_values < _MOST_LISTED * 2 and not is_list(type_) and num_present:
        column.num_values = table.ask(f"count(distinct {sql})")[0][0]
        order = f"where {sql} is not null group by 1 order by 2 desc, 1::varchar limit 100"
        column.common = [(str(value), count) for value, count in table.ask(f"{sql}::varchar, count(*)", order)]
    if type_ == "VARCHAR" and num_present and 8 <= column.mean_length <= 35:
        column.is_date_text, column.has_zone = _dates(table, sql)
    return column


def _dates(table: TableProfile, sql: str) -> tuple[bool, bool]:
    """Returns whether all texts are dates, and whether all have a zone."""
    looks = f"regexp_matches({sql}, '^\\d{{4}}-\\d\\d-\\d\\d([ T]\\d\\d:\\d\\d|$)')"
    num_others, num_without = table.ask(
        f"count(*) filter (where not {looks} or try_cast({sql} as timestamptz) is null), "
        f"count(*) filter (where not regexp_matches({sql}, '\\d\\d:\\d\\d.*(Z|[+-]\\d\\d(:?\\d\\d)?)$'))",
        f"where {sql} is not null",
        whole=True,
    )[0]
    return num_others == 0, num_without == 0


def words_of(name: str) -> list[str]:
    """Returns the words of a name, in small letters and the singular: ``userIDs`` has user and id."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [_singular(word) for word in re.findall(r"[^\W_]+", spaced.lower())]


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if re.search(r"(ss|us|is)$", word) or len(word) < 4:
        return word
    return re.sub(r"(?<=x|z|h)es$|s$", "", word)


def listed_shares(values: Sequence[tuple[Any, int]], most: int = 4) -> str:
    """Returns the most frequent values and their rows, for comments."""
    shares = ", ".join(
        f"{value if len(value) <= 20 else f'{value[:17]}...'} {count:,}" for value, count in values[:most]
    )
    return f"{shares}, ..." if len(values) > most else shares


def _cut(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:17]}..."
