"""Tables of a relational database as Arrow holds them: columns as numbers, keys as row numbers, times as seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.arrays import MOST_SINGLE
from lightning_gnnload.datasets.foreign import reading
from lightning_gnnload.errors import DatasetError, MissingExtraError

_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # ticks in a second
_NUMBERS = "its rows' numbers"
_METADATA = {"pkey_col": "primary_key", "fkey_col_to_pkey_table": "foreign_keys", "time_col": "time_column"}


@dataclass(frozen=True)
class Relation:
    """Holds one table: R rows."""

    name: str
    columns: dict[str, Any]
    primary_key: str | None
    foreign_keys: dict[str, str]
    time_column: str | None

    def __post_init__(self) -> None:
        keys = self.foreign_keys
        names = [self.name, *(name for name in (self.primary_key, self.time_column) if name is not None)]
        if not isinstance(keys, dict) or not all(isinstance(name, str) for name in (*names, *keys, *keys.values())):
            raise DatasetError(
                f"table {self.name!r}: its keys are {self.primary_key!r} and {keys!r}, its time {self.time_column!r}; "
                "names of columns are needed, and of the tables that foreign keys name rows of."
            )
        for column in (self.primary_key, self.time_column, *self.foreign_keys):
            if column is not None and column not in self.columns:
                raise DatasetError(
                    f"table {self.name!r} has no column {column!r}, which it says is a key or its time; it has "
                    f"{', '.join(self.columns)}."
                )

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def plain_columns(self) -> dict[str, Any]:
        """Those that are neither keys nor the time."""
        special = {self.primary_key, self.time_column, *self.foreign_keys}
        return {name: column for name, column in self.columns.items() if name not in special}

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the times of the rows, int64 or float64 ``[R]``, and which rows have one, bool ``[R]``."""
        assert self.time_column is not None
        column = self.columns[self.time_column]
        present = column.is_valid().to_numpy()
        values = _naming(self.name, self.time_column, lambda: _seconds(column))
        if values.dtype.kind == "f":
            present = present & ~np.isnan(values)
        return values, present

    def rows_named(self, keys: Any, owner: str) -> np.ndarray:
        """Returns the numbers of the rows that ``keys`` name, int64 ``[n]``; -1 for a key that is empty or that no row
        has; raises DatasetError where the primary key is not unique, or of a type that keys cannot be compared with."""
        arrow, compute = _arrow("pyarrow"), _arrow("pyarrow.compute")
        if arrow.types.is_floating(keys.type):  # as whole numbers with gaps are, where gaps may be NaN
            keys = compute.if_else(compute.is_nan(keys), None, keys)
        if self.primary_key is None:
            rows = _naming(owner, "keys", lambda: compute.cast(keys, arrow.int64()))
            return _within(rows.fill_null(-1).to_numpy(), self.num_rows)
        primary = _decode(self.columns[self.primary_key]).combine_chunks()
        key = f"the primary key {self.primary_key!r}"
        distinct = _naming(
            f"table {self.name!r}", key, lambda: compute.count_distinct(primary, mode="only_valid").as_py()
        )
        if distinct != len(primary):
            raise DatasetError(
                f"table {self.name!r}: {key} has {primary.null_count} empty entries and {distinct} different ones in "
                f"{len(primary)} rows; each row needs one of its own."
            )
        cast = _naming(owner, "keys", lambda: compute.cast(_decode(keys), primary.type))
        # Keys that count rows, as RelBench's reindexed ones do, need no lookup.
        if arrow.types.is_integer(primary.type) and np.array_equal(primary.to_numpy(), np.arange(len(primary))):
            return _within(compute.cast(cast, arrow.int64()).fill_null(-1).to_numpy(), len(primary))
        index = compute.index_in(cast, value_set=primary, skip_nulls=True)
        return np.asarray(index.fill_null(-1).to_numpy(), np.int64)


def read_relation(file: Path) -> Relation:
    """Reads a table from a Parquet file with RelBench's metadata."""
    with reading(file, "A RelBench folder has db/<table>.parquet and tasks/<name>/train.parquet."):
        table = _arrow("pyarrow.parquet").ParquetFile(file).read()
        table.validate(full=True)  # Arrow follows the offsets and codes of what was read
        metadata = {key.decode(): value for key, value in (table.schema.metadata or {}).items()}
        missing = sorted(_METADATA.keys() - metadata)
        if missing:
            raise DatasetError(
                f"{file}: the Parquet metadata does not say {', '.join(missing)}, its keys and time. Write tables with "
                "RelBench's Table.save."
            )
        facts = {ours: json.loads(metadata[theirs]) for theirs, ours in _METADATA.items()}
    names = table.column_names
    return Relation(file.stem, dict(zip(names, table.columns, strict=True)), **facts)


def as_relation(name: str, table: Any, left_out: list[str]) -> Relation:
    """Converts a ``relbench.base.Table``; columns that Arrow cannot hold are said in ``left_out``."""
    arrow = _arrow("pyarrow")
    columns = {}
    for column in table.df.columns:
        try:
            # Column by column: from a whole frame, one that Arrow cannot hold would lose all.
            array = arrow.Array.from_pandas(table.df[column])
            columns[column] = array if isinstance(array, arrow.ChunkedArray) else arrow.chunked_array([array])
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError):
            left_out.append(f"{name}.{column} holds values of several kinds")
    return Relation(name, columns, table.pkey_col, dict(table.fkey_col_to_pkey_table), table.time_col)


def without_column(relation: Relation, name: str) -> Relation:
    """Returns the table without this column, as it is where there is none."""
    return replace(relation, columns={key: column for key, column in relation.columns.items() if key != name})


def filtered(relation: Relation, keep: np.ndarray) -> Relation:
    """Returns the table with those rows alone, bool ``[R]``; what named them by their numbers still does."""
    arrow = _arrow("pyarrow")
    columns = {name: column.filter(arrow.array(keep)) for name, column in relation.columns.items()}
    if relation.primary_key is not None:
        return replace(relation, columns=columns)
    columns[_NUMBERS] = arrow.chunked_array([np.flatnonzero(keep)])
    return replace(relation, columns=columns, primary_key=_NUMBERS)


def arrow_to_numbers(column: Any, max_categories: int) -> np.ndarray | str:
    """Converts a column to numbers ``[R]``, or ``[R, C]`` where each row has a list of C numbers; or says why there are
    none.

    Numbers keep their dtype; whole ones with gaps become float64, and gaps NaN. Dates become seconds since 1970
    likewise. Truth values and categories become int32, -1 where there is none, numbered in the order of their values.
    Texts are categories where there are at most ``max_categories`` of them and each comes twice on average.
    """
    if column.null_count == len(column) and len(column):
        return "is empty"
    types = _arrow("pyarrow").types
    for predicates, convert in _CONVERTERS.items():
        if any(getattr(types, predicate)(column.type) for predicate in predicates):
            return convert(column)
    if types.is_string(column.type) or types.is_large_string(column.type):
        distinct = _arrow("pyarrow.compute").count_distinct(column, mode="only_valid").as_py()
        if distinct > max_categories or 2 * distinct > len(column) - column.null_count:
            return f"is text, with {distinct} different values"
        return _codes(column)
    return f"is of type {column.type}"


def _whole_numbers(column: Any) -> np.ndarray | str:
    if column.null_count:
        return _floats(column)
    values: np.ndarray = column.to_numpy()
    if values.dtype.kind == "u" and values.size and values.max() > np.iinfo(np.int64).max:
        return "has numbers beyond 2**63"
    signed = {8: "int16", 16: "int32", 32: "int64", 64: "int64"}  # torch has few operations for unsigned ones
    return values if values.dtype.kind == "i" else values.astype(signed[column.type.bit_width])


def _floats(column: Any) -> np.ndarray:
    arrow, compute = _arrow("pyarrow"), _arrow("pyarrow.compute")
    return np.asarray(compute.cast(column, arrow.float64(), safe=False).to_numpy())


def _dates(column: Any) -> np.ndarray:
    seconds = _seconds(column)
    return np.where(column.is_valid().to_numpy(), seconds, np.nan) if column.null_count else seconds


def _truths(column: Any) -> np.ndarray:
    arrow, compute = _arrow("pyarrow"), _arrow("pyarrow.compute")
    return np.asarray(compute.cast(column, arrow.int32()).fill_null(-1).to_numpy())


def lists_of(column: Any) -> tuple[np.ndarray, Any] | None:
    """Returns how many entries each row's list has, int64 ``[R]``, 0 where there is none, and all entries, Arrow's;
    None for a column of no lists."""
    compute, kinds = _arrow("pyarrow.compute"), _arrow("pyarrow").types
    if not (kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type)):
        return None
    counts = compute.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return counts, compute.list_flatten(column)


def _arrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError("pyarrow", "relbench", "Reading RelBench databases", error) from error


def _naming(owner: str, column: str, convert: Callable[[], Any]) -> Any:
    """Names the column in what Arrow says of values that cannot be converted."""
    arrow = _arrow("pyarrow")
    try:
        return convert()
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError) as error:
        raise DatasetError(
            f"{owner}: {column} cannot be converted: {error}. Convert it before, or leave it out."
        ) from error


def _within(rows: np.ndarray, num_rows: int) -> np.ndarray:
    return np.where((rows >= 0) & (rows < num_rows), rows, -1)


def _decode(column: Any) -> Any:
    kinds = _arrow("pyarrow").types
    return column.cast(column.type.value_type) if kinds.is_dictionary(column.type) else column


def _seconds(column: Any) -> np.ndarray:
    """Converts dates to whole seconds since 1970, rounded down; numbers stay as they are. Gaps are 0."""
    arrow, compute = _arrow("pyarrow"), _arrow("pyarrow.compute")
    kinds = arrow.types
    if kinds.is_floating(column.type):
        return np.asarray(column.fill_null(float("nan")).to_numpy(), np.float64)
    if not kinds.is_integer(column.type):
        if not kinds.is_timestamp(column.type):  # dates of days, and texts
            column = compute.cast(column, arrow.timestamp("us"))
        ticks = compute.cast(column, arrow.int64()).fill_null(0).to_numpy()
        return np.floor_divide(ticks, _UNITS[column.type.unit])
    return np.asarray(compute.cast(column, arrow.int64()).fill_null(0).to_numpy())


def _codes(column: Any) -> np.ndarray:
    compute = _arrow("pyarrow.compute")
    values = compute.unique(column).drop_null()
    # In the order of values, not of rows: two builds of tables with other row orders give equal codes.
    ordered = values.take(compute.sort_indices(values))
    codes: np.ndarray = compute.index_in(column, value_set=ordered, skip_nulls=True).fill_null(-1).to_numpy()
    return codes.astype(np.int32)


def _matrix(column: Any) -> np.ndarray | str:
    arrow = _arrow("pyarrow")
    lists = lists_of(column)
    assert lists is not None
    counts, entries = lists
    numeric = arrow.types.is_floating(entries.type) or arrow.types.is_integer(entries.type)
    if not numeric or not len(counts) or (counts != counts[0]).any() or not counts[0]:
        return "has lists of other lengths" if numeric else f"has lists of {entries.type}"
    values: np.ndarray = entries.to_numpy()
    if (np.isfinite(values) & (np.abs(values.astype(np.float64)) > MOST_SINGLE)).any():
        return f"has numbers beyond {MOST_SINGLE:.5g}, the last of float32"
    return values.astype(np.float32).reshape(len(counts), int(counts[0]))


# By the predicates of pyarrow.types, by name, as that is imported late.
_CONVERTERS: dict[tuple[str, ...], Callable[[Any], np.ndarray | str]] = {
    ("is_integer",): _whole_numbers,
    ("is_floating",): lambda column: np.asarray(column.to_numpy()),
    ("is_decimal",): _floats,
    ("is_date", "is_timestamp"): _dates,
    ("is_boolean",): _truths,
    ("is_dictionary",): lambda column: _codes(_decode(column)),
    ("is_list", "is_large_list", "is_fixed_size_list"): _matrix,
}
