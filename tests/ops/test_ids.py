"""Rows found by ids, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lightning_gnnload.errors import GraphFormatError
from lightning_gnnload.ops import NULL, UNKNOWN, IdIndex


def packed(texts: list[bytes], dtype: type = np.int64) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]).astype(dtype)


def index_of(*ids: np.ndarray, key: int = 3) -> IdIndex:
    index = IdIndex(*ids, key=key)
    half = index.num_ids // 2
    index.add(half)
    index.add(index.num_ids)
    return index


def wanted_rows(ids: list, keys: list) -> tuple[list[int], list[tuple[int, int]]]:
    """The rows of keys, and which rows repeat which, by a dict."""
    first: dict = {}
    repeats = [(row, first[each]) for row, each in enumerate(ids) if first.setdefault(each, row) != row]
    return [first.get(each, UNKNOWN) for each in keys], repeats


@pytest.mark.parametrize("offsets", [np.int32, np.int64])
@pytest.mark.parametrize("alphabet", [2, 256])
def test_texts_of_all_lengths_are_found_and_no_others(offsets, alphabet):
    # Of two letters and up to 40 of them: many that differ in one byte alone, at every place that a hash reads from.
    rng = np.random.default_rng(alphabet)
    words = [bytes(rng.integers(0, alphabet, rng.integers(0, 40)).astype(np.uint8)) for _ in range(3000)]
    keys = words[::2] + [word[:-1] + b"\xff" for word in words if word] + [b"\0" * k for k in range(70)]
    rows, repeats = wanted_rows(words, keys)
    index = index_of(*packed(words))
    found = index.find(*packed(keys, offsets))
    assert found.rows.tolist() == rows
    assert (found.num_unknown, found.num_null) == (rows.count(UNKNOWN), 0)
    assert list(zip(*index.repeats(), strict=True)) == repeats


def test_integers_are_found_and_no_others():
    rng = np.random.default_rng(1)
    ids = np.concatenate([rng.integers(-(2**63), 2**63, 2000), rng.integers(-50, 50, 500), [2**63 - 1, -(2**63)]])
    keys = np.concatenate([ids[::3], ids[:900] ^ (1 << 62), ids[:900] + 1])
    rows, repeats = wanted_rows(ids.tolist(), keys.tolist())
    index = index_of(ids)
    assert index.find(keys).rows.tolist() == rows
    assert list(zip(*index.repeats(), strict=True)) == repeats


@pytest.mark.parametrize("key", [0, 1, 2**64 - 1])
def test_what_is_found_does_not_depend_on_the_key(key):
    words = [b"%d" % (number % 700) for number in range(1000)]
    index = index_of(*packed(words), key=key)
    assert index.find(*packed(words)).rows.tolist() == wanted_rows(words, words)[0]
    assert len(index.repeats()[0]) == 300


def hash_of(value: int, key: int) -> int:
    """The hash of an integer, as ``kernels/ids`` makes it."""
    words = []
    for _ in range(3):
        key = (key + 0x9E3779B97F4A7C15) % 2**64
        mixed = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        words.append(mixed ^ mixed >> 31)
    for word, other in ((words[0], words[1]), (0, words[2])):
        product = (value ^ word) * other
        value = product % 2**64 ^ product >> 64
    return value


def test_equal_hashes_are_told_apart_by_the_ids_themselves():
    # All 32 bits that a slot keeps of a hash are equal for some pairs of so many, and so is the slot for half of these.
    seen: dict[tuple[int, int], int] = {}
    pairs = []
    for value in range(1 << 18):
        hashed = hash_of(value, key=3)
        place = hashed % 2**32, hashed >> 63
        pairs += [(seen[place], value)] if place in seen else []
        seen[place] = value
    assert pairs
    for one, other in pairs:
        index = index_of(np.array([one]))  # of two slots
        assert index.find(np.array([other, one])).rows.tolist() == [UNKNOWN, 0]
        assert [rows.tolist() for rows in index_of(np.array([one, other, other])).repeats()] == [[2], [1]]


def test_missing_keys_are_null_and_what_stands_in_their_place_is_not_looked_at():
    index = index_of(np.array([7, 8]))
    found = index.find(np.array([8, 7, 9]), is_null=np.array([False, True, True]))
    assert found.rows.tolist() == [1, NULL, NULL]
    assert (found.num_unknown, found.num_null) == (0, 2)


def test_rows_that_are_not_added_are_not_found():
    index = IdIndex(np.array([7, 8]))
    index.add(1)
    assert index.find(np.array([7, 8])).rows.tolist() == [0, UNKNOWN]


def test_a_slice_of_arrows_offsets_begins_anywhere():
    values, offsets = packed([b"a", b"bb", b"ccc"])
    index = index_of(values, offsets)
    assert index.find(values, offsets[1:].astype(np.int32)).rows.tolist() == [1, 2]


def test_none_at_all():
    index = index_of(*packed([]))
    assert index.find(*packed([b"", b"a"])).rows.tolist() == [UNKNOWN, UNKNOWN]
    assert index_of(np.empty(0, np.int64)).find(np.empty(0, np.int64)).rows.tolist() == []


def test_threads_find_at_once():
    words = [b"%x" % number for number in range(20_000)]
    index = index_of(*packed(words))
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: index.find(*packed(words)), range(8)):
            np.testing.assert_array_equal(found.rows, np.arange(len(words)))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2, 1], "id 1 lies from byte 2 to 1 of 3"),
        ([0, 2, 4], "id 1 lies from byte 2 to 4 of 3"),
        ([-1, 2, 3], "id 0 lies from byte -1 to 2 of 3"),
    ],
)
def test_offsets_outside_the_bytes_are_refused(offsets, message):
    values = np.zeros(3, np.uint8)
    with pytest.raises(GraphFormatError, match=message):
        IdIndex(values, np.array(offsets)).add(2)
    with pytest.raises(GraphFormatError, match=message):
        index_of(*packed([b"a"])).find(values, np.array(offsets, np.int32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.find(np.array([1.0])), "keys has dtype float64"),
        (lambda index: index.find(*packed([b"a"])), "the ids are numbers and the keys are bytes"),
        (lambda index: index.find(np.array([1]), is_null=np.array([True, False])), "2 entries for 1 keys"),
        (lambda index: index.add(5), "end is 5, but must lie in"),
        (lambda index: index.add(1), "end is 1, but must lie in"),
    ],
)
def test_what_kernels_do_not_take_is_refused(call, message):
    with pytest.raises(GraphFormatError, match=message):
        call(index_of(np.array([3, 4])))
