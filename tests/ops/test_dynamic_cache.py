"""Which rows a dynamic cache holds equals a plain model, batch by batch; its rows are those of their nodes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import CacheConfigError, GnnLoadError, SeedError
from lightning_gnnload.ops import EVICTIONS, SLOT_BYTES, EvictingSlots
from tests.oracle import CACHE_MODELS

NUM_NODES = 40


@st.composite
def traces(draw: st.DrawFn) -> list[list[int]]:
    """Batches that repeat some nodes, skewed to low ids, so that some are visited often."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    skew = draw(st.sampled_from([1.0, 2.0, 4.0]))
    sizes = draw(st.lists(st.integers(0, 30), max_size=30))
    return [(NUM_NODES * rng.random(size) ** skew).astype(int).tolist() for size in sizes]


@pytest.mark.parametrize("eviction", EVICTIONS)
@settings(max_examples=150)
@given(batches=traces(), num_slots=st.integers(1, NUM_NODES))
def test_hits_equal_the_models(eviction, batches, num_slots):
    """Of each batch, and at its end what is cached: any other victim, mark or memory of one shows."""
    model, cache = CACHE_MODELS[eviction](num_slots), EvictingSlots(NUM_NODES, num_slots, 0, eviction)
    for batch in batches:
        hits = model.visit(batch)
        assert cache.visit(np.array(batch, np.int64)) == sum(node in hits for node in batch)
        assert set(np.flatnonzero(cache.contains(np.arange(NUM_NODES))).tolist()) == model.nodes


@pytest.mark.parametrize("eviction", EVICTIONS)
@settings(max_examples=60)
@given(batches=traces(), num_slots=st.integers(1, NUM_NODES), shuffled=st.booleans())
def test_read_and_admit_are_visits_with_rows(eviction, batches, num_slots, shuffled):
    """The same nodes are there, and a row that is there is the node's; others' places are left alone."""
    table = np.arange(NUM_NODES * 3, dtype=np.float32).reshape(-1, 3)
    model, cache = CACHE_MODELS[eviction](num_slots), EvictingSlots(NUM_NODES, num_slots, 12, eviction)
    rng = np.random.default_rng(0)
    for batch in batches:
        ids, out = np.array(batch, np.int64), np.full((len(batch) + 2, 3), -1, np.float32)
        positions = rng.permutation(len(out))[: len(ids)] if shuffled else np.arange(len(ids))
        missed = np.empty((2, len(ids)), np.int64)
        num_hits = cache.read(ids, out, *missed, positions)
        hits = model.visit(batch)
        is_hit = np.array([node in hits for node in batch], bool)
        wanted = np.full_like(out, -1)
        wanted[positions[is_hit]] = table[ids[is_hit]]
        np.testing.assert_array_equal(out, wanted)
        assert num_hits == is_hit.sum()
        missed = missed[:, : len(ids) - num_hits]
        np.testing.assert_array_equal(missed, [ids[~is_hit], positions[~is_hit]])
        out[missed[1]] = table[missed[0]]
        cache.admit(missed[0], out, missed[1])
        assert set(np.flatnonzero(cache.contains(np.arange(NUM_NODES))).tolist()) == model.nodes


def test_who_another_thread_admitted_is_not_admitted_again():
    cache = EvictingSlots(10, 2, 8, "fifo")
    out = np.array([[1], [2], [3]])
    cache.admit(np.array([1, 2]), out, np.array([0, 1]))
    cache.admit(np.array([1]), out, np.array([0]))  # would be the youngest, if it counted
    cache.admit(np.array([3]), out, np.array([2]))
    assert cache.contains(np.arange(4)).tolist() == [False, False, True, True]


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_threads_read_whole_rows_of_their_nodes(eviction):
    """Four threads on 64 slots: a slot that changed while it was read would hold a mix, or another node's row."""
    num_nodes, width, count = 500, 512, 300  # rows of 4 KB, so that calls last long enough to be interrupted
    cache = EvictingSlots(num_nodes, 64, 8 * width, eviction)
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        missed, out = np.empty((2, count), np.int64), np.empty((count, width), np.int64)
        for _ in range(100):
            ids = (num_nodes * rng.random(count) ** 4).astype(np.int64)
            num_missed = count - cache.read(ids, out, *missed)
            ids_missed, positions = missed[:, :num_missed]
            out[positions] = ids_missed[:, None]
            cache.admit(ids_missed, out, positions)
            if not np.array_equal(out, np.broadcast_to(ids[:, None], out.shape)):
                wrong.append(ids)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_s3fifo_keeps_who_comes_again_from_a_flood_of_those_who_come_once():
    """What the small queue is for: the others hold none of the four after a flood of as many as there are slots."""
    kept = {}
    for eviction in ("fifo", "clock", "s3fifo"):
        cache = EvictingSlots(1000, 40, 0, eviction)
        for turn in range(20):
            cache.visit(np.arange(4))
            cache.visit(np.arange(100 + 40 * turn, 140 + 40 * turn))
        kept[eviction] = int(cache.contains(np.arange(4)).sum())
    assert kept == {"fifo": 0, "clock": 0, "s3fifo": 4}


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("num_slots", [1, 9, 10, 1000])
def test_memory_is_what_was_said(eviction, num_slots):
    num_bytes = EvictingSlots(3000, num_slots, 512, eviction).num_bytes
    most = 3000 * 4 + num_slots * (512 + SLOT_BYTES[eviction])
    assert most - 8 * (num_slots // 10 + 1) <= num_bytes <= most


@pytest.mark.parametrize("bad", [-1, 10, 2**63 - 1, -(2**63)])
def test_bad_ids_and_positions_change_nothing(bad):
    cache = EvictingSlots(10, 4, 8, "clock")
    out, missed = np.zeros((3, 1)), np.empty((2, 3), np.int64)
    ids, positions = np.array([1, bad, 2]), np.array([0, 1, 2])
    with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}"):
        cache.read(ids, out, *missed)
    with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}"):
        cache.admit(ids, out, positions)
    with pytest.raises(SeedError, match=r"positions\[0\] is"):
        cache.admit(positions, out, ids[[1, 0, 2]])
    with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}"):
        cache.contains(ids)
    with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}"):
        EvictingSlots(10, 4, 0, "clock").visit(ids)
    assert not cache.contains(np.arange(10)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_slots": 0}, r"num_slots is 0, but must lie in \[1, 268435456\]"),
        ({"num_slots": 2.5}, "num_slots is 2.5"),
        ({"num_nodes": -1}, "num_nodes is -1"),
        ({"row_bytes": 2**33}, "row_bytes is"),
        ({"eviction": "lru"}, "eviction='lru' is not known; give one of fifo, clock, s3fifo"),
        ({"num_slots": 2**28, "row_bytes": 2**32}, "more than this machine gives"),
    ],
)
def test_settings_that_cannot_work(change, message):
    with pytest.raises(CacheConfigError, match=message):
        EvictingSlots(**({"num_nodes": 10, "num_slots": 4, "row_bytes": 8, "eviction": "fifo"} | change))


IDS = np.arange(2)


@pytest.mark.parametrize(
    ("out", "missed", "message"),
    [
        (np.ones((2, 2)), np.empty((2, 2), np.int64), "rows of 8 bytes are needed"),
        (np.ones((3, 1)), np.empty((2, 2), np.int64), "out has 3 rows"),
        (np.ones(2), np.empty((2, 2), np.int64), "2 dimensions"),
        (np.ones((2, 1)), np.empty((2, 1), np.int64), "missed_ids has 1 entries"),
        (np.ones((2, 1)), np.empty((2, 2), np.int32), "missed_ids has dtype"),
        (np.ones((2, 1)), [IDS, np.empty(2, np.int64)], "missed_ids and ids share memory"),
        (np.ones((2, 1)), [SAME := np.empty(2, np.int64), SAME], "missed_ids and missed_positions share memory"),
    ],
)
def test_wrong_arrays(out, missed, message):
    with pytest.raises(GnnLoadError, match=message):
        EvictingSlots(10, 4, 8, "fifo").read(IDS, out, *missed)


def test_a_cache_with_rows_is_not_simulated():
    with pytest.raises(CacheConfigError, match="row_bytes=0"):
        EvictingSlots(10, 4, 8, "fifo").visit(IDS)
