"""What the values of a column of names are like: how many differ, and which are alike but for case or spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lightning_gnnload.ingest.source import Reading, Source

_FEW_ROWS = 10
"""Rows that may all differ without being ids."""
_MOSTLY = 0.9
_SHOWN = 3


class DistinctValues(NamedTuple):
    """Counts the values of a column.

    Attributes:
        column: its name.
        num_rows: that have a value.
        num_values: that differ.
        num_alike: values that are one but for case or spaces.
        alike: some of them, in pairs, each with its rows.
    """

    column: str
    num_rows: int
    num_values: int
    num_alike: int
    alike: Sequence[tuple[str, int, str, int]]

    @classmethod
    def of(cls, source: Source, reading: Reading, table: str | None = None) -> DistinctValues:
        """Counts by one scan of all rows, or of those of :meth:`.Source.only`.

        Raises:
            TableError: a value cannot be read.
        """
        inner = source.select(f"{reading.sql} as value, count(*) as num", "group by 1", table=table)
        key = "lower(trim(regexp_replace(value, '\\s+', ' ', 'g')))"
        alike = (
            "select count(*) as forms, sum(num) as num, min(value) as one, arg_min(num, value) as of_one, max(value) "
            f"as other, arg_max(num, value) as of_other from ({inner}) where value is not null group by {key}"
        )
        several = "filter (where forms > 1)"
        pair = "{'num': -num, 'one': one, 'of_one': of_one, 'other': other, 'of_other': of_other}"
        row = source.ask(
            f"coalesce(sum(num), 0), coalesce(sum(forms), 0), coalesce(sum(forms) {several}, 0), "
            f"min({pair}, {_SHOWN}) {several}",
            table=f"({alike})",
            readings=[reading],
        )[0]
        pairs = [(each["one"], each["of_one"], each["other"], each["of_other"]) for each in row[3] or []]
        return cls(reading.column, int(row[0]), int(row[1]), int(row[2]), pairs)

    @property
    def are_ids(self) -> bool:
        """Whether hardly any value comes twice."""
        return self.num_rows > _FEW_ROWS and self.num_values > _MOSTLY * self.num_rows

    def notes(self, where: str, what: str) -> Iterator[str]:
        """Yields what the user is to know of values that are to be ``what``: ``"categories"``."""
        if self.are_ids:
            yield (
                f"{where}: column {self.column!r} has {self.num_values:,} different values in {self.num_rows:,} rows. "
                f"As {what} they tell nothing of other rows. Is it an id, or a quantity? Leave it out, or say that."
            )
        if self.num_alike:
            shown = ", ".join(f"{a!r:.40} ({n:,} rows) beside {b!r:.40} ({m:,})" for a, n, b, m in self.alike)
            yield (
                f"{where}: column {self.column!r} has {self.num_alike:,} values that others equal but for case or "
                f"spaces: {shown}. They are different {what}; if they should be one, lower(trim(...)) in SQL makes "
                "them so."
            )
