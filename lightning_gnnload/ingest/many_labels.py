"""Several labels a row: truth values or numbers, of as many columns, or of one column of lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.labels import Labels
from lightning_gnnload.ingest.source import Reading, Source, is_list, is_whole, strict

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_LABELS = 10_000
_SHOWN = 20
_NUMERIC = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\([\d,]*\)|BOOLEAN)$")
_MISSING = -1  # of truth values


@dataclass(frozen=True)
class ManyLabels:
    """How several labels a row are read: each is true or false, or a number.

    Of one column of lists, these are as long as there are labels; or hold texts, the names of those that are true.
    """

    where: str  # the task stands in graph.yaml
    readings: tuple[Reading, ...]  # of each column of labels, or the column of lists
    label_names: tuple[str, ...]
    are_truths: bool  # which may be true together; else they are numbers
    form: str = "columns"  # or ``"lists"`` of C entries, or ``"texts"``, lists of the names of true ones
    names: None = None  # there are no classes, of which a row has one

    @classmethod
    def of(
        cls, source: Source, columns: Sequence[str], label_type: str, label_names: Sequence[str] | None
    ) -> ManyLabels:
        """Looks at the columns; ``label_type`` is ``"auto"``, ``"class"`` or ``"number"``, ``label_names`` are those of
        an earlier build. Raises TableError: they hold neither, or do not say which of the two."""
        if len(columns) == 1:
            return _of_lists(source, columns[0], label_type, label_names)
        for column in columns:
            if not _NUMERIC.match(type_ := source.types[source.check_column(column)]):
                raise TableError(
                    f"{source.where}: y {column!r} is {type_}; several labels a row are truth values or numbers. Texts "
                    "of one column are classes, of which a row has one: y: COLUMN."
                )
        are_truths = _are_truths(source, list(map(source.column, columns)), columns, label_type)
        if are_truths:
            readings = [_truth(source, column) for column in columns]
        else:
            readings = [Labels.of(source, column, "number", None).reading for column in columns]
        return cls(source.where, tuple(readings), tuple(columns), are_truths)

    def values(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Returns labels as a build stores them, ``[n, C]``: int8 truth values, -1 for none, or float64, NaN for
        none."""
        import pyarrow as pa

        if self.form == "texts":
            return self._named(columns[0])
        if self.form == "lists":
            rows = self._listed(columns[0])
        else:
            rows = np.stack([column.cast(pa.float64()).to_numpy(zero_copy_only=False) for column in columns], axis=1)
        if not self.are_truths:
            return rows
        return np.where(np.isnan(rows), _MISSING, rows).astype(np.int8)

    def present(self, y: np.ndarray) -> np.ndarray:
        """Returns which rows have all of their labels, bool ``[R]``."""
        y = y.reshape(len(y), len(self.label_names))  # of a table without rows
        return np.asarray((y != _MISSING).all(1) if self.are_truths else ~np.isnan(y).any(1))

    def as_labels(self, y: np.ndarray) -> np.ndarray:
        """Returns labels of rows that have all: bool or float32 ``[n, C]``."""
        return y == 1 if self.are_truths else y.astype(np.float32)

    def shares(self, y: np.ndarray) -> dict[str, Any]:
        """Returns for each label, by its name, in how many rows it is true; or what its numbers are in the mean."""
        figures = (y == 1).sum(0).tolist() if self.are_truths else y.mean(0).tolist()
        by_name = dict(zip(self.label_names[:_SHOWN], figures, strict=False))
        return {"true" if self.are_truths else "means": by_name}

    def _listed(self, column: pa.Array) -> np.ndarray:
        """Returns float64 ``[n, C]``, NaN where a list or an entry is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        width = len(self.label_names)
        is_null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
        lengths = pc.list_value_length(column).fill_null(width).to_numpy(zero_copy_only=False)
        if (wrong := lengths != width).any():
            raise TableError(
                f"{self.where}: y {self.readings[0].column!r} has lists of {lengths[wrong.argmax()]} and of {width} "
                "entries; all must have as many."
            )
        rows = np.full((len(column), width), np.nan)
        flat = column.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
        rows[~is_null] = flat.reshape(-1, width)
        return rows

    def _named(self, column: pa.Array) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        index = pc.index_in(column.flatten(), value_set=pa.array(self.label_names, pa.string())).fill_null(-1)
        labels = np.asarray(index.to_numpy(zero_copy_only=False), np.int64)
        rows = np.repeat(np.arange(len(column)), lengths)
        if (labels < 0).any():
            unknown = column.flatten()[int((labels < 0).argmax())].as_py()
            raise TableError(
                f"{self.where}: y {self.readings[0].column!r} has {unknown!r:.100}, which is no label; these are "
                f"{', '.join(self.label_names[:_SHOWN])}. Leave entries without a value out of lists, and the task "
                "where labels are new."
            )
        y = np.zeros((len(column), len(self.label_names)), np.int8)
        y[rows, labels] = 1
        y[np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)] = _MISSING
        return y


def _of_lists(source: Source, column: str, label_type: str, label_names: Sequence[str] | None) -> ManyLabels:
    sql, type_ = source.column(column), source.types[column]
    entry = re.sub(r"\[\d*\]$", "", type_)
    if entry == "VARCHAR" and label_type != "number":
        if label_names is None:
            label_names = _distinct_entries(source, column)
        return ManyLabels(source.where, (Reading(column, f"{sql}::varchar[]"),), tuple(label_names), True, "texts")
    if not _NUMERIC.match(entry) or is_list(entry):
        raise TableError(
            f"{source.where}: y {column!r} is {type_}{', but kind: number is said' if entry == 'VARCHAR' else ''}; "
            "lists of truth values, numbers or texts are needed."
        )
    low, high = source.ask(f"min(len({sql})), max(len({sql}))")[0]
    if low != high or not low or low > _MOST_LABELS:
        raise TableError(
            f"{source.where}: lists of y {column!r} have {low or 0} to {high or 0} entries; all must have as many, "
            f"from 1 to {_MOST_LABELS}."
        )
    are_truths = _are_truths(source, [f"unnest({sql})"], [column], label_type, entry)
    tried = f"case when len(list_filter({sql}::double[], {_outside('e')})) = 0 then {sql}::double[] end"
    needed = _TRUTHS
    if not are_truths:
        wrong = f"lambda e: abs(e) > {MOST_SINGLE!r} and not isnan(e)"  # nan is greater than all, to DuckDB
        tried = f"case when len(list_filter({sql}::double[], {wrong})) = 0 then {sql}::double[] end"
        needed = f"numbers up to {MOST_SINGLE:.5g}, as float32 has them, or none"
    reading = Reading(column, strict(sql, tried), tried, needed)
    names = tuple(f"{column}[{number}]" for number in range(int(low)))
    return ManyLabels(source.where, (reading,), names, are_truths, "lists")


_TRUTHS = "true, false, 0 or 1"


def _outside(name: str) -> str:
    return f"lambda {name}: {name} not in (0, 1)"


def _truth(source: Source, column: str) -> Reading:
    value = f"{source.column(column)}::double"
    tried = f"case when {value} in (0, 1) or isnan({value}) then {value} end"
    return Reading(column, strict(source.column(column), tried), tried, _TRUTHS)


def _are_truths(
    source: Source, values: Sequence[str], columns: Sequence[str], label_type: str, entry: str | None = None
) -> bool:
    """Returns whether labels are truth values; raises TableError where they do not tell."""
    if label_type != "auto":
        return label_type == "class"
    types = {entry or source.types[column] for column in columns}
    if types == {"BOOLEAN"}:
        return True
    entries = " union all ".join(f"({source.select(f'({value})::double as v')})" for value in values)
    is_binary, is_fraction = source.ask(
        "coalesce(bool_and(v in (0, 1)), true), coalesce(bool_or(v <> round(v)), false)",
        "where v is not null and not isnan(v)",
        table=f"({entries})",
    )[0]
    if is_binary and all(type_ == "BOOLEAN" or is_whole(type_) for type_ in types):
        return True
    if not is_fraction:
        raise TableError(
            f"{source.where}: y {', '.join(map(repr, columns))} are {', '.join(sorted(types))} and hold whole numbers "
            "alone. Say kind: class, of labels that are 0 or 1, or kind: number."
        )
    return False


def _distinct_entries(source: Source, column: str) -> list[str]:
    """Returns the different texts in lists, ascending."""
    entries = source.select(f"unnest({source.column(column)}::varchar[]) as v")
    rows = source.ask("v", f"where v is not null group by v order by v limit {_MOST_LABELS + 1}", table=f"({entries})")
    if not rows or len(rows) > _MOST_LABELS:
        count = f"more than {_MOST_LABELS}" if rows else "no"
        raise TableError(f"{source.where}: the lists of y {column!r} hold {count} different texts. Are these labels?")
    return [str(row[0]) for row in rows]
