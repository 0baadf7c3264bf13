"""Columns as features: what each needs is fitted on training rows, and applied to any table with the same columns.

Numbers, times, vectors and lengths of text become the columns of one float32 table, ``x``; categories become int32
``codes`` beside it, for the model's embeddings: 0 is unknown or rare, 1 is missing.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.labels import DistinctValues
from lightning_gnnload.ingest.source import Reading, Source, is_list, is_whole, strict
from lightning_gnnload.ingest.spec import ColumnSpec
from lightning_gnnload.ingest.text_encoders import HASHING, TextEncoder, check_probe, encoded, open_encoder, probe_of

if TYPE_CHECKING:
    import pyarrow as pa

# Codes of categories: the first value has the code 2.
UNKNOWN, MISSING, FIRST_VALUE = 0, 1, 2
_KINDS = ("number", "text_length", "time", "vector", "text", "category")
_MOST_COLUMNS = 1 << 20
_FRACTION = re.compile(r"FLOAT|DOUBLE|DECIMAL")
_WORDS = re.compile(r"VARCHAR|BOOLEAN|UUID|ENUM")
_VECTOR = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\([\d,]*\)|BOOLEAN)\[\d*\]")
_TIMES = re.compile(r"TIMESTAMP|DATE")


@dataclass(frozen=True)
class Feature:
    """A column that was fitted: all that turns its values into numbers."""

    column: str  # its name in the table
    kind: str  # ``"number"``, ``"text_length"``, ``"time"``, ``"vector"``, ``"text"`` or ``"category"``
    log: bool = False  # numbers are ``ln(1 + value)`` first
    center: float = 0.0  # what is subtracted from numbers
    spread: float = 1.0  # what they are divided by then
    fill: float = 0.0  # what stands for a missing number, before both
    flag_missing: bool = False  # whether a further column says where it was missing
    width: int = 1  # numbers of a vector, or of an encoded text
    # of a category that have codes of their own, in their order.
    values: tuple[str, ...] = field(default=(), repr=False)
    time_unit: str | None = None  # of times that are integers
    timezone: str | None = None  # of times without one
    # The first releases wrote none of these three.
    vocabulary: str | None = None  # of categories: the name of the values, which other columns share
    encoder: str | None = None  # of texts
    probe: tuple[float, ...] = ()  # numbers by which the encoder is known again

    @property
    def num_columns(self) -> int:
        """Columns of ``x`` that it takes."""
        return 0 if self.kind == "category" else self.width + self.flag_missing

    @property
    def names(self) -> list[str]:
        if self.kind == "category":
            return []
        names = (
            [self.column] if self.kind not in ("vector", "text") else [f"{self.column}[{k}]" for k in range(self.width)]
        )
        return names + [f"{self.column} is missing"] * self.flag_missing

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Feature:
        """Raises TableError: values that describe no feature."""
        names = {field_.name for field_ in fields(cls)}
        if isinstance(values, Mapping):
            values = {"vocabulary": None, "encoder": None, "probe": (), **values}
        if not (isinstance(values, Mapping) and values.keys() == names and _is_sound(values)):
            raise TableError(
                f"{values!r:.200} describes no feature; transforms.json is to be as gnnload build wrote it."
            )
        return cls(**{**values, "values": tuple(values["values"]), "probe": tuple(values["probe"])})


def _is_sound(values: Mapping[str, Any]) -> bool:
    """Returns whether values of JSON have the types and bounds of a feature's fields: the file may be damaged."""
    numbers, flags = ("center", "spread", "fill"), ("log", "flag_missing")
    texts = ("time_unit", "timezone", "vocabulary", "encoder")
    probe = values["probe"]
    return (
        isinstance(probe, (list, tuple))
        and all(type(number) in (int, float) and np.isfinite(number) for number in probe)
        and (values["encoder"] is not None) == (values["kind"] == "text")
        and all(type(values[name]) in (int, float) and np.isfinite(values[name]) for name in numbers)
        and values["spread"] != 0
        and all(isinstance(values[name], bool) for name in flags)
        and isinstance(values["column"], str)
        and values["kind"] in _KINDS
        and all(isinstance(values[name], str | None) for name in texts)
        and isinstance(values["values"], (list, tuple))
        and all(isinstance(value, str) for value in values["values"])
        and type(values["width"]) is int
        and 1 <= values["width"] < _MOST_COLUMNS
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

    ``rows`` are those that train, int64 ``[n]``; None: all. ``timezone`` is that of times without one, where a column
    does not say it; ``note`` takes sentences about categories that are seldom meant. Raises TableError for a column
    whose type does not fit, that has no value in a training row, or one that is no finite number.
    """
    if not columns:
        return []
    if rows is not None and not len(rows):
        raise TableError(f"{source.where}.x: there is no training row to fit on. Say fit: false at the task.")
    unfitted = unfitted_features(source, columns, timezone=timezone)
    with source.only(rows) as table:
        numbers = _fit_numbers(source, table, list(zip(columns, unfitted, strict=True)))
        fitted = []
        for spec, feature in zip(columns, unfitted, strict=True):
            if feature.kind == "text":
                fitted.append(_fit_text(source, table, spec, feature))
            elif feature.kind == "category":
                # Values that several columns share are fitted with the other ones.
                is_shared = feature.vocabulary is not None
                fitted.append(feature if is_shared else _fit_category(source, table, spec, feature, note))
            else:
                fitted.append(numbers[feature.column])
        return fitted


def unfitted_features(source: Source, columns: Sequence[ColumnSpec], *, timezone: str | None = None) -> list[Feature]:
    """Returns what columns are before they are fitted; raises TableError as :func:`fit` does, where types tell."""
    features = []
    for spec in columns:
        zone = spec.timezone or timezone
        kind = _feature_kind(source, spec)
        feature = Feature(spec.column, kind, log=spec.scale == "log", time_unit=spec.time_unit, timezone=zone)
        if kind == "text":
            feature = replace(feature, encoder=spec.text, width=spec.width)
        elif kind == "category":
            feature = replace(feature, vocabulary=spec.vocabulary)
        _reading(source, feature)
        features.append(feature)
    return features


def _feature_kind(source: Source, spec: ColumnSpec) -> str:
    """Returns what a column is; raises TableError where that has to be said, or cannot be."""
    where, type_ = f"{source.where}.x", source.types[source.check_column(spec.column)]
    is_integer = is_whole(type_)
    read_as = "text" if spec.text is not None else "category" if spec.vocabulary is not None else spec.kind
    if read_as != "auto":
        if not _can_be(read_as, type_):
            is_unknown = source.is_csv and not source.ask("1", "limit 1")
            remedy = "The file has no rows, which would tell the type." if is_unknown else "Cast it in SQL."
            raise TableError(
                f"{where}: column {spec.column!r} is {type_}, which cannot be read as: {read_as}. {remedy}"
            )
        return read_as
    guess = next((read_as for read_as in _DEFAULT_TYPES if _is_type_of(read_as, type_)), None)
    if guess is None:
        say = "another column, or cast it in SQL"
        if is_integer:
            say = "as: number or as: category; a code is not a quantity"
        raise TableError(f"{where}: column {spec.column!r} is {type_}: say {say}.")
    return guess


# Types whose columns are taken for this when nothing is said, and further ones that may be read so.
_DEFAULT_TYPES = {"vector": _VECTOR, "time": _TIMES, "number": _FRACTION, "category": _WORDS}
_FURTHER_TYPES = {"time": ("VARCHAR",), "number": ("BOOLEAN",), "category": ("DATE",)}
_FURTHER_TYPES |= {"text_length": ("VARCHAR",), "text": ("VARCHAR",)}


def _is_type_of(read_as: str, type_: str) -> bool:
    if read_as == "vector":
        return bool(_VECTOR.fullmatch(type_))
    # The name of a list's type begins with that of its entries.
    return not is_list(type_) and bool(_DEFAULT_TYPES[read_as].match(type_))


def _can_be(read_as: str, type_: str) -> bool:
    """Returns whether a column of this type of DuckDB's can be read so; integers can be all but vectors and texts."""
    is_numeric = read_as in ("number", "category", "time") and is_whole(type_)
    return (
        is_numeric
        or type_ in _FURTHER_TYPES.get(read_as, ())
        or (read_as in _DEFAULT_TYPES and _is_type_of(read_as, type_))
    )


def _reading(source: Source, feature: Feature) -> Reading:
    """How a feature's column is read: as doubles, lists of floats, or text."""
    name, sql = feature.column, source.column(feature.column)
    if feature.kind == "time":
        read = source.time(name, feature.time_unit, feature.timezone)
        return Reading(name, f"({read.sql})::double", read.tried, read.needed)
    if feature.kind == "vector":
        return Reading(name, f"{sql}::{'float' if source.types[name].startswith('FLOAT') else 'double'}[]")
    if feature.kind in ("category", "text"):
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
    columns = [(spec, feature) for spec, feature in columns if feature.kind not in ("category", "text")]
    if not columns:
        return {}
    readings = [_reading(source, feature) for _, feature in columns]
    figures = []
    for (spec, feature), reading in zip(columns, readings, strict=True):
        value = f"len({source.column(feature.column)})" if feature.kind == "vector" else reading.sql
        median = f"median({value})" if spec.impute == "median" else "null"
        figures += [
            f"count({value})",
            f"favg({value})",
            f"stddev_pop({value})",
            f"min({value})",
            f"max({value})",
            median,
        ]
    # One scan for all columns: a table may be larger than memory, so that each scan reads the disk.
    num_rows, *row = source.ask(f"count(*), {', '.join(figures)}", table=table, readings=readings)[0]
    return {
        feature.column: _fit_number(source, table, spec, feature, reading, num_rows, row[6 * k : 6 * k + 6])
        for k, ((spec, feature), reading) in enumerate(zip(columns, readings, strict=True))
    }


def _fit_number(
    source: Source, table: str, spec: ColumnSpec, feature: Feature, reading: Reading, num_rows: int, figures: list[Any]
) -> Feature:
    count, mean, deviation, low, high, median = figures
    where = f"{source.where}.x: "
    if not count:
        raise TableError(
            f"{where}column {feature.column!r} has no value in any of {num_rows} training rows. Leave it out."
        )
    feature = replace(
        feature, flag_missing=num_rows > count if spec.flag_missing == "auto" else bool(spec.flag_missing)
    )
    if feature.kind == "vector":
        if low != high or not low:
            raise TableError(
                f"{where}lists of column {feature.column!r} have {low} to {high} entries; all must have as many, and "
                "at least one."
            )
        return replace(feature, width=int(low))
    if not deviation and low < high:  # squares of what lies between are too small for doubles
        part = f"stddev_pop(({reading.sql} - {low!r}) / {high - low!r})"
        deviation = (high - low) * source.ask(part, table=table)[0][0]
    mean, deviation = _as_of_any_order(mean, deviation) if low < high else (low, 0.0)
    scaled = {"standard": (mean, deviation), "log": (mean, deviation), "minmax": (low, high - low)}
    center, spread = scaled.get(spec.scale, (0.0, 1.0))
    fill = {"mean": mean, "median": median, "zero": 0.0}[spec.impute]
    # A column of one value has no spread: it becomes 0 rather than not-a-number.
    return replace(feature, center=float(center), spread=float(spread) or 1.0, fill=float(fill))


def _as_of_any_order(mean: float, deviation: float) -> tuple[float, float]:
    """Returns both to 24 bits of the deviation, as float32 has them: threads add values in any order, so that further
    bits differ from run to run."""
    step = math.frexp(deviation)[1] - 24
    # Behind the last bit of the mean there is nothing to round.
    if math.frexp(mean)[1] - step < sys.float_info.mant_dig:
        mean = _rounded(mean, step)
    return mean, _rounded(deviation, step)


def _rounded(value: float, step: int) -> float:
    """Returns the multiple of ``2**step`` that is next to a value."""
    lowest = math.frexp(sys.float_info.min)[1] - sys.float_info.mant_dig
    return value if step < lowest else math.ldexp(round(math.ldexp(value, -step)), step)


def _fit_text(source: Source, table: str, spec: ColumnSpec, feature: Feature) -> Feature:
    width, probe = probe_of(_encoder(source, feature), str(feature.encoder))
    num_rows, count = source.ask(f"count(*), count({source.column(feature.column)})", table=table)[0]
    has_gaps = num_rows > count if spec.flag_missing == "auto" else bool(spec.flag_missing)
    return replace(feature, width=width, probe=probe, flag_missing=has_gaps)


def _encoder(source: Source, feature: Feature) -> TextEncoder:
    try:
        encoder = open_encoder(str(feature.encoder), source.home, feature.width if feature.encoder == HASHING else 0)
        if feature.probe:
            check_probe(encoder, str(feature.encoder), feature.width, feature.probe)
    except TableError as error:
        raise TableError(f"{source.where}.x: column {feature.column!r}: {error}") from error
    return encoder


def _fit_category(
    source: Source, table: str, spec: ColumnSpec, feature: Feature, note: Callable[[str], None]
) -> Feature:
    reading = _reading(source, feature)
    value, where = reading.sql, f"{source.where}.x"
    distinct = DistinctValues.of(source, reading, table)
    for sentence in distinct.notes(where, "categories"):
        note(sentence)
    rows = source.ask(
        value,  # by no name, which a column of the table may have
        f"where {value} is not null group by {value} having count(*) >= {spec.min_count} "
        f"order by count(*) desc, {value} limit {spec.max_values}",
        table=table,
    )
    if not rows and distinct.num_rows and not distinct.are_ids:
        note(
            f"{where}: none of the {distinct.num_values:,} values of column {feature.column!r} is in {spec.min_count} "
            f"training rows, of {distinct.num_rows:,}, so that all count as unknown. Say a lower min_count, or leave "
            "it out."
        )
    return replace(feature, values=tuple(str(row[0]) for row in rows))


# Applying.


@dataclass
class MissingCounts:
    """Counts the rows without a value, and those whose category has no code, while features are applied; by column."""

    missing: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def merge(self, counts: MissingCounts) -> None:
        """Adds what was counted in other rows."""
        self.missing += counts.missing
        self.unknown += counts.unknown

    def figures(self, feature: Feature) -> dict[str, Any]:
        figures = {"as": feature.kind, "missing": self.missing[feature.column]}
        if feature.kind == "category":
            figures |= {"values": len(feature.values), "unknown": self.unknown[feature.column]}
        return figures


def x_rows(source: Source, features: Sequence[Feature], counts: MissingCounts) -> Iterator[np.ndarray]:
    """Yields the rows of ``x``, float32 ``[n, width]``, batch by batch in the order of the table; raises TableError for
    a value that is no finite number."""
    used = [feature for feature in features if feature.kind != "category"]
    encoders = {feature.column: _encoder(source, feature) for feature in used if feature.kind == "text"}
    first = source.first_row
    for batch in source.batches([_reading(source, feature) for feature in used]):
        rows = np.empty((batch.num_rows, sum(feature.num_columns for feature in used)), np.float32)
        at = 0
        for feature, column in zip(used, batch.columns, strict=True):
            target = rows[:, at : at + feature.width]
            with np.errstate(over="ignore"):  # which is looked for below
                if feature.kind == "vector":
                    target[:] = _vectors(source, feature, column, first)
                elif feature.kind == "text":
                    target[:] = _texts(feature, encoders[feature.column], column)
                else:
                    target[:] = _numbers(feature, column)
            _check_finite(source, feature, target, column, first)
            at += feature.width
            if feature.flag_missing:
                rows[:, at] = _nulls(column)
                at += 1
            counts.missing[feature.column] += column.null_count
        first += batch.num_rows
        yield rows


def code_rows(source: Source, features: Sequence[Feature], counts: MissingCounts) -> Iterator[np.ndarray]:
    """Yields the rows of ``codes``, int32 ``[n, C]``, likewise."""
    import pyarrow as pa
    import pyarrow.compute as pc

    used = [feature for feature in features if feature.kind == "category"]
    value_sets = [pa.array(feature.values, pa.string()) for feature in used]
    for batch in source.batches([_reading(source, feature) for feature in used]):
        rows = np.empty((batch.num_rows, len(used)), np.int32)
        for k, (feature, values, column) in enumerate(zip(used, value_sets, batch.columns, strict=True)):
            # A missing value has no index either; its rows are set below.
            index = pc.index_in(column, value_set=values).fill_null(UNKNOWN - FIRST_VALUE).to_numpy()
            rows[:, k] = index + FIRST_VALUE
            nulls = _nulls(column)
            rows[nulls, k] = MISSING
            counts.missing[feature.column] += int(nulls.sum())
            counts.unknown[feature.column] += int((rows[:, k] == UNKNOWN).sum())
        yield rows


def _nulls(column: pa.Array) -> np.ndarray:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _numbers(feature: Feature, column: pa.Array) -> np.ndarray:
    """Returns float64 ``[n, 1]``."""
    values = column.fill_null(feature.fill).to_numpy(zero_copy_only=False)
    return ((values - feature.center) / feature.spread)[:, None]


def _texts(feature: Feature, encoder: TextEncoder, column: pa.Array) -> np.ndarray:
    """Returns ``[n, width]``: zeros where there is no text."""
    rows = np.zeros((len(column), feature.width), np.float32)
    # Each text once: columns repeat them, and a model takes its time.
    coded = column.drop_null().dictionary_encode()
    distinct = encoded(encoder, coded.dictionary.to_pylist(), str(feature.encoder), feature.width)
    rows[~_nulls(column)] = distinct[coded.indices.to_numpy(zero_copy_only=False)]
    return rows


def _vectors(source: Source, feature: Feature, column: pa.Array, first: int) -> np.ndarray:
    """Returns ``[n, width]``: zeros where there is no vector."""
    import pyarrow.compute as pc

    rows = np.full((len(column), feature.width), feature.fill)
    present = ~_nulls(column)
    lengths = pc.list_value_length(column).fill_null(feature.width).to_numpy(zero_copy_only=False)
    if (wrong := lengths != feature.width).any():
        first_wrong = int(wrong.argmax())
        raise TableError(
            f"{source.where}.x: column {feature.column!r} has {lengths[first_wrong]} entries in row "
            f"{first + first_wrong}, but {feature.width} are needed."
        )
    rows[present] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, feature.width)
    return rows


def _check_finite(source: Source, feature: Feature, rows: np.ndarray, column: pa.Array, first: int) -> None:
    """Raises TableError: a number is missing in a vector, or is none that float32 holds, as it is or scaled."""
    wrong = ~np.isfinite(rows).all(1)
    if not wrong.any():
        return
    first_wrong = int(wrong.argmax())
    where = f"{source.where}.x: column {feature.column!r}"
    if feature.kind == "vector":
        raise TableError(
            f"{where} holds a number in row {first + first_wrong} that is missing, not finite or beyond float32, as "
            f"{int(wrong.sum())} of {len(rows)} rows do. Correct it in SQL."
        )
    raise TableError(
        f"{where}: less {feature.center:.5g} and divided by {feature.spread:.5g}, as fitted on training rows, "
        f"{column[first_wrong].as_py()!r} in row {first + first_wrong} is beyond float32, as {int(wrong.sum())} of "
        f"{len(rows)}. Make such values null in SQL, or say another scale, and fit again."
    )
