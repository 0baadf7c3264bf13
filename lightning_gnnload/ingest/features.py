"""Columns as features: what each needs is fitted on training rows, and applied to any table with the same columns.

Numbers, times, vectors and lengths of text become the columns of one float32 table, ``x``; categories become int32
``codes`` beside it, for the model's embeddings: 0 is unknown or rare, 1 is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.distinct import DistinctValues
from lightning_gnnload.ingest.source import Reading, Source, is_list, is_whole, strict
from lightning_gnnload.ingest.spec import ColumnSpec

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN, MISSING, FIRST_VALUE = 0, 1, 2
"""Codes of categories: the first value has the code 2."""
_KINDS = ("number", "text_length", "time", "vector", "category")
_MOST_COLUMNS = 1 << 20
_FRACTION = re.compile(r"FLOAT|DOUBLE|DECIMAL")
_WORDS = re.compile(r"VARCHAR|BOOLEAN|UUID|ENUM")
_VECTOR = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\([\d,]*\)|BOOLEAN)\[\d*\]")
_TIMES = re.compile(r"TIMESTAMP|DATE")


@dataclass(frozen=True)
class Feature:
    """A column that was fitted: all that turns its values into numbers.

    Attributes:
        column: its name in the table.
        kind: ``"number"``, ``"text_length"``, ``"time"``, ``"vector"`` or ``"category"``.
        log: numbers are ``ln(1 + value)`` first.
        center: what is subtracted from numbers.
        spread: what they are divided by then.
        fill: what stands for a missing number, before both.
        flag_missing: whether a further column says where it was missing.
        width: numbers of a vector.
        values: of a category that have codes of their own, in their order.
        time_unit: of times that are integers.
        timezone: of times without one.
    """

    column: str
    kind: str
    log: bool = False
    center: float = 0.0
    spread: float = 1.0
    fill: float = 0.0
    flag_missing: bool = False
    width: int = 1
    values: tuple[str, ...] = field(default=(), repr=False)
    time_unit: str | None = None
    timezone: str | None = None

    @property
    def num_columns(self) -> int:
        """Columns of ``x`` that it takes."""
        return 0 if self.kind == "category" else self.width + self.flag_missing

    @property
    def names(self) -> list[str]:
        """The names of these columns."""
        if self.kind == "category":
            return []
        own = [self.column] if self.kind != "vector" else [f"{self.column}[{k}]" for k in range(self.width)]
        return own + [f"{self.column} is missing"] * self.flag_missing

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values that :meth:`from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Any) -> Feature:
        """Raises TableError: values that describe no feature."""
        known = {each.name: each for each in fields(cls)}
        sound = isinstance(given, Mapping) and given.keys() == known.keys() and _are_sound(given)
        if not sound:
            raise TableError(
                f"{given!r:.200} describes no feature; transforms.json is to be as gnnload build wrote it."
            )
        return cls(**{**given, "values": tuple(given["values"])})


def _are_sound(given: Mapping[str, Any]) -> bool:
    numbers = (given[name] for name in ("center", "spread", "fill"))
    values = given["values"]
    return (
        all(type(each) in (int, float) and np.isfinite(each) for each in numbers)
        and given["spread"] != 0
        and all(isinstance(given[name], bool) for name in ("log", "flag_missing"))
        and isinstance(given["column"], str)
        and given["kind"] in _KINDS
        and all(isinstance(given[name], str | None) for name in ("time_unit", "timezone"))
        and isinstance(values, (list, tuple))
        and all(isinstance(each, str) for each in values)
        and type(given["width"]) is int
        and 1 <= given["width"] < _MOST_COLUMNS
    )


# Fitting.


def fit(
    source: Source,
    columns: Sequence[ColumnSpec],
    rows: np.ndarray | None,
    *,
    timezone: str | None = None,
    note: Callable[[str], None] = lambda sentence: None,
) -> list[Feature]:
    """Finds what each column needs, by one scan of the numbers and one of each category.

    Args:
        source: of the table.
        columns: as graph.yaml has them.
        rows: which of them are for training, int64 ``[n]``; None: all.
        timezone: of times without one, where a column does not say its own.
        note: is given sentences about categories that are seldom meant.

    Raises:
        TableError: a column of a kind that cannot be what it should, one without any value in a training row, or with a
            value that is no finite number.
    """
    if not columns:
        return []
    if rows is not None and not len(rows):
        raise TableError(f"{source.where}.x: there is no training row to fit on. Say fit: false at the task.")
    begun = check_columns(source, columns, timezone=timezone)
    with source.only(rows) as table:
        numbers = _fit_numbers(source, table, list(zip(columns, begun, strict=True)))
        return [
            _fit_category(source, table, spec, feature, note) if feature.kind == "category" else numbers[feature.column]
            for spec, feature in zip(columns, begun, strict=True)
        ]


def check_columns(source: Source, columns: Sequence[ColumnSpec], *, timezone: str | None = None) -> list[Feature]:
    """Returns what columns are before they are fitted; raises TableError as :func:`fit` does, where types tell."""
    begun = []
    for spec in columns:
        kind, zone = _kind(source, spec), spec.timezone or timezone
        begun.append(Feature(spec.column, kind, log=spec.scale == "log", time_unit=spec.time_unit, timezone=zone))
        _reading(source, begun[-1])
    return begun


def _kind(source: Source, spec: ColumnSpec) -> str:
    """Returns what a column is; raises TableError where that has to be said, or cannot be."""
    where, type_ = f"{source.where}.x", source.types[source.named(spec.column)]
    listed, is_integer = is_list(type_), is_whole(type_)
    kinds = {
        "vector": bool(_VECTOR.fullmatch(type_)),
        "time": not listed and bool(_TIMES.match(type_)),
        "number": not listed and bool(_FRACTION.match(type_)),
        "category": not listed and bool(_WORDS.match(type_)),
    }
    guess = next((kind for kind, fits in kinds.items() if fits), None)
    if spec.kind == "auto" and guess is None:
        say = (
            "as: number or as: category; a code is not a quantity"
            if is_integer
            else "another column, or cast it in SQL"
        )
        raise TableError(f"{where}: column {spec.column!r} is {type_}: say {say}.")
    kind = guess if spec.kind == "auto" else spec.kind
    allowed = {
        "number": kinds["number"] or is_integer or type_ == "BOOLEAN",
        "category": kinds["category"] or is_integer or type_ == "DATE",
        "vector": kinds["vector"],
        "time": kinds["time"] or is_integer or type_ == "VARCHAR",
        "text_length": type_ == "VARCHAR",
    }
    assert kind is not None
    if not allowed[kind]:
        is_unknown = source.is_csv and not source.ask("1", "limit 1")
        remedy = "The file has no rows, which would tell the type." if is_unknown else "Cast it in SQL."
        raise TableError(f"{where}: column {spec.column!r} is {type_}, which cannot be read as: {kind}. {remedy}")
    return kind


def _reading(source: Source, feature: Feature) -> Reading:
    """How a feature's column is read: as doubles, lists of floats, or text."""
    name, sql = feature.column, source.column(feature.column)
    if feature.kind == "time":
        read = source.time(name, feature.time_unit, feature.timezone)
        return Reading(name, f"({read.sql})::double", read.tried, read.needed)
    if feature.kind == "vector":
        return Reading(name, f"{sql}::{'float' if source.types[name].startswith('FLOAT') else 'double'}[]")
    if feature.kind == "category":
        return Reading(name, f"{sql}::varchar")
    value = f"length({sql})::double" if feature.kind == "text_length" else f"{sql}::double"
    fits = f"abs({value}) <= {MOST_SINGLE!r}"  # which neither infinity nor not-a-number is
    needed = f"a number up to {MOST_SINGLE:.5g}, as float32 has it, or none: make others null in SQL"
    if feature.log:
        fits, value = f"isfinite({value}) and {value} >= 0", f"ln(1 + greatest({value}, 0))"
        needed = "a finite number of 0 or more, for scale: log"
    tried = f"case when {fits} then {value} end"
    return Reading(name, strict(sql, tried), tried, needed)


def _fit_numbers(source: Source, table: str, columns: Sequence[tuple[ColumnSpec, Feature]]) -> dict[str, Feature]:
    columns = [(spec, feature) for spec, feature in columns if feature.kind != "category"]
    if not columns:
        return {}
    readings = [_reading(source, feature) for _, feature in columns]
    asked = []
    for (spec, feature), reading in zip(columns, readings, strict=True):
        value = f"len({source.column(feature.column)})" if feature.kind == "vector" else reading.sql
        median = f"median({value})" if spec.impute == "median" else "null"
        asked += [f"count({value})", f"avg({value})", f"stddev_pop({value})", f"min({value})", f"max({value})", median]
    num_rows, *found = source.ask(f"count(*), {', '.join(asked)}", table=table, readings=readings)[0]
    fitted = {}
    for place, (spec, feature) in enumerate(columns):
        count, mean, deviation, low, high, median = found[6 * place : 6 * place + 6]
        if not count:
            raise TableError(
                f"{source.where}.x: column {feature.column!r} has no value in any of {num_rows} training rows. Leave "
                "it out."
            )
        flag = num_rows > count if spec.flag_missing == "auto" else bool(spec.flag_missing)
        if feature.kind == "vector":
            if low != high or not low:
                raise TableError(
                    f"{source.where}.x: lists of column {feature.column!r} have {low} to {high} entries; all must have "
                    "as many, and at least one."
                )
            fitted[feature.column] = replace(feature, flag_missing=flag, width=int(low))
            continue
        if not deviation and low < high:  # squares of what lies between are too small for doubles
            part = f"stddev_pop(({readings[place].sql} - {low!r}) / {high - low!r})"
            deviation = (high - low) * source.ask(part, table=table)[0][0]
        scaled = {"standard": (mean, deviation), "log": (mean, deviation), "minmax": (low, high - low)}
        center, spread = scaled.get(spec.scale, (0.0, 1.0))
        fill = {"mean": mean, "median": median, "zero": 0.0}[spec.impute]
        fitted[feature.column] = replace(
            feature, center=float(center), spread=float(spread) or 1.0, fill=float(fill), flag_missing=flag
        )
    return fitted


def _fit_category(
    source: Source, table: str, spec: ColumnSpec, feature: Feature, note: Callable[[str], None]
) -> Feature:
    reading = _reading(source, feature)
    value, where = reading.sql, f"{source.where}.x"
    distinct = DistinctValues.of(source, reading, table)
    for sentence in distinct.notes(where, "categories"):
        note(sentence)
    found = source.ask(
        f"{value} as value",
        f"where value is not null group by value having count(*) >= {spec.min_count} "
        f"order by count(*) desc, value limit {spec.max_values}",
        table=table,
    )
    if not found and distinct.num_rows and not distinct.are_ids:
        note(
            f"{where}: none of the {distinct.num_values:,} values of column {feature.column!r} is in {spec.min_count} "
            f"training rows, of {distinct.num_rows:,}, so that all count as unknown. Say a lower min_count, or leave "
            "it out."
        )
    return replace(feature, values=tuple(str(row[0]) for row in found))


# Applying.


@dataclass
class Seen:
    """What was met while features were applied, by column.

    Attributes:
        missing: rows without a value.
        unknown: of categories, rows whose value has no code of its own.
    """

    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)


def x_rows(source: Source, features: Sequence[Feature], seen: Seen) -> Iterator[np.ndarray]:
    """Yields the rows of ``x``, float32 ``[n, width]``, batch by batch in the order of the table.

    Raises:
        TableError: a column is not there, or holds a value that is no finite number.
    """
    used = [feature for feature in features if feature.kind != "category"]
    first = 0
    for batch in source.batches([_reading(source, feature) for feature in used]):
        rows = np.empty((batch.num_rows, sum(feature.num_columns for feature in used)), np.float32)
        at = 0
        for feature, column in zip(used, batch.columns, strict=True):
            of_feature = rows[:, at : at + feature.width]
            with np.errstate(over="ignore"):  # which is looked for below
                of_feature[:] = (
                    _vectors(source, feature, column, first) if feature.kind == "vector" else _numbers(feature, column)
                )
            _check_finite(source, feature, of_feature, column, first)
            at += feature.width
            if feature.flag_missing:
                rows[:, at] = _nulls(column)
                at += 1
            seen.missing[feature.column] = seen.missing.get(feature.column, 0) + column.null_count
        first += batch.num_rows
        yield rows


def code_rows(source: Source, features: Sequence[Feature], seen: Seen) -> Iterator[np.ndarray]:
    """Yields the rows of ``codes``, int32 ``[n, C]``, likewise."""
    import pyarrow as pa
    import pyarrow.compute as pc

    used = [feature for feature in features if feature.kind == "category"]
    known = [pa.array(feature.values, pa.string()) for feature in used]
    for batch in source.batches([_reading(source, feature) for feature in used]):
        rows = np.empty((batch.num_rows, len(used)), np.int32)
        for place, (feature, values, column) in enumerate(zip(used, known, batch.columns, strict=True)):
            index = pc.index_in(column, value_set=values).fill_null(UNKNOWN - FIRST_VALUE).to_numpy()
            rows[:, place] = index + FIRST_VALUE
            nulls = _nulls(column)
            rows[nulls, place] = MISSING
            seen.missing[feature.column] = seen.missing.get(feature.column, 0) + int(nulls.sum())
            num_unknown = int((rows[:, place] == UNKNOWN).sum())
            seen.unknown[feature.column] = seen.unknown.get(feature.column, 0) + num_unknown
        yield rows


def _nulls(column: pa.Array) -> np.ndarray:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _numbers(feature: Feature, column: pa.Array) -> np.ndarray:
    """Returns float64 ``[n, 1]``."""
    values = column.fill_null(feature.fill).to_numpy(zero_copy_only=False)
    return ((values - feature.center) / feature.spread)[:, None]


def _vectors(source: Source, feature: Feature, column: pa.Array, first: int) -> np.ndarray:
    """Returns ``[n, width]``: zeros where there is no vector."""
    import pyarrow.compute as pc

    rows = np.full((len(column), feature.width), feature.fill)
    held = ~_nulls(column)
    lengths = pc.list_value_length(column).fill_null(feature.width).to_numpy(zero_copy_only=False)
    if (wrong := lengths != feature.width).any():
        place = int(wrong.argmax())
        raise TableError(
            f"{source.where}.x: column {feature.column!r} has {lengths[place]} entries in row {first + place}, but "
            f"{feature.width} are needed."
        )
    rows[held] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, feature.width)
    return rows


def _check_finite(source: Source, feature: Feature, rows: np.ndarray, column: pa.Array, first: int) -> None:
    """Raises TableError: a number is missing in a vector, or is none that float32 holds, as it is or scaled."""
    wrong = ~np.isfinite(rows).all(1)
    if not wrong.any():
        return
    place = int(wrong.argmax())
    where = f"{source.where}.x: column {feature.column!r}"
    if feature.kind == "vector":
        raise TableError(
            f"{where} holds a number in row {first + place} that is missing, not finite or beyond float32, as "
            f"{int(wrong.sum())} of {len(rows)} rows do. Correct it in SQL."
        )
    raise TableError(
        f"{where}: less {feature.center:.5g} and divided by {feature.spread:.5g}, as fitted on training rows, "
        f"{column[place].as_py()!r} in row {first + place} is beyond float32, as {int(wrong.sum())} of {len(rows)}. "
        "Make such values null in SQL, or say another scale, and fit again."
    )
