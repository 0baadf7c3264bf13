"""A whole build equals the same graph made in memory, says what it found, and leaves all or nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lightning_gnnload import Graph, GraphData, load_graph_data, save_graph_data
from lightning_gnnload.errors import GraphSpecError, MissingExtraError, StoreFormatError, TableError, ThreadLimitError
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.report import as_text
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.plugin.commands import build as command
from tests.threadless import refused

NUM_USERS, NUM_ITEMS, NUM_BUYS = 120, 50, 900
NANOSECONDS = 1000


class Shop:
    """Tables in random order, with their ids; and the numbers that belong to them, from NumPy."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(11)
        self.users = np.array([f"user {number}" for number in rng.permutation(10 * NUM_USERS)[:NUM_USERS]])
        self.items = rng.permutation(10 * NUM_ITEMS)[:NUM_ITEMS] * 10**15 - 10**8
        self.joined = pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**6, NUM_USERS), unit="s")
        self.age = rng.normal(40, 9, NUM_USERS)
        self.label = rng.choice(["stays", "goes"], NUM_USERS)
        self.src, self.dst = rng.integers(0, NUM_USERS - 3, NUM_BUYS), rng.integers(0, NUM_ITEMS, NUM_BUYS)
        self.at = pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**6, NUM_BUYS), unit="s")
        self.price = rng.random(NUM_BUYS)
        users = {"uid": self.users, "joined": self.joined, "age": self.age, "label": self.label}
        self.frames = {
            "users": pd.DataFrame(users),
            "items": pd.DataFrame({"sku": self.items}),
            "buys": pd.DataFrame(
                {"u": self.users[self.src], "i": self.items[self.dst], "at": self.at, "price": self.price}
            ),
        }
        self.frames["users"].to_parquet(folder / "users.parquet")
        self.frames["items"].to_csv(folder / "items.csv", index=False)
        self.frames["buys"].to_parquet(folder / "buys.parquet")
        self.spec: dict[str, Any] = {
            "version": 1,
            "nodes": {
                "user": {"from": "users.parquet", "id": "uid", "time": "joined", "timezone": "UTC", "x": ["age"]},
                "item": {"from": "items.csv", "id": "sku", "id_type": "integer"},
            },
            "edges": {
                "buys": {
                    "from": "buys.parquet",
                    "src": "user.u",
                    "dst": "item.i",
                    "time": "at",
                    "timezone": "UTC",
                    "weight": "price",
                    "reverse": True,
                    "x": ["price"],
                }
            },
            "tasks": {"stay": {"seed": "user.uid", "y": "label", "split": {"share": [0.6, 0.2, 0.2]}}},
        }

    def in_memory(self) -> Graph:
        buys, back = ("user", "buys", "item"), ("item", "rev_buys", "user")
        return Graph.from_hetero(
            {"user": NUM_USERS, "item": NUM_ITEMS},
            {buys: (self.src, self.dst), back: (self.dst, self.src)},
            edge_weight={buys: self.price, back: self.price},
            edge_time={buys: self.at.to_numpy(), back: self.at.to_numpy()},
            node_time={"user": self.joined.to_numpy()},
            keep_order=True,
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, Path]:
    folder = tmp_path_factory.mktemp("shop")
    made = Shop(folder)
    (folder / "graph.yaml").write_text(json.dumps(made.spec))  # which is YAML
    return made, folder


def build(shop: tuple[Shop, Path], out: Path, **arguments: Any) -> dict[str, Any]:
    return build_graph_folder(GraphSpec.of(shop[0].spec), out, home=shop[1], show_progress=False, **arguments)


def assert_same_arrays(found: Graph, wanted: Graph) -> None:
    for name in Graph.ARRAYS:
        mine, theirs = getattr(found, name), getattr(wanted, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            assert mine.dtype == theirs.dtype, name
            assert np.array_equal(mine, theirs), name


def test_a_folder_equals_the_graph_in_memory(shop: tuple[Shop, Path], tmp_path: Path) -> None:
    made = shop[0]
    build(shop, tmp_path / "out")
    data = load_graph_data(tmp_path / "out", verify=True)
    assert_same_arrays(data.graph, made.in_memory())
    assert data.user_ids["user"].take(range(NUM_USERS)).tolist() == made.users.tolist()
    assert data.user_ids["item"].take(range(NUM_ITEMS)).tolist() == made.items.tolist()
    assert (data.user_ids["user"].column, data.user_ids["item"].kind) == ("uid", "integer")

    train = data.split("train", "user")
    assert set(train) | set(data.split("val", "user")) | set(data.split("test", "user")) == set(range(NUM_USERS))
    x = data.tables_of("user")["x"].store.rows[:, 0].numpy()
    assert np.allclose(x, (made.age - made.age[train].mean()) / made.age[train].std(), atol=1e-5)
    price = ((made.price - made.price.mean()) / made.price.std()).astype(np.float32)
    for relation in ("buys", "rev_buys"):
        assert np.allclose(data.edge_tables_of(relation)["x"].store.rows[:, 0].numpy(), price, atol=1e-5)
    assert data.class_names == ("goes", "stays")
    assert [data.class_names[each] for each in data.table("train").y] == made.label[train].tolist()


def test_a_folder_that_was_built_can_be_saved_and_replaced(shop: tuple[Shop, Path], tmp_path: Path) -> None:
    build(shop, tmp_path / "out")
    save_graph_data(load_graph_data(tmp_path / "out"), tmp_path / "copy")
    assert_same_arrays(load_graph_data(tmp_path / "copy", verify=True).graph, shop[0].in_memory())
    with pytest.raises(StoreFormatError, match="exists already"):
        build(shop, tmp_path / "out")
    build(shop, tmp_path / "out", overwrite=True)  # though it holds a report and transforms
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(StoreFormatError, match=r"also holds mine.txt"):
        build(shop, tmp_path / "out", overwrite=True)


def test_one_table_each_is_a_graph_without_types(tmp_path: Path) -> None:
    pages = pa.table({"url": ["a", "b", "c"], "words": [1.0, 2.0, 3.0], "kind": ["x", "y", "x"]})
    links = pa.table({"from": ["a", "a", "c"], "to": ["b", "c", "b"]})
    columns = ["words", {"column": "kind", "min_count": 1}]
    data = GraphData.from_tables(
        nodes={"page": {"from": pages, "id": "url", "x": columns}},
        edges={"links": {"from": links, "src": "page.from", "dst": "page.to"}},
        tasks={"kind": {"seed": "page.url", "y": "kind", "split": {"share": [1, 0, 0]}}},
        folder=tmp_path / "kept",
        show=False,
    )
    assert data.graph.types is None
    assert_same_arrays(data.graph, Graph.from_coo([0, 0, 2], [1, 2, 1], 3, keep_order=True))
    assert data.user_ids[""].rows_of(["c", "a"]).tolist() == [2, 0]
    assert data.x.rows.shape == (3, 1)
    assert data.tables["codes"].rows[:, 0].tolist() == [2, 3, 2]
    assert data.folder == (tmp_path / "kept").absolute()


def test_tables_in_memory_give_the_same_and_leave_no_file(
    shop: tuple[Shop, Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = shop[0]
    spec = deepcopy(made.spec)
    spec["nodes"]["user"]["from"] = made.frames["users"]
    spec["nodes"]["item"]["from"] = pa.Table.from_pandas(made.frames["items"])
    spec["edges"]["buys"]["from"] = made.frames["buys"]
    data = GraphData.from_tables(nodes=spec["nodes"], edges=spec["edges"], tasks=spec["tasks"], show=False, threads=1)
    assert_same_arrays(data.graph, made.in_memory())
    assert (data.folder, data.task, list(tmp_path.iterdir())) == (None, "stay", [])


def test_the_report(tmp_path: Path) -> None:
    nodes = pa.table({"id": ["a", "b", "c", "a"], "t": pa.array([1, None, 3, 4]), "f": [1.0, None, 2.0, 3.0]})
    edges = pa.table(
        {
            "s": ["a", "a", "a", "b", "x", None, "a"],
            "d": ["b", "b", "a", "b", "b", "b", "y"],
            "t": pa.array([1, None, 3, 4, 5, 6, 7]),
        }
    )
    spec = {
        "version": 1,
        "build": {"repeats": True},
        "nodes": {"n": {"from": nodes, "id": "id", "time": "t", "time_unit": "s", "on_duplicate": "first", "x": ["f"]}},
        "edges": {
            "e": {"from": edges, "src": "n.s", "dst": "n.d", "time": "t", "time_unit": "s", "on_missing": "drop"}
        },
    }
    report = build_graph_folder(GraphSpec.of(spec), tmp_path / "out", show_progress=False)
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    found = report["nodes"]["n"]
    assert {key: found[key] for key in ("rows", "nodes", "repeated", "without_time", "isolated", "ids")} == {
        "rows": 4,
        "nodes": 3,
        "repeated": 1,
        "without_time": 1,
        "isolated": 1,
        "ids": "text",
    }
    assert found["in_degree"] == {"min": 0, "median": 1.0, "mean": 4 / 3, "max": 3, "hubs": {"b": 3, "a": 1}}
    assert found["fitted_on"] == "all rows, as no task trains on them"
    assert found["features"] == {"f": {"as": "number", "missing": 1}}
    assert report["edges"]["e"] == {
        "rows": 7,
        "kept": 4,
        "src_unknown": 1,
        "src_null": 1,
        "dst_unknown": 1,
        "dst_null": 0,
        "self_loops": 2,
        "without_time": 1,
        "src_later": 0,
        "dst_later": 0,
        "repeats": 1,
    }
    assert report["peak_memory_bytes"] > 10**7
    assert report["seconds"].keys() == {"ids", "edges", "sort", "tasks", "features", "finish"}
    text = as_text(report)
    assert max(map(len, text.splitlines())) <= 80
    assert "7 rows, 4 kept, 3 left out." in text
    assert "in-neighbours: 0 to 3, median 1, mean 1.33; most: b 3, a 1." in text


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        (("nodes", "user", "id", "id"), TableError, "nodes.user: there is no column 'id'.*There are: uid, joined"),
        (("nodes", "user", "from", "u.parquet"), TableError, "nodes.user: from: 'u.parquet' in .*: there is no such"),
        (("nodes", "user", "timezone", None), TableError, "nodes.user: time 'joined' is TIMESTAMP, without a zone"),
        (("edges", "buys", "src", "user.i"), TableError, r"edges.buys: column 'i' is integer \(BIGINT\), but .* text"),
        (
            ("edges", "buys", "weight", "pric"),
            TableError,
            "edges.buys: there is no column 'pric'; did you mean",
        ),
        (("tasks", "stay", "y", "labl"), TableError, r"tasks.stay: there is no column 'labl'; did you mean 'label'"),
        (("edges", "buys", "x", ["u", "nothing"]), TableError, "edges.buys: there is no column 'nothing'"),
        (("build", "scratch", "nowhere", None), GraphSpecError, "build.scratch: there is no folder"),
    ],
)
def test_what_columns_tell_is_told_before_a_row_is_read(
    change: tuple[str, str, str, Any], error: type[Exception], told: str, shop: tuple[Shop, Path], tmp_path: Path
) -> None:
    spec = deepcopy(shop[0].spec)
    section, name, key, value = change
    if section == "build":
        spec["build"] = {name: key}
    else:
        spec[section][name][key] = value
    with pytest.raises(error, match=told):
        build_graph_folder(GraphSpec.of(spec), tmp_path / "out", home=shop[1], show_progress=False)
    assert not list(tmp_path.iterdir())


def test_an_earlier_builds_transforms(shop: tuple[Shop, Path], tmp_path: Path) -> None:
    made = shop[0]
    build(shop, tmp_path / "old")
    some = made.frames["users"].iloc[::-2]
    spec = deepcopy(made.spec) | {"build": {"transforms": str(tmp_path / "old")}}
    spec["nodes"]["user"]["from"] = some
    spec["edges"]["buys"]["on_missing"] = "drop"
    del spec["tasks"]
    report = build_graph_folder(GraphSpec.of(spec), tmp_path / "new", home=shop[1], show_progress=False)
    assert report["nodes"]["user"]["fitted_on"] == str(tmp_path / "old" / "transforms.json")
    old, new = (load_graph_data(tmp_path / name).tables_of("user")["x"].store.rows for name in ("old", "new"))
    assert np.array_equal(new, old[list(some.index)])
    spec["nodes"]["user"]["x"] = ["age", "label"]
    with pytest.raises(GraphSpecError, match=r"nodes.user.x lists age, label, but the transforms of .* are of age"):
        build_graph_folder(GraphSpec.of(spec), tmp_path / "newer", home=shop[1], show_progress=False)
    spec["nodes"]["user"] |= {"from": some.assign(age=some["age"].astype(str)), "x": ["age"]}
    with pytest.raises(TableError, match=r"column 'age' is VARCHAR, .* category, but it was fitted as number"):
        build_graph_folder(GraphSpec.of(spec), tmp_path / "newer", home=shop[1], show_progress=False)


# The command.


def test_the_command(shop: tuple[Shop, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = str(shop[1] / "graph.yaml"), tmp_path / "out"
    assert command.main([file, str(out), "--check"]) == 0
    told = capsys.readouterr().out
    assert "user (u) to item (i), and back as rev_buys." in told
    assert "age (DOUBLE) as number." in told
    assert "in-neighbours: " in told
    assert "can be written" in told
    assert not out.exists()
    assert command.main([file, str(out)]) == 0
    told = capsys.readouterr().out
    assert f"Written: {out}" in told
    assert max(map(len, told.splitlines()[:-1])) <= 80
    assert command.main([file, str(out)]) == 2
    assert "StoreFormatError" in capsys.readouterr().err
    assert command.main([file, str(out), "--overwrite", "--transforms", str(out)]) == 0
    assert command.main([file, str(tmp_path / "more"), "--transforms", str(shop[1])]) == 2
    assert "transforms.json cannot be read" in capsys.readouterr().err
    assert command.main([str(shop[1] / "none.yaml"), str(tmp_path / "more")]) == 2
    assert "GraphSpecError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "change", "told"),
    [
        (
            "nodes",
            {"user": {"from": "select * from 'users.parquet' union all from 'users.parquet'"}},
            "120 rows repeat",
        ),
        (
            "edges",
            {"buys": {"from": "select * replace ('nobody' as u) from 'buys.parquet'"}},
            "900 src .'u'. name no user",
        ),
        ("tasks", {"stay": {"split": {"column": "uid"}}}, "120 values of column 'uid' are none of train, val, test"),
        (
            "nodes",
            {
                "user": {
                    "x": [{"column": "age", "scale": "log"}],
                    "from": "select * replace (-age as age) from 'users.parquet'",
                }
            },
            "120 of 120 values of column 'age' cannot be read",
        ),
    ],
)
def test_a_check_finds_what_stops_a_build_and_keeps_nothing(
    section: str, change: Any, told: str, shop: tuple[Shop, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = deepcopy(shop[0].spec)
    for name, keys in change.items():
        spec[section][name] |= keys
    file = shop[1] / "changed.yaml"
    file.write_text(json.dumps(spec))
    said = []
    for more in (["--check"], []):
        assert command.main([str(file), str(tmp_path / "new" / "out"), *more]) == 2
        said.append(capsys.readouterr().err)
    assert re.search(told, said[0])
    assert said[0] == said[1]
    assert not [*(tmp_path / "new").glob("*")]


def test_a_missing_extra_is_named(shop: tuple[Shop, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[tables\]"):
        build(shop, tmp_path / "out")


KILLED = """
import sys, time
import lightning_gnnload.ingest.build as build
from lightning_gnnload.plugin.commands.build import main
write = build.write_lists
def slow(*arguments, **settings):
    print("sorting", flush=True)
    time.sleep(60)
build.write_lists = slow
main(sys.argv[1:])
"""


@pytest.mark.parametrize("scratch", [False, True])
def test_a_killed_build_leaves_nothing_to_the_next(
    scratch: bool, shop: tuple[Shop, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    spec = deepcopy(shop[0].spec) | ({"build": {"scratch": str(elsewhere)}} if scratch else {})
    file = shop[1] / f"killed_{scratch}.yaml"
    file.write_text(json.dumps(spec))
    arguments = [str(file), str(tmp_path / "place" / "out")]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "sorting\n"
    assert command.main(arguments) == 2
    assert "is being written by another process" in capsys.readouterr().err
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(list((tmp_path / "place").iterdir())) == 1
    assert len(list(elsewhere.iterdir())) == scratch
    assert command.main(arguments) == 0
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["out"]
    assert not list(elsewhere.iterdir())


@pytest.mark.matrix
def test_of_two_builds_at_once_one_is_told(shop: tuple[Shop, Path], tmp_path: Path) -> None:
    arguments = [str(shop[1] / "graph.yaml"), str(tmp_path / "out")]
    run = "import sys; from lightning_gnnload.plugin.commands.build import main; sys.exit(main(sys.argv[1:]))"
    processes = [
        subprocess.Popen([sys.executable, "-c", run, *arguments], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = [process.communicate(timeout=120)[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 2]
    assert any("exists already" in each or "is being written" in each for each in told)
    assert_same_arrays(load_graph_data(tmp_path / "out", verify=True).graph, shop[0].in_memory())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("check", [["--check"], []])
def test_a_description_that_would_write_a_file(
    check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.csv").write_text("id\n1\n")
    target = tmp_path / "P.sh"
    sql = f"select * from 'n.csv'; copy (select 'x') to '{target}' (header false)"
    nodes, edges = {"n": {"from": sql, "id": "id"}}, {"e": {"from": "n.csv", "src": "n.id", "dst": "n.id"}}
    (tmp_path / "graph.yaml").write_text(json.dumps({"version": 1, "nodes": nodes, "edges": edges}))
    assert command.main([str(tmp_path / "graph.yaml"), str(tmp_path / "out"), *check]) == 2
    assert "nodes.n: from: the SQL does more than one SELECT" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.yaml", "n.csv"]


def test_what_tables_hold_is_not_obeyed_by_a_terminal() -> None:
    evil = "\x1b]0;owned\x07\x9b2J\u202e"
    table = pa.table({"id": [f"{evil}\x00", "b"], evil: [evil, "b"], "dst": [f"{evil}\x00"] * 2})
    ends = {"src": "n.id", "dst": "n.dst"}
    values = build_report({"n": {"from": table, "id": "id", "x": [{"column": evil, "as": "category"}]}}, ends, table)
    printed = as_text(values)
    assert "\\x1b]0;owned" in printed
    assert not any((ord(each) < 32 and each != "\n") or ord(each) in (0x9B, 0x202E) for each in printed)
    with pytest.raises(TableError) as caught:
        build_report({"n": {"from": table, "id": "ids"}}, ends, table)
    assert "\\x1b]0;owned\\x07\\x9b2J\\u202e" in str(caught.value)


def build_report(nodes: dict[str, Any], ends: dict[str, str], table: pa.Table) -> dict[str, Any]:
    spec = GraphSpec.of({"version": 1, "nodes": nodes, "edges": {"e": {"from": table, **ends}}})
    with tempfile.TemporaryDirectory() as place:
        return build_graph_folder(spec, Path(place) / "out", show_progress=False)


def test_a_build_that_may_start_no_thread() -> None:
    table = pa.table({"id": ["a", "b"]})
    with refused(), pytest.raises(ThreadLimitError, match=r"\(gnnload-build\) cannot start.*threads of a build"):
        build_report({"n": {"from": table, "id": "id"}}, {"src": "n.id", "dst": "n.id"}, table)
