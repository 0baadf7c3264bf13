"""Stretches: consecutive rows of a table's files, which a machine reads by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.sql import listed, literal

# What DuckDB calls the file of a row, and its number in it. A column of such a name stands before them.
_FILE, _ROW = "filename", "file_row_number"


class TableStretch(NamedTuple):
    """Rows ``begin`` to ``end`` of a table, all of one file, where they begin at row ``first``."""

    begin: int
    end: int
    file: str
    first: int

    def of(self, source: Source) -> Source:
        """Returns the table, of which these rows alone are read."""
        last = self.first + self.end - self.begin
        condition = f"{_FILE} = {literal(self.file)} and {_ROW} >= {self.first} and {_ROW} < {last}"
        return source.within(condition, self.begin)


def has_stretches(source: Source) -> bool:
    """Returns whether a table can be read from any row on: one of Parquet, each of whose files is named once."""
    files = source.files
    return files is not None and len(set(files)) == len(files) and not {_FILE, _ROW} & {*map(str.lower, source.types)}


def stretches(source: Source, most_rows: int) -> Iterator[TableStretch]:
    """Yields the stretches of a table that :func:`has_stretches`, in turn, each of at most ``most_rows``."""
    assert source.files is not None
    # From the ends of the files, where Parquet keeps it.
    num_rows = dict(source.ask("file_name, num_rows", table=f"parquet_file_metadata({listed(source.files)})"))
    begin = 0
    for file in source.files:
        for first in range(0, num_rows[file], most_rows):
            count = min(most_rows, num_rows[file] - first)
            yield TableStretch(begin, begin + count, file, first)
            begin += count
