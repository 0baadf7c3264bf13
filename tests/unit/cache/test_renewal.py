"""Windows of epochs: a cache whose rows change while it serves."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload import MemoryFeatureStore, ops
from lightning_gnnload.cache.cache import FeatureCache, open_all
from lightning_gnnload.cache.peers import PeerChannel
from lightning_gnnload.cache.policy import CachePlan, CachePolicy, hottest
from lightning_gnnload.cache.renewal import RenewedCache, moves, nodes_in, ranking_of
from lightning_gnnload.cache.rules import Clairvoyant
from lightning_gnnload.cache.static import CacheMemory
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import ThreadLimitError
from lightning_gnnload.host.locks import SharedLock
from lightning_gnnload.host.memfd import MemoryFile
from tests.threadless import refused
from tests.unit.cache.ranks import together
from tests.unit.toy import toy_data, toy_workload

N = 300
ROWS = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))


class Shifting(CachePolicy):
    """Every epoch has its own hot nodes."""

    window = 1

    def __init__(self) -> None:
        self.asked: list[int] = []

    def hotness(self, workload, epoch) -> np.ndarray:
        self.asked.append(epoch)
        return np.random.default_rng(epoch).permutation(workload.graph.num_nodes)


def eventually(is_so: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)


def cached(cache: RenewedCache) -> set[int]:
    return set(np.flatnonzero(cache.location >= 0).tolist())


def hot_in(epoch: int, count: int = 30) -> set[int]:
    return set(hottest(Shifting().hotness(toy_workload(), epoch), N, count).tolist())


@pytest.mark.parametrize(("count", "share"), [(1, "auto"), (3, "partitioned"), (3, "replicated"), (10, "auto")])
def test_each_window_has_its_own_rows_and_values_stay(count: int, share: str) -> None:
    policy = Shifting()
    settings = FeatureCache(policy, ratio=0.1, share=share)
    caches = together(
        count,
        lambda s: settings.open(MemoryFeatureStore(ROWS), toy_workload(), membership=s, epoch=4, progress=False),
    )
    for epoch in (4, 5, 6, 9):
        for cache in caches:
            cache.announce(BatchRequest(epoch, 0, 0, 1))
        for cache in caches:
            eventually(lambda cache=cache: cached(cache) == hot_in(epoch))  # noqa: B023  called at once
            out = torch.empty(N, 5)
            reads = cache.gather(torch.arange(N), out)
            assert torch.equal(out, ROWS)
            assert reads[0].rows == 30
    caches[0].announce(BatchRequest(5, 0, 0, 1))  # an epoch that is over, as a late thread may tell: no way back
    eventually(lambda: policy.asked[-1] == 10)
    for cache in caches:
        assert cached(cache) == hot_in(9)
        cache.close()
    assert sorted(set(policy.asked)) == [4, 5, 6, 7, 9, 10]  # each window once, and one ahead


def test_clairvoyance_hits_as_often_as_can_be_in_its_window() -> None:
    data = toy_data(1000, 300)
    workload = toy_workload(data, batch_size=50)
    cache = FeatureCache(Clairvoyant(window=2, progress=False), ratio=0.1).open(data.x, workload, progress=False)
    for window in (0, 1):
        epochs = (2 * window, 2 * window + 1)
        visited = [workload.nodes_of(request) for epoch in epochs for request in workload.requests(epoch)]
        counts = np.bincount(np.concatenate(visited), minlength=1000)
        if window:
            cache.announce(BatchRequest(2, 0, 0, 1))
            eventually(lambda: cache.renewals == 1)
        hits = sum(int((cache.location[nodes] >= 0).sum()) for nodes in visited)
        assert hits == np.sort(counts)[-100:].sum()
    cache.close()


def test_levels_that_are_renewed_alike_share_out_each_window() -> None:
    policy = Shifting()
    levels = [FeatureCache(policy, ratio=0.1), FeatureCache("degree", ratio=0.1), FeatureCache(policy, ratio=0.2)]
    cache = open_all(levels, MemoryFeatureStore(ROWS), toy_workload(), progress=False)
    near, fixed, far = cache.caches
    for epoch in (0, 1):
        cache.announce(BatchRequest(epoch, 0, 0, 1))
        eventually(lambda epoch=epoch: near.renewals == far.renewals == epoch)
        assert cached(near) == hot_in(epoch)
        ranked = hottest(Shifting().hotness(toy_workload(), epoch), N, N).tolist()
        left = [node for node in ranked if node not in cached(near) | cached(fixed)]
        assert cached(far) == set(left[:60])
        out = torch.empty(N, 5)
        cache.gather(torch.arange(N), out)
        assert torch.equal(out, ROWS)
    cache.close()


def test_rows_that_another_ranking_renews_nearer_are_not_left_out() -> None:
    hotness = np.arange(6.0)
    for near, expected in (
        (Clairvoyant(window=2, progress=False), [3, 2]),
        (Clairvoyant(window=3, progress=False), [5, 4]),  # nobody knows which it has at the time
        (None, [5, 4]),
    ):
        nearer = CachePlan(near, num_rows=2)
        chosen = CachePlan(Clairvoyant(window=2, progress=False), num_rows=2, nearer=(nearer,))
        assert chosen.hottest(hotness, 6).tolist() == expected


def test_closing_ends_a_ranking_at_once() -> None:
    data = toy_data(1000, 900)
    workload = toy_workload(data, batch_size=1)  # 900 mini-batches an epoch
    policy = Clairvoyant(window=200, progress=False)
    cache = RenewedCache(
        data.x,
        CacheMemory(np.full(1000, -1, np.int32), [np.zeros((10, 20), np.uint8)]),
        lock=SharedLock.create(),
        first_epoch=0,
        window=200,
        ranking=ranking_of(CachePlan(policy, num_rows=10), workload, table_rows=1000),
    )
    cache.announce(BatchRequest(0, 0, 0, 1))
    time.sleep(0.1)
    began = time.monotonic()
    cache.close()
    assert time.monotonic() - began < 5


def test_a_cache_whose_thread_cannot_start_leaves_the_others() -> None:
    mine, other = map(PeerChannel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    memory = CacheMemory(np.full(N, -1, np.int32), [np.zeros((10, 20), np.uint8)])
    settings = {"lock": SharedLock.create(), "first_epoch": 0, "window": 1, "ranking": None}
    with refused(), pytest.raises(ThreadLimitError, match="The thread gnnload-cache cannot start"):
        RenewedCache(MemoryFeatureStore(ROWS), memory, channels={0: mine}, **settings)
    with pytest.raises(EOFError):
        other.receive()
    other.close()


def test_a_ranking_that_fails_leaves_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Shifting):
        def hotness(self, workload, epoch) -> np.ndarray:
            if epoch > 0:
                raise ValueError("no idea")
            return super().hotness(workload, epoch)

    cache = FeatureCache(Failing(), ratio=0.1).open(MemoryFeatureStore(ROWS), toy_workload(), progress=False)
    with caplog.at_level(logging.WARNING):
        cache.announce(BatchRequest(0, 0, 0, 1))
        eventually(lambda: bool(caplog.records))
    assert "keeps its rows" in caplog.text
    assert "no idea" in caplog.text
    cache.announce(BatchRequest(1, 0, 0, 1))
    assert cached(cache) == hot_in(0)
    cache.close()


def test_without_sharer_0_the_rows_stay() -> None:
    settings = FeatureCache(Shifting(), ratio=0.1)
    first, second = together(
        2, lambda s: settings.open(MemoryFeatureStore(ROWS), toy_workload(), membership=s, progress=False)
    )
    first.close()
    second._thread.join(5)
    second.announce(BatchRequest(1, 0, 0, 1))
    out = torch.empty(N, 5)
    assert second.gather(torch.arange(N), out)[0].rows == 30
    assert torch.equal(out, ROWS)
    second.close()


SIZES = st.lists(st.integers(0, 6), min_size=1, max_size=4)


class Busy(np.ndarray):
    """Locations of which another peer takes away the first ones while they are read."""

    def __getitem__(self, at):
        taken = super().__getitem__(at)
        self.view(np.ndarray)[:3] = -1
        return taken


def test_moves_are_of_one_moment_though_another_sharer_still_moves_rows() -> None:
    location = np.array([0, 1, 2, 3, -1, -1], np.int32).view(Busy)
    nodes, places = moves(location, [4], np.array([4, 0, 1, 2]))
    assert nodes.tolist() == [4]
    assert places.tolist() == [3]


class TakenOver(np.ndarray):
    """Locations of which another peer enters node 1 into slot 1 of its shard while they are read."""

    def __rshift__(self, bits):
        shards = super().__rshift__(bits)
        self[1] = 1 << ops.SLOT_BITS | 1
        return shards


def test_a_slot_keeps_its_node_though_another_sharer_takes_a_node_over() -> None:
    location = np.array([1, 0, -1], np.int32).view(TakenOver)
    assert nodes_in(location, shard=0, num_slots=2).tolist() == [1, 0]


@given(SIZES, st.integers(0, 2**32 - 1), st.data())
def test_moves_place_each_newcomer_once_and_nothing_else(sizes: list[int], seed: int, data) -> None:
    rng, total = np.random.default_rng(seed), sum(sizes)
    all_places = np.concatenate([np.arange(size) + (s << ops.SLOT_BITS) for s, size in enumerate(sizes)]).astype(int)
    location = np.full(40, -1, np.int32)
    filled = data.draw(st.integers(0, total))
    location[rng.permutation(40)[:filled]] = rng.permutation(all_places)[:filled]
    hot = rng.permutation(40)[: data.draw(st.integers(0, total))]
    nodes, places = moves(location, sizes, hot)
    assert nodes.tolist() == [node for node in hot if location[node] < 0]
    assert len(set(places.tolist())) == len(nodes)
    assert set(places.tolist()) <= set(all_places.tolist())
    stays = {int(location[node]) for node in hot} - {-1}
    assert not stays & set(places.tolist())


# Killed amid a renewal.


class Dying(np.ndarray):
    """Kills its process in the middle of a write."""

    def __setitem__(self, key, values) -> None:
        half = len(key) // 2
        values = np.broadcast_to(values, (len(key), *self.shape[1:]))
        np.asarray(self)[key[:half]] = values[:half]
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("when", ["evicting", "writing", "entering"])
def test_killed_amid_a_renewal_each_entry_names_its_row_and_nobody_is_locked_out(when: str) -> None:
    table = MemoryFile.create("test", N * 4, open_to_all=True)
    shard_file = MemoryFile.create("test", 30 * 20, open_to_all=True)
    location, shard = table.array.view(np.int32), shard_file.array.reshape(30, 20)
    location.fill(-1)
    location[:30] = np.arange(30)
    shard[:] = ROWS[:30].numpy().view(np.uint8)
    lock = SharedLock.create()
    child = os.fork()
    if child == 0:
        dying = CacheMemory(location, [shard])
        if when == "writing":
            dying.shards = [shard.view(Dying)]
        elif when == "evicting":
            dying.location = location.view(Dying)
        else:
            calls = iter([None])

            class Later(Dying):
                def __setitem__(self, key, values) -> None:
                    if next(calls, 0) is None:
                        np.asarray(self)[key] = values
                    else:
                        super().__setitem__(key, values)

            dying.location = location.view(Later)
        try:
            follower = RenewedCache.__new__(RenewedCache)
            super(RenewedCache, follower).__init__(MemoryFeatureStore(ROWS), dying.location, dying.shards)
            follower.memory, follower._lock, follower._stopping = dying, lock, threading.Event()
            follower._replace(np.arange(100, 120), np.arange(20))
        finally:
            os._exit(1)  # it should not have come so far
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with lock.writing():
        held = np.flatnonzero(location >= 0)
        assert torch.equal(torch.from_numpy(shard.copy()).view(torch.float32)[location[held]], ROWS[held])
    assert len(held) == {"evicting": 20, "writing": 10, "entering": 20}[when]
    for file in (table, shard_file):
        file.close()
    lock.close()


def test_readers_go_together_and_a_writer_alone_and_is_not_passed_by() -> None:
    lock = SharedLock.create()
    inside, log = threading.Barrier(3), []

    def read() -> None:
        with lock.reading():
            inside.wait(10)  # all three at once
            time.sleep(0.05)
            log.append("read")

    def write() -> None:
        with lock.writing():
            log.append("write")

    def read_later() -> None:
        with lock.reading():
            log.append("later")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    with lock.reading():
        inside.wait(10)
        others = [threading.Thread(target=write), threading.Thread(target=read_later)]
        for thread in others:
            thread.start()
            time.sleep(0.05)
        assert "write" not in log
        assert "later" not in log  # the writer came first
    for thread in readers + others:
        thread.join(10)
    assert log == ["read", "read", "write", "later"]
    lock.close()
