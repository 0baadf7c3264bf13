"""Nodes are numbered by the rows of their table, and found by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.ids import NumberedNodes, write_node_ids
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.sql import open_database
from lightning_gnnload.ops import NO_TIME, NULL, UNKNOWN
from tests.unit.ingest.tables import texts


def number(table: Any, made: Path, **changes: Any) -> NumberedNodes:
    edges = {"from": pa.table({"a": pa.array([], pa.string())}), "src": "user.a", "dst": "user.a"}
    spec = GraphSpec.of(
        {"version": 1, "nodes": {"user": {"from": table, "id": "name", **changes}}, "edges": {"knows": edges}}
    )
    con = open_database(spec.build, made, Path())
    for folder in ("made", "scratch"):
        (made / folder).mkdir()
    source = Source(con, spec.nodes["user"].table, "nodes.user")
    return write_node_ids("user", spec.nodes["user"], source, made / "made", made / "scratch", {}, show_progress=False)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_keys_of_every_arrow_type_are_found(kind, tmp_path):
    nodes = number(pa.table({"name": texts("u", 500)}), tmp_path)
    keys = pa.array(["x", *texts("u", 500)[::-1], None, ""], pa.string()).cast(kind)
    found = nodes.find(keys[1:] if kind != pa.large_string() else keys.slice(1))
    assert found.rows.tolist() == [*range(499, -1, -1), NULL, 0]
    assert nodes.find(pa.array(["nobody"])).rows.tolist() == [UNKNOWN]


def test_integer_keys_are_found(tmp_path):
    ids = np.array([2**63 - 1, -(2**63), 0, -7])
    nodes = number(pa.table({"name": ids}), tmp_path)
    assert nodes.id_type == "integer"
    assert nodes.find(pa.array([None, -7, *ids.tolist(), 5])[1:]).rows.tolist() == [3, 0, 1, 2, 3, UNKNOWN]


def test_a_table_without_rows_has_no_nodes(tmp_path):
    nodes = number(pa.table({"name": pa.array([], pa.string())}), tmp_path)
    assert nodes.num_nodes == 0
    assert nodes.find(pa.array(["a"])).rows.tolist() == [UNKNOWN]


def test_repeated_ids_are_named_with_the_row_that_has_them_already(tmp_path):
    with pytest.raises(TableError, match=r"2 rows repeat the 'name' .* row 3, which has 'b', as row 1 does"):
        number(pa.table({"name": ["a", "b", "c", "b", "a"]}), tmp_path)


@pytest.mark.parametrize("text", [True, False])
def test_the_first_row_of_an_id_is_its_node(text, tmp_path):
    given = [5, 6, 5, 7, 6, 8]
    ids = [f"id-{each}" for each in given] if text else given
    at = pa.array([10, 20, 30, None, 50, 60], pa.timestamp("us", tz="UTC"))
    nodes = number(pa.table({"name": ids, "at": at}), tmp_path, on_duplicate="first", time="at")
    assert (nodes.num_rows, nodes.num_nodes, nodes.repeated.tolist()) == (6, 4, [2, 4])
    assert nodes.find(pa.array(ids)).rows.tolist() == [0, 1, 0, 2, 1, 3]
    assert nodes.time.tolist() == [10_000, 20_000, NO_TIME, 60_000]
    assert nodes.num_without_time == 1
    assert nodes.in_graph(1, 5).tolist() == [True, False, True, False]


def test_rows_without_an_id_are_counted_and_the_first_is_named(tmp_path):
    with pytest.raises(TableError, match=r"nodes.user: 2 rows have no 'name', the first is row 1.*is not null"):
        number(pa.table({"name": ["a", None, "c", None]}), tmp_path)


def test_times_that_nanoseconds_cannot_count_are_refused(tmp_path):
    at = pa.array([0, 10**17], pa.timestamp("us", tz="UTC"))
    with pytest.raises(TableError, match=r"nodes.user.time: 1 of 2 times, the first 100000000000000000 microseconds"):
        number(pa.table({"name": ["a", "b"], "at": at}), tmp_path, time="at")
