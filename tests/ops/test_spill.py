"""Edges that go through a file, against one sort of them in memory."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest

from lightning_gnnload.errors import FeatureFileError, GraphFormatError
from lightning_gnnload.ops import NO_TIME, Bucket, EdgeSpill, SpillLists

NODES, EDGES = 50, 3000


@pytest.fixture
def file():
    with tempfile.TemporaryFile() as opened:
        yield opened


def spill_of(file, **changes):
    given = {
        "num_lists": NODES,
        "shift": 3,
        "extent_bytes": 100,
        "num_nodes": NODES,
        "has_time": True,
        "most_ids": EDGES,
    }
    return EdgeSpill(file.fileno(), "scratch", **(given | changes))


def edges_of(seed: int):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(-1, NODES, EDGES), np.minimum(rng.zipf(1.4, EDGES) - 1, NODES - 1)
    dst[rng.random(EDGES) < 0.1] = -2
    return src.astype(np.int32), dst.astype(np.int32), rng.integers(-(2**60), 2**60, EDGES), rng.random(EDGES)


def records_in_order(spill, by_source=False, most=200):
    """All records, of buckets that are divided until few are left in each."""

    def read(bucket):
        parts = spill.split(bucket, by_source=by_source) if bucket.num_records > most else []
        if not parts:
            records = spill.read(bucket)
            yield records.list.astype(np.int64) + bucket.first_list, *records[1:]
        for part in parts:
            assert bucket.first_list <= part.first_list
            assert part.first_list + part.num_lists <= bucket.first_list + bucket.num_lists
            yield from read(part)

    columns = zip(*(records for bucket in spill.buckets for records in read(bucket)), strict=True)
    return [None if column[0] is None else np.concatenate(column) for column in columns]


@pytest.mark.parametrize("most_ids", [EDGES, 2**40])
@pytest.mark.parametrize("weight", [None, np.float32, np.float64])
@pytest.mark.parametrize("has_time", [True, False])
@pytest.mark.parametrize("by_source", [True, False])
def test_records_come_by_list_and_as_they_were_added(most_ids, weight, has_time, by_source, file):
    src, dst, time, weights = edges_of(4)
    spill = spill_of(file, most_ids=most_ids, weight_dtype=weight, has_time=has_time)
    to, first_id = SpillLists(NODES, NODES), most_ids - EDGES
    for begin in range(0, EDGES, 700):
        rows = slice(begin, begin + 700)
        given = {"time": time[rows].copy()} if has_time else {}
        given |= {"weight": weights[rows].astype(weight)} if weight else {}
        first_id += spill.add(to, src[rows].copy(), dst[rows].copy(), **given, first_id=first_id)
    spill.finish()
    kept = np.flatnonzero((src >= 0) & (dst >= 0))
    assert first_id == most_ids - EDGES + len(kept)
    lists, sources, times, ids, found = records_in_order(spill, by_source)
    np.testing.assert_array_equal(np.sort(ids), np.arange(len(kept)) + most_ids - EDGES)
    rows = kept[ids - (most_ids - EDGES)]
    np.testing.assert_array_equal(lists, dst[rows])
    np.testing.assert_array_equal(sources, src[rows])
    if has_time:
        np.testing.assert_array_equal(times, time[rows])
    if weight:
        np.testing.assert_array_equal(found, weights[rows].astype(weight))
    bucket = lists >> 3
    assert (np.diff(bucket) >= 0).all()
    # The hub has two thirds of the edges: it was divided, in the order of its times or sources, ids within the same.
    hub = lists == 0
    key = sources[hub].astype(np.int64) if by_source else times[hub] if has_time else np.zeros(hub.sum(), np.int64)
    if by_source or not has_time:
        order = np.lexsort((ids[hub], key))
        np.testing.assert_array_equal(order, np.arange(len(order)))


def test_a_list_is_divided_by_time_in_the_order_of_times(file):
    time = np.array([5, -(2**63), 7, 2**63 - 1, 5, 6] * 100)
    spill = spill_of(file, num_lists=1)
    ends = np.zeros(600, np.int32)
    spill.add(SpillLists(1, 1), ends, ends, time, first_id=0)
    spill.finish()
    parts = spill.split(spill.buckets[0])
    times = [spill.read(part).time for part in parts]
    assert [part.num_records for part in parts] == [100, 400, 100]
    assert [(int(each.min()), int(each.max())) for each in times] == [(NO_TIME, NO_TIME), (5, 7), (2**63 - 1,) * 2]
    assert [part.num_records for part in spill.split(parts[1])] == [200, 100, 100]
    assert spill.split(parts[0]) == []


def test_no_edge_is_there_before_its_source(file):
    spill = spill_of(file)
    ends = np.array([0, 1, 2], np.int32)
    spill.add(SpillLists(3, 3, source_time=np.array([9, NO_TIME, 4])), ends, ends, np.array([5, 5, 5]), first_id=0)
    spill.add(SpillLists(3, 3, source_time=np.array([9, NO_TIME, 4])), ends, ends, first_id=3)
    spill.finish()
    assert spill.read(spill.buckets[0]).time.tolist() == [9, 5, 5, 9, NO_TIME, 4]


def test_lists_of_types_lie_apart_and_sources_are_numbered_in_the_graph(file):
    spill = spill_of(file, num_lists=12, shift=1, has_time=False)
    ends = np.array([[0, 1], [2, 0]], np.int32)
    spill.add(SpillLists(2, 3, first_src=40, first_list=4, step=2), *ends, first_id=0)
    spill.finish()
    lists, sources, _, ids, _ = records_in_order(spill)
    assert (lists.tolist(), sources.tolist(), ids.tolist()) == ([4, 8], [41, 40], [1, 0])


def test_a_bucket_that_was_released_gives_its_room_back_and_cannot_be_read(file):
    src, dst, time, _ = edges_of(1)
    spill = spill_of(file, extent_bytes=1 << 16)
    for _ in range(30):
        spill.add(SpillLists(NODES, NODES), src, dst, time, first_id=0)
    spill.finish()
    before, buckets = os.fstat(file.fileno()).st_blocks, spill.buckets
    for bucket in buckets:
        spill.release(bucket)
    assert os.fstat(file.fileno()).st_blocks < before / 4
    with pytest.raises(GraphFormatError, match="or was released"):
        spill.read(buckets[0])


def test_a_file_that_cannot_be_written_or_was_cut_off_is_named(file, tmp_path):
    ends = np.zeros(1000, np.int32)
    (tmp_path / "readable").touch()
    with open(tmp_path / "readable", "rb") as read_only:
        spill = spill_of(read_only)
        with pytest.raises(FeatureFileError, match="scratch cannot be written: Bad file descriptor"):
            spill.add(SpillLists(1, 1), ends, ends, first_id=0)
    spill = spill_of(file)
    spill.add(SpillLists(1, 1), ends, ends, first_id=0)
    spill.finish()
    file.truncate(50)
    with pytest.raises(FeatureFileError, match="scratch cannot be read: it was cut off"):
        spill.read(spill.buckets[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": np.array([NODES], np.int32)}, r"src\[0\] is 50, but there are 50 such nodes"),
        ({"dst": np.zeros(1, np.int64)}, "dst has dtype int64"),
        ({"dst": np.zeros(2, np.int32)}, "dst has 2 entries for 1 edges"),
        ({"time": np.zeros(1, np.int32)}, "time has dtype int32"),
        ({"weight": np.zeros(1)}, "weight was given"),
        ({"first_id": 2**32}, "edge ids from 4294967296 on"),
        ({"to": SpillLists(NODES, NODES, first_src=1)}, "50 sources from 1 on are not all of 50 nodes"),
        ({"to": SpillLists(NODES, NODES, step=2)}, "lists 0 to 98 are not all of 50"),
        ({"to": SpillLists(NODES, NODES, source_time=np.zeros(3, np.int64))}, "3 entries for 50 nodes"),
    ],
)
def test_what_kernels_do_not_take_is_refused(change, message, file):
    given = {"to": SpillLists(NODES, NODES), "src": np.zeros(1, np.int32), "dst": np.zeros(1, np.int32), "first_id": 0}
    with pytest.raises(GraphFormatError, match=message):
        spill_of(file).add(**(given | change))


def test_buckets_are_read_once_all_edges_are_there_and_are_the_spills_own(file):
    spill = spill_of(file)
    with pytest.raises(GraphFormatError, match="edges are still added"):
        spill.read(spill.buckets[0])
    spill.finish()
    with pytest.raises(GraphFormatError, match="none of this spill's"):
        spill.read(Bucket(0, 0, 8, 5))
    with pytest.raises(GraphFormatError, match="none can be added any more"):
        spill.add(SpillLists(1, 1), np.zeros(1, np.int32), np.zeros(1, np.int32), first_id=0)


@pytest.mark.parametrize(("num_nodes", "dtype"), [(2**31, np.int32), (2**31 + 1, np.int64), (2**32, np.int64)])
def test_sources_are_read_in_as_many_bits_as_the_last_one_takes(file, num_nodes, dtype):
    spill = spill_of(file, num_nodes=num_nodes, has_time=False)
    to = SpillLists(1, NODES, first_src=num_nodes - 1)
    spill.add(to, np.zeros(1, np.int32), np.zeros(1, np.int32), first_id=0)
    spill.finish()
    (bucket,) = [each for each in spill.buckets if each.num_records]
    assert spill.read(bucket).src.tolist() == [num_nodes - 1]
    assert spill.index_dtype == dtype
