"""Gathered rows equal ``table[ids]``, whatever their size; bad ids are refused before any row is read."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, SeedError
from lightning_gnnload.ops import gather_rows


@pytest.mark.parametrize("row_bytes", [*range(131), 512, 4096 + 3])
def test_rows_of_any_size(row_bytes):
    rng = np.random.default_rng(row_bytes)
    table = rng.integers(0, 256, (50, row_bytes), np.uint8)
    ids = rng.integers(0, 50, 33)
    out = np.full((35, row_bytes), 0xA5, np.uint8)
    gather_rows(table, ids, out[1:34])
    np.testing.assert_array_equal(out[1:34], table[ids])
    assert np.all(out[[0, 34]] == 0xA5)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2", "f4", "i8", "f8", "c16", "?"])
@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 5)])
def test_dtypes_and_labels(dtype, shape):
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, shape).astype(dtype)
    ids = rng.integers(0, 40, 100)
    out = np.empty((100, *shape[1:]), dtype)
    gather_rows(table, ids, out)
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9])
def test_fewer_rows_than_are_prefetched(count):
    table = np.arange(40.0).reshape(10, 4)
    ids = np.arange(count)
    out = np.empty((count, 4))
    gather_rows(table, ids, out)
    np.testing.assert_array_equal(out, table[:count])


def test_read_only_maps_are_read(tmp_path):
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    np.save(tmp_path / "x.npy", table)
    out = np.empty((2, 4), np.float32)
    gather_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), np.array([9, 0]), out)
    np.testing.assert_array_equal(out, table[[9, 0]])


@pytest.mark.parametrize("bad", [-1, 10, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("position", [0, 5, 19])
def test_bad_ids_are_named_and_nothing_is_written(bad, position):
    table = np.ones((10, 4))
    ids = np.zeros(20, np.int64)
    ids[position] = bad
    out = np.zeros((20, 4))
    with pytest.raises(SeedError, match=rf"ids\[{position}\] is {bad}, but the table has 10 rows"):
        gather_rows(table, ids, out)
    assert not out.any()


def test_a_table_without_rows():
    gather_rows(np.empty((0, 4)), np.empty(0, np.int64), np.empty((0, 4)))
    with pytest.raises(SeedError, match="0 rows"):
        gather_rows(np.empty((0, 4)), np.array([0]), np.empty((1, 4)))


@pytest.mark.parametrize(
    ("table", "ids", "out", "message"),
    [
        (np.ones((4, 2)), np.arange(2), np.ones((3, 2)), "out has shape"),
        (np.ones((4, 2)), np.arange(2), np.ones((2, 3)), "out has shape"),
        (np.ones((4, 2)), np.arange(2), np.ones((2, 2), np.float32), "out has dtype"),
        (np.ones((4, 4))[:, ::2], np.arange(2), np.ones((2, 2)), "table is not contiguous"),
        (np.ones((4, 2)), np.arange(2), np.ones((2, 4))[:, ::2], "out is not contiguous"),
        (np.ones((4, 2)), np.arange(2, dtype=np.int32), np.ones((2, 2)), "ids has dtype"),
        (np.ones((4, 2, 2)), np.arange(2), np.ones((2, 2, 2)), "table has dtype"),
        (np.array(["a", None]), np.arange(2), np.array(["a", None]), "plain numbers"),
        (np.ones((4, 2)), np.arange(2), [[0.0, 0.0], [0.0, 0.0]], "out is a list"),
    ],
)
def test_wrong_arrays(table, ids, out, message):
    with pytest.raises(GnnLoadError, match=message):
        gather_rows(table, ids, out)
