"""Machines that share the work of a build write the folder that one process writes, and tell the same faults."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest import build as building
from lightning_gnnload.ingest.edges import EdgeReader
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.spread import passes
from tests.unit.here import Here
from tests.unit.ingest.spread.shop import shop, written


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of few rows, and few records sorted at once."""
    monkeypatch.setattr(building, "Machines", Here)
    monkeypatch.setattr(passes, "_LEAST_ROWS", 1)
    monkeypatch.setattr(passes, "_CALLS", 7)  # stretches begin and end amid row groups
    monkeypatch.setattr(EdgeReader, "most_records", 700)


def report(folder: Path) -> dict[str, Any]:
    values = json.loads((folder / "report.json").read_text())
    return {name: figures for name, figures in values.items() if name not in ("seconds", "peak_memory_bytes")}


def assert_same_folder(spec: dict[str, Any], home: Path) -> None:
    for engine in ("local", "ray"):
        checked = GraphSpec.of(spec)
        building.build_graph_folder(checked, home / "out" / engine, home=home, show_progress=False, engine=engine)
    assert written(home / "out" / "ray") == written(home / "out" / "local")
    assert report(home / "out" / "ray") == report(home / "out" / "local")
    assert {path.name for path in (home / "out").iterdir()} == {"local", "ray"}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("times", ["seconds", "wide"])
def test_a_graph_with_types_and_times(times: str, tmp_path: Path) -> None:
    spec = shop(tmp_path, times)
    assert_same_folder(spec | {"build": {"repeats": times == "wide", "threads": 2}}, tmp_path)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("num_edges", [0, 1, 5000])
def test_a_graph_without_types(num_edges: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(num_edges)
    parquet.write_table(pa.table({"id": np.arange(900)[::-1], "v": rng.random(900)}), tmp_path / "n.parquet")
    edges = {name: rng.integers(0, 700, num_edges) for name in ("s", "d")}
    parquet.write_table(
        pa.table({name: pa.array(ends, pa.int64()) for name, ends in edges.items()}), tmp_path / "e.parquet"
    )
    assert_same_folder(
        {
            "version": 1,
            "nodes": {"n": {"from": "n.parquet", "id": "id", "x": ["v"]}},
            "edges": {"e": {"from": "e.parquet", "src": "n.s", "dst": "n.d", "repeats": "drop"}},
        },
        tmp_path,
    )


def test_columns_named_as_duckdb_names_rows_are_read_in_turn(few: None, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1, 2, 3], "filename": [1.0, 2.0, 3.0]}), tmp_path / "n.parquet")
    ends = {"s": [1, 2, 3, 3], "d": [2, 3, 1, 3], "File_Row_Number": [7, 7, 0, 1]}
    parquet.write_table(pa.table(ends), tmp_path / "e.parquet")
    assert_same_folder(
        {
            "version": 1,
            "nodes": {"n": {"from": "n.parquet", "id": "id", "x": ["filename"]}},
            "edges": {"e": {"from": ["e.parquet", "e.parquet"], "src": "n.s", "dst": "n.d"}},
        },
        tmp_path,
    )


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"on_missing": "error"},
            "edges.buys: of 6000 rows, .* the first in row 89; 62 src .'u'. have none, the first in row 0",
        ),
        (
            {"time": "how", "time_unit": None, "timezone": "UTC"},
            "6000 of 6000 values of column 'how' cannot be read.*'c",
        ),
        (
            {"weight": "price"},
            r"edges.buys.weight: \d+ of 6000 weights are missing, negative or not finite, the first in row \d+",
        ),
        ({"x": [{"column": "price", "scale": "log"}]}, "values of column 'price' cannot be read; the first is '-"),
    ],
)
def test_bad_rows_are_told_as_one_process_tells_them(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    spec = shop(tmp_path, "seconds")
    spec["edges"]["buys"] |= change
    messages = []
    for engine in ("local", "ray"):
        with pytest.raises(TableError, match=told) as raised:
            building.build_graph_folder(
                GraphSpec.of(deepcopy(spec)), tmp_path / "out", home=tmp_path, show_progress=False, engine=engine
            )
        messages.append(str(raised.value))
        assert not (tmp_path / "out").exists()
    assert messages[0] == messages[1]


def test_there_are_two_engines(tmp_path: Path) -> None:
    with pytest.raises(GraphSpecError, match=r"engine='spark' is not known; give one of 'local', 'ray'"):
        building.build_graph_folder(GraphSpec.of(shop(tmp_path, "wide")), tmp_path / "out", engine="spark")
