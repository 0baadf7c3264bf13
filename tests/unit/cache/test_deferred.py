"""DeferredStore: when the cache is made, and that closing it waits for those who gather."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from lightning_gnnload import FeatureStore, MemoryFeatureStore
from lightning_gnnload.cache.store import DeferredStore
from lightning_gnnload.data.features import Reads, TierReads
from lightning_gnnload.data.plan import BatchRequest

TABLE = MemoryFeatureStore(torch.arange(12.0).view(6, 2))
IDS = torch.tensor([5, 0, 3])
REQUEST = BatchRequest(epoch=0, step=0, rank=0, num_ranks=1)


class Front(FeatureStore):
    """Passes all on, counts, and stops in a gather until it is let go."""

    def __init__(self) -> None:
        self.announced: list[BatchRequest] = []
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()
        self.closed = False

    @property
    def shape(self) -> tuple[int, int]:
        return TABLE.shape

    @property
    def dtype(self) -> torch.dtype:
        return TABLE.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        self.entered.set()
        assert self.let_go.wait(10)
        assert not self.closed, "closed while somebody gathers"
        TABLE.gather(ids, out)
        return (TierReads("cache", len(ids), 8 * len(ids)),)

    def announce(self, request: BatchRequest) -> None:
        self.announced.append(request)

    def close(self) -> None:
        self.closed = True


def tiers(store: FeatureStore) -> list[str]:
    out = torch.empty(3, 2)
    reads = store.gather(IDS, out)
    assert torch.equal(out, TABLE.rows[IDS])
    return [read.tier for read in reads or ()]


def test_it_is_made_once_when_it_is_needed() -> None:
    made = []

    def make() -> FeatureStore:
        made.append(threading.Event().wait(0.05))
        return Front()

    store = DeferredStore(TABLE, make, "a cache")
    assert (store.shape, store.dtype, made) == (TABLE.shape, TABLE.dtype, [])
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: tiers(store), range(8))) == [["cache"]] * 8
    store.open()
    assert len(made) == 1


def test_what_it_is_told_and_asked_reaches_the_cache() -> None:
    front = Front()
    store = DeferredStore(TABLE, lambda: front, "a cache")
    store.announce(REQUEST)
    assert front.announced == [REQUEST]
    out = torch.zeros(4, 2)
    assert store.gather_at(IDS, torch.tensor([3, 1, 0]), out) == (TierReads("cache", 3, 24),)
    assert torch.equal(out[[3, 1, 0]], TABLE.rows[IDS])
    assert not out[2].any()


def test_closed_before_it_was_opened_it_is_never_made() -> None:
    store = DeferredStore(TABLE, lambda: pytest.fail("made"), "a cache")
    store.close()
    store.open()
    assert tiers(store) == ["memory"]


def test_closing_waits_for_those_who_gather() -> None:
    front = Front()
    front.let_go.clear()
    store = DeferredStore(TABLE, lambda: front, "a cache")
    with ThreadPoolExecutor(2) as threads:
        gathering = threads.submit(tiers, store)
        assert front.entered.wait(10)
        closing = threads.submit(store.close)
        assert not front.closed
        front.let_go.set()
        assert gathering.result(10) == ["cache"]
        closing.result(10)
    assert front.closed
    assert tiers(store) == ["memory"]
    store.close()  # again


def test_a_cache_that_cannot_be_made_is_tried_once() -> None:
    tried = []

    def make() -> FeatureStore:
        tried.append(0)
        raise OSError("no room")

    store = DeferredStore(TABLE, make, "a cache")
    for _ in range(3):
        with pytest.raises(OSError, match="no room"):
            tiers(store)
    assert len(tried) == 1
    store.close()
    assert tiers(store) == ["memory"], "a rank may go on without it"


def test_one_that_waits_serves_from_behind_until_it_is_filled() -> None:
    front = Front()
    store = DeferredStore(TABLE, lambda: front, "a cache", waits=True)
    store.fill()  # nobody has asked for it yet, and may never do
    store.open()
    assert tiers(store) == ["memory"]
    store.fill()
    assert tiers(store) == ["cache"]
    store.close()
    assert front.closed


def test_one_that_waits_is_not_made_once_it_is_closed() -> None:
    store = DeferredStore(TABLE, lambda: pytest.fail("made"), "a cache", waits=True)
    store.open()
    store.close()
    store.fill()
    assert tiers(store) == ["memory"]
