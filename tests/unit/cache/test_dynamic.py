"""A dynamic cache gives the rows of the store behind, for any levels and threads; it counts where they came from."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload import DiskFeatureStore, FeatureStore, MemoryFeatureStore, ops, save_features
from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.dynamic import DynamicCache, SharedSlots
from lightning_gnnload.cache.static import StaticCache
from lightning_gnnload.data.features import Reads, TierReads, byte_rows
from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError, SeedError
from lightning_gnnload.host.locks import SharedLock
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.ops import EVICTIONS
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from tests.oracle import CACHE_MODELS
from tests.unit.cache.ranks import together
from tests.unit.toy import content, toy_data, toy_source, toy_workload

NUM_NODES, WIDTH = 60, 5


def rows_of(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(NUM_NODES * WIDTH).view(NUM_NODES, WIDTH).to(dtype)


def random_ids(rng: np.random.Generator, count: int) -> torch.Tensor:
    return torch.from_numpy((NUM_NODES * rng.random(count) ** 3).astype(np.int64))


class FailingStore(MemoryFeatureStore):
    """Counts nothing; breaks off a gather in its middle when told to."""

    fails = False

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        if self.fails:
            super().gather_at(ids[: len(ids) // 2], positions[: len(ids) // 2], out)
            raise OSError("the disk is gone")
        super().gather_at(ids, positions, out)
        return ()


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), num_slots=st.integers(1, NUM_NODES))
def test_rows_and_counts_of_any_trace(eviction, dtype, seed, num_slots):
    """Repeated ids, empty batches, batches of more misses than slots; hits are those of the plain model."""
    rng, table = np.random.default_rng(seed), rows_of(dtype)
    cache, model = DynamicCache(MemoryFeatureStore(table), num_slots, eviction), CACHE_MODELS[eviction](num_slots)
    row_bytes = WIDTH * dtype.itemsize
    for count in rng.integers(0, 40, 10):
        ids, out = random_ids(rng, count), torch.empty(count, WIDTH, dtype=dtype)
        hits = model.visit(ids.tolist())
        num_hits = sum(node in hits for node in ids.tolist())
        reads = cache.gather(ids, out)
        assert torch.equal(out, table[ids])
        assert reads[0] == TierReads("cache", num_hits, num_hits * row_bytes)
        num_missed = count - num_hits
        assert reads[1:] == ((TierReads("memory", num_missed, num_missed * row_bytes),) if num_missed else ())


def test_rows_go_to_their_positions_and_nowhere_else():
    cache, table = DynamicCache(MemoryFeatureStore(rows_of()), 10), rows_of()
    for _ in range(2):  # all missed, all hit
        out = torch.full((8, WIDTH), -1.0)
        cache.gather_at(torch.tensor([3, 50, 7]), torch.tensor([6, 0, 2]), out)
        assert torch.equal(out[[6, 0, 2]], table[[3, 50, 7]])
        assert bool((out[[1, 3, 4, 5, 7]] == -1).all())


@pytest.mark.parametrize("behind", ["dynamic", "static"])
@pytest.mark.parametrize("eviction", EVICTIONS)
def test_two_levels(behind, eviction):
    """What the first level misses is asked of the second alone, whose counts stand beside the first's."""
    store, table, rng = MemoryFeatureStore(rows_of()), rows_of(), np.random.default_rng(0)
    if behind == "dynamic":
        second: FeatureStore = DynamicCache(store, 30, "fifo", tier="cache 2")
    else:
        location = np.full(NUM_NODES, -1, np.int32)
        location[:30] = np.arange(30)
        second = StaticCache(store, location, [byte_rows(table[:30])], tier="cache 2")
    cache = DynamicCache(second, 10, eviction)
    total: dict[str, int] = {}
    for _ in range(100):
        ids, out = random_ids(rng, 20), torch.empty(20, WIDTH)
        reads = cache.gather(ids, out)
        assert torch.equal(out, table[ids])
        assert sum(read.rows for read in reads) == 20
        for tier, rows, _ in reads:
            total[tier] = total.get(tier, 0) + rows
    assert list(total) == ["cache", "cache 2", "memory"]
    assert min(total.values()) > 100  # each tier took part


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_threads_at_once(eviction):
    """Of two levels that both evict all the time: a slot that changes under a reader gives a wrong row."""
    table = torch.arange(400).repeat_interleave(64).view(400, 64)
    cache = DynamicCache(DynamicCache(MemoryFeatureStore(table), 80, eviction, tier="cache 2"), 20, eviction)
    wrong: list[torch.Tensor] = []

    def work(seed: int) -> None:
        rng, out = np.random.default_rng(seed), torch.empty(100, 64, dtype=torch.int64)
        for _ in range(100):
            ids = torch.from_numpy((400 * rng.random(100) ** 3).astype(np.int64))
            cache.gather(ids, out)
            if not torch.equal(out, table[ids]):
                wrong.append(ids)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_gather_that_fails_admits_nothing():
    store = FailingStore(rows_of())
    cache, out = DynamicCache(store, 20), torch.zeros(10, WIDTH)
    cache.gather(torch.arange(5), out[:5])
    store.fails = True
    with pytest.raises(OSError, match="the disk is gone"):
        cache.gather(torch.arange(10), out)
    store.fails = False
    reads = cache.gather(torch.arange(10), out)
    assert torch.equal(out, rows_of()[:10])
    assert reads == (TierReads("cache", 5, 100), TierReads("store", 5, 100))  # of a store that does not count


def test_bad_ids_are_refused_and_admit_nothing():
    cache, out = DynamicCache(MemoryFeatureStore(rows_of()), 20), torch.zeros(2, WIDTH)
    for bad in (-1, NUM_NODES, 2**62):
        with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}"):
            cache.gather(torch.tensor([0, bad]), out)
    assert cache.gather(torch.tensor([0, 1]), out)[0].rows == 0


def test_rows_of_no_width():
    cache = DynamicCache(MemoryFeatureStore(torch.empty(9, 0)), 3)
    assert [cache.gather(torch.arange(2), torch.empty(2, 0))[0].rows for _ in range(2)] == [0, 2]


def test_mini_batches_are_the_same_through_a_cache():
    data = toy_data()
    plain = toy_source(data)
    cached = BatchSource(data, plain.workload, {"x": DynamicCache(data.x, 40)})
    tiers: set[str] = set()
    for request in plain.workload.requests(0):
        slots = Slot(), Slot()
        payloads = [source.make(request, slot) for source, slot in zip((plain, cached), slots, strict=True)]
        batches = [payload.view(slot.array) for payload, slot in zip(payloads, slots, strict=True)]
        assert content(batches[0]) == content(batches[1])
        tiers |= {read.tier for read in payloads[1].reads}
    assert tiers == {"cache", "memory"}


@pytest.mark.parametrize(
    ("num_slots", "eviction", "error", "message"),
    [
        (0, "fifo", CacheTooSmallError, "num_slots is 0"),
        (NUM_NODES + 1, "fifo", CacheConfigError, "61, but the store behind has 60 rows only"),
        (5, "lfu", CacheConfigError, "eviction='lfu' is not known"),
    ],
)
def test_settings_that_cannot_work(num_slots, eviction, error, message):
    with pytest.raises(error, match=message):
        DynamicCache(MemoryFeatureStore(rows_of()), num_slots, eviction)


def test_two_levels_in_front_of_a_disk(tmp_path):
    """A row that either level holds is not read from the disk again."""
    save_features(rows_of(), tmp_path / "x", progress=False)
    with closing(DiskFeatureStore(tmp_path / "x")) as disk:
        cache = DynamicCache(DynamicCache(disk, NUM_NODES, tier="cache 2"), 5, "clock")
        rows: dict[str, int] = {}
        for seed in range(4):
            ids = torch.from_numpy(np.random.default_rng(seed).permutation(NUM_NODES))
            out = torch.empty(NUM_NODES, WIDTH)
            for tier, count, _ in cache.gather(ids, out):
                rows[tier] = rows.get(tier, 0) + count
            assert torch.equal(out, rows_of()[ids])
    assert rows["disk"] == NUM_NODES
    assert rows["cache"] == 3 * 5


def opened_together(count: int, policy: str, table: torch.Tensor, ratio: float) -> list[DynamicCache]:
    settings = FeatureCache(policy, ratio=ratio, share="partitioned")
    workload = toy_workload(toy_data(len(table)))
    return together(
        count,
        lambda member: settings.open(MemoryFeatureStore(table), workload, membership=member, progress=False),
    )


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_ranks_fill_one_cache_that_all_hit(eviction):
    table = torch.arange(300.0).repeat_interleave(4).view(300, 4)
    caches, model, rng = opened_together(3, eviction, table, 0.2), CACHE_MODELS[eviction](60), np.random.default_rng(0)
    for turn in range(60):
        ids, out = torch.from_numpy((300 * rng.random(40) ** 3).astype(np.int64)), torch.empty(40, 4)
        hits = model.visit(ids.tolist())  # of all ranks' batches, as if one had gathered them
        reads = caches[turn % 3].gather(ids, out)
        assert torch.equal(out, table[ids])
        assert reads[0].rows == sum(node in hits for node in ids.tolist())
    for cache in caches:
        assert set(np.flatnonzero(cache._cache.contains(np.arange(300))).tolist()) == model.nodes
        cache.close()


WIDE = torch.arange(400).repeat_interleave(256).view(400, 256)


@contextmanager
def sharing_processes(count: int, eviction: str) -> Iterator[list[tuple[DynamicCache, np.ndarray]]]:
    """A cache for each of some processes, which are forked in here, and the memory that they share.

    They compute with one thread of torch's: a fork waits for ever for those that its parent had.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    store = MemoryFeatureStore(WIDE)
    file = MemoryFile.create(
        "test", ops.EvictingSlots.block_bytes(400, 40, store.row_bytes, eviction), open_to_all=True
    )
    locks = [SharedLock.create()]
    locks += [SharedLock(os.dup(locks[0].fd)) for _ in range(count - 1)]
    try:
        yield [(DynamicCache(store, 40, eviction, slots=SharedSlots(file.array, lock)), file.array) for lock in locks]
    finally:
        torch.set_num_threads(num_threads)
        for lock in locks:
            lock.close()
        file.close()


def gather_wide(cache: DynamicCache, seed: int, num_batches: int) -> bool:
    """Gathers at random; whether all rows were right."""
    rng, out = np.random.default_rng(seed), torch.empty(100, 256, dtype=torch.int64)
    for _ in range(num_batches):
        ids = torch.from_numpy((400 * rng.random(100) ** 3).astype(np.int64))
        cache.gather(ids, out)
        if not torch.equal(out, WIDE[ids]):
            return False
    return True


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_processes_at_once(eviction):
    """A slot that changed while another process read it would give a wrong row."""
    with sharing_processes(3, eviction) as ((mine, _), *others):
        children = []
        for seed, (cache, _) in enumerate(others):
            if (child := os.fork()) == 0:
                os._exit(0 if gather_wide(cache, seed, 150) else 1)
            children.append(child)
        assert gather_wide(mine, 9, 150)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_killed_amid_an_admission_it_locks_nobody_out_and_leaves_no_wrong_row(eviction):
    with sharing_processes(2, eviction) as ((mine, _), (theirs, memory)):

        def kill_myself(*_: object) -> None:
            memory[:] = 255  # rows and tables alike
            memory[:8] = 0  # as an admission begins: kernels/dynamic_cache/dynamic_cache.h
            os.kill(os.getpid(), signal.SIGKILL)

        if (child := os.fork()) == 0:
            gather_wide(theirs, 0, 3)
            theirs._cache.admit = kill_myself  # called with the lock held
            gather_wide(theirs, 1, 1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert gather_wide(mine, 2, 5)
        assert mine.gather(torch.arange(10), torch.empty(10, 256, dtype=torch.int64))[0].rows > 0
        for turn in range(4):
            if (child := os.fork()) == 0:
                gather_wide(theirs, turn, 10**6)
            time.sleep(0.02 + 0.005 * turn)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert gather_wide(mine, turn, 20)
