"""FeatureCache.open, by a rank alone."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import MemoryFeatureStore
from lightning_gnnload.cache.budget import Allowance
from lightning_gnnload.cache.cache import FeatureCache, open_all
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.cache.rules import Degree, Recorded
from lightning_gnnload.cache.static import StaticCache
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError, SeedError
from tests.unit.toy import toy_data, toy_workload

N = 300


class FarStore(FeatureStore):
    """Not in memory, as far as a cache can know; records what it is asked for."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows, self.asked, self.announced, self.closed = rows, [], [], False

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.rows.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        self.asked.extend(ids.tolist())
        out[:] = self.rows[ids]
        return (TierReads("far", len(ids), 7 * len(ids)),)

    def announce(self, request: BatchRequest) -> None:
        self.announced.append(request)

    def close(self) -> None:
        self.closed = True


class ById(CachePolicy):
    """The higher the id, the hotter."""

    def hotness(self, workload, epoch) -> np.ndarray:
        return np.arange(workload.graph.num_nodes)


def rows_of(dtype: torch.dtype = torch.float32, width: int = 5) -> torch.Tensor:
    return torch.randn(N, width, generator=torch.Generator().manual_seed(0)).mul(50).to(dtype)


def opened(store: FeatureStore, policy=None, **settings) -> FeatureStore:
    settings = settings or {"ratio": 0.1}
    return FeatureCache(policy or ById(), **settings).open(store, toy_workload(), progress=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8])
@pytest.mark.parametrize("kind", [MemoryFeatureStore, FarStore])
@pytest.mark.parametrize("width", [0, 1, 5, 64])
def test_gathered_rows_are_the_stores(dtype: torch.dtype, kind, width: int) -> None:
    rows = rows_of(dtype, width)
    cache = opened(kind(rows))
    assert (cache.shape, cache.dtype) == ((N, width), dtype)
    for count in (0, 1, 40, 200, 7):
        ids = torch.randint(0, N, (count,), generator=torch.Generator().manual_seed(count))
        out = torch.full((count, width), 3, dtype=dtype)
        reads = cache.gather(ids, out)
        assert torch.equal(out, rows[ids])
        assert reads[0].tier == "cache"
        assert sum(read.rows for read in reads) == count
        assert reads[0].rows == int((ids >= N - 30).sum())  # the hottest tenth, no more and no less
        assert reads[0].num_bytes == reads[0].rows * width * dtype.itemsize


def test_rows_of_several_pieces_that_are_filled_in_turn() -> None:
    rows = rows_of(width=1 << 14)  # 20 MB, of which 16 MiB are one piece
    cache = opened(FarStore(rows), ratio=1.0)
    out = torch.empty_like(rows)
    assert cache.gather(torch.arange(N), out)[0].rows == N
    assert torch.equal(out, rows)


@pytest.mark.parametrize("kind", [MemoryFeatureStore, FarStore])
def test_rows_go_to_positions_and_others_stay(kind) -> None:
    rows = rows_of()
    ids, positions = torch.tensor([299, 3, 280, 4]), torch.tensor([5, 0, 1, 3])
    out = torch.full((7, 5), 9.0)
    opened(kind(rows)).gather_at(ids, positions, out)
    wanted = torch.full((7, 5), 9.0)
    wanted[positions] = rows[ids]
    assert torch.equal(out, wanted)


def test_the_store_behind_is_asked_for_misses_alone_and_told_what_comes() -> None:
    store = FarStore(rows_of())
    cache = opened(store)
    store.asked.clear()
    reads = cache.gather(torch.tensor([299, 3, 280, 4, 3]), torch.empty(5, 5))
    assert store.asked == [3, 4, 3]
    assert reads == (TierReads("cache", 2, 40), TierReads("far", 3, 21))
    cache.announce(request := BatchRequest(0, 1, 0, 1))
    assert store.announced == [request]
    cache.close()
    assert not store.closed


@pytest.mark.parametrize("kind", [MemoryFeatureStore, FarStore])
@pytest.mark.parametrize("bad", [-1, N, 2**40])
def test_an_id_outside_the_table_is_refused(kind, bad: int) -> None:
    with pytest.raises(SeedError, match=str(bad)):
        opened(kind(rows_of())).gather(torch.tensor([299, bad]), torch.empty(2, 5))


@pytest.mark.parametrize(
    ("settings", "num_rows"),
    [
        ({"ratio": 0.29}, 87),  # 0.29 * 300 is 86.99999999999999
        ({"ratio": 1.0}, N),
        ({"ratio": 1}, N),
        ({"ratio": 0.0}, 0),
        ({"capacity_bytes": 0}, 0),
        ({"capacity_bytes": 4 * N + 20}, 1),
        ({"capacity_bytes": 4 * N + 20 * 8 - 1}, 7),
        ({"capacity_bytes": 10**6}, N),
        ({"capacity_bytes": 4 * N + 20 * 8, "ratio": 0.5}, 8),
        ({"capacity_bytes": 4 * N + 20 * 8, "ratio": 0.01}, 3),
        ({}, N),
    ],
)
def test_as_many_rows_as_were_asked_for(settings: dict, num_rows: int) -> None:
    cache = FeatureCache(ById(), **settings).open(FarStore(rows_of()), toy_workload(), progress=False)
    reads = cache.gather(torch.arange(N), torch.empty(N, 5))
    assert sum(read.rows for read in reads if read.tier == "cache") == num_rows


@pytest.mark.parametrize("settings", [{"ratio": 0.003}, {"capacity_bytes": 4 * N + 19}, {"capacity_bytes": 1}])
def test_room_for_no_row_is_an_error(settings: dict) -> None:
    with pytest.raises(CacheTooSmallError, match=r"1\.2 KiB.*20 B"):
        opened(FarStore(rows_of()), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 1.1}, "ratio=1.1"),
        ({"ratio": -0.1}, "ratio=-0.1"),
        ({"ratio": float("nan")}, "ratio=nan"),
        ({"ratio": "0.1"}, "ratio='0.1'"),
        ({"ratio": True}, "ratio=True"),
        ({"capacity_bytes": -1}, "capacity_bytes=-1"),
        ({"capacity_bytes": 1e9}, "capacity_bytes=1000000000.0.*whole number"),
        ({"share": "some"}, "share='some'"),
        ({"copied": 1.5}, "copied=1.5"),
        ({"copied": True}, "copied=True"),
        ({"copied": 0.5, "share": "replicated"}, "share='replicated' says it of all"),
        ({"copied": 0.5, "policy": "clairvoyant"}, "policy='clairvoyant' replaces its rows"),
        ({"copied": 0.5, "policy": "fifo"}, "policy='fifo' replaces its rows"),
        ({"policy": "lru"}, "'lru'.*'presample'"),
        ({"policy": "clairvoyant", "window": 0}, "window"),
        ({"policy": "presample", "window": 3}, "window=3 is for policy='clairvoyant'"),
        ({"policy": "fifo", "window": 3}, "window=3 is for policy='clairvoyant'"),
        ({"policy": "belady", "share": "partitioned"}, "each rank looks ahead for itself"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(settings: dict, message: str) -> None:
    with pytest.raises(CacheConfigError, match=message):
        FeatureCache(**settings)


def test_more_than_the_machine_has_is_refused() -> None:
    huge = FarStore(torch.empty(1, 1).expand(2**37, 1))
    with pytest.raises(CacheConfigError, match=r"TiB.*of free memory"):
        FeatureCache(ById(), ratio=1.0).open(huge, toy_workload(), progress=False)


@pytest.mark.parametrize("rule", ["fifo", "clock", "s3fifo", "belady"])
def test_rules_of_eviction_take_no_more_than_was_asked_for(rule: str) -> None:
    capacity = 4 * N + 40 * 20
    cache = FeatureCache(rule, capacity_bytes=capacity).open(FarStore(rows_of()), toy_workload(), progress=False)
    for step in range(3):
        out = torch.empty(N, 5)
        cache.announce(BatchRequest(0, step, 0, 1))
        cache.gather(torch.arange(N), out)
        assert torch.equal(out, rows_of())
    assert 0.8 * capacity < cache.num_bytes <= capacity
    cache.close()


def test_bad_hotness_is_refused() -> None:
    class Undefined(CachePolicy):
        def hotness(self, workload, epoch) -> np.ndarray:
            return np.full(N, np.nan)

    with pytest.raises(CacheConfigError, match="node 0 is nan"):
        opened(FarStore(rows_of()), Undefined())


def test_how_much_and_why_is_said_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    FeatureCache("degree", ratio=0.1).open(FarStore(rows_of()), toy_workload())
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "degree" in line]
    assert line == "Feature cache by 'degree': 30 rows, 1.8 KiB with their index: ratio=0.1 of 300 rows"


def test_levels_ask_each_other_and_have_names_of_their_own() -> None:
    store, rows = FarStore(rows_of()), rows_of()
    levels = [FeatureCache(ById(), ratio=0.1), FeatureCache(ById(), ratio=0.5)]
    cache = open_all(levels, store, toy_workload(), progress=False)
    store.asked.clear()
    out = torch.empty(N, 5)
    reads = cache.gather(torch.arange(N), out)
    # Those of the second are the next hottest: nobody asks it for what the first one holds.
    assert [(read.tier, read.rows) for read in reads] == [("cache", 30), ("cache 2", 150), ("far", 120)]
    assert sorted(store.asked) == list(range(120))
    assert torch.equal(out, rows)
    cache.close()
    assert not store.closed


@pytest.mark.parametrize(
    ("levels", "rows"),
    [
        ([("degree", 0.1), ("random", 0.2), ("degree", 0.3)], [30, 60, 90]),  # by rankings that differ
        ([("degree", 0.7), ("degree", 0.6)], [210, 90]),  # more than there are rows
        ([("degree", 1.0), ("random", 0.5)], [300]),
        ([("degree", 0.1), ("fifo", 0.2), ("degree", 0.3)], [30, 0, 90]),
    ],
)
def test_levels_hold_no_row_twice(levels, rows) -> None:
    store = FarStore(rows_of())
    settings = [FeatureCache(policy, ratio=ratio) for policy, ratio in levels]
    cache = open_all(settings, store, toy_workload(), progress=False)
    out = torch.empty(N, 5)
    reads = cache.gather(torch.arange(N), out)
    assert [read.rows for read in reads if read.tier.startswith("cache")] == rows
    assert sum(read.rows for read in reads) == N
    assert torch.equal(out, rows_of())
    held = [each.location >= 0 for each in cache.caches if isinstance(each, StaticCache)]
    assert np.sum(held, axis=0).max() == 1
    cache.close()


def test_levels_say_what_each_gives_and_share_the_memory(capfd, monkeypatch) -> None:
    store, index, row = FarStore(rows_of()), 4 * N, 20
    for module in ("budget", "builder"):
        monkeypatch.setattr(f"lightning_gnnload.cache.{module}.free_bytes", lambda: 4 * (index + 50 * row))
    hotness = Recorded(np.repeat([8, 4, 2, 1], N // 4))
    cache = open_all([FeatureCache(hotness), FeatureCache(hotness, ratio=0.25)], store, toy_workload())
    near, far = [line for line in capfd.readouterr().err.splitlines() if "Feature cache" in line]
    assert "50 rows, 2.1 KiB with their index: 25% of 8.6 KiB of free memory" in near
    assert "75 rows" in far
    for line in (near, far):  # 50 rows of 8 visits; 25 of 8 and 50 of 4
        assert line.endswith("expected to give 36% of the rows that are read")
    cache.close()
    # Beside the first there is no room for all rows.
    with pytest.raises(CacheConfigError, match=r"would take 7\.0 KiB .*, but the machine has 6\.4 KiB of free memory"):
        open_all([FeatureCache(hotness), FeatureCache(hotness, ratio=1.0)], store, toy_workload(), progress=False)


def test_rows_behind_are_worth_their_share_of_the_visits_that_are_left() -> None:
    hotness = Recorded(np.where(np.arange(N) < N // 10, 10**6, 1))
    cache = open_all([FeatureCache(hotness, ratio=0.1), FeatureCache(hotness)], FarStore(rows_of()), toy_workload())
    assert [int((each.location >= 0).sum()) for each in cache.caches] == [N // 10, N - N // 10]
    cache.close()


def test_no_more_memory_is_taken_than_was_asked_for() -> None:
    capacity = 24 << 20
    store = MemoryFeatureStore(torch.ones(1 << 17, 64))
    workload = toy_workload(toy_data(1 << 17, width=1))
    before = resident_bytes()
    cache = FeatureCache(ById(), capacity_bytes=capacity).open(store, workload, progress=False)
    assert capacity - 256 <= cache.location.nbytes + sum(shard.nbytes for shard in cache.shards) <= capacity
    assert capacity * 0.9 < resident_bytes() - before < capacity + (2 << 20)  # what Python keeps for later


def resident_bytes() -> int:
    (rss,) = re.findall(r"^Rss:\s+(\d+) kB$", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    return int(rss) << 10


def test_threads_gather_at_once() -> None:
    rows = rows_of()
    cache, wrong = opened(FarStore(rows)), []

    def gather(seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for count in range(1, 200):
            ids = torch.randint(0, N, (count,), generator=draw)
            out = torch.empty(count, 5)
            cache.gather(ids, out)
            if not torch.equal(out, rows[ids]):
                wrong.append((seed, count))

    threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_policy_that_raises_is_named() -> None:
    class Broken(CachePolicy):
        def hotness(self, workload, epoch):
            raise ZeroDivisionError("of no use")

    data = toy_data()
    with pytest.raises(CacheConfigError, match="cannot rank the rows: ZeroDivisionError: of no use"):
        FeatureCache(Broken(), ratio=0.5).open(data.x, toy_workload(data), progress=False)


@pytest.mark.parametrize(("left", "tier"), [(300 * 20, "memory"), (300 * 20 - 1, "cache"), (None, "cache")])
def test_a_mapped_file_gets_no_cache_where_memory_has_room_for_all_of_it(
    tmp_path: Path, left: int | None, tier: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones((300, 5), np.float32))
    table = MemoryFeatureStore(np.load(tmp_path / "x.npy", mmap_mode="r"))
    allowed = None if left is None else Allowance(left, 1, "measured")
    hot = Degree().hotness(toy_workload(), 0).argmax()
    opened = FeatureCache("degree").open(table, toy_workload(), progress=False, left=allowed)
    reads = opened.gather(torch.tensor([int(hot)]), torch.empty(1, 5))
    assert reads is not None
    assert [read.tier for read in reads if read.rows] == [tier]
