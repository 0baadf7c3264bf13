"""What is left out of tables of edges, what is counted, and what is refused."""

from __future__ import annotations

import resource
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.errors import FeatureFileError, TableError
from lightning_gnnload.ingest.rowset import RowSet
from tests.unit.ingest.tables import assert_same_graph, build, edge_table, texts

PEOPLE = 60


def described(table: pa.Table, people: list[Any] | None = None, **edges: Any) -> dict[str, Any]:
    """One type of nodes and one of edges: a graph without types."""
    nodes = {"from": pa.table({"name": people or texts("p", PEOPLE)}), "id": "name"}
    knows = {"from": table, "src": "person.src", "dst": "person.dst", **edges}
    return {"version": 1, "nodes": {"person": nodes}, "edges": {"knows": knows}}


def random_edges(seed: int, count: int = 3000):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, PEOPLE, count), np.minimum(rng.zipf(1.5, count) - 1, PEOPLE - 1)
    return src, dst, 10**6 * rng.integers(0, 50, count)


@pytest.mark.parametrize("most_records", [64, 10_000])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_rows_that_are_left_out_leave_the_graph_of_the_others(most_records, timed, reverse, tmp_path):
    # The hub has half of the edges, which 64 records at once cut by source to find repeats, then by time.
    src, dst, time = random_edges(3)
    names = np.array([*texts("p", PEOPLE), "nobody"], object)
    rng = np.random.default_rng(9)
    given = [np.where(rng.random(len(src)) < 0.1, PEOPLE, ends) for ends in (src, dst)]
    table = edge_table(*(names[ends].tolist() for ends in given), at=time)
    times = {"time": "at", "time_unit": "us"} if timed else {}
    rules = {"on_missing": "drop", "self_loops": "drop", "repeats": "drop"}
    graph, written = build(
        described(table, reverse=reverse, **rules, **times), tmp_path / "graph", most_records=most_records
    )
    known = (given[0] < PEOPLE) & (given[1] < PEOPLE)
    once, pairs = [], set()
    for row in np.flatnonzero(known & (given[0] != given[1])):
        pair = (given[0][row], given[1][row])
        once += [row] if pair not in pairs else []
        pairs.add(pair)
    src, dst, at = given[0][once], given[1][once], (time[once] * 1000).astype("datetime64[ns]")
    if reverse:
        kinds = ("person", "knows", "person"), ("person", "rev_knows", "person")
        edge_time = dict.fromkeys(kinds, at) if timed else None
        wanted = Graph.from_hetero(
            {"person": PEOPLE},
            dict(zip(kinds, ((src, dst), (dst, src)), strict=True)),
            edge_time=edge_time,
            keep_order=True,
        )
    else:
        wanted = Graph.from_coo(src, dst, PEOPLE, edge_time=at if timed else None, keep_order=True)
    assert_same_graph(graph, wanted)
    kept = np.concatenate([written.in_graph("knows", begin, begin + 500) for begin in range(0, 3000, 500)])
    assert np.flatnonzero(kept).tolist() == once
    counts = written.counts["knows"]
    assert counts.rows - counts.kept == 3000 - np.count_nonzero(known & (given[0] != given[1]))
    assert counts.kept - counts.repeats == len(once)


def test_what_is_missing_is_counted_with_the_first_row_of_each(tmp_path):
    table = edge_table(["a", "z", None, "b", "y"], ["b", "a", "a", None, "x"])
    _, written = build(described(table, ["a", "b"], on_missing="drop"), tmp_path / "graph")
    counts = written.counts["knows"]
    assert (counts.rows, counts.kept) == (5, 1)
    assert (counts.src_unknown, counts.src_null, counts.dst_unknown, counts.dst_null) == (2, 1, 1, 1)
    assert counts.first_rows == {"src_unknown": 1, "src_null": 2, "dst_unknown": 4, "dst_null": 3}
    assert written.isolated == {"person": 0}


def test_missing_ends_are_an_error_that_counts_them(tmp_path):
    table = edge_table(["a", "z", None], ["b", "a", "a"])
    message = r"of 3 rows, 1 src \('src'\) name no person, the first in row 1; 1 src \('src'\) have none, .* row 2"
    with pytest.raises(TableError, match=message):
        build(described(table, ["a", "b"]), tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_repeats_are_counted_where_they_stay(tmp_path):
    table = edge_table([1, 1, 2, 1], [2, 2, 1, 2])
    spec = described(table, [1, 2])
    _, written = build({**spec, "build": {"repeats": True}}, tmp_path / "graph")
    assert written.counts["knows"].repeats == 2
    assert written.num_edges == 4
    assert written.in_graph("knows", 0, 4) is None


def test_edges_without_a_time_are_there_from_the_beginning(tmp_path):
    table = edge_table([1, 2, 1], [2, 2, 2], at=pa.array([7, None, 5], pa.timestamp("us", tz="UTC")))
    graph, written = build(described(table, [1, 2], time="at"), tmp_path / "graph")
    assert graph.edge_order.tolist() == [1, 2, 0]
    assert graph.edge_time.tolist() == [0, 0, 2000]
    assert (written.counts["knows"].without_time, written.counts["knows"].first_rows["without_time"]) == (1, 1)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int16()])
def test_weights_stay_with_their_edges(kind, tmp_path):
    weight = pa.array([3, 0, 2], kind)
    graph, _ = build(described(edge_table([1, 2, 1], [2, 1, 1], w=weight), [1, 2], weight="w"), tmp_path / "graph")
    assert graph.edge_weight.dtype == (np.float32 if kind == pa.float32() else np.float64)
    assert graph.edge_weight.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0, None], r"edges.knows.weight: 2 of 3 weights .* the first in row 1"),
        ([1.0, np.nan, 3.0], r"1 of 3 weights .* the first in row 1"),
        ([1.0, 1.0, np.inf], r"1 of 3 weights .* the first in row 2"),
        ([[Decimal("1.5")]] * 3, r"weight 'w' is DECIMAL\(2,1\)\[\]; numbers are needed"),
        (["1", "2", "3"], r"weight 'w' is VARCHAR; numbers are needed"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message, tmp_path):
    with pytest.raises(TableError, match=message):
        build(described(edge_table([1, 2, 1], [2, 1, 1], w=weights), [1, 2], weight="w"), tmp_path / "graph")


def test_tables_without_rows_are_a_graph_without_edges(tmp_path):
    none = pa.array([], pa.string())
    graph, written = build(described(edge_table(none, none)), tmp_path / "graph")
    assert (graph.num_nodes, graph.num_edges, written.isolated) == (PEOPLE, 0, {"person": PEOPLE})


@pytest.mark.parametrize("reverse", [True, False])
def test_tables_without_nodes_are_a_graph_without_any(reverse, tmp_path):
    none = pa.table({"name": pa.array([], pa.string())})
    table = edge_table(["a", "b"], ["b", "a"], at=pa.array([7, 8], pa.timestamp("us", tz="UTC")))
    spec = described(table, reverse=reverse, time="at", on_missing="drop", repeats="drop")
    spec["nodes"]["person"]["from"] = none
    graph, written = build(spec, tmp_path / "graph")
    assert (graph.num_nodes, graph.num_edges, written.counts["knows"].kept) == (0, 0, 0)


def test_a_full_disk_leaves_nothing(tmp_path):
    src, dst, _ = random_edges(1, count=20_000)
    names = np.array(texts("p", PEOPLE), object)
    table = edge_table(names[src].tolist(), names[dst].tolist())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the ids have room, the edges have not
    try:
        with pytest.raises(FeatureFileError, match="cannot be written: File too large"):
            build(described(table), tmp_path / "graph")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_row_set_counts_and_holds_rows_however_it_was_made():
    rng = np.random.default_rng(2)
    holds = rng.random(1000) < 0.3
    grown, added = RowSet(), RowSet(1000)
    for begin, end in ((0, 3), (3, 3), (3, 64), (64, 700), (700, 1000)):
        grown.append(holds[begin:end])
    added.add(np.flatnonzero(holds))
    added.add(np.flatnonzero(holds)[::2])
    rows = rng.permutation(1001)
    for each in (grown, added):
        assert len(each) == holds.sum()
        np.testing.assert_array_equal(each.holds(0, 1000), holds)
        np.testing.assert_array_equal(each.holds(13, 977), holds[13:977])
        np.testing.assert_array_equal(each.count_below(rows), np.concatenate([[0], holds.cumsum()])[rows])
