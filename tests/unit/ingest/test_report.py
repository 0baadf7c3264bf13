"""A build notes what is allowed, but seldom meant, by name and with counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload import GraphData
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.report import as_text
from lightning_gnnload.ingest.spec import GraphSpec

NUM_READERS, NUM_LOANS = 40, 400
DAY = 86_400


def library(folder: Path, **changed: Any) -> dict[str, Any]:
    """Builds readers, who joined at other times and lent books in the months after; returns the report.

    Args:
        folder: to write.
        changed: keys of the section that a name's part before ``__`` says; None takes one out.
    """
    rng = np.random.default_rng(5)
    joined = rng.integers(0, 1000, NUM_READERS) * DAY
    who = rng.integers(0, NUM_READERS, NUM_LOANS)
    lent = joined[who] + rng.integers(1, 90, NUM_LOANS) * DAY
    lent[:3] = -DAY  # before anybody had joined
    readers = {"id": np.arange(NUM_READERS), "joined": joined, "asof": np.full(NUM_READERS, 2000 * DAY)}
    readers["y"] = rng.choice(["old", "new"], NUM_READERS)
    spec: dict[str, dict[str, Any]] = {
        "reader": {"from": pa.table(readers), "id": "id", "time": "joined", "time_unit": "s"},
        "book": {"from": pa.table({"id": np.arange(9)}), "id": "id"},
        "lends": {
            "from": pa.table({"r": who, "b": rng.integers(0, 9, NUM_LOANS), "at": lent}),
            "src": "reader.r",
            "dst": "book.b",
            "time": "at",
            "time_unit": "s",
            "reverse": True,
        },
        "age": {"seed": "reader.id", "y": "y", "split": {"share": [0.8, 0.1, 0.1]}},
    }
    for name, value in changed.items():
        section, _, key = name.partition("__")
        spec[section] = {k: v for k, v in {**spec[section], key: value}.items() if v is not None}
    given = {
        "version": 1,
        "nodes": {name: spec[name] for name in ("book", "reader")},
        "edges": {"lends": spec["lends"]},
        "tasks": {"age": spec["age"]},
        "build": {"threads": 1},
    }
    return build_graph_folder(GraphSpec.of(given), folder, show_progress=False)


def test_seeds_without_times_of_their_own(tmp_path: Path) -> None:
    report = library(tmp_path / "own")
    (note,) = report["notes"]
    assert "task age: its seeds have no times of their own" in note
    assert "37 of 40 see no edge that has a time, and 3 of 400 such edges" in note  # those of before they joined
    assert "time: COLUMN at the task; or before: null" in note
    assert report["tasks"]["age"]["too_early"] == 37
    assert report["edges"]["lends"]["src_later"] == 3
    text = as_text(report)
    assert "3 older than their source: they are there from its time on" in text
    assert "37 seeds that see no edge with a time" in text
    with_times = library(tmp_path / "asof", age__time="asof", age__time_unit="s")
    assert with_times["notes"] == []
    assert with_times["tasks"]["age"]["too_early"] == 0


def test_some_seeds_that_see_the_graph_too_early_are_noted(tmp_path: Path) -> None:
    joined = np.where(np.arange(NUM_READERS) < 5, -2, 2000) * DAY
    readers = pa.table({"id": np.arange(NUM_READERS), "joined": joined, "y": ["old", "new"] * (NUM_READERS // 2)})
    (note,) = library(tmp_path / "own", reader__from=readers)["notes"]
    assert "each sees the graph as of its node's time, so that 5 of 40 see no edge that has a time" in note


def test_links_without_in_neighbours_at_one_end_are_no_lone_seeds(tmp_path: Path) -> None:
    links = pa.table({"r": np.arange(NUM_READERS), "b": np.arange(NUM_READERS) % 9, "at": [2000 * DAY] * NUM_READERS})
    task = {"age__from": links, "age__seed": None, "age__src": "reader.r", "age__dst": "book.b", "age__y": None}
    timed = {"age__time": "at", "age__time_unit": "s"}
    report = library(tmp_path / "out", lends__reverse=False, **task, **timed)  # books alone have neighbours
    assert report["notes"] == []
    assert report["tasks"]["age"]["without_in_neighbours"] == 0


def test_seeds_that_fit_would_refuse(tmp_path: Path) -> None:
    (note,) = library(tmp_path / "out", reader__time=None, reader__time_unit=None)["notes"]
    assert "task age: its rows have no time, though the graph has, and 40 of 40 of their nodes have none either" in note


def test_seeds_that_no_edges_lead_to(tmp_path: Path) -> None:
    report = library(tmp_path / "out", lends__reverse=False, age__time="asof", age__time_unit="s")
    (note,) = report["notes"]
    assert f"task age: {NUM_READERS} of {NUM_READERS} seeds (reader) have no in-neighbours" in note
    assert "reverse: true" in note
    assert report["tasks"]["age"]["without_in_neighbours"] == NUM_READERS


def test_times_that_bound_nothing(tmp_path: Path) -> None:
    ends = {"lends__src": "book.b", "lends__dst": "reader.r", "lends__reverse": False}
    nothing = {"lends__time": None, "lends__time_unit": None, **ends}
    notes = library(tmp_path / "out", **nothing)["notes"]
    assert any("nodes reader: time 'joined' bounds nothing and is not kept" in note for note in notes)


def test_rows_that_come_too_early(tmp_path: Path) -> None:
    early = pa.table({"r": np.arange(5), "at": np.arange(5) - 10**6, "y": ["a", "b"] * 2 + ["a"]})
    changed = {"age__from": early, "age__seed": "reader.r", "age__time": "at", "age__time_unit": "s"}
    (note,) = library(tmp_path / "out", **changed, age__split={"share": [1.0, 0.0, 0.0]})["notes"]
    assert "task age: its seeds: 5 of 5 see no edge that has a time: all come before" in note


def test_without_the_report_notes_are_warnings() -> None:
    ends = pa.table({"s": ["a", "b", "a"], "d": ["c", "c", "d"]})
    labels = pa.table({"who": ["a", "b", "c"], "y": ["odd", "even", "odd"]})
    with pytest.warns(UserWarning, match="GraphData.from_tables: task parity: 2 of 3 seeds .n. have no in-neighbours"):
        GraphData.from_tables(
            nodes={"n": {"from": pa.table({"id": ["a", "b", "c", "d"]}), "id": "id"}},
            edges={"leads": {"from": ends, "src": "n.s", "dst": "n.d"}},
            tasks={"parity": {"from": labels, "seed": "n.who", "y": "y", "split": {"share": [1.0, 0.0, 0.0]}}},
            show=False,
        )


def test_categories_and_classes_that_are_ids_or_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    columns = {
        "id": np.arange(NUM_READERS),
        "card": [f"c{number}" for number in range(NUM_READERS)],
        "land": rng.choice(["DE", "de", " de", "FR"], NUM_READERS),
        "pair": [f"p{number // 2}" for number in range(NUM_READERS)],
        "y": [f"y{number}" for number in range(NUM_READERS)],
        "asof": np.full(NUM_READERS, 2000 * DAY),
    }
    table = {"from": pa.table(columns), "id": "id", "x": ["card", "land", "pair"]}
    task = {"seed": "reader.id", "y": "y", "time": "asof", "time_unit": "s", "split": {"share": [1.0, 0.0, 0.0]}}
    changed = {f"reader__{key}": value for key, value in table.items()} | {f"age__{k}": v for k, v in task.items()}
    notes = library(tmp_path / "out", reader__time=None, reader__time_unit=None, **changed)["notes"]
    land = np.unique(columns["land"], return_counts=True)
    rows = dict(zip(*(each.tolist() for each in land), strict=True))
    pair = f"' de' ({rows[' de']} rows) beside 'de' ({rows['de']})"
    for told in (
        "tasks.age: column 'y' has 40 different values in 40 rows. As classes",
        "nodes.reader.x: column 'card' has 40 different values in 40 rows. As categories",
        f"nodes.reader.x: column 'land' has 3 values that others equal but for case or spaces: {pair}",
        "nodes.reader.x: none of the 20 values of column 'pair' is in 10 training rows, of 40",
    ):
        assert sum(told in note for note in notes) == 1, notes
    assert len(notes) == 4
