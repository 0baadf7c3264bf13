"""What a description's SQL may do: read tables in its own folder, and nothing else."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.open_tables import OpenTables
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import BuildSpec, GraphSpec
from lightning_gnnload.ingest.sql import checked_query, is_query, open_database

SECRET = "outside/secret.csv"
HOSTILE = [
    # more than one statement
    "select * from 'n.csv'; copy (select 'x') to 'P.sh' (header false)",
    "select 1 as id; copy (select 'x') to 'home/P.sh'",
    "from 'n.csv'; attach 'P.db'",
    "select 1 as id /* ; */ ; create table t as select 1",
    "select 1 as id; select 2 as id",
    "select 1) ; copy (select 'x') to 'P.sh'; (select 1",
    "from (select 1 as id)); copy (select 'x') to 'P.sh'; --",
    "select 1 as id --\n; copy (select 'x') to 'P.sh'",
    "select $$;$$ as id; copy (select 1) to 'P.sh'",
    "select e'\\'' as id; copy (select 1) to 'P.sh' --'",
    "with a as (select 1 as id) from a; set threads = 7",
    "select 1 as id; pragma threads = 7",
    "select 1 as id; set allowed_directories = ['/']",
    "select 1 as id; reset lock_configuration",
    "select 1 as id; install httpfs",
    "select 1 as id; load httpfs",
    "select 1 as id; export database 'P'",
    "select 1 as id; call enable_logging(storage = 'file', storage_path = 'P')",
    "select 1 as id; drop table if exists source_0",
    # statements within a SELECT, or hidden behind one
    "with a as (insert into t values (1) returning *) select * from a",
    "with a as (delete from t returning *) from a",
    "with a as (update t set id = 1 returning *) from a",
    "with a as (copy (select 1) to 'P.sh') select 1 as id",
    "with a as materialized (merge into t using u on true when matched then delete returning *) from a",
    "with a as (select 1) insert into t select 1",
    "with a as (select 1) delete from t",
    "from (copy (select 1) to 'P.sh')",
    "from 'n.csv' insert into t",
    "select 1 as id into outfile 'P.sh'",
    "select * from query('copy (select 1) to ''P.sh''')",
    "select * from query('select * from ''{secret}''')",
    "select * from query_table('{secret}')",
    "from json_execute_serialized_sql(json_serialize_sql('from ''{secret}'''))",
    "with pivoted as (pivot 'n.csv' on id using count(*)) from pivoted; copy (select 1) to 'P.sh'",
    # functions that do more than to read, or follow addresses in memory
    "from arrow_scan(1::pointer, 2::pointer, 3::pointer)",
    "from arrow_scan_dumb(1, 2, 3)",
    "from python_arrow_scan(1::pointer, 2::pointer, 3::pointer)",
    "from pandas_scan(1::pointer)",
    "from ARROW_SCAN(1::pointer, 2::pointer, 3::pointer)",
    "from system.main.pandas_scan(1::pointer)",
    'from "pandas_scan"(1::pointer)',
    "select (select count(*) from pandas_scan(1::pointer)) as id",
    "select 1 as id where exists (from (from pandas_scan(1::pointer)))",
    "with recursive a as (select 1 as id union all select id from a, pandas_scan(1::pointer)) from a",
    "from enable_logging(storage = 'file', storage_path = '{home}/P')",
    "from enable_profiling(save_location = '{home}/P.json')",
    "from register_external_resource('a', 'b', map {{}}, 'c', 'd', 'e')",
    "from checkpoint()",
    "from force_checkpoint()",
    "from duckdb_settings()",
    "from duckdb_secrets()",
    "from which_secret('s3://a', 's3')",
    "from read_duckdb('{home}/P.db')",
    "select write_log('x') as id",
    "select getenv('HOME') as id",
    "select nextval('s') as id",
    # files elsewhere, and paths that nobody sees
    "select * from read_text('/etc/passwd')",
    "from '{secret}'",
    'from "{secret}"',
    "from read_csv('../{name}')",
    "from read_csv('{home}/../{name}')",
    "from read_csv('./../home/./../{name}')",
    "from read_csv(['n.csv', '{secret}'])",
    "from read_csv('{secret}'[1:])",
    "from read_csv('out' || 'side')",
    "from read_csv(chr(47) || 'etc/passwd')",
    "from read_csv(getvariable('path'))",
    "from read_csv($${secret}$$)",
    "from read_csv(E'{secret}')",
    "from read_csv(('{secret}'))",
    "from (values ('{secret}')) v(path), read_text(path)",
    "from read_blob('{outside}/*')",
    "from glob('{outside}/*')",
    "from glob('**/../../*')",
    "from read_text('n.csv', '{secret}')",
    "from read_csv('link.csv')",
    "from read_text('file://{secret}')",
    "from read_text('file:{secret}')",
    "from read_text('~/.bashrc')",
    "from 'https://example.org/n.csv'",
    "from read_parquet('s3://bucket/n.parquet')",
    'from "{home}/link"."csv"',
    'with "{home}/link.csv" as (select * from "{home}/link.csv") from "{home}/link.csv"',
    'from (with "n.csv" as (select 1 as id) from "n.csv") as a, "n.csv" as b',
    "from sniff_csv('{secret}')",
    "from parquet_metadata('{secret}')",
    "from 'l*.csv'",
    "from 'n.csv' at (version => 1); copy (select 1) to 'P.sh'",
    # what is no SQL at all
    "select",
    "select 'unterminated",
    "select 1 /* unterminated",
    "select \x00; copy (select 1) to 'P.sh'",
    "from con",
    "from self",
    "select ?",
    "from (((((",
    "from (" * 30000 + "select 1" + ")" * 30000,
    "select " + "not " * 30000 + "true as id",
]


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    for folder in ("home/below", "outside", "scratch"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home/n.csv").write_text("id\na\n")
    (tmp_path / "home/below/n.csv").write_text("id\nb\n")
    (tmp_path / "n.csv").write_text("id\nof the current folder\n")
    (tmp_path / SECRET).write_text("id\nsecret\n")
    (tmp_path / "home/link.csv").symlink_to(tmp_path / SECRET)
    home, outside = tmp_path / "home", tmp_path / "outside"
    return {"home": str(home), "outside": str(outside), "secret": str(tmp_path / SECRET), "name": SECRET}


@pytest.fixture
def con(places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    connection = open_database(BuildSpec(threads=1), tmp_path / "scratch", Path(places["home"]), reads=())
    yield connection
    connection.close()


def files(folder: Path) -> dict[str, bytes]:
    return {
        os.path.join(place, name): (Path(place) / name).read_bytes()
        for place, _, names in os.walk(folder)
        for name in names
    }


@pytest.mark.parametrize("peek", [True, False])
def test_hostile_descriptions_write_nothing_and_learn_nothing(
    peek: bool, con: Any, places: dict[str, str], tmp_path: Path
) -> None:
    before = files(tmp_path)
    for text in HOSTILE:
        query = text.format(**places) if "{" in text else text
        with pytest.raises(TableError, match=r"^nodes\.user: "):
            print(text, Source(con, query, "nodes.user", Path(places["home"]), peek=peek).ask("*"))
    assert files(tmp_path) == before


def test_hostile_queries_are_refused_before_they_run(con: Any, places: dict[str, str]) -> None:
    passed = set()
    for text in HOSTILE:
        with suppress(TableError):
            checked_query(con, text.format(**places) if "{" in text else text, Path(places["home"]), "nodes.user")
            passed.add(text)
    # Of these only DuckDB says that there is no such table, or no such argument.
    assert passed <= {"from con", "from self", "select ?", "from read_text('n.csv', '{secret}')"}


def test_the_connection_alone_keeps_them_out(con: Any, places: dict[str, str]) -> None:
    rows = pa.table({"id": ["of this program"]})
    for statement in (
        "copy (select 1) to 'P.sh'",
        f"from '{places['secret']}'",
        "attach 'P.db'",
        "load httpfs",
        "set threads = 7",
        "set allowed_directories = ['/']",
        "from rows",
    ):
        with pytest.raises(duckdb.Error):
            print(statement, con.execute(statement).fetchall(), rows)
    settings = "current_setting('autoinstall_known_extensions'), current_setting('autoload_known_extensions')"
    assert con.execute(f"select {settings}").fetchall() == [(False, False)]


@pytest.mark.parametrize(
    "query",
    [
        "select * from 'n.csv'",
        "SELECT * FROM 'n.csv';",
        "from 'n.csv' -- as it is",
        'from "n.csv"',
        "from read_csv('./n.csv', types={{'id': 'VARCHAR'}}, header=true) as t",
        "from '{home}/n.csv'",
        "select id from 'n.csv' where 'é;' <> id",
        "from n.csv",
        "-- of the shop\n/* as it is **/ select n.id from n.csv",
        "select id from 'n.csv' union select id from read_csv(['n.csv'])",
        "select distinct n.id from 'n.csv' n, range(3) r, unnest([1, 2]) u, (values (1)) v",
        "select id from 'n.csv' where id in (from './n.csv') order by (select count(*) from read_csv(['n.csv']))",
        "with a as (from './n.csv'), b as (from n.csv) select a.id from a join b using (id) join 'n.csv' using (id)",
    ],
)
def test_queries_that_read_the_descriptions_own_tables(query: str, con: Any, places: dict[str, str]) -> None:
    source = Source(con, query.format(**places), "nodes.user", Path(places["home"]))
    assert source.ask("*") == [("a",)]  # and not the file of that name in the current folder


def test_globs_and_folders_that_are_allowed(places: dict[str, str], tmp_path: Path) -> None:
    home, scratch = Path(places["home"]), tmp_path / "scratch"
    with open_database(BuildSpec(threads=1), scratch, home, reads=[tmp_path / "outside"]) as con:
        assert Source(con, f"from '{places['secret']}'", "nodes.user", home).ask("*") == [("secret",)]
        assert Source(con, "from '*/n.csv'", "nodes.user", home).ask("*") == [("b",)]
        with pytest.raises(TableError, match=r"the SQL reads .*n\.csv.*gnnload build --read"):
            Source(con, "from '../n.csv'", "nodes.user", home)
    with open_database(
        BuildSpec(threads=1), scratch, home, files=[places["secret"], f"{home}/link.csv"], reads=()
    ) as con:
        for named in (places["secret"], "../outside/secret.csv", "link.csv"):
            assert Source(con, named, "nodes.user", home, ["id"]).ask("*") == [("secret",)]


def test_names_with_quotes_are_names(con: Any) -> None:
    names = ["a\" from x; copy (select 1) to 'P.sh'; --", "b'); drop table t; --", 'c"".d', "g\nh", ";"]
    table = pa.table({name: [f"{place}"] for place, name in enumerate(names)})
    described = {
        "version": 1,
        "nodes": {
            "n": {"from": table, "id": names[0], "x": [{"column": name, "as": "category"} for name in names[1:]]}
        },
        "edges": {"e": {"from": table, "src": f"n.{names[0]}", "dst": f"n.{names[1]}"}},
    }
    tables = OpenTables(con, GraphSpec.of(described), Path())
    for place, name in enumerate(names):
        assert tables.nodes["n"].ask(tables.nodes["n"].column(name)) == [(str(place),)]
    with pytest.raises(duckdb.Error, match="more than one statement"):
        tables.nodes["n"]._run("select 1; select 2")
    for zone in ("UTC'; copy (select 1) to 'P.sh'; --", "UTC\x00"):
        with pytest.raises(GraphSpecError, match="is no time zone"):
            Source(con, pa.table({"t": pa.array([0], pa.timestamp("us"))}), "nodes.n").time("t", None, zone)


def test_sorting_that_memory_does_not_hold_goes_to_the_scratch_folder(places: dict[str, str], tmp_path: Path) -> None:
    with open_database(
        BuildSpec(threads=1, memory="20MB"), tmp_path / "scratch", Path(places["home"]), reads=()
    ) as con:
        query = "select range as id, md5(range::varchar) as text from range(400000) order by text"
        assert Source(con, query, "nodes.n").ask("count(*)") == [(400000,)]


@pytest.mark.parametrize("name", ["select.parquet", "with.csv.gz", "From.csv", "selection.parquet"])
def test_files_whose_names_begin_as_queries_do(name: str) -> None:
    assert not is_query(name)
    assert is_query(f"select * from '{name}'")
    assert is_query(f"from\n'{name}'")
