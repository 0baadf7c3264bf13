"""Belady's choice: no cache hits more; rows are right in any order, by any number of threads."""

from __future__ import annotations

import functools
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload import MemoryFeatureStore
from lightning_gnnload.cache.belady import BeladyCache
from lightning_gnnload.cache.lookahead import Lookahead, ReadAhead, next_lists
from lightning_gnnload.cache.static import StaticCache
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError, ForkError
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from tests.forked import in_child
from tests.unit.toy import content, toy_data, toy_source, toy_workload

WIDTH = 3


class Script:
    """A workload of one epoch that gathers these lists, by one rank; and nothing from then on."""

    def __init__(self, lists: list[list[int]], num_nodes: int) -> None:
        self.lists = lists
        self.graph = SimpleNamespace(num_nodes=num_nodes)

    def plan(self, num_ranks: int) -> SimpleNamespace:
        return SimpleNamespace(num_steps=len(self.lists))

    def nodes_of(self, request: BatchRequest) -> np.ndarray:
        return np.array([] if request.epoch else self.lists[request.step], np.int64)


def test_a_fork_does_not_take_what_its_parent_reads_ahead() -> None:
    ahead, request = ReadAhead(MemoryFeatureStore(torch.zeros(4, WIDTH))), BatchRequest(0, 0, 0, 1)
    ahead.begin(request, np.array([2]))

    def go_on() -> None:
        with pytest.raises(ForkError, match="gnnload-read-ahead"):
            ahead.take(request)

    assert in_child(go_on) == (0, "")
    assert ahead.take(request) is not None
    ahead.close()


def play(lists: list[list[int]], num_nodes: int, num_slots: int, steps: int, read_ahead: bool = False) -> list[int]:
    """Hits of each list, in order; rows are looked at."""
    table = torch.arange(num_nodes * WIDTH, dtype=torch.float32).view(num_nodes, WIDTH)
    store, script = MemoryFeatureStore(table), Script(lists, num_nodes)
    cache = BeladyCache(store, num_slots, script, steps=steps, read_ahead=read_ahead)  # type: ignore[arg-type]
    hits = []
    for step, nodes in enumerate(lists):
        cache.announce(BatchRequest(0, step, 0, 1))
        out = torch.empty(len(nodes), WIDTH)
        (tier, found, num_bytes), *behind = cache.gather(torch.tensor(nodes, dtype=torch.int64), out)
        assert torch.equal(out, table[nodes])
        assert (tier, num_bytes) == ("cache", found * WIDTH * 4)
        assert sum(rows for _, rows, _ in behind) == len(nodes) - found
        hits.append(found)
    cache.close()
    return hits


def most_hits(lists: list[list[int]], num_slots: int) -> int:
    """The most that any cache can hit: every content that can follow is tried, mini-batch by mini-batch."""

    @functools.cache
    def best(number: int, held: frozenset[int]) -> int:
        if number == len(lists):
            return 0
        at_hand = held | set(lists[number])
        size = min(num_slots, len(at_hand))
        return len(held & set(lists[number])) + max(
            best(number + 1, frozenset(kept)) for kept in itertools.combinations(sorted(at_hand), size)
        )

    return best(0, frozenset())


def random_lists(rng: np.random.Generator, num_lists: int, num_nodes: int, most: int) -> list[list[int]]:
    return [
        rng.choice(num_nodes, rng.integers(0, min(most, num_nodes) + 1), replace=False).tolist()
        for _ in range(num_lists)
    ]


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), num_slots=st.integers(1, 4), read_ahead=st.booleans())
def test_no_cache_hits_more(seed, num_slots, read_ahead):
    """Where all is known ahead. A next use that is off by one, or a row kept for one that comes sooner, hits less."""
    lists = random_lists(np.random.default_rng(seed), num_lists=8, num_nodes=6, most=4)
    assert sum(play(lists, 6, num_slots, steps=8, read_ahead=read_ahead)) == most_hits(lists, num_slots)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("num_slots", [1, 2, 3, 7])
def test_a_short_look_ahead_moves_on(steps, num_slots):
    """Each node comes in three lists in a row, so that one step ahead is enough for the best choice."""
    lists = [[at, at + 1, at + 2] for at in range(30)]
    assert sum(play(lists, 40, num_slots, steps)) == 29 * min(num_slots, 2)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("num_slots", [1, 10, 40])
def test_rows_are_right_however_little_is_known(steps, num_slots):
    lists = random_lists(np.random.default_rng(steps), num_lists=40, num_nodes=40, most=25)
    assert play(lists, 40, num_slots, steps) == play(lists, 40, num_slots, steps, read_ahead=True)


def test_next_lists_equal_a_plain_search():
    lists = [np.array(nodes, np.int32) for nodes in random_lists(np.random.default_rng(0), 20, 50, 30)]
    first = np.empty(50, np.int32)
    for number, following in enumerate(next_lists(lists, first)):
        for node, found in zip(lists[number].tolist(), following.tolist(), strict=True):
            assert found == next((n for n in range(number + 1, 20) if node in lists[n]), 20)
    assert first.tolist() == [next((n for n in range(20) if node in lists[n]), 20) for node in range(50)]


@pytest.mark.parametrize("ranks", [[0], [1], [0, 1]])
def test_times_are_those_of_the_mini_batches_that_come(ranks):
    """Over the end of an epoch, and for those ranks alone that were announced."""
    workload = toy_workload(num_ranks=2)
    num_steps, ahead = workload.plan(2).num_steps, Lookahead(workload, steps=3)
    order = [BatchRequest(*divmod(step, num_steps), rank, 2) for step in range(3 * num_steps) for rank in ranks]
    nodes = [set(workload.nodes_of(request).tolist()) for request in order]
    begin = 0
    for number, request in enumerate(order):
        for wanted in ahead.to_sample(request):
            ahead.add(wanted, workload.nodes_of(wanted))
        if ahead.advance(request):
            begin = number
        # Of the ranks that come after the first of a step, the last step ahead is sampled only when they are announced.
        sure_end = min(begin + (2 * 3 - 1) * len(ranks) + 1, len(order))
        ids = workload.nodes_of(request)
        times = ahead.times_after(request, ids)
        if number == 0 or begin > number - len(ranks):
            assert times is not None
        if times is None or number < len(ranks) - 1:  # not all ranks are known yet
            continue
        for node, time in zip(ids.tolist(), times.tolist(), strict=True):
            found = next((n for n in range(number + 1, sure_end) if node in nodes[n]), None)
            if found is not None:
                assert time == ahead.time(order[found])
            else:
                assert time >= ahead.time(order[sure_end - 1])
        assert ahead.times_after(request, ids[3:9]).tolist() == times[3:9].tolist()
        strangers = np.append(ids, np.setdiff1d(np.arange(300), ids)[0])
        assert ahead.times_after(request, strangers) is None


def batches(source: BatchSource, requests: list[BatchRequest]) -> list[object]:
    slot = Slot(1 << 16)
    return [content(source.make(request, slot).view(slot.array)) for request in requests]


def test_mini_batches_are_those_without_a_cache():
    data, source = toy_data(), toy_source()
    requests = [request for epoch in (0, 1) for request in source.workload.requests(epoch)]
    cache = BeladyCache(data.x, 100, source.workload, steps=2, read_ahead=True)
    cached = BatchSource(data, source.workload, {"x": cache})
    wanted = batches(source, requests)
    assert batches(cached, requests) == wanted
    # Back to the begin, steps left out, twice the same, another number of ranks: nothing that comes is out of order.
    jumps = [requests[i] for i in (0, 9, 9, 3, 4, 1)] + [
        BatchRequest(0, 1, 2, 3),
        BatchRequest(5, 0, 0, 3),
        requests[0],
    ]
    assert batches(cached, jumps) == batches(source, jumps)
    cache.close()


def test_threads_that_gather_at_once_get_their_rows():
    data, workload = toy_data(), toy_workload(batch_size=4)
    cache = BeladyCache(data.x, 60, workload, steps=2, read_ahead=True)
    requests = iter([request for epoch in range(4) for request in workload.requests(epoch)])
    taking, wrong, hits = threading.Lock(), [], []

    def work() -> None:
        while True:
            with taking:
                request = next(requests, None)
            if request is None:
                return
            ids = torch.from_numpy(workload.nodes_of(request))
            out = torch.empty(len(ids), 5)
            cache.announce(request)
            hits.append(cache.gather(ids, out)[0].rows)
            if not torch.equal(out, data.x.rows[ids]):
                wrong.append(request)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.close()
    assert not wrong
    assert sum(hits) > 0


def test_behind_a_cache_it_looks_at_what_is_left():
    """It sees those nodes of a mini-batch that the nearer cache lacks, and they alone get slots."""
    data, workload = toy_data(), toy_workload()
    behind = BeladyCache(data.x, 300, workload, steps=4, read_ahead=True)
    location = np.full(300, -1, np.int32)
    location[:150] = np.arange(150)
    nearer = StaticCache(behind, location, [data.x.rows[:150].view(torch.uint8).numpy()])
    for request in itertools.chain(workload.requests(0), workload.requests(1)):
        ids = torch.from_numpy(workload.nodes_of(request))
        out = torch.empty(len(ids), 5)
        nearer.announce(request)
        reads = nearer.gather(ids, out)
        assert torch.equal(out, data.x.rows[ids])
    behind.close()
    assert reads[1].rows > 0  # of the cache behind
    assert (behind._location[:150] < 0).all()


def test_gathers_that_were_not_announced_change_nothing():
    data, workload = toy_data(), toy_workload()
    cache = BeladyCache(data.x, 300, workload, steps=4, read_ahead=True)
    ids, out = torch.arange(300), torch.empty(300, 5)
    for _ in range(2):
        assert cache.gather(ids, out) == (TierReads("cache", 0, 0), TierReads("memory", 300, 300 * 20))
        cache.announce(next(workload.requests(0)))
        cache.gather(ids.flip(0), out)  # another phase's mini-batch, by a request that looks the same
    cache.close()
    assert torch.equal(out, data.x.rows.flip(0))


class Watched(MemoryFeatureStore):
    """Knows which thread read which rows; fails when told to."""

    fails = False

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__(rows)
        self.read: list[tuple[str, list[int]]] = []

    def gather_at(self, ids, positions, out):
        self.read.append((threading.current_thread().name, ids.tolist()))
        if self.fails:
            raise OSError("the disk is gone")
        return super().gather_at(ids, positions, out)


def test_rows_that_the_next_mini_batch_lacks_are_read_ahead_and_once():
    data, workload = toy_data(), toy_workload()
    missed: dict[bool, list[list[int]]] = {}
    for read_ahead in (False, True):
        store = Watched(data.x.rows)
        cache = BeladyCache(store, 50, workload, steps=4, read_ahead=read_ahead)
        for request in workload.requests(0):
            ids = torch.from_numpy(workload.nodes_of(request))
            out = torch.empty(len(ids), 5)
            cache.announce(request)
            if cache._here.announced[1] is not None:  # what was begun is done before its mini-batch asks for it
                cache._here.announced[1].reading.result()
            reads = cache.gather(ids, out)
            assert torch.equal(out, data.x.rows[ids])
            assert sum(read.rows for read in reads) == len(ids)
        cache.close()
        missed[read_ahead] = [sorted(ids) for _, ids in store.read]
        threads = [name.startswith("gnnload-read-ahead") for name, _ in store.read]
        assert threads == [False] + [read_ahead] * (len(threads) - 1)
    # One more may have begun, for the epoch that never came.
    assert missed[True][: len(missed[False])] == missed[False]
    assert len(missed[True]) <= len(missed[False]) + 1


@pytest.mark.parametrize("read_ahead", [False, True])
def test_a_store_that_fails_leaves_the_cache_as_it_was(read_ahead):
    data, workload = toy_data(), toy_workload()
    store = Watched(data.x.rows)
    cache = BeladyCache(store, 300, workload, steps=4, read_ahead=read_ahead)
    for fails in (True, False, False):
        store.fails = fails
        for request in workload.requests(0):
            ids = torch.from_numpy(workload.nodes_of(request))
            out = torch.empty(len(ids), 5)
            cache.announce(request)
            if fails:
                with pytest.raises(OSError, match="the disk is gone"):
                    cache.gather(ids, out)
            else:
                cache.gather(ids, out)
                assert torch.equal(out, data.x.rows[ids])
    cache.close()


@pytest.mark.parametrize(
    ("num_slots", "steps", "error", "message"),
    [
        (0, 4, CacheTooSmallError, "num_slots is 0"),
        (301, 4, CacheConfigError, "num_slots is 301, but the store behind has 300 rows"),
        (3, 0, CacheConfigError, "steps=0"),
    ],
)
def test_sizes_that_cannot_work(num_slots, steps, error, message):
    with pytest.raises(error, match=message):
        BeladyCache(toy_data().x, num_slots, toy_workload(), steps=steps)


def test_rows_that_are_not_one_a_node_are_refused():
    with pytest.raises(CacheConfigError, match="has 40 rows, but the graph 300 nodes"):
        BeladyCache(MemoryFeatureStore(torch.ones(40, 2)), 3, toy_workload())
