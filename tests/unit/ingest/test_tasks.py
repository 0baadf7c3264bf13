"""Tasks: which rows come into which split, with which labels, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lightning_gnnload import GraphData, load_graph_data
from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.spec import GraphSpec

NUM_USERS = 40
USERS = [f"u{number}" for number in range(NUM_USERS)]
NODES = {"user": {"from": pa.table({"id": USERS, "y": ["b", "a", "c", None] * 10}), "id": "id"}}
NEXT = [*USERS[1:], USERS[0]]
EDGES = {"knows": {"from": pa.table({"a": USERS, "b": NEXT}), "src": "user.a", "dst": "user.b"}}
DAY = datetime(2026, 1, 1)


def data_of(task: dict[str, Any], *, edges: Any = None, nodes: Any = None, **build: Any) -> GraphData:
    return GraphData.from_tables(
        nodes=nodes or NODES, edges=edges or EDGES, tasks={"t": task}, show=False, threads=1, **build
    )


def rows_of(data: GraphData, split: str) -> list[int]:
    table = data.table(split)
    return [] if table is None else table.columns["table_row"].tolist()


def seeds(**columns: Any) -> dict[str, Any]:
    """A task with a table of its own, of users."""
    return {"from": pa.table({"who": USERS, **columns}), "seed": "user.who"}


# Splits.


def test_by_time_with_bounds_in_the_times_zone() -> None:
    times = [DAY + timedelta(hours=number) for number in range(NUM_USERS)]
    task = {**seeds(at=times, y=["x"] * NUM_USERS), "y": "y", "time": "at", "timezone": "Europe/Berlin"}
    data = data_of({**task, "split": {"val": "2026-01-02", "test": "2026-01-02 06:00:00"}})
    assert [rows_of(data, split) for split in ("train", "val", "test")] == [
        list(range(24)),
        list(range(24, 30)),
        list(range(30, 40)),
    ]
    zoned = data_of({**task, "split": {"val": "2026-01-02T00:00:00+02:00", "test": "2026-01-02T06:00:00Z"}})
    assert [len(rows_of(zoned, split)) for split in ("train", "val", "test")] == [23, 8, 9]
    berlin = np.datetime64("2025-12-31T23:00", "ns").astype(np.int64)  # of midnight
    assert data.table("train").time.tolist()[:2] == [berlin, berlin + 3600 * 10**9]
    with pytest.raises(GraphSpecError, match=r"val \(2026-02\) must lie before test \(2026-01\)"):
        data_of({**task, "split": {"val": "2026-02", "test": "2026-01"}})
    with pytest.raises(TableError, match=r"tasks.t.split: there is nothing in test \(train 24, val 16, test 0\)"):
        data_of({**task, "split": {"val": "2026-01-02", "test": "2027-01"}})
    data = data_of({**task, "split": {"test": "2026-01-02"}})
    assert (len(rows_of(data, "val")), len(rows_of(data, "test"))) == (0, 16)


@pytest.mark.parametrize(
    ("values", "said", "form"),
    [
        (pa.array([DAY] * NUM_USERS), {"timezone": "UTC"}, TimeForm("us")),
        (pa.array([DAY] * NUM_USERS, pa.timestamp("s")), {"timezone": "UTC"}, TimeForm("s")),
        (pa.array([DAY] * NUM_USERS), {"timezone": "Europe/Berlin"}, TimeForm("us", "Europe/Berlin")),
        (pa.array([DAY] * NUM_USERS, pa.timestamp("us", "UTC")), {}, TimeForm("us", "UTC")),
        (pa.array([DAY.date()] * NUM_USERS), {"timezone": "UTC"}, TimeForm("D")),
        (pa.array([DAY.date()] * NUM_USERS), {"timezone": "Europe/Berlin"}, TimeForm("us", "Europe/Berlin")),
        (["2026-01-01"] * NUM_USERS, {"timezone": "UTC"}, TimeForm("us")),
        (["2026-01-01 00:00+01:00"] * NUM_USERS, {}, TimeForm("us", "UTC")),
        ([1_767_225_600] * NUM_USERS, {"time_unit": "s"}, TimeForm("s", is_number=True)),
    ],
)
def test_the_form_of_times_is_kept_for_results(values: Any, said: dict[str, str], form: TimeForm) -> None:
    task = {**seeds(at=values, y=["x"] * NUM_USERS), "y": "y", "time": "at", **said, "split": {"share": [1, 0, 0]}}
    table = data_of(task).table("train")
    assert table.time_form == form
    given = table.time_form.of_nanoseconds(table.time)[:1].tolist()
    at = DAY.replace(tzinfo=None) - timedelta(hours=1 if form.zone == "Europe/Berlin" or "+01" in str(values[0]) else 0)
    assert given == [{"D": DAY.date()}.get(form.unit, values[0] if form.is_number else at)]


def test_by_a_column() -> None:
    words = (["train"] * 5 + ["VAL", "validation", "test", None]) * 5
    task = {"from": pa.table({"who": (USERS * 2)[: len(words)], "s": words, "y": [1] * len(words)}), "seed": "user.who"}
    data = data_of({**task, "y": "y", "split": {"column": "s"}})
    assert rows_of(data, "val")[:2] == [5, 6]
    assert [len(rows_of(data, split)) for split in ("train", "val", "test")] == [25, 10, 5]
    words[3] = "holdout"
    task["from"] = pa.table({"who": (USERS * 2)[: len(words)], "s": words, "y": [1] * len(words)})
    with pytest.raises(
        TableError, match=r"1 values of column 's' are none of train, val, test, predict; the first is in row 3"
    ):
        data_of({**task, "y": "y", "split": {"column": "s"}})


def test_shares_move_no_row_when_others_are_added() -> None:
    def dealt(order: list[str], seed: int = 0) -> dict[str, str]:
        task = {"from": pa.table({"who": order, "y": ["x"] * len(order)}), "seed": "user.who", "y": "y"}
        data = data_of({**task, "split": {"share": [0.5, 0.25, 0.25], "seed": seed}})
        return {order[row]: split for split in ("train", "val", "test") for row in rows_of(data, split)}

    some, everyone = dealt(USERS[:20]), dealt([*reversed(USERS), *USERS[:5]])
    assert len(everyone) == NUM_USERS  # who comes twice is in one split
    assert {who: everyone[who] for who in some} == some
    assert dealt(USERS, seed=1) != everyone


def test_shares_are_kept_in_the_mean() -> None:
    many = pa.table({"id": np.arange(20_000), "y": np.zeros(20_000, np.int64)})
    nodes = {"n": {"from": many, "id": "id"}}
    edges = {"e": {"from": pa.table({"a": [0], "b": [1]}), "src": "n.a", "dst": "n.b"}}
    data = data_of({"seed": "n.id", "y": "y", "split": {"share": [0.7, 0.2, 0.1]}}, nodes=nodes, edges=edges)
    sizes = np.array([len(data.split(split)) for split in ("train", "val", "test")])
    five_sigma = 5 * np.sqrt(20_000 * 0.25)
    assert (np.abs(sizes - [14_000, 4_000, 2_000]) < five_sigma).all()


# Labels.


def test_classes_are_numbered_by_name_and_rows_without_one_are_in_no_split() -> None:
    data = data_of({"seed": "user.id", "y": "y", "split": {"share": [1, 0, 0]}})
    assert (data.class_names, data.num_classes) == (("a", "b", "c"), 3)
    table = data.table("train")
    assert table.y.tolist() == [1, 0, 2] * 10
    assert data.train.tolist() == [row for row in range(NUM_USERS) if row % 4 != 3]


@pytest.mark.parametrize(
    ("values", "kind", "names", "labels"),
    [
        ([30, 4, 30, 100] * 10, "auto", ("4", "30", "100"), [1, 0, 1, 2] * 10),
        ([True, False] * 20, "auto", ("false", "true"), [1, 0] * 20),
        ([1.0, None, 0.0, 1.0] * 10, "class", ("0", "1"), [1, 0, 1] * 10),
        ([1.0, float("nan"), 0.0, 1.0] * 10, "number", None, [1.0, 0.0, 1.0] * 10),
        ([0.5, None] * 20, "auto", None, [0.5] * 20),
        ([3, 4] * 20, "number", None, [3.0, 4.0] * 20),
    ],
)
def test_labels_of_each_kind(values: list[Any], kind: str, names: Any, labels: list[Any]) -> None:
    task = {**seeds(y=pa.array(values)), "y": "y", "kind": kind, "split": {"share": [1, 0, 0]}}
    data = data_of(task)
    assert data.class_names == names
    assert data.table("train").y.tolist() == labels
    assert data.table("train").y.is_floating_point() == (names is None)


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([1.0, 2.0] * 20, "auto", r"tasks.t: y 'y' is DOUBLE and holds 2 different whole numbers. Say kind: class or"),
        ([0.5, 2.0] * 20, "class", r"20 of 40 values of column 'y'.*'0.5' in row 0. Needed is a whole number"),
        (["a", "b"] * 20, "number", "y 'y' is VARCHAR, but kind: number is said"),
        ([[1], [2]] * 20, "auto", r"y 'y' are BIGINT and hold whole numbers alone. Say kind: class"),
        ([0.5, float("inf")] * 20, "number", "20 of 40 values of column 'y'.*'inf' in row 1"),
        ([0.5, -1e39] * 20, "number", "20 of 40 values of column 'y'.*'-1e.39' in row 1.*as float32 has it"),
        ([1.0, 1e300] * 20, "class", "20 of 40 values of column 'y'.*'1e.300' in row 1. Needed is a whole number"),
        ([["a"], ["b"]] * 20, "number", r"y 'y' is VARCHAR\[\], but kind: number is said"),
        ([[0.5], [1.0]] * 20, "class", r"20 of 40 values of column 'y'.*in row 0. Needed is true, false, 0 or 1"),
        ([[True], [False, True]] * 20, "auto", "lists of y 'y' have 1 to 2 entries; all must have as many"),
    ],
)
def test_labels_that_are_none(values: list[Any], kind: str, told: str) -> None:
    with pytest.raises(TableError, match=told):
        data_of({**seeds(y=pa.array(values)), "y": "y", "kind": kind, "split": {"share": [1, 0, 0]}})


# Rows that name no node.


@pytest.mark.parametrize(
    ("lost", "told"),
    [("nobody", "1 of 40 values of column 'who' name no node"), (None, "1 of 40 values .*are missing")],
)
def test_seeds_that_are_no_nodes(lost: str | None, told: str) -> None:
    task = {"from": pa.table({"who": [*USERS[:7], lost, *USERS[8:]], "y": [1] * NUM_USERS}), "seed": "user.who"}
    task |= {"y": "y", "split": {"share": [1, 0, 0]}}
    with pytest.raises(TableError, match=f"tasks.t: {told}.*the first is in row 7.*on_missing: drop"):
        data_of(task)
    data = data_of({**task, "on_missing": "drop"})
    assert rows_of(data, "train") == [row for row in range(NUM_USERS) if row != 7]


def test_times_that_are_missing() -> None:
    times = [DAY, None, *[DAY] * (NUM_USERS - 2)]
    task = {**seeds(at=times, y=[1] * NUM_USERS), "y": "y", "time": "at", "timezone": "UTC", "split": {"share": [1, 0]}}
    with pytest.raises(TableError, match="1 of 40 values of time 'at' are missing; the first is in row 1"):
        data_of(task)
    assert len(rows_of(data_of({**task, "on_missing": "drop"}), "train")) == NUM_USERS - 1


# Links.

LINKS = {
    "buys": {
        "from": pa.table({"u": ["u1", "nobody", "u2", "u1", "u3"], "i": [7, 7, 8, 8, 9], "stars": [5, 1, 2, 3, 4]}),
        "src": "user.u",
        "dst": "item.i",
        "on_missing": "drop",
        "reverse": True,
    }
}
WITH_ITEMS = {**NODES, "item": {"from": pa.table({"id": [9, 8, 7]}), "id": "id"}}


def test_links_of_a_table_of_edges_know_which_edges_they_are() -> None:
    task = {"edge": "buys", "y": "stars", "kind": "number", "split": {"share": [1, 0, 0]}}
    data = data_of(task, edges=LINKS, nodes=WITH_ITEMS)
    table = data.table("train")
    assert rows_of(data, "train") == [0, 2, 3, 4]
    assert table.edge_type == ("user", "buys", "item")
    assert table.ends.tolist() == [[1, 2], [2, 1], [1, 1], [3, 0]]
    assert table.edge_ids.tolist() == [0, 1, 2, 3]  # rows of the edges that were kept
    assert table.y.tolist() == [5, 2, 3, 4]
    # An edge id finds the edge in the graph: its own ends.
    graph = data.graph
    kind = graph.types.edge_type_number("buys")
    for edge_id, (src, dst) in zip(table.edge_ids, table.ends, strict=True):
        item = graph.types.range_of("item")[dst]
        begin, end = graph.indptr[item : item + 2]
        places = [p for p in range(begin, end) if graph.edge_types_of(np.array([p]))[0] == kind]
        assert edge_id in graph.edge_order[places].tolist()
        assert graph.indices[places[graph.edge_order[places].tolist().index(edge_id)]] == src


def test_links_of_another_table() -> None:
    links = pa.table({"a": ["u1", "u5"], "b": [7, 9], "s": ["train", "test"]})
    task = {"from": links, "src": "user.a", "dst": "item.b", "split": {"column": "s"}}
    data = data_of(task, edges=LINKS, nodes=WITH_ITEMS)
    assert data.table("train").edge_ids is None
    assert data.table("test").ends.tolist() == [[5, 0]]
    assert data.table("train").edge_type == ("user", "buys", "item")
    two = {**LINKS, "sees": LINKS["buys"] | {"reverse": False}}
    with pytest.raises(GraphSpecError, match=r"tasks.t: 2 tables of edges lead from user to item. Say whose"):
        data_of(task, edges=two, nodes=WITH_ITEMS)
    assert data_of({**task, "edge": "sees"}, edges=two, nodes=WITH_ITEMS).table("train").edge_type[1] == "sees"


def test_repeated_ids_that_are_left_out_are_no_seeds() -> None:
    twice = pa.table({"id": ["a", "b", "a", "c"], "y": [0, 1, 1, 0], "f": [1.0, 2.0, 50.0, 3.0]})
    nodes = {"n": {"from": twice, "id": "id", "on_duplicate": "first", "x": [{"column": "f", "scale": "none"}]}}
    edges = {"e": {"from": pa.table({"a": ["a"], "b": ["c"]}), "src": "n.a", "dst": "n.b"}}
    data = data_of({"seed": "n.id", "y": "y", "split": {"share": [1, 0, 0]}}, nodes=nodes, edges=edges)
    assert data.train.tolist() == [0, 1, 2]
    assert data.table("train").y.tolist() == [0, 1, 0]
    assert data.x.rows[:, 0].tolist() == [1, 2, 3]


def test_earlier_classes_are_kept_and_others_refused(tmp_path: Path) -> None:
    def build(labels: list[str], folder: str, transforms: str | None) -> GraphData:
        frame = pd.DataFrame({"id": range(len(labels)), "y": labels})
        spec = GraphSpec.of(
            {
                "version": 1,
                "nodes": {"n": {"from": frame, "id": "id"}},
                "edges": {"e": {"from": pa.table({"a": [0], "b": [1]}), "src": "n.a", "dst": "n.b"}},
                "tasks": {"t": {"seed": "n.id", "y": "y", "split": {"share": [1, 0, 0]}}},
            }
        )
        old = None if transforms is None else tmp_path / transforms
        build_graph_folder(spec, tmp_path / folder, transforms=old, show_progress=False)
        return load_graph_data(tmp_path / folder)

    assert build(["a", "b", "c"], "old", None).class_names == ("a", "b", "c")
    new = build(["c", "b"], "new", "old")  # by themselves, these would be 1 and 0
    assert (new.class_names, new.table("train").y.tolist()) == (("a", "b", "c"), [2, 1])
    with pytest.raises(TableError, match=r"column 'y' has 1 labels that were no classes.*in row 1; these are a, b, c"):
        build(["c", "z"], "newer", "old")


# What is predicted.


def test_rows_without_a_label_are_predicted_at_their_times() -> None:
    times = [DAY + timedelta(days=number) for number in range(NUM_USERS)]
    labels = ["a" if number < 30 else None for number in range(NUM_USERS)]
    task = {**seeds(at=times, y=labels), "y": "y", "time": "at", "timezone": "UTC"}
    data = data_of({**task, "split": {"val": "2026-01-11", "test": "2026-01-21"}})
    table = data.table("predict")
    assert rows_of(data, "predict") == list(range(30, 40))
    assert (table.y, table.time.tolist()) == (
        None,
        [int(t.replace(tzinfo=timezone.utc).timestamp()) * 10**9 for t in times[30:]],
    )
    assert (len(data.table("test")), data.label_names, data.as_of) == (10, ("y",), None)


def test_a_column_of_splits_knows_predict_and_what_it_names_hides_its_label() -> None:
    words = ["train", "predict", "infer", None] * 10
    labels = ["a", "b", None, "a"] * 9 + [None] * 4  # the last rows are named, but have none
    data = data_of({**seeds(s=words, y=labels), "y": "y", "split": {"column": "s"}})
    assert rows_of(data, "predict") == [row for row in range(40) if row % 4 in (1, 2)]
    assert data.table("predict").y is None
    assert rows_of(data, "train") == list(range(0, 36, 4))
    assert data.class_names == ("a", "b")


def test_a_task_without_labels_is_predicted_whole(tmp_path: Path) -> None:
    data = data_of({**seeds(), "as_of": None}, folder=tmp_path / "graph")
    assert [len(data.split(split)) for split in ("train", "val", "test", "predict")] == [0, 0, 0, NUM_USERS]
    assert load_graph_data(tmp_path / "graph").table("predict").checksum == data.table("predict").checksum
    # With a build before it that knows the classes, they have names.
    data_of({"seed": "user.id", "y": "y", "split": {"share": [1, 0, 0]}}, folder=tmp_path / "old")
    new = data_of(seeds(), transforms=tmp_path / "old")
    assert (new.class_names, new.num_classes, new.label_names) == (("a", "b", "c"), 3, ("y",))


def test_as_of_is_a_date_of_the_times_zone_and_stays_in_the_folder(tmp_path: Path) -> None:
    at = [DAY] * NUM_USERS
    timed = {"knows": {**EDGES["knows"], "from": pa.table({"a": USERS, "b": NEXT, "at": at}), "time": "at"}}
    timed["knows"]["timezone"] = "UTC"
    task = {**seeds(at=at, y=["a", "b"] * 20), "y": "y", "time": "at", "timezone": "Europe/Berlin"}
    task |= {"split": {"share": [1, 0, 0]}, "as_of": "2026-07"}
    data = data_of(task, edges=timed, folder=tmp_path / "graph")
    berlin = np.datetime64("2026-06-30T22:00", "ns").astype(np.int64)  # of midnight
    assert data.as_of == berlin
    assert load_graph_data(tmp_path / "graph").as_of == berlin
    with pytest.raises(GraphSpecError, match=r"tasks.t.as_of: no table of nodes or edges has a time: COLUMN"):
        data_of(task)
    # Without times of its own, it has the zone of the tables, or says one; an offset counts before both.
    timed["knows"]["timezone"] = "Europe/Berlin"
    node_task = {"seed": "user.id", "as_of": "2026-07-01"}
    for said, hour in (({}, 22), ({"timezone": "UTC"}, 24), ({"as_of": "2026-07-01 00:00+03:00"}, 21)):
        data = data_of({**node_task, **said}, edges=timed)
        assert data.as_of == np.datetime64("2026-06-30", "ns").astype(np.int64) + hour * 3600 * 10**9
        assert data.time_form == TimeForm("us", None if "timezone" in said else "Europe/Berlin")
    with pytest.raises(GraphSpecError, match=r"tasks.t.as_of: '2026-17' is no date"):
        data_of({**task, "as_of": "2026-17"}, edges=timed)
