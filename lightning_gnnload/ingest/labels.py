"""Values that are names, or may be: the labels of a task, and what a column of names is like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.source import Reading, Source, is_whole, strict

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CLASSES = 100_000  # beyond them a column is a quantity, or an id
_FEW_VALUES = 1000  # whole numbers up to so many are taken for classes
_SHOWN_CLASSES = 20
_FEW_ROWS = 10  # may all differ without being ids
_MOSTLY = 0.9
_SHOWN_PAIRS = 3


class DistinctValues(NamedTuple):
    """Counts the values of a column."""

    column: str  # its name
    num_rows: int  # that have a value
    num_values: int  # that differ
    num_alike: int  # values that are one but for case or spaces
    alike: Sequence[tuple[str, int, str, int]]  # some of them, in pairs, each with its rows

    @classmethod
    def of(cls, source: Source, reading: Reading, table: str | None = None) -> DistinctValues:
        """Counts by one scan of all rows, or of those of :meth:`.Source.only`; raises TableError for a value that
        cannot be read."""
        inner = source.select(f"{reading.sql} as value, count(*) as num", "group by 1", table=table)
        key = "lower(trim(regexp_replace(value, '\\s+', ' ', 'g')))"
        alike = (
            "select count(*) as forms, sum(num) as num, min(value) as one, arg_min(num, value) as of_one, max(value) "
            f"as other, arg_max(num, value) as of_other from ({inner}) where value is not null group by {key}"
        )
        several = "filter (where forms > 1)"
        entry = "{'num': -num, 'one': one, 'of_one': of_one, 'other': other, 'of_other': of_other}"
        row = source.ask(
            f"coalesce(sum(num), 0), coalesce(sum(forms), 0), coalesce(sum(forms) {several}, 0), "
            f"min({entry}, {_SHOWN_PAIRS}) {several}",
            table=f"({alike})",
            readings=[reading],
        )[0]
        pairs = [(p["one"], p["of_one"], p["other"], p["of_other"]) for p in row[3] or []]
        return cls(reading.column, int(row[0]), int(row[1]), int(row[2]), pairs)

    @property
    def are_ids(self) -> bool:
        """Whether hardly any value comes twice."""
        return self.num_rows > _FEW_ROWS and self.num_values > _MOSTLY * self.num_rows

    def notes(self, where: str, role: str) -> Iterator[str]:
        """Yields warnings about values that are to be ``role``: ``"categories"`` or ``"classes"``."""
        if self.are_ids:
            yield (
                f"{where}: column {self.column!r} has {self.num_values:,} different values in {self.num_rows:,} rows. "
                f"As {role} they tell nothing of other rows. Is it an id, or a quantity? Leave it out, or say that."
            )
        if self.num_alike:
            examples = ", ".join(f"{a!r:.40} ({n:,} rows) beside {b!r:.40} ({m:,})" for a, n, b, m in self.alike)
            yield (
                f"{where}: column {self.column!r} has {self.num_alike:,} values that others equal but for case or "
                f"spaces: {examples}. They are different {role}; if they should be one, lower(trim(...)) in SQL makes "
                "them so."
            )


@dataclass(frozen=True)
class Labels:
    """How labels are read: classes by their names, or numbers."""

    reading: Reading  # of the column: text, or doubles
    names: tuple[str, ...] | None  # of classes, in their order; None: labels are numbers

    @classmethod
    def of(cls, source: Source, column: str, label_type: str, class_names: Sequence[str] | None) -> Labels:
        """Looks at a column; ``label_type`` is ``"auto"``, ``"class"`` or ``"number"``, ``class_names`` are those of an
        earlier build. Raises TableError: the column holds neither, or does not say which of the two."""
        sql, type_ = source.column(column), source.types[column]
        is_fraction = bool(re.match(r"(FLOAT|DOUBLE|DECIMAL\(.*\))$", type_))
        is_name = bool(re.match(r"(VARCHAR|BOOLEAN|ENUM\(.*\)|UUID)$", type_, re.DOTALL))
        if not (is_fraction or is_name or is_whole(type_)):
            raise TableError(f"{source.where}: y {column!r} is {type_}; numbers, text or booleans are needed.")
        if label_type == "number" and is_name and type_ != "BOOLEAN":
            raise TableError(f"{source.where}: y {column!r} is {type_}, but kind: number is said. Cast it in SQL.")
        if label_type == "auto" and not is_name:
            label_type = _type_of_numbers(source, column, is_fraction)
        if label_type == "number":
            is_none = f"isnan({sql}::double)" if is_fraction else "false"  # a missing label, as in pandas
            tried = f"case when {is_none} or abs({sql}::double) <= {MOST_SINGLE!r} then {sql}::double end"
            needed = f"a number up to {MOST_SINGLE:.5g}, as float32 has it, or none"
            return cls(Reading(column, strict(sql, tried), tried, needed), None)
        reading, value = (_whole_class if is_fraction else _plain_class)(column, sql)
        if class_names is None:
            class_names = _distinct_names(source, reading, value)
        return cls(reading, tuple(class_names))

    @property
    def readings(self) -> tuple[Reading, ...]:
        return (self.reading,)

    @property
    def label_names(self) -> tuple[str, ...]:
        return (self.reading.column,)

    def values(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Returns labels as a build stores them: int64 classes, -1 for none, -2 for an unknown one; or float64, NaN for
        none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        [column] = columns
        if self.names is None:
            return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        index = pc.index_in(column, value_set=pa.array(self.names, pa.string())).fill_null(-2)
        classes = np.array(index.to_numpy(zero_copy_only=False), np.int64)
        classes[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return classes

    def present(self, y: np.ndarray) -> np.ndarray:
        """Returns which labels are there, bool ``[R]``; raises TableError for one that is no class."""
        if self.names is None:
            return ~np.isnan(y)
        if (y == -2).any():
            raise TableError(
                f"column {self.reading.column!r} has {int((y == -2).sum())} labels that were no classes in the build "
                f"whose transforms are used, the first in row {int((y == -2).argmax())}; these are "
                f"{', '.join(self.names[:_SHOWN_CLASSES])}. Leave the task out, or build without transforms."
            )
        return y >= 0

    def as_labels(self, y: np.ndarray) -> np.ndarray:
        """Returns labels of rows that have one: int64 or float32."""
        return y.astype(np.float32) if self.names is None else y.astype(np.int64)

    def shares(self, y: np.ndarray) -> dict[str, Any]:
        """Returns the rows of each class by its name, the largest first; or what numbers span."""
        if self.names is None:
            return {"min": float(y.min()), "mean": float(y.mean()), "max": float(y.max())}
        counts = np.bincount(y.astype(np.int64), minlength=len(self.names))
        order = np.argsort(-counts, kind="stable")
        largest = {self.names[k]: int(counts[k]) for k in order[:_SHOWN_CLASSES]}
        return largest | ({"others": int(counts[order[_SHOWN_CLASSES:]].sum())} if len(order) > _SHOWN_CLASSES else {})


def _type_of_numbers(source: Source, column: str, is_fraction: bool) -> str:
    """Returns what numbers are that do not say it: whole ones are classes, fractions numbers; raises TableError where
    both may be: whole numbers as fractions, or very many of them."""
    sql = source.column(column)
    has_value = f"where {sql} is not null" + (f" and not isnan({sql})" if is_fraction else "")
    whole, count = source.ask(f"coalesce(bool_and({sql} = round({sql})), true), count(distinct {sql})", has_value)[0]
    if whole and (is_fraction or count > _FEW_VALUES):
        raise TableError(
            f"{source.where}: y {column!r} is {source.types[column]} and holds {count} different whole numbers. Say "
            "kind: class or kind: number."
        )
    return "class" if whole else "number"


def _plain_class(column: str, sql: str) -> tuple[Reading, str]:
    """Returns how a column of classes is read, and the SQL that they are ordered by."""
    return Reading(column, f"{sql}::varchar"), sql


def _whole_class(column: str, sql: str) -> tuple[Reading, str]:
    """Likewise, of whole numbers that became fractions as some are missing, which is what pandas makes of them."""
    tried = f"case when isnan({sql}) then null when {sql} = round({sql}) then try_cast({sql} as bigint) end"
    reading = Reading(
        column,
        f"(case when not isnan({sql}) and {tried} is null then error('unreadable') else {tried} end)::varchar",
        f"case when isnan({sql}) then 'nan' else {tried}::varchar end",
        "a whole number, as kind: class has it",
    )
    return reading, f"({tried})"


def _distinct_names(source: Source, reading: Reading, value: str) -> list[str]:
    """Returns the different values, ascending; numbers by size, as they are ordered before they become text."""
    rows = source.ask(
        f"({value})::varchar",
        f"where {value} is not null group by {value} order by {value} limit {_MOST_CLASSES + 1}",
        readings=[reading],
    )
    if len(rows) > _MOST_CLASSES:
        raise TableError(
            f"{source.where}: y {reading.column!r} has more than {_MOST_CLASSES} different values. Are these classes? "
            "If they are numbers, say kind: number."
        )
    return [str(row[0]) for row in rows]
