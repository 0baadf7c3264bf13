"""Edge lists grouped into runs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import GraphFormatError
from lightning_gnnload.ops import EdgeList, NodesOfType, build_runs, check_runs
from lightning_gnnload.ops import runs as building


def sorted_list(src, dst, code, num_nodes):
    order = np.lexsort((np.arange(len(src)), code, dst))
    return src[order], code[order], order


@pytest.mark.parametrize("spread", ["even", "ties", "powers", "one", "falling"])
@pytest.mark.parametrize("num_nodes", [1, 7, 3000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_runs_of_every_length_and_spread_equal_one_sort(spread, num_nodes, dtype, monkeypatch):
    monkeypatch.setattr(building, "_PART_EDGES", 500)  # several parts, and lists in pieces that end amid a line
    monkeypatch.setattr(building, "_PIECE_EDGES", 7777)
    # One node has a run that is cut into buckets of buckets, 3,000 have runs that are inserted.
    rng = np.random.default_rng(num_nodes)
    num_edges = 40_000
    src, dst = rng.integers(0, num_nodes, (2, num_edges)).astype(dtype)
    code = {
        "even": rng.integers(0, 2**32, num_edges),
        "ties": rng.integers(0, 3, num_edges) + 2**31,
        "powers": 2 ** rng.integers(0, 32, num_edges),
        "one": np.full(num_edges, 2**32 - 1),
        "falling": np.arange(num_edges, 0, -1),
    }[spread].astype(np.uint32)
    weight = rng.random(num_edges)
    edges = EdgeList("edges", src, dst, num_nodes, num_nodes, code=code, columns=[weight])
    runs = build_runs([edges], num_nodes, np.int32, order_dtype=np.int64)
    want_src, want_code, order = sorted_list(src, dst, code, num_nodes)
    np.testing.assert_array_equal(runs.indices, want_src)
    np.testing.assert_array_equal(runs.edge_time, want_code)
    np.testing.assert_array_equal(runs.order, order)
    np.testing.assert_array_equal(runs.columns[0], weight[order])
    np.testing.assert_array_equal(runs.run_ptr, np.searchsorted(dst[order], np.arange(num_nodes + 1)))


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("bad", [-1, 7, 2**31 - 1])
def test_a_bad_id_is_named_with_its_list(end, bad):
    src, dst = np.zeros(3000, np.int64), np.zeros(3000, np.int64)
    (src if end == "source" else dst)[2500] = bad
    with pytest.raises(GraphFormatError, match=rf"buys: edge 2500 has the {end} {bad}, but there are 7 such nodes"):
        build_runs([EdgeList("buys", src, dst, 7, 7)], 7, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dst": np.zeros(3, np.int32)}, "2 sources, but 3 targets"),
        ({"dst": np.zeros(2, np.int64)}, "dst has dtype int64"),
        ({"code": np.zeros(2, np.int64)}, "times has dtype int64"),
        ({"code": np.zeros(1, np.uint32)}, "sources 0 to 1 have 1 times"),
        ({"columns": [np.zeros(3, np.float16)]}, "2 sources, but 3 values of a column"),
        ({"columns": [np.zeros((2, 1))]}, "a column has shape"),
        ({"columns": [np.zeros(2, object)]}, "a column has the dtype object"),
    ],
)
def test_arrays_that_kernels_do_not_take(change, message):
    sound = {"src": np.zeros(2, np.int32), "dst": np.zeros(2, np.int32)}
    with pytest.raises(GraphFormatError, match=message):
        build_runs([EdgeList("e", **{**sound, **change}, num_src=1, num_dst=1)], 1, np.int32)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.float32, np.float64, np.longdouble])
def test_columns_of_every_width_follow_their_edges(dtype):
    values = np.array([1, 0, 1], dtype)
    runs = build_runs(
        [EdgeList("e", np.zeros(3, np.int32), np.array([1, 1, 0], np.int32), 1, 2, columns=[values])], 2, np.int32
    )
    np.testing.assert_array_equal(runs.columns[0], np.array([1, 1, 0], dtype))
    assert runs.columns[0].dtype == dtype


INDPTR = np.array([0, 0, 0, 3, 4])  # two nodes without runs, then two that have two each
INDICES = np.array([0, 1, 2, 3], np.int32)
TYPES = [NodesOfType(0, 2, 0, []), NodesOfType(2, 2, 0, [range(2), range(2, 4)])]


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_sound_runs_pass(dtype):
    check_runs(INDPTR, INDICES, np.array([0, 2, 3, 3, 4], dtype), np.array([4, 4, 0, 9], np.uint32), TYPES)


@pytest.mark.parametrize(
    ("run_ptr", "time", "message"),
    [
        ([0, 2, 3, 3], None, "run_ptr has 4 entries, but 5"),
        ([1, 2, 3, 3, 4], None, "run_ptr goes from 1 to 4, but must from 0 to 4"),
        ([0, 2, 3, 3, 5], None, "run_ptr goes from 0 to 5"),
        ([0, 2, 3, 5, 4], None, r"run 2 of node 3 is \[3, 5\), but must begin at 3 and end by 4"),
        ([0, 2, 2, 3, 4], None, "the runs of node 2 end at 2, but its list at 3"),
        ([0, 4, 3, 3, 4], None, r"run 0 of node 2 is \[0, 4\)"),
        ([0, 3, 3, 3, 4], None, r"indices\[2\] is 2, but the sources of edges of its type lie in \[0, 2\)"),
        ([0, 2, 3, 4, 4], None, r"indices\[3\] is 3"),
        ([0, 2, 3, 3, 4], [5, 4, 0, 9], r"edge_time\[1\] is 4, earlier than edge_time\[0\] = 5"),
        ([0, 2, 3, 3, 4], [5], "edge_time has 1 entries for 4 edges"),
    ],
)
def test_broken_runs_are_named(run_ptr, time, message):
    time = None if time is None else np.array(time, np.uint32)
    for dtype in (np.uint32, np.int64):
        with pytest.raises(GraphFormatError, match=message):
            check_runs(INDPTR, INDICES, np.array(run_ptr, dtype), time, TYPES)


def test_an_edge_into_a_type_without_runs_is_refused():
    types = [NodesOfType(0, 1, 0, []), NodesOfType(1, 1, 0, [range(2)])]
    with pytest.raises(GraphFormatError, match="the runs of node 0 end at 0, but its list at 1"):
        check_runs(np.array([0, 1, 1]), np.zeros(1, np.int32), np.array([0, 1]), None, types)
