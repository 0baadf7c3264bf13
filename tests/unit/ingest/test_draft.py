"""gnnload init: drafts of tables of many shapes are built as they are, and say what was counted."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from lightning_gnnload.datasets.description import load_yaml
from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.draft.tables import draft_of
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.plugin.commands import init

RNG = np.random.default_rng(0)


def ids(values: Any, form: str = "{}") -> list[str]:
    return [form.format(value) for value in values]


def times(num: int) -> list[datetime]:
    return [datetime(2025, 1, 1) + timedelta(hours=int(hour)) for hour in RNG.integers(0, 5000, num)]


def shop(form: str | None = "u{}") -> dict[str, pa.Table]:
    def user(values: Any) -> Any:
        return list(map(int, values)) if form is None else ids(values, form)

    return {
        "users": pa.table(
            {"user_id": user(range(60)), "age": RNG.integers(18, 80, 60), "churned": RNG.random(60) < 0.5}
        ),
        "items": pa.table({"sku": ids(range(30), "S{:03}"), "brand": RNG.choice(["x", "y"], 30)}),
        "buys": pa.table(
            {
                "user_id": user(RNG.integers(0, 60, 300)),
                "sku": ids(RNG.integers(0, 30, 300), "S{:03}"),
                "at": times(300),
            }
        ),
    }


def written(tables: dict[str, pa.Table], folder: Path, form: str = "parquet") -> list[str]:
    files = [folder / f"{name}.{form}" for name in tables]
    for file, table in zip(files, tables.values(), strict=True):
        (csv.write_csv if form == "csv" else parquet.write_table)(table, file)
    return list(map(str, files))


def uuids(values: Any) -> list[str]:
    return [str(UUID(int=int(value) * 7919 + 13)) for value in values]


ODD = {
    '2 Odd: "names"!': pa.table(
        {
            'k: "e", y': ids(range(50), "k{}"),
            "a.b": RNG.random(50),
            "null": RNG.random(50),
            "#x": RNG.random(50),
            "y": RNG.choice(["n", "y"], 50),
        }
    ),
    "x__y": pa.table(
        {"parent: key": ids(RNG.integers(0, 50, 90), "k{}"), "child, key": ids(range(50), "k{}")[:50] + ["k1"] * 40}
    ),
}
UNFIT = {
    "nodes": pa.table(
        {
            "id": range(60),
            "nan": [float("nan"), *RNG.random(59)],
            "constant": [1] * 60,
            "none": pa.array([None] * 60, pa.string()),
            "vector": [[1.0, 2.0]] * 60,
            "ragged": [[1.0] * int(k) for k in RNG.integers(1, 4, 60)],
            "few": [1.0, *[None] * 59],
            "blob": [b"x"] * 60,
        }
    ),
    "e": pa.table({"source": RNG.integers(0, 60, 100), "target": RNG.integers(0, 60, 100)}),
}
SHAPES = {
    # tables and their format; edges by their ends; tasks by what is predicted
    "text": (shop(), "parquet", {("users.user_id", "items.sku")}, {"churned"}),
    "integers in csv": (shop(None), "csv", {("users.user_id", "items.sku")}, {"churned"}),
    "uuids": (
        {
            "people": pa.table({"uuid": uuids(range(40)), "label": RNG.choice(["a", "b"], 40)}),
            "knows": pa.table({"a": uuids(RNG.integers(0, 40, 99)), "b": uuids(RNG.integers(0, 40, 99))}),
        },
        "parquet",
        {("people.a", "people.b")},
        {"label"},
    ),
    "self reference": (
        {
            "staff": pa.table(
                {"id": range(90), "manager_id": [None, *(k // 2 for k in range(89))], "pay": RNG.random(90)}
            )
        },
        "parquet",
        {("staff.id", "staff.manager_id")},
        {None},
    ),
    "edges alone": (
        {"edges": pa.table({"src": RNG.integers(0, 30, 200), "dst": RNG.integers(0, 30, 200), "w": RNG.random(200)})},
        "csv",
        {("node.src", "node.dst")},
        {None},
    ),
    "events": (
        {
            "machines": pa.table({"machine": ids(range(30), "m{}"), "model": RNG.choice(["A", "B"], 30)}),
            "events": pa.table(
                {
                    "machine": ids(RNG.integers(0, 30, 200), "m{}"),
                    "ts": RNG.integers(1_600_000_000_000, 1_700_000_000_000, 200),
                    "value": RNG.random(200),
                    "code": RNG.integers(0, 5, 200),
                }
            ),
        },
        "parquet",
        {("events.row", "machines.machine")},
        {None},
    ),
    "labels apart": (
        shop() | {"targets": pa.table({"user_id": ids(RNG.permutation(60)[:50], "u{}"), "spent": RNG.random(50)})},
        "parquet",
        {("users.user_id", "items.sku")},
        {"churned", "spent"},
    ),
    "composite key": (
        {
            "rooms": pa.table({"floor": np.repeat(range(5), 4), "door": np.tile(["a", "b", "c", "d"], 5)}),
            **shop(),
        },
        "parquet",
        {("users.user_id", "items.sku")},
        {"churned"},
    ),
    "odd names": (ODD, "parquet", {("t_2_odd_names.parent: key", "t_2_odd_names.child, key")}, {"y"}),
    "unfit columns": (UNFIT, "parquet", {("nodes.source", "nodes.target")}, {None}),
    "two hundred columns": (
        {
            "things": pa.table({"id": range(120), **{f"c{k}": RNG.random(120) for k in range(200)}}),
            "links": pa.table({"from_thing": RNG.integers(0, 120, 300), "to_thing": RNG.integers(0, 120, 300)}),
        },
        "parquet",
        {("things.from_thing", "things.to_thing")},
        {None},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_draft_is_built_as_it_is(shape: str, tmp_path: Path) -> None:
    tables, form, ends, labels = SHAPES[shape]
    text = draft_of(written(tables, tmp_path, form), tmp_path, show=False).text([])
    spec = GraphSpec.of(load_yaml(text))
    assert {(str(edges.src), str(edges.dst)) for edges in spec.edges.values()} == ends
    assert {label for task in spec.tasks.values() for label in task.y or [None]} == labels
    build_graph_folder(spec, tmp_path / "out", home=tmp_path, show_progress=False)


def test_what_later_rows_say_is_looked_for_where_the_first_are_a_sample(tmp_path: Path) -> None:
    """Of the first rows alone, ids would be unique, all keys ids, and all numbers finite."""
    tables = shop()
    users, buys = tables["users"], tables["buys"]
    tables["users"] = pa.concat_tables([users, users.slice(0, 1)]).append_column(
        "score", pa.array([*RNG.random(60), float("nan")])
    )
    tables["buys"] = pa.concat_tables([buys, buys.slice(0, 1).set_column(1, "sku", pa.array(["no such"]))])
    draft = draft_of(written(tables, tmp_path), tmp_path, rows=50, show=False)
    text = draft.text([])
    assert "of which the first 50 were read" in text
    assert "# score: 1 values are not finite" in text
    spec = GraphSpec.of(load_yaml(text))
    assert (spec.nodes["users"].on_duplicate, spec.edges["buys"].on_missing) == ("first", "drop")
    build_graph_folder(spec, tmp_path / "out", home=tmp_path, show_progress=False)


def test_small_numbers_that_match_are_no_keys_unless_their_name_says_so(tmp_path: Path) -> None:
    tables = {
        "users": pa.table({"id": range(100), "age": RNG.integers(18, 80, 100)}),
        "follows": pa.table({"follower": RNG.integers(0, 100, 200), "followed": RNG.integers(0, 100, 200)}),
    }
    text = draft_of(written(tables, tmp_path), tmp_path, show=False).text([])
    assert "# age: 100% of its values are ids of users, but its name does not say so." in text
    assert len(GraphSpec.of(load_yaml(text)).edges) == 1


def test_without_edges_the_draft_says_how_to_write_one(tmp_path: Path) -> None:
    tables = {"a": pa.table({"id": range(50), "v": RNG.random(50)}), "none": pa.table({"id": pa.array([], pa.int64())})}
    draft = draft_of(written(tables, tmp_path), tmp_path, show=False)
    text = draft.text([])
    assert not draft.has_edges
    assert "none.parquet has no rows, and is left out." in text
    assert "# NAME: {from: FILE, src: TYPE.COLUMN, dst: TYPE.COLUMN, reverse: true}" in text


def test_parts_of_a_table_are_one(tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    for number in range(3):
        parquet.write_table(shop()["buys"], tmp_path / "sales" / f"part-{number}.parquet")
    text = draft_of([str(tmp_path / "sales")], tmp_path, show=False).text([])
    assert load_yaml(text)["edges"]["sales"]["from"] == "sales/part-*.parquet"


def test_a_draft_replaces_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written(shop(), tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.yaml").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        init.main(files)
    assert ended.value.code == 2
    assert (tmp_path / "graph.yaml").read_text() == "mine"
    assert init.main([*files, "--out", "-"]) == 0
    assert "src: users.user_id" in capsys.readouterr().out
    assert (tmp_path / "graph.yaml").read_text() == "mine"
    assert init.main([*files, "--overwrite"]) == 0
    assert (tmp_path / "graph.yaml").read_text().startswith("# yaml-language-server: $schema=graph.schema.json\n")


@pytest.mark.parametrize("path", ["nothing.parquet", "empty_folder", "notes.txt"])
def test_what_is_no_table_is_an_error(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_folder").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphSpecError, match=path):
        draft_of([path], tmp_path, show=False)
