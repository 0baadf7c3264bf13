"""Labels: classes by their names, or numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.source import Reading, Source, is_whole, strict

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CLASSES = 100_000
_FEW_VALUES = 1000
_SHOWN_CLASSES = 20


@dataclass(frozen=True)
class Labels:
    """How labels are read: classes by their names, or numbers.

    Attributes:
        reading: of the column: text, or doubles.
        names: of classes, in their order; None: labels are numbers.
    """

    reading: Reading
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, source: Source, column: str, kind: str, known: Sequence[str] | None) -> Labels:
        """Raises TableError: the column holds neither, or does not say which of the two."""
        sql, type_ = source.column(column), source.types[column]
        is_fraction = bool(re.match(r"(FLOAT|DOUBLE|DECIMAL\(.*\))$", type_))
        is_name = bool(re.match(r"(VARCHAR|BOOLEAN|ENUM\(.*\)|UUID)$", type_, re.DOTALL))
        if not (is_fraction or is_name or is_whole(type_)):
            raise TableError(f"{source.where}: y {column!r} is {type_}; numbers, text or booleans are needed.")
        if kind == "number" and is_name and type_ != "BOOLEAN":
            raise TableError(f"{source.where}: y {column!r} is {type_}, but kind: number is said. Cast it in SQL.")
        if kind == "auto" and not is_name:
            kind = _kind_of_numbers(source, column, is_fraction)
        if kind == "number":
            is_none = f"isnan({sql}::double)" if is_fraction else "false"  # a missing label, as in pandas
            tried = f"case when {is_none} or abs({sql}::double) <= {MOST_SINGLE!r} then {sql}::double end"
            needed = f"a number up to {MOST_SINGLE:.5g}, as float32 has it, or none"
            return cls(Reading(column, strict(sql, tried), tried, needed), None)
        value, reading = sql, Reading(column, f"{sql}::varchar")
        if is_fraction:  # whole numbers become fractions where some are missing, as in pandas
            value = f"case when not isnan({sql}) then {sql} end"
            tried = f"case when isnan({sql}) then null when {sql} = round({sql}) then try_cast({sql} as bigint) end"
            reading = Reading(
                column,
                f"(case when not isnan({sql}) and {tried} is null then error('unreadable') else {tried} end)::varchar",
                f"case when isnan({sql}) then 'nan' else {tried}::varchar end",
                "a whole number, as kind: class has it",
            )
            value = f"({tried})"
        if known is not None:
            return cls(reading, tuple(known))
        found = source.ask(
            f"({value})::varchar",
            f"where {value} is not null group by {value} order by {value} limit {_MOST_CLASSES + 1}",
            readings=[reading],
        )
        if len(found) > _MOST_CLASSES:
            raise TableError(
                f"{source.where}: y {column!r} has more than {_MOST_CLASSES} different values. Are these classes? If "
                "they are numbers, say kind: number."
            )
        return cls(reading, tuple(str(row[0]) for row in found))

    def values(self, column: pa.Array) -> np.ndarray:
        """Returns labels as they are kept: int64 classes, -1 for none and -2 for one that is not known; or float64, NaN
        for none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.names is None:
            return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        found = pc.index_in(column, value_set=pa.array(self.names, pa.string())).fill_null(-2)
        classes = np.array(found.to_numpy(zero_copy_only=False), np.int64)
        classes[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return classes

    def present(self, y: np.ndarray) -> np.ndarray:
        """Returns which labels are there, bool ``[R]``.

        Raises:
            TableError: one that is no class.
        """
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
        shown = {self.names[k]: int(counts[k]) for k in order[:_SHOWN_CLASSES]}
        return shown | ({"others": int(counts[order[_SHOWN_CLASSES:]].sum())} if len(order) > _SHOWN_CLASSES else {})


def _kind_of_numbers(source: Source, column: str, is_fraction: bool) -> str:
    """Returns what numbers are that do not say it: whole ones are classes, fractions are numbers.

    Raises:
        TableError: they may be either: whole numbers as fractions, or very many of them.
    """
    sql = source.column(column)
    held = f"where {sql} is not null" + (f" and not isnan({sql})" if is_fraction else "")
    whole, count = source.ask(f"coalesce(bool_and({sql} = round({sql})), true), count(distinct {sql})", held)[0]
    if whole and (is_fraction or count > _FEW_VALUES):
        raise TableError(
            f"{source.where}: y {column!r} is {source.types[column]} and holds {count} different whole numbers. Say "
            "kind: class or kind: number."
        )
    return "class" if whole else "number"
