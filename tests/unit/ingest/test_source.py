"""Every format gives the same rows in the same order; ids and times of each kind are read, others refused by name."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.features import unfitted_features
from lightning_gnnload.ingest.source import Reading, Source
from lightning_gnnload.ingest.spec import BuildSpec, ColumnSpec
from lightning_gnnload.ingest.sql import open_database
from tests.forked import in_child

TABLE = pa.table({"id": ["b", "a", "c"], "n": [3, 1, 2]})


@pytest.fixture
def con(tmp_path: Path) -> Any:
    con = open_database(BuildSpec(memory="1GB", threads=2), tmp_path / "scratch", tmp_path)
    yield con
    con.close()


def rows(source: Source, *readings: Reading) -> list[tuple[Any, ...]]:
    found = [batch.to_pydict() for batch in source.batches(readings)]
    columns = [[value for each in found for value in each[f"c{number}"]] for number in range(len(readings))]
    return list(zip(*columns, strict=True))


def write(folder: Path) -> None:
    parquet.write_table(TABLE, folder / "t.parquet")
    TABLE.to_pandas().to_csv(folder / "t.csv", index=False)
    TABLE.to_pandas().to_csv(folder / "t.csv.gz", index=False)
    feather.write_feather(TABLE, folder / "t.feather")
    for number in range(3):
        parquet.write_table(TABLE.slice(number, 1), folder / f"part-{number}.parquet")


@pytest.mark.parametrize(
    "given",
    [
        "t.parquet",
        "t.csv",
        "t.csv.gz",
        "t.feather",
        "part-*.parquet",
        ["part-0.parquet", "part-1.parquet", "part-2.parquet"],
        "select * from 't.parquet'",
        "WITH x AS (select * from 't.csv') select id, n from x;",
        TABLE,
        TABLE.to_pandas(),
        TABLE.to_pandas().set_index("id"),
    ],
    ids=str,
)
def test_every_format_gives_the_same_rows(given: Any, con: Any, tmp_path: Path) -> None:
    write(tmp_path)
    source = Source(con, given, "nodes.t", tmp_path, keys=["id"])
    assert source.num_rows == 3
    assert rows(source, source.key("id"), source.key("n")) == [("b", 3), ("a", 1), ("c", 2)]


def test_tables_of_polars(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "")  # which polars sets when it is imported
    polars = pytest.importorskip("polars")
    source = Source(con, polars.DataFrame({"id": ["b", "a"], "n": [3, 1]}), "nodes.t")
    assert rows(source, source.key("id"), source.key("n")) == [("b", 3), ("a", 1)]


def test_a_join_is_run_once_so_that_all_columns_lie_in_one_order(con: Any) -> None:
    # A second run of the query would draw other numbers, and features would belong to other nodes.
    source = Source(con, "select i as id, random() as x from range(1000) t(i)", "nodes.t")
    again = [rows(source, source.key("id"), Reading("x", '"x"')) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("none.parquet", "nodes.t: from: 'none.parquet' in .*: there is no such file"),
        ("*.none", "there is no such file"),
        (".", "it is a folder; give its files"),
        (["t.csv", "t.parquet"], "they are of several formats"),
        ("graph.yaml", "is of none"),
        ("select nothing from 't.parquet'", 'nodes.t: the table cannot be read. DuckDB says: .*"nothing" not found'),
    ],
)
def test_tables_that_cannot_be_read(given: Any, told: str, con: Any, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "graph.yaml").touch()
    with pytest.raises(TableError, match=told):
        Source(con, given, "nodes.t", tmp_path)


# Ids.


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integers_of_all_widths_are_alike(dtype: str, con: Any) -> None:
    source = Source(con, pa.table({"k": np.array([7, 3, 100], dtype)}), "nodes.t")
    key = source.key("k")
    assert (key.id_type, rows(source, key)) == ("integer", [(7,), (3,), (100,)])


def test_ids_in_csv_are_text_and_keep_their_zeros(con: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k\n007\n08\n")
    source = Source(con, "t.csv", "nodes.t", tmp_path, keys=["k"])
    assert rows(source, source.key("k")) == [("007",), ("08",)]
    assert rows(source, source.key("k", "integer", cast=True)) == [(7,), (8,)]


def test_uuids_and_categories_are_text(con: Any) -> None:
    source = Source(con, "select '0190163d-8694-739b-aea5-966c26f8ad91'::uuid as k", "nodes.t")
    assert rows(source, source.key("k")) == [("0190163d-8694-739b-aea5-966c26f8ad91",)]
    source = Source(con, pd.DataFrame({"k": pd.Categorical(["x", "y", "x"])}), "nodes.t")
    assert rows(source, source.key("k")) == [("x",), ("y",), ("x",)]


def test_keys_are_cast_where_the_user_says_so_alone(con: Any) -> None:
    source = Source(con, TABLE, "edges.e")
    with pytest.raises(
        TableError, match=r"edges.e: column 'n' is integer \(BIGINT\), but the ids of its nodes are text"
    ):
        source.key("n", "text")
    assert rows(source, source.key("n", "text", cast=True)) == [("3",), ("1",), ("2",)]


def test_lists_are_neither_ids_nor_times(con: Any) -> None:
    lists = "['a'::enum('a')] as k, [timestamptz '2026-01-01'] as z, [timestamp '2026-01-01'] as t"
    source = Source(con, f"select {lists}", "nodes.t")
    with pytest.raises(TableError, match=r"column 'k' is ENUM\('a'\)\[\], but ids are integers, text or UUIDs"):
        source.key("k")
    for name in ("z", "t"):
        with pytest.raises(TableError, match=rf"time '{name}' is TIMESTAMP.*\[\]; a timestamp, a date, text or"):
            source.time(name, None, "UTC")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.0, 2.5], "column 'k' is DOUBLE, but ids are .*Equal ids may differ as floats.*cast them"),
        ([True, False], "column 'k' is BOOLEAN, but ids are integers, text or UUIDs"),
        ([b"a", b"b"], "column 'k' is BLOB"),
        ([date(2026, 1, 1)], "column 'k' is DATE"),
    ],
)
def test_what_is_no_id(values: list[Any], told: str, con: Any) -> None:
    with pytest.raises(TableError, match=told):
        Source(con, pa.table({"k": values}), "nodes.t").key("k")


def test_numbers_beyond_64_bits_are_counted(con: Any) -> None:
    source = Source(con, pa.table({"k": pa.array([1, 2**63, 2**64 - 1], pa.uint64())}), "nodes.t")
    with pytest.raises(
        TableError, match=r"2 of 3 values of column 'k'.*first is '9223372036854775808' in row 1.*id_type"
    ):
        rows(source, source.key("k"))


def test_a_column_that_is_not_there(con: Any) -> None:
    with pytest.raises(TableError, match=r"nodes.t: there is no column 'idd'; did you mean 'id'\? There are: id, n"):
        Source(con, TABLE, "nodes.t").key("idd")


# Times.

NOON = 1_772_366_400_000_000  # 2026-03-01 12:00 UTC


@pytest.mark.parametrize(
    ("values", "unit", "zone", "microseconds"),
    [
        (pa.array([datetime(2026, 3, 1, 12)]), None, "UTC", NOON),
        (pa.array([datetime(2026, 3, 1, 13)]), None, "Europe/Berlin", NOON),
        (pa.array([NOON * 1000], pa.timestamp("ns", "Asia/Tokyo")), None, None, NOON),
        (pa.array([NOON // 1000], pa.timestamp("ms", "UTC")), None, None, NOON),
        (pa.array([date(2026, 3, 1)]), None, "UTC", NOON - 12 * 3600 * 10**6),
        (pa.array([date(2026, 3, 1)]), None, "Etc/GMT+12", NOON),
        (pa.array(["2026-03-01"]), None, "UTC", NOON - 12 * 3600 * 10**6),  # whose end is no zone of -01
        (pa.array(["2026-03-01 13:00:00"]), None, "Europe/Berlin", NOON),
        (pa.array(["2026-03-01T14:00:00+02:00"]), None, "Europe/Berlin", NOON),
        (pa.array(["2026-03-01T12:00:00Z"]), None, None, NOON),
        (pa.array([NOON // 10**6]), "s", None, NOON),
        (pa.array([NOON // 10**3]), "ms", None, NOON),
        (pa.array([NOON]), "us", None, NOON),
        (pa.array([NOON * 10**3 + 999]), "ns", None, NOON),
        (pa.array([5], pa.int16()), "s", None, 5 * 10**6),
    ],
)
def test_times_of_each_kind(values: pa.Array, unit: str | None, zone: str | None, microseconds: int, con: Any) -> None:
    table = pa.table({"t": pa.concat_arrays([values, pa.nulls(1, values.type)])})
    source = Source(con, table, "nodes.t")
    assert rows(source, source.time("t", unit, zone)) == [(microseconds,), (None,)]


@pytest.mark.parametrize(
    ("values", "unit", "zone", "told"),
    [
        ([datetime(2026, 3, 1)], None, None, "time 't' is TIMESTAMP, without a zone. Say its own: timezone: UTC"),
        ([date(2026, 3, 1)], None, None, "time 't' is DATE, without a zone"),
        ([5], None, None, "time 't' is BIGINT: say what they count: time_unit: s, ms, us or ns"),
        (["2026-03-01"], "s", None, "time 't' is VARCHAR: leave time_unit out"),
        ([1.5], None, None, "time 't' is DOUBLE; a timestamp, a date, text or integers are needed"),
    ],
)
def test_times_that_lack_something(values: list[Any], unit: str | None, zone: str | None, told: str, con: Any) -> None:
    with pytest.raises(TableError, match=told):
        Source(con, pa.table({"t": values}), "nodes.t").time("t", unit, zone)


def test_texts_that_are_no_times_are_counted(con: Any) -> None:
    source = Source(con, pa.table({"t": ["2026-03-01", None, "1.3.2026", "soon"]}), "edges.e")
    with pytest.raises(TableError, match=r"edges.e: 2 of 4 values of column 't'.*'1.3.2026' in row 2.*strptime"):
        rows(source, source.time("t", None, "UTC"))
    with pytest.raises(TableError, match=r"3 of 4 values.*'2026-03-01' in row 0.*say timezone"):
        rows(source, source.time("t"))


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date"])
def test_infinite_times_are_none(kind: str, con: Any) -> None:
    source = Source(con, f"select unnest(['2026-03-01', '-infinity', null]::{kind}[]) as t", "edges.e")
    with pytest.raises(TableError, match=r"1 of 3 values of column 't'.*'-infinity' in row 1.*not infinite, or none"):
        rows(source, source.time("t", None, "UTC"))


def test_zones_that_are_none(con: Any) -> None:
    with pytest.raises(GraphSpecError, match=r"nodes.t.timezone: 'Mars' is no time zone"):
        Source(con, pa.table({"t": ["2026-03-01"]}), "nodes.t").time("t", None, "Mars")


# CSV says no types.


def test_a_line_that_fits_the_first_ones_no_more(con: Any, tmp_path: Path) -> None:
    lines = [f"{number},{number}" for number in range(30_000)]
    (tmp_path / "a.csv").write_text("\n".join(["id,n", *lines, "x,none"]))
    source = Source(con, "a.csv", "nodes.t", tmp_path, keys=["id"])
    with pytest.raises(TableError, match=r"nodes.t: line 30002 of .*a.csv: column 'n' was taken for BIGINT.*read_csv"):
        rows(source, source.key("n"))
    (tmp_path / "b.csv").write_text("\n".join(["id,n", *lines, "1,2,3"]))
    source = Source(con, "b.csv", "nodes.t", tmp_path)
    with pytest.raises(TableError, match=r"line 30002 of .*b.csv has 3 fields, but there are 2 columns"):
        rows(source, source.key("n"))


@pytest.mark.parametrize(
    ("end", "line"), [("7", "line 42 has 1 of 2 fields, '7'"), ("7\n1,2\n", "line 42 has 1 of 2 fields")]
)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_file_that_was_cut_in_a_row(separator: str, end: str, line: str, con: Any, tmp_path: Path) -> None:
    (tmp_path / "cut.csv").write_text(("a,b\n" + "1,2\n" * 40 + end).replace(",", separator))
    with pytest.raises(TableError, match=rf"edges\.e: .*cut\.csv: {line}.*Was the file cut in mid-row\?"):
        Source(con, "cut.csv", "edges.e", tmp_path, ["a"])


def test_line_ends_of_two_kinds_and_files_without_anything_are_told(con: Any, tmp_path: Path) -> None:
    (tmp_path / "ends.csv").write_bytes(b"a,b\r\n" + b"1,2\r\n" * 40 + b"7,8\n")
    with pytest.raises(TableError, match=r"ends\.csv: line 42 ends by '\\n', those before it by '\\r\\n'"):
        Source(con, "ends.csv", "edges.e", tmp_path, ["a"])
    (tmp_path / "empty.csv").touch()
    with pytest.raises(TableError, match=r"edges\.e: .*empty\.csv is empty"):
        Source(con, "empty.csv", "edges.e", tmp_path, ["a"])
    (tmp_path / "head.csv").write_text("a,b\n")
    source = Source(con, "head.csv", "nodes.n", tmp_path, ["a"])
    with pytest.raises(TableError, match=r"column 'b' is VARCHAR, which cannot be read as: number\. The file has no"):
        unfitted_features(source, [ColumnSpec(column="b", kind="number")], timezone=None)


def test_one_column_whose_name_has_a_comma(con: Any, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text('"a,b"\n1\n2\n')
    assert Source(con, "one.csv", "nodes.n", tmp_path).types == {"a,b": "BIGINT"}


def test_some_rows_alone(con: Any) -> None:
    source = Source(con, TABLE, "nodes.t")
    with source.only(np.array([0, 2])) as table:
        assert source.ask("sum(n)", table=table) == [(5,)]
    with source.only(None) as table:
        assert source.ask("sum(n)", table=table) == [(6,)]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_damaged_files_of_arrow_are_read_or_refused(compression: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": [f"user {number}" for number in range(200)],
            "lists": pa.array([["a"], ["bc", None]] * 100),
            "codes": pa.array(["x", "y"] * 100).dictionary_encode(),
            "vectors": pa.array([[1.0, 2.0]] * 200),
        }
    )
    feather.write_feather(table, tmp_path / "sound.feather", compression=compression)
    sound, rng = (tmp_path / "sound.feather").read_bytes(), random.Random(3)

    def read_all() -> None:
        opened = open_database(BuildSpec(threads=1), tmp_path / "scratch", tmp_path)
        for _ in range(100):
            damaged = bytearray(sound)
            damaged[rng.randrange(len(sound))] ^= 1 << rng.randrange(8)
            (tmp_path / "damaged.feather").write_bytes(damaged)
            with suppress(TableError):
                source = Source(opened, "damaged.feather", "nodes.user", tmp_path)
                source.ask(", ".join(f"min({source.column(name)}::varchar)" for name in source.types))

    assert in_child(read_all) == (0, "")


def test_a_damaged_table_in_memory(con: Any) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 5]), ["a"], safe=False)
    with pytest.raises(TableError, match=r"nodes\.user: a table of the type Table cannot be read"):
        Source(con, pa.table({"id": codes}), "nodes.user")
