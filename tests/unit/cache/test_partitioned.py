"""A cache of several ranks: rows once on the machine, or once a rank."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload import Graph, GraphData, MemoryFeatureStore, NodeTable, ops
from lightning_gnnload.cache.cache import FeatureCache, fitting, open_all
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.policy import CachePolicy, hottest
from lightning_gnnload.cache.rules import PreSample, Recorded
from lightning_gnnload.cache.static import StaticCache, deal_to_shards
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import CacheConfigError, CacheShareError
from tests.unit.cache.ranks import together
from tests.unit.toy import toy_data, toy_workload

N = 300
ROWS = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))
HOTNESS = Recorded(np.random.default_rng(0).zipf(1.5, N).clip(max=1000))


def opened(count: int, policy: CachePolicy | str = HOTNESS, **settings) -> list[StaticCache]:
    sharer_of = settings.pop("sharer_of", None)
    cache = FeatureCache(policy, **{"ratio": 0.1, **settings})

    def work(membership: Membership) -> FeatureStore:
        store = MemoryFeatureStore(ROWS.clone())
        return cache.open(store, toy_workload(), membership=membership, sharer_of=sharer_of, progress=False)

    ends = together(count, work)
    for end in ends:
        if isinstance(end, Exception):
            raise end
    return ends


@pytest.mark.parametrize("count", [2, 3, 10])
def test_each_row_is_there_once_and_all_ranks_read_it(count: int) -> None:
    caches = opened(count)
    hot = set(hottest(HOTNESS.counts, N, 30).tolist())
    for cache in caches:
        assert set(np.flatnonzero(cache.location >= 0).tolist()) == hot
        assert sum(len(shard) for shard in cache.shards) == 30
        out = torch.empty(N, 5)
        reads = cache.gather(torch.arange(N), out)
        assert torch.equal(out, ROWS)
        assert [(read.tier, read.rows) for read in reads] == [("cache", 30), ("memory", 270)]
    # The same memory, not copies of it: none but its owner can write to it, so ask the system.
    files = [{shard_file(cache.shards[number]) for cache in caches} for number in range(len(caches[0].shards))]
    assert all(len(each) == 1 for each in files)
    assert len(set.union(*files)) == min(count, ops.MAX_SHARDS)
    for number, shard in enumerate(caches[1].shards):
        assert shard.flags.writeable == (number == 1)


def test_rows_lie_with_the_rank_that_is_to_hold_them_while_it_has_room() -> None:
    hot = hottest(HOTNESS.counts, N, 30)
    # Half of the rows are anybody's, and most of the others rank 0's.
    wanted = np.full(N, -1)
    wanted[hot[::2]] = 0
    wanted[hot[::6]] = 1
    for cache in opened(3, sharer_of=lambda rows: wanted[rows]):
        shard = cache.location[hot] >> ops.SLOT_BITS
        assert np.bincount(shard).tolist() == [10, 10, 10]
        assert (shard == wanted[hot])[wanted[hot] >= 0].all()
        out = torch.empty(N, 5)
        assert cache.gather(torch.arange(N), out)[0].rows == 30
        assert torch.equal(out, ROWS)
    [first, _] = opened(2, sharer_of=np.zeros_like)
    assert (first.location[hot] >> ops.SLOT_BITS).tolist() == 15 * [0] + 15 * [1]  # the hottest where all are wanted


def shard_file(shard: np.ndarray) -> str:
    """The inode of the mapping."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.startswith(f"{shard.ctypes.data:x}-"):
            return line.split()[4]
    raise AssertionError("no mapping begins there")


def test_every_rank_has_its_own_where_asked() -> None:
    caches = opened(3, share="replicated")
    assert len({cache.shards[0].ctypes.data for cache in caches}) == 3
    for cache in caches:
        assert torch.equal(torch.from_numpy(cache.shards[0]).view(torch.float32), ROWS[cache_order()])


def cache_order() -> torch.Tensor:
    return torch.from_numpy(hottest(HOTNESS.counts, N, 30))


def test_each_rank_has_the_hottest_where_asked_and_shares_the_others() -> None:
    hot = hottest(HOTNESS.counts, N, 30)
    for cache in opened(3, copied=0.25):
        near, far = cache.caches
        assert near.location[hot[:7]].tolist() == [*range(7)]
        assert np.flatnonzero(far.location >= 0).tolist() == sorted(hot[7:].tolist())
        assert [len(shard) for shard in near.shards] == [7]
        assert sum(len(shard) for shard in far.shards) == 23
        out = torch.empty(N, 5)
        assert sum(read.rows for read in cache.gather(torch.arange(N), out) if read.tier == "cache") == 30
        assert torch.equal(out, ROWS)
        cache.close()
    # What is copied takes memory of the limit: of 40 rows, 8 are there once more, and each rank has a table of these.
    limit = 3 * 4 * N + 48 * 20
    near, far = opened(2, ratio=None, capacity_bytes=limit, copied=0.2)[0].caches
    assert (near.num_rows, far.num_rows) == (8, 32)


def test_a_rank_that_ranks_for_itself_copies_nothing_of_others() -> None:
    class Own(CachePolicy):
        is_own = True

        def hotness(self, workload, epoch) -> np.ndarray:
            return HOTNESS.counts

    with pytest.raises((CacheConfigError, CacheShareError), match=r"copied=0\.5 is for rows that ranks share"):
        opened(2, Own(), copied=0.5)
    assert [cache.num_rows for cache in opened(2, Own())] == [30, 30]


def test_one_rank_ranks_and_the_others_follow() -> None:
    asked = []

    class Counting(CachePolicy):
        def hotness(self, workload, epoch) -> np.ndarray:
            asked.append(epoch)
            return HOTNESS.counts

    opened(3, Counting())
    opened(3, Counting(), share="replicated")
    assert asked == [0, 0]


def test_a_capacity_is_the_machines() -> None:
    def num_rows(**settings) -> int:
        return opened(2, ratio=None, capacity_bytes=4 * N + 40 * 20, **settings)[0].num_rows

    assert num_rows() == 40
    assert num_rows(share="partitioned") == 40
    assert opened(2, ratio=None, capacity_bytes=2 * (4 * N + 40 * 20), share="replicated")[1].num_rows == 40


@given(
    st.lists(st.integers(0, 2**40), max_size=200),
    st.integers(1, ops.MAX_SHARDS),
)
def test_shards_carry_equal_load(loads: list[int], num_shards: int) -> None:
    loads = sorted(loads, reverse=True)
    places = deal_to_shards(len(loads), num_shards)
    shard, slot = places >> ops.SLOT_BITS, places & (1 << ops.SLOT_BITS) - 1
    sizes = np.bincount(shard, minlength=num_shards)
    assert sizes.max(initial=0) - sizes.min() <= 1
    for number in range(num_shards):
        assert sorted(slot[shard == number]) == list(range(sizes[number]))  # none twice, none left out
    carried = [
        sum(load for load, each in zip(loads, shard, strict=True) if each == number) for number in range(num_shards)
    ]
    assert max(carried) - min(carried) <= max(loads, default=0)


def test_shards_are_read_equally_often() -> None:
    # Measured: an epoch that the ranking did not see, on a graph whose hubs are read in every batch.
    num_nodes, draw = 3000, np.random.default_rng(0)
    graph = Graph.from_coo(draw.zipf(1.3, 60_000) % num_nodes, draw.integers(0, num_nodes, 60_000), num_nodes=num_nodes)
    data = GraphData(graph, torch.ones(num_nodes, 4), train=np.arange(num_nodes))
    workload = toy_workload(data, batch_size=100)
    cache = FeatureCache(PreSample(progress=False), ratio=0.1)
    ends = together(4, lambda membership: cache.open(data.x, workload, membership=membership, progress=False))
    hits = np.zeros(4)
    for request in workload.requests(epoch=0):
        places = ends[0].location[workload.nodes_of(request)]
        hits += np.bincount(places[places >= 0] >> ops.SLOT_BITS, minlength=4)
    assert hits.sum() > 3000
    assert hits.max() / hits.mean() < 1.05


@pytest.mark.parametrize("differing", ["ratio", "rows", "width", "epoch", "places"])
def test_ranks_that_open_something_else_are_told(differing: str) -> None:
    def work(membership: Membership) -> FeatureStore:
        is_other = membership.index == 1
        rows = ROWS + is_other if differing == "rows" else ROWS[:, : 5 - (is_other and differing == "width")]
        cache = FeatureCache(HOTNESS, ratio=0.2 if is_other and differing == "ratio" else 0.1)
        settings = {"epoch": int(is_other and differing == "epoch")}
        if is_other and differing == "places":
            settings["sharer_of"] = np.zeros_like
        return cache.open(MemoryFeatureStore(rows), toy_workload(), membership=membership, progress=False, **settings)

    words = {"ratio": "settings", "rows": "seed_everything", "width": "shape", "epoch": "epoch: 0 and 1"}
    word = words.get(differing, "checksum of places")
    for end in together(3, work):
        assert isinstance(end, CacheShareError)
        assert word in str(end)


def test_a_ranking_that_fails_fails_in_all_ranks() -> None:
    class Broken(CachePolicy):
        def hotness(self, workload, epoch) -> np.ndarray:
            return np.full(N, -1)

    cache = FeatureCache(Broken(), ratio=0.1)
    ends = together(3, lambda s: cache.open(MemoryFeatureStore(ROWS), toy_workload(), membership=s, progress=False))
    assert [type(end) for end in ends] == [CacheConfigError, CacheShareError, CacheShareError]
    assert all("hotness of node 0 is -1" in str(end) for end in ends)


def test_ranks_of_which_one_fails_keep_no_shared_memory() -> None:
    # Training may go on without the cache: its shards would then take memory, and be read by nobody.
    class Failing(MemoryFeatureStore):
        def gather(self, ids, out):
            if len(ids) == 40:  # its shard
                raise OSError("disk on fire")
            return super().gather(ids, out)

    def work(membership: Membership) -> FeatureStore:
        store = (Failing if membership.index == 1 else MemoryFeatureStore)(ROWS)
        return FeatureCache(HOTNESS, ratio=0.4).open(store, toy_workload(), membership=membership, progress=False)

    before = memory_files()
    assert all("disk on fire" in str(end) for end in together(3, work))
    gc.collect()  # errors know the frames that they came through
    assert memory_files() == before


def memory_files() -> int:
    """Descriptors of ours."""
    links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return sum("memfd:gnnload" in str(link.readlink()) for link in links if link.is_symlink())


def test_several_levels_are_shared_each() -> None:
    levels = [FeatureCache(HOTNESS, ratio=0.1), FeatureCache(HOTNESS, ratio=0.4)]
    ends = together(
        2, lambda s: open_all(levels, MemoryFeatureStore(ROWS), toy_workload(), membership=s, progress=False)
    )
    for cache in ends:
        out = torch.empty(N, 5)
        reads = cache.gather(torch.arange(N), out)
        assert torch.equal(out, ROWS)
        assert [(read.tier, read.rows) for read in reads] == [("cache", 30), ("cache 2", 120), ("memory", 150)]
        cache.close()


@pytest.mark.parametrize("nodes", [range(N), range(60, 260)], ids=["all nodes", "a type"])
@pytest.mark.parametrize(
    ("policy", "near", "far"),
    [
        ("presample", "replicated", "partitioned"),
        ("presample", "replicated", "replicated"),
        (Recorded(np.arange(N) % 7), "partitioned", "replicated"),
        ("clairvoyant", "replicated", "partitioned"),
    ],
)
def test_levels_hit_as_often_as_one_of_their_size(policy: str | CachePolicy, near: str, far: str, nodes: range) -> None:
    rows, workload = ROWS[nodes.start : nodes.stop], toy_workload(num_ranks=2)
    store = MemoryFeatureStore(rows)
    data = GraphData(workload.graph, tables={"t": store if len(rows) == N else NodeTable(store, nodes.start)})

    def hits(*sizes: tuple[float, str]) -> list[tuple[list[int], set[int]]]:
        """The hits of each level in an epoch, and the rows of all levels, by rank."""
        levels = fitting(
            [FeatureCache(policy, ratio=ratio, share=share) for ratio, share in sizes], data, "t", progress=False
        )

        def work(membership: Membership) -> tuple[list[int], set[int]]:
            cache = open_all(levels, store, workload, membership=membership, progress=False)
            counts = dict.fromkeys(["cache", "cache 2"], 0)
            for request in workload.requests(0):
                ids = torch.from_numpy(workload.nodes_of(request)) - nodes.start
                ids = ids[(ids >= 0) & (ids < len(rows))]
                out = torch.empty(len(ids), 5)
                for read in cache.gather(ids, out):
                    counts[read.tier] = counts.get(read.tier, 0) + read.rows
                assert torch.equal(out, rows[ids])
            held = {row for level in cache.caches for row in np.flatnonzero(level.location >= 0).tolist()}
            cache.close()
            return [counts["cache"], counts["cache 2"]], held

        return together(2, work)

    both, first, whole = hits((0.1, near), (0.2, far)), hits((0.1, near)), hits((0.3, near))
    for (by_level, held), ([nearest, _], _), ([most, _], held_by_one) in zip(both, first, whole, strict=True):
        assert by_level == [nearest, most - nearest]
        assert by_level[1] > 0
        assert held == held_by_one


class Own(CachePolicy):
    """Each rank has hot rows of its own, beside some that are hot in all."""

    is_own = True

    def __init__(self, index: int) -> None:
        self.index = index

    def hotness(self, workload, epoch) -> np.ndarray:
        hot = np.zeros(N)
        hot[:20], hot[100 + 10 * self.index :][:10] = 2, 1
        return hot


@pytest.mark.parametrize("is_own", [False, True])
def test_rows_that_every_rank_has_are_not_partitioned_behind_them(is_own: bool) -> None:
    def work(membership: Membership) -> FeatureStore:
        policy = Own(membership.index) if is_own else Own(0)
        policy.is_own = is_own
        near = FeatureCache(policy, ratio=0.1, share="replicated")
        far = FeatureCache(Recorded(np.arange(N, 0, -1)), ratio=0.4, share="partitioned")
        return open_all([near, far], MemoryFeatureStore(ROWS), toy_workload(), membership=membership, progress=False)

    for index, cache in enumerate(together(2, work)):
        near, far = cache.caches
        own = {*range(20), *range(100 + 10 * index * is_own, 110 + 10 * index * is_own)}
        assert set(np.flatnonzero(near.location >= 0)) == own
        # Of rows that one rank alone has at hand, others ask the shards.
        of_all = set(range(20)) if is_own else own
        assert set(np.flatnonzero(far.location >= 0)) == set([row for row in range(N) if row not in of_all][:120])
        out = torch.empty(N, 5)
        reads = cache.gather(torch.arange(N), out)
        assert torch.equal(out, ROWS)
        assert reads[0].rows == 30
        cache.close()


def test_no_more_memory_is_shared_than_was_asked_for() -> None:
    capacity, num_nodes = 12 << 20, 1 << 16
    store = MemoryFeatureStore(torch.ones(num_nodes, 64))
    workload = toy_workload(toy_data(num_nodes, width=1))
    cache = FeatureCache(Recorded(np.ones(num_nodes)), capacity_bytes=capacity)
    before = {inode for inode, _ in shared_memory()}
    caches = together(2, lambda membership: cache.open(store, workload, membership=membership, progress=False))
    for each in caches:
        each.gather(torch.arange(num_nodes), torch.empty(num_nodes, 64))
    new = {inode: size for inode, size in shared_memory() if inode not in before}
    assert len(new) == 3  # the location table and two shards, mapped twice each
    assert capacity * 0.99 < sum(new.values()) <= capacity + 3 * 4096
    del caches


def shared_memory() -> Iterator[tuple[str, int]]:
    """Inode and resident bytes of each mapping of ours, by /proc/self/smaps."""
    inode = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if head := re.match(r"\S+-\S+ \S+ \S+ \S+ (\d+) +(.*)", line):
            inode = head[1] if "memfd:gnnload" in head[2] else ""
        elif inode and line.startswith("Rss:"):
            yield inode, int(line.split()[1]) << 10
