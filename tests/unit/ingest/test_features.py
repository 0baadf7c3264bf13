"""Features equal a plain NumPy computation, are fitted on training rows alone, and are applied again as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload.errors import GraphSpecError, StoreFormatError, TableError
from lightning_gnnload.ingest.features import Feature, MissingCounts, code_rows, fit, x_rows
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import BuildSpec, ColumnSpec
from lightning_gnnload.ingest.sql import open_database
from lightning_gnnload.ingest.transforms import Transforms

NUM_ROWS = 500
TRAIN = np.arange(0, NUM_ROWS, 3)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    con = open_database(BuildSpec(memory="1GB", threads=2), tmp_path / "scratch", tmp_path)
    yield con
    con.close()


def numbers(*, missing: bool = True) -> np.ndarray:
    """Positive numbers, some of them NaN."""
    rng = np.random.default_rng(3)
    values = rng.lognormal(2, 1, NUM_ROWS)
    if missing:
        values[rng.random(NUM_ROWS) < 0.2] = np.nan
    return values


def source_of(con: Any, values: Any) -> Source:
    column = pa.array(values, from_pandas=True) if isinstance(values, np.ndarray) else values
    return Source(con, pa.table({"c": column}), "nodes.t")


def x_of(source: Source, features: list[Feature], seen: MissingCounts | None = None) -> np.ndarray:
    return np.concatenate(list(x_rows(source, features, seen or MissingCounts())))


def codes_of(source: Source, features: list[Feature], seen: MissingCounts | None = None) -> np.ndarray:
    return np.concatenate(list(code_rows(source, features, seen or MissingCounts())))


@pytest.mark.parametrize("impute", ["mean", "median", "zero"])
@pytest.mark.parametrize("scale", ["standard", "log", "minmax", "none"])
def test_numbers(scale: str, impute: str, con: Any) -> None:
    values = numbers()
    source = source_of(con, values)
    x = x_of(source, fit(source, [ColumnSpec(column="c", scale=scale, impute=impute)], TRAIN))
    plain = np.log1p(values) if scale == "log" else values
    held = plain[TRAIN][~np.isnan(plain[TRAIN])]  # statistics over all rows would differ
    fill = {"mean": held.mean(), "median": np.median(held), "zero": 0.0}[impute]
    center, spread = {"minmax": (held.min(), np.ptp(held)), "none": (0.0, 1.0)}.get(scale, (held.mean(), held.std()))
    filled = np.where(np.isnan(plain), fill, plain)
    assert np.allclose(x[:, 0], (filled - center) / spread, rtol=1e-5, atol=1e-6)
    assert np.array_equal(x[:, 1], np.isnan(values))  # flagged, as training rows lack some


@pytest.mark.parametrize("impute", ["mean", "median"])
@pytest.mark.parametrize("scale", ["standard", "log", "minmax", "none"])
def test_rows_in_another_order_fit_the_same(scale: str, impute: str, con: Any) -> None:
    values, rng, spec = numbers(), np.random.default_rng(0), ColumnSpec(column="c", scale=scale, impute=impute)
    fitted = [fit(source_of(con, rng.permutation(values)), [spec], None)[0] for _ in range(10)]
    assert len({(each.center, each.spread, each.fill) for each in fitted}) == 1


def test_one_value_far_from_zero_becomes_zero(con: Any) -> None:
    source = source_of(con, np.full(NUM_ROWS, 0.1) * 1e9)
    [feature] = fit(source, [ColumnSpec(column="c")], None)
    assert (feature.center, feature.spread) == (0.1 * 1e9, 1.0)


def test_what_is_flagged(con: Any) -> None:
    whole = numbers(missing=False)
    whole[1] = np.nan  # no training row
    source = source_of(con, whole)
    assert [
        fit(source, [ColumnSpec(column="c", flag_missing=flag)], TRAIN)[0].num_columns for flag in ("auto", True)
    ] == [
        1,
        2,
    ]
    assert fit(source_of(con, numbers()), [ColumnSpec(column="c", flag_missing=False)], TRAIN)[0].num_columns == 1


def test_a_constant_is_divided_by_one(con: Any) -> None:
    source = source_of(con, np.full(NUM_ROWS, 7.0))
    assert (x_of(source, fit(source, [ColumnSpec(column="c")], None)) == 0).all()


@pytest.mark.parametrize("values", [[3e38, -3e38], [1e-200, 3e-200], [2e-310, 6e-310]])
def test_numbers_of_any_size_are_scaled_alike(values: list[float], con: Any) -> None:
    source = source_of(con, pa.array(values))
    for scale, wanted in (("standard", [-1.0, 1.0]), ("minmax", [0.0, 1.0])):
        x = x_of(source, fit(source, [ColumnSpec(column="c", scale=scale)], None))
        assert np.allclose(x[:, 0], wanted if values[0] < values[1] else wanted[::-1], atol=1e-5)


def test_a_new_table_with_numbers_beyond_what_was_fitted(con: Any) -> None:
    source = source_of(con, pa.array([1e-3, 2e-3, 1.5e-3]))
    fitted = fit(source, [ColumnSpec(column="c")], None)
    told = "column 'c': less 0.0015 and divided by .*, 3e.38 in row 1 is beyond float32, as 1 of 2"
    with pytest.raises(TableError, match=told):
        x_of(source_of(con, pa.array([0.0, 3e38])), fitted)
    with pytest.raises(TableError, match=r"1 of 2 values of column 'c'.*'1e.39' in row 1"):
        x_of(source_of(con, pa.array([0.0, 1e39])), fitted)


def test_whole_numbers_times_and_lengths_of_text(con: Any) -> None:
    rng = np.random.default_rng(1)
    whole = rng.integers(-5, 5, NUM_ROWS)
    begin = datetime(2026, 1, 1)
    times = [begin + timedelta(hours=int(hour)) for hour in whole]
    texts = ["ü" * (5 + int(each)) for each in whole]  # two bytes each
    table = pa.table({"n": whole, "t": times, "text": texts})
    source = Source(con, table, "nodes.t")
    columns = [
        ColumnSpec(column="n", kind="number"),
        ColumnSpec(column="t"),
        ColumnSpec(column="text", kind="text_length"),
    ]
    x = x_of(source, fit(source, columns, TRAIN, timezone="UTC"))
    wanted = (whole - whole[TRAIN].mean()) / whole[TRAIN].std()
    assert np.allclose(x, wanted[:, None], atol=1e-5)


def test_vectors(con: Any) -> None:
    rows = np.random.default_rng(0).random((NUM_ROWS, 5)).astype(np.float32)
    given = [None if number % 7 == 0 else row.tolist() for number, row in enumerate(rows)]
    source = source_of(con, pa.array(given, pa.list_(pa.float32())))
    [feature] = fit(source, [ColumnSpec(column="c")], TRAIN)
    x = x_of(source, [feature])
    rows[::7] = 0
    assert np.array_equal(x[:, :5], rows)
    assert np.array_equal(x[:, 5], np.arange(NUM_ROWS) % 7 == 0)
    assert feature.names == [*(f"c[{k}]" for k in range(5)), "c is missing"]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 5)
    source = source_of(con, fixed)
    assert np.array_equal(x_of(source, fit(source, [ColumnSpec(column="c")], None)), rows)


def test_categories(con: Any) -> None:
    values = ["b"] * 30 + ["a"] * 30 + ["c"] * 40 + ["rare"] * 2 + [None] * 5 + ["later"] * 20
    source = source_of(con, pa.array(values))
    seen = MissingCounts()
    features = fit(source, [ColumnSpec(column="c", min_count=3)], np.arange(107))
    codes = codes_of(source, features, seen)[:, 0]
    # By how often they come, then by name: 0 is unknown or rare, 1 missing.
    assert codes.tolist() == [4] * 30 + [3] * 30 + [2] * 40 + [0] * 2 + [1] * 5 + [0] * 20
    assert (seen.missing, seen.unknown) == ({"c": 5}, {"c": 22})
    assert fit(source, [ColumnSpec(column="c", min_count=1, max_values=2)], None)[0].values == ("c", "a")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([True, False, True], [2, 3, 2]), ([30, 10, 30], [2, 3, 2])],
    ids=["truth values", "integers"],
)
def test_categories_that_are_no_text(values: list[Any], expected: list[int], con: Any) -> None:
    source = source_of(con, pa.array(values))
    features = fit(source, [ColumnSpec(column="c", kind="category", min_count=1)], None)
    assert codes_of(source, features)[:, 0].tolist() == expected


def test_new_tables_get_equal_rows_for_equal_values(con: Any, tmp_path: Path) -> None:
    values, words = numbers(), np.array([*"abc"])[np.random.default_rng(2).integers(0, 3, NUM_ROWS)]
    old = Source(con, pa.table({"n": pa.array(values, from_pandas=True), "w": words}), "nodes.t")
    fitted = fit(old, [ColumnSpec(column="n", impute="median"), ColumnSpec(column="w", min_count=1)], TRAIN)
    Transforms(nodes={"t": fitted}, classes={"k": ("no", "ja")}).write(tmp_path)
    read = Transforms.read(tmp_path)
    assert (read.nodes, read.classes) == ({"t": fitted}, {"k": ("no", "ja")})

    some = np.arange(NUM_ROWS - 1, 0, -2)  # others, in another order
    new = Source(
        con, pa.table({"n": pa.array(values[some], from_pandas=True), "w": [*words[some][:-1], "new"]}), "nodes.t"
    )
    assert np.array_equal(x_of(new, read.nodes["t"]), x_of(old, fitted)[some])
    codes = codes_of(old, fitted)[some]
    codes[-1] = 0
    assert np.array_equal(codes_of(new, read.nodes["t"]), codes)
    with pytest.raises(GraphSpecError, match=r"nodes.t.x lists w, but the transforms of .* are of n, w"):
        read.of("nodes", "t", [ColumnSpec(column="w")])
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("ja", "jo"))
    with pytest.raises(StoreFormatError, match="is damaged: what it says is not what was written"):
        Transforms.read(tmp_path)


@pytest.mark.parametrize(
    ("values", "spec", "told"),
    [
        ([1, 2], {}, "nodes.t.x: column 'c' is BIGINT: say as: number or as: category; a code is not a quantity"),
        (["a"], {"kind": "number"}, "column 'c' is VARCHAR, which cannot be read as: number"),
        ([["a"], ["b"]], {"kind": "vector"}, r"column 'c' is VARCHAR\[\], which cannot be read as: vector"),
        ([1.5], {"kind": "text_length"}, "column 'c' is DOUBLE, which cannot be read as: text_length"),
        ([{"a": 1}], {}, "column 'c' is STRUCT.*say another column, or cast it in SQL"),
        (
            [1.0, float("nan"), float("inf")],
            {},
            r"2 of 3 values of column 'c' cannot be read; the first is 'nan' in row 1",
        ),
        ([1.0, -2.0], {"scale": "log"}, "1 of 2 values of column 'c'.*'-2.0' in row 1.*0 or more, for scale: log"),
        ([None, None], {"kind": "number"}, "column 'c' is .*, which cannot be read|has no value in any of 2"),
        ([[1.0], [1.0, 2.0]], {}, "lists of column 'c' have 1 to 2 entries; all must have as many"),
        ([[1.0, None]], {}, "column 'c' holds a number in row 0 that is missing, not finite or beyond float32"),
        ([[1.0], [-1e39]], {}, "column 'c' holds a number in row 1 that is .* beyond float32, as 1 of 2 rows do"),
        ([1.7e308, -1.7e308], {}, "2 of 2 values of column 'c' cannot be read; the first is '1.7e.308' in row 0"),
        ([0.0, -1e39], {"scale": "none"}, "1 of 2 values.*'-1e.39' in row 1. Needed is a number up to 3.4028e.38"),
        ([2.0, 4e38], {"scale": "minmax"}, "1 of 2 values of column 'c'.*as float32 has it"),
        ([datetime(2026, 1, 1)], {}, "time 'c' is TIMESTAMP, without a zone"),
    ],
)
def test_columns_that_are_no_features(values: list[Any], spec: dict[str, Any], told: str, con: Any) -> None:
    source = source_of(con, pa.array(values))
    with pytest.raises(TableError, match=told):
        x_of(source, fit(source, [ColumnSpec(column="c", **spec)], None))


def test_a_new_table_with_other_lists(con: Any) -> None:
    source = source_of(con, pa.array([[1.0, 2.0]]))
    fitted = fit(source, [ColumnSpec(column="c")], None)
    with pytest.raises(TableError, match="column 'c' has 3 entries in row 1, but 2 are needed"):
        x_of(source_of(con, pa.array([[1.0, 2.0], [1.0, 2.0, 3.0]])), fitted)


@pytest.mark.parametrize(
    "broken", ["{", "[]", '{"version": 2}', '{"version": 1, "nodes": {"t": [{}]}, "edges": {}, "classes": {}}']
)
def test_files_of_transforms_that_are_none(broken: str, tmp_path: Path) -> None:
    (tmp_path / "transforms.json").write_text(broken)
    with pytest.raises(TableError, match="gnnload build"):
        Transforms.read(tmp_path)


def test_numbers_of_transforms_are_checked() -> None:
    given = json.loads(json.dumps(Feature("c", "number").to_json()))
    assert Feature.from_json(given) == Feature("c", "number")
    for name, value in (("spread", 0), ("center", float("nan")), ("width", "1"), ("values", [1]), ("log", None)):
        with pytest.raises(TableError, match="describes no feature"):
            Feature.from_json({**given, name: value})
