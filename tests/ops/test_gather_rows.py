"""Gathered rows equal ``table[ids]``, whatever their size; bad ids are refused before any row is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GnnLoadError, SeedError
from lightning_gnnload.ops import _kernels, gather_rows, instruction_sets

from .graphs import instruction_set

LINE_BYTES = 64


def random_bytes(num_rows: int, row_bytes: int, *, offset: int = 0) -> np.ndarray:
    """Rows that start ``offset`` bytes after the begin of a cache line."""
    data = np.random.default_rng(row_bytes).integers(0, 256, num_rows * row_bytes + 2 * LINE_BYTES, np.uint8)
    begin = -data.ctypes.data % LINE_BYTES + offset
    return data[begin : begin + num_rows * row_bytes].reshape(num_rows, row_bytes)


@pytest.mark.parametrize("name", instruction_sets())
def test_rows_of_any_size(name):
    for row_bytes in [*range(67), 100, 127, 128, 129, 200, 512, 2408, 4096 + 3]:
        table, out = random_bytes(50, row_bytes, offset=3), random_bytes(302, row_bytes, offset=5)
        before = out.copy()
        ids = np.random.default_rng(row_bytes).integers(0, 50, 300)  # short rows are prefetched 128 ahead
        with instruction_set(name):
            gather_rows(table, ids, out[1:-1])
        np.testing.assert_array_equal(out[1:-1], table[ids], f"rows of {row_bytes} bytes")
        np.testing.assert_array_equal(out[[0, -1]], before[[0, -1]], f"rows of {row_bytes} bytes")


@settings(max_examples=20)
@given(name=st.sampled_from(instruction_sets()), row_bytes=st.integers(64, 2500), offset=st.integers(0, 63))
@example(name="baseline", row_bytes=64, offset=0)
@example(name="baseline", row_bytes=65, offset=4)
@example(name=instruction_sets()[-1], row_bytes=64, offset=0)
@example(name=instruction_sets()[-1], row_bytes=128, offset=4)
@example(name=instruction_sets()[-1], row_bytes=100, offset=0)
def test_much_output_is_the_same(name, row_bytes, offset):
    """Written past the caches, where it starts a line. Lines that two rows share must hold both."""
    table = random_bytes(3000, row_bytes, offset=9)
    ids = np.random.default_rng(row_bytes).integers(0, len(table), _kernels.STREAM_BYTES // row_bytes + 7)
    memory = np.full(ids.size * row_bytes + 4 * LINE_BYTES, 0xA5, np.uint8)
    begin = -memory.ctypes.data % LINE_BYTES + LINE_BYTES + offset
    end = begin + ids.size * row_bytes
    out = memory[begin:end].reshape(-1, row_bytes)
    with instruction_set(name):
        gather_rows(table, ids, out)
    np.testing.assert_array_equal(out, table[ids])
    assert np.all(memory[:begin] == 0xA5)
    assert np.all(memory[end:] == 0xA5)


@settings(max_examples=60)
@given(
    dtype=st.sampled_from(["u1", "i2", "f2", "f4", "i8", "f8", "c16", "?"]),
    shape=st.sampled_from([(), (1,), (4,), (5,)]),
    count=st.integers(0, 300) | st.sampled_from([1, 127, 128, 129]),  # 128 are prefetched
)
@example(dtype="f8", shape=(4,), count=0)
@example(dtype="f8", shape=(4,), count=128)
def test_any_dtype_and_number_of_rows(dtype, shape, count):
    rng = np.random.default_rng(count)
    table = rng.integers(0, 9, (40, *shape)).astype(dtype)
    ids, out = rng.integers(0, 40, count), np.empty((count, *shape), dtype)
    gather_rows(table, ids, out)
    np.testing.assert_array_equal(out, table[ids])


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


SHARED, SHARED_IDS = np.ones((4, 2)), np.zeros(2, np.int64)


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
        (np.ma.ones((4, 2)), np.arange(2), np.ones((2, 2)), "table is a MaskedArray"),
        (SHARED, np.arange(2), SHARED[2:], "out and table share memory"),
        (np.ones(4, np.int64), SHARED_IDS, SHARED_IDS, "out and ids share memory"),
        (np.ones((4, 2)), np.arange(2), [[0.0, 0.0], [0.0, 0.0]], "out is a list"),
    ],
)
def test_wrong_arrays(table, ids, out, message):
    with pytest.raises(GnnLoadError, match=message):
        gather_rows(table, ids, out)
