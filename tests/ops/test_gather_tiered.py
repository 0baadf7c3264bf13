"""Rows gathered through a cache equal ``table[ids]``, and what no shard holds is told, whatever the rows' size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import CacheShareError, GnnLoadError, SeedError
from lightning_gnnload.ops import (
    MAX_SHARDS,
    SLOT_BITS,
    _kernels,
    gather_rows,
    gather_tiered,
    instruction_sets,
)
from tests import oracle

from .graphs import instruction_set

UNTOUCHED = 0xA5


def split(table: np.ndarray, num_shards: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """About half of a table's rows over shards of unequal sizes, one of them empty where there are several."""
    rng = np.random.default_rng(seed)
    filled = min(num_shards, max(num_shards - 1, 1))
    shard = rng.integers(-filled - 1, filled, len(table))
    location = np.where(shard < 0, -rng.integers(1, 2**31, len(table)), 0)
    shards = []
    for number in range(num_shards):
        held = rng.permutation(np.flatnonzero(shard == number))
        location[held] = number << SLOT_BITS | np.arange(len(held))
        shards.append(table[held])
    return location.astype(np.int32), shards


def check(table: np.ndarray, location: np.ndarray, shards: list[np.ndarray], ids: np.ndarray, **choice: Any) -> None:
    """Compares one call with the oracle: every row of the output, the counts, the misses."""
    backing, positions, num_out = choice.get("backing"), choice.get("positions"), choice.get("num_out", len(ids))
    memory = np.full((num_out + 2) * table.shape[1] + 128, UNTOUCHED, np.uint8)
    begin = -(memory.ctypes.data + table.shape[1]) % 64 + choice.get("offset", 0)
    around = memory[begin : begin + (num_out + 2) * table.shape[1]].reshape(num_out + 2, table.shape[1])
    missed = np.full((2, len(ids)), -1)
    told = () if backing is not None else (missed[0], missed[1])
    got = gather_tiered(location, shards, backing, ids, around[1:-1], *told, positions=positions)

    rows, hits, misses = oracle.gather_tiered(location, shards, backing, ids)
    assert got == (hits, len(misses))
    places = np.arange(len(ids)) if positions is None else positions
    wanted = np.full_like(around, UNTOUCHED)
    for b, row in rows.items():
        wanted[1 + places[b]] = row
    np.testing.assert_array_equal(around, wanted)
    assert np.all(memory[:begin] == UNTOUCHED)
    assert np.all(memory[begin + around.size :] == UNTOUCHED)
    if backing is None:
        np.testing.assert_array_equal(missed[0, : len(misses)], ids[misses])
        np.testing.assert_array_equal(missed[1, : len(misses)], places[misses])


@settings(max_examples=120)
@given(
    row_bytes=st.integers(0, 130) | st.sampled_from([400, 2408, 9000]),
    count=st.integers(0, 400) | st.sampled_from([63, 64, 65, 127, 128, 129, 256, 257]),  # so many are sought ahead
    num_shards=st.sampled_from([0, 1, 2, 3, MAX_SHARDS]),
    with_backing=st.booleans(),
    with_positions=st.booleans(),
    offset=st.integers(0, 63),
)
@example(row_bytes=64, count=400, num_shards=3, with_backing=False, with_positions=False, offset=5)
@example(row_bytes=9000, count=400, num_shards=3, with_backing=True, with_positions=True, offset=5)
@example(row_bytes=4, count=0, num_shards=MAX_SHARDS, with_backing=False, with_positions=False, offset=0)
def test_any_rows_ids_and_shards(row_bytes, count, num_shards, with_backing, with_positions, offset):
    rng = np.random.default_rng(row_bytes)
    table = rng.integers(0, 256, (90, row_bytes), np.uint8)
    location, shards = split(table, num_shards, row_bytes)
    choice: dict[str, Any] = {"backing": table if with_backing else None, "offset": offset}
    if with_positions:
        choice |= {"positions": rng.permutation(500)[:count], "num_out": 500}
    ids = rng.integers(0, 90, count)
    for name in instruction_sets():
        with instruction_set(name):
            check(table, location, shards, ids, **choice)


@settings(max_examples=15)
@given(
    name=st.sampled_from(instruction_sets()),
    row_bytes=st.integers(64, 2500),
    ordered=st.sampled_from([None, True, False]),
)
@example(name="baseline", row_bytes=65, ordered=True)
@example(name=instruction_sets()[-1], row_bytes=64, ordered=None)
@example(name=instruction_sets()[-1], row_bytes=65, ordered=True)
@example(name=instruction_sets()[-1], row_bytes=100, ordered=False)
def test_much_output_is_the_same(name, row_bytes, ordered):
    """Written past the caches. A line in which a row ends is then shared by the next, or by a row left alone."""
    rng = np.random.default_rng(row_bytes)
    table = rng.integers(0, 256, (500, row_bytes), np.uint8)
    location, shards = split(table, 2, row_bytes)
    num_out = _kernels.STREAM_BYTES // row_bytes + 7
    num_ids = num_out if ordered is None else min(3000, num_out)
    positions = None if ordered is None else rng.permutation(num_out)[:num_ids]
    with instruction_set(name):
        ids = rng.integers(0, 500, num_ids)
        check(
            table,
            location,
            shards,
            ids,
            positions=np.sort(positions) if ordered else positions,
            num_out=num_out,
        )


def test_the_last_slot_that_a_location_can_name():
    """2**28 rows of no bytes: the limit without the memory."""
    shard = np.empty((1 << SLOT_BITS, 0), np.uint8)
    location = np.array([2**31 - 1, 7 << SLOT_BITS], np.int32)
    shards = [np.empty((0, 0), np.uint8)] * 7 + [shard]
    hits, misses = gather_tiered(location, shards, location[:, None][:, :0].view(np.uint8), np.array([1, 0]), shard[:2])
    assert hits == (0, 0, 0, 0, 0, 0, 0, 2)
    assert misses == 0


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "i8", "c16", "?"])
def test_dtypes(dtype):
    table = np.random.default_rng(0).integers(0, 9, (20, 5)).astype(dtype)
    out, missed, ids = np.zeros((30, 5), dtype), np.zeros((2, 30), np.int64), np.arange(30) % 20
    location = np.arange(20, dtype=np.int32)
    assert gather_tiered(location, [table], None, ids, out, missed[0], missed[1]) == ((30,), 0)
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.parametrize("position", [0, 70, 299])
@pytest.mark.parametrize("bad", [-1, 10, 2**63 - 1, -(2**63)])
def test_bad_ids_and_positions_are_named_and_nothing_is_written(bad, position):
    table, location = np.ones((10, 4)), np.arange(10, dtype=np.int32)
    out, missed, good = np.zeros((10, 4)), np.zeros((2, 300), np.int64), np.zeros(300, np.int64)
    wrong = good.copy()
    wrong[position] = bad
    with pytest.raises(SeedError, match=rf"ids\[{position}\] is {bad}, but the table has 10 rows"):
        gather_tiered(location, [table], None, wrong, out, missed[0], missed[1], positions=good)
    with pytest.raises(SeedError, match=rf"positions\[{position}\] is {bad}, but out has 10 rows"):
        gather_tiered(location, [table], None, good, out, missed[0], missed[1], positions=wrong)
    with pytest.raises(SeedError, match=rf"positions\[{position}\] is {bad}, but out has 10 rows"):
        gather_rows(table, good, out, positions=wrong)
    assert not out.any()


@pytest.mark.parametrize("bad", [3, 1 << SLOT_BITS | 2, 2 << SLOT_BITS, 2**31 - 1])
@pytest.mark.parametrize("position", [0, 70, 299])
def test_locations_beyond_their_shard_are_refused(bad, position):
    """Shards of 3 and 2 rows: as where another process wrote to the table."""
    location = np.zeros(300, np.int32)
    location[position] = bad
    out, missed = np.zeros((300, 4)), np.zeros((2, 300), np.int64)
    shard, slot = divmod(bad, 1 << SLOT_BITS)
    with pytest.raises(CacheShareError, match=rf"node {position} is in slot {slot} of shard {shard}, which has"):
        gather_tiered(location, [np.ones((3, 4)), np.ones((2, 4))], None, np.arange(300), out, missed[0], missed[1])


@pytest.mark.parametrize("row_bytes", [4, 100, 512])
def test_rows_of_a_plain_table_go_to_positions(row_bytes):
    rng = np.random.default_rng(row_bytes)
    table, out = rng.integers(0, 256, (50, row_bytes), np.uint8), np.full((900, row_bytes), UNTOUCHED, np.uint8)
    ids, positions = rng.integers(0, 50, 300), rng.permutation(900)[:300]
    wanted = out.copy()
    wanted[positions] = table[ids]
    gather_rows(table, ids, out, positions)
    np.testing.assert_array_equal(out, wanted)


def arguments(**changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "location": np.zeros(4, np.int32),
        "shards": [np.ones((1, 2))],
        "backing": None,
        "ids": np.arange(3),
        "out": np.ones((3, 2)),
        "missed_ids": np.zeros(3, np.int64),
        "missed_positions": np.zeros(3, np.int64),
    }
    return given | changed


SHARED = np.zeros(3, np.int64)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"location": np.zeros(4, np.int64)}, "location has dtype int64"),
        ({"ids": np.arange(3, dtype=np.int32)}, "ids has dtype int32"),
        ({"out": np.ones(3)}, "out has shape"),
        ({"out": np.ones((2, 2))}, "out has 2 rows, but ids has 3"),
        ({"out": np.array([["a", None]] * 3)}, "plain numbers"),
        ({"shards": [np.ones((1, 2), np.float32)]}, r"shards\[0\] has dtype float32"),
        ({"shards": [np.ones((1, 2)), np.ones((1, 3))]}, r"shards\[1\] has rows of 3 numbers, but out has rows of 2"),
        ({"shards": 3}, "shards is a int, but must be a list"),
        ({"shards": [np.ones((1, 2))] * 9}, "9 shards were given, but a location can name 8"),
        ({"backing": np.ones((3, 2))}, "backing has 3 entries, but there are 4 nodes"),
        ({"missed_ids": None}, "missed_ids is a NoneType"),
        ({"missed_positions": np.zeros(2, np.int64)}, "missed_positions has 2 entries, but there are 3 ids"),
        ({"positions": np.arange(2)}, "positions has 2 entries, but ids has 3"),
        ({"missed_ids": SHARED, "missed_positions": SHARED}, "share memory"),
        ({"missed_ids": SHARED, "ids": SHARED}, "share memory"),
        ({"positions": SHARED, "missed_positions": SHARED}, "share memory"),
        ({"out": SHARED.view(np.float64)[:, None], "shards": [], "missed_ids": SHARED}, "share memory"),
    ],
)
def test_wrong_arrays(changed, message):
    with pytest.raises(GnnLoadError, match=message):
        gather_tiered(**arguments(**changed))
