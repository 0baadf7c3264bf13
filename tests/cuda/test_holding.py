"""Shards of a cache on the devices of several ranks, each a process: the store's rows, whatever devices can reach."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import MemoryFeatureStore, ops
from lightning_gnnload.cache import static
from lightning_gnnload.cache.device.peer_access import PeerAccess
from lightning_gnnload.cache.device.shards import Shards
from lightning_gnnload.cache.device.shared_shards import fill_shared_shards
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.static import StaticCache
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import CudaCallError
from tests.cuda.fake_runtime import FakeRuntime
from tests.cuda.ranks import End, as_sharers
from tests.cuda.small_device import SmallDevice

N, F = 300, 5
ROWS = torch.randn(N, F, generator=torch.Generator().manual_seed(0))
HOT = np.random.default_rng(0).permutation(N)[:100]


class Slow(MemoryFeatureStore):
    """Does something before the shard is filled."""

    def __init__(self, before: Callable[[], Any]) -> None:
        super().__init__(ROWS)
        self._before = before

    def gather(self, ids: torch.Tensor, out: torch.Tensor):
        self._before()
        return super().gather(ids, out)


def gpu(membership: Membership, **settings: Any) -> FakeRuntime:
    """Each rank's own GPU, of which each numbers its own as 0."""
    names = [f"gpu-{(membership.index + other) % membership.count}" for other in range(membership.count)]
    return FakeRuntime(names, **settings)


def apart(*pairs: tuple[int, int]) -> list[frozenset[str]]:
    return [frozenset((f"gpu-{a}", f"gpu-{b}")) for a, b in pairs]


def held(
    membership: Membership,
    runtime: FakeRuntime,
    *,
    store: FeatureStore | None = None,
    hot: np.ndarray = HOT,
    device: SmallDevice | None = None,
    sharer_of: Callable[[np.ndarray], np.ndarray] | None = None,
    then: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    """What a rank has: the rows that it finds on devices, checked, and what was said. Closes it, and holds nothing."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    for name in ("shared_shards", "shards"):
        logging.getLogger(f"lightning_gnnload.cache.device.{name}").addHandler(handler)
    store = MemoryFeatureStore(ROWS) if store is None else store
    device = device or SmallDevice()
    fds = set(os.listdir("/proc/self/fd"))
    try:
        with membership.connect() as peers:
            location, shards = fill_shared_shards(store, hot, device, peers, runtime, sharer_of)
        then()
        cached = np.flatnonzero(location.numpy() >= 0)
        shard = location.numpy()[cached] >> ops.SLOT_BITS
        assert device.num_synchronized == min(len(cached), 1)  # the others read what the device has, not what it will
        check_rows(location, shards)
        shards.close()
        shards.close()
    finally:
        assert runtime.num_held == 0
        assert set(os.listdir("/proc/self/fd")) <= fds  # what other tests have left may go at any moment
    return {
        "cached": cached.tolist(),
        "num_rows": shards.num_rows,
        "own": shards.own_shard,
        "said": said,
        "shard": shard.tolist(),
    }


def check_rows(location: torch.Tensor, shards: Shards) -> None:
    """All rows, by the CPU's cache over the same memory."""
    memory = [
        np.ctypeslib.as_array((ctypes.c_uint8 * (count * F * 4)).from_address(address)).reshape(count, F * 4)
        for address, count in zip(shards.addresses, shards.num_rows, strict=True)
    ]
    out = torch.empty(N, F)
    reads = StaticCache(MemoryFeatureStore(ROWS), location.numpy(), memory).gather(torch.arange(N), out)
    assert torch.equal(out, ROWS)
    assert reads[0].rows == int((location >= 0).sum()) == sum(shards.num_rows)


def values(ends: list[End]) -> list[dict[str, Any]]:
    assert [end.status for end in ends] == [0] * len(ends), ends
    return [end.value for end in ends]


@pytest.mark.parametrize("count", [2, 3])
def test_each_row_lies_on_one_device_and_all_ranks_read_it(count: int) -> None:
    ends = values(as_sharers(count, lambda membership: held(membership, gpu(membership))))
    for index, end in enumerate(ends):
        assert end["cached"] == sorted(HOT.tolist())
        assert sum(end["num_rows"]) == len(HOT)
        assert max(end["num_rows"]) - min(end["num_rows"]) <= 1
        assert (end["own"], end["said"]) == (index, [])


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3]], [[0, 2], [1, 3]]])
def test_rows_lie_with_their_rank_where_it_is_in_the_group(groups: list[list[int]]) -> None:
    unlinked = [(a, b) for a in range(4) for b in range(a) if not any({a, b} <= set(group) for group in groups)]

    def work(membership: Membership) -> dict:
        return held(membership, gpu(membership, apart=apart(*unlinked)), sharer_of=lambda rows: rows % 4)

    for index, end in enumerate(values(as_sharers(4, work))):
        [group] = [group for group in groups if index in group]
        assert len(end["cached"]) == 25 * len(group)
        assert max(end["num_rows"]) == min(end["num_rows"]) == 25
        lie = np.array(group)[end["shard"]]
        wanted = np.array(end["cached"]) % 4
        for rank in group:
            # All that are wanted there, or as many as there is room for.
            assert (lie == rank)[wanted == rank].sum() == min((wanted == rank).sum(), 25)


def test_ranks_on_one_device_share_it() -> None:
    ends = values(as_sharers(2, lambda membership: held(membership, FakeRuntime(["gpu"]))))
    assert [end["num_rows"] for end in ends] == [[50, 50]] * 2


def test_devices_that_a_rank_does_not_see_are_tried() -> None:
    # As with CUDA_VISIBLE_DEVICES, of one each.
    ends = values(as_sharers(2, lambda membership: held(membership, FakeRuntime([f"gpu-{membership.index}"]))))
    assert [end["cached"] for end in ends] == [sorted(HOT.tolist())] * 2


def test_groups_hold_the_hottest_rows_each() -> None:
    # 0 and 2 reach each other, and so do 1 and 3.
    settings = {"apart": apart((0, 1), (0, 3), (1, 2), (2, 3))}
    ends = values(as_sharers(4, lambda membership: held(membership, gpu(membership, **settings))))
    for index, end in enumerate(ends):
        assert end["cached"] == sorted(HOT[:50].tolist())
        assert end["num_rows"] == [25, 25]
        assert end["own"] == index // 2
    assert [len(end["said"]) for end in ends] == [1, 0, 0, 0]
    for words in ("no peer access", "ranks 0 and 1", "[[0, 2], [1, 3]]"):
        assert words in ends[0]["said"][0]


def test_a_device_that_linked_none_has_a_copy_of_its_own() -> None:
    settings = {"apart": apart((0, 2), (1, 2))}
    ends = values(as_sharers(3, lambda membership: held(membership, gpu(membership, **settings))))
    assert [len(end["cached"]) for end in ends] == [68, 68, 34]
    assert ends[2]["cached"] == sorted(HOT[:34].tolist())


@pytest.mark.parametrize(
    ("faults", "reason"),
    [({"broken": {"gpu-1"}}, "cannot be opened"), ({"astray": {"gpu-1"}}, "is not what it gave")],
)
def test_memory_that_cannot_be_used_is_not(faults: dict, reason: str) -> None:
    # CUDA said that all reach each other. Rank 0 alone meets the fault, and all follow.
    def work(membership: Membership) -> dict:
        return held(membership, gpu(membership, **(faults if membership.index == 0 else {})))

    ends = values(as_sharers(3, work))
    assert [len(end["cached"]) for end in ends] == [68, 34, 68]
    assert [len(end["said"]) for end in ends] == [1, 0, 0]
    assert reason in ends[0]["said"][0]
    assert "rank 1" in ends[0]["said"][0]


def test_a_device_that_cannot_share_has_a_copy_of_its_own() -> None:
    class Unshareable(FakeRuntime):
        def export(self, address: int) -> bytes:
            raise CudaCallError("cudaErrorNotSupported", "no IPC on this system")

    def work(membership: Membership) -> dict:
        return held(membership, Unshareable(["gpu-1"]) if membership.index else gpu(membership))

    ends = values(as_sharers(2, work))
    assert [end["cached"] for end in ends] == [sorted(HOT[:50].tolist())] * 2
    assert "no IPC on this system" in ends[0]["said"][0]


@pytest.mark.parametrize("num_copied", [0, 100_000])
def test_shares_shrink_until_every_device_has_room(num_copied: int) -> None:
    # Memory comes in blocks of 2 MiB. 120,000 rows of 20 bytes on each device take two, four fifths of them one.
    copied, hot = np.split(np.random.default_rng(1).permutation(240_000), [num_copied])
    hot = hot[: 2 * (120_000 - num_copied)]
    store = MemoryFeatureStore(torch.arange(240_000 * F, dtype=torch.float32).view(-1, F))

    def work(membership: Membership) -> dict:
        runtime = gpu(membership, room_bytes=(4 << 20) - (membership.index << 20))
        with membership.connect() as peers:
            location, shards = fill_shared_shards(store, hot, SmallDevice(), peers, runtime, copied=copied)
        kept = np.flatnonzero(location.numpy() >= 0)
        place, num_rows = location.numpy()[kept], shards.num_rows[shards.own_shard]
        memory = (ctypes.c_float * (num_rows * F)).from_address(shards.addresses[shards.own_shard])
        is_own = place >> ops.SLOT_BITS == shards.own_shard
        rows = np.ctypeslib.as_array(memory).reshape(-1, F)[place[is_own] & (1 << ops.SLOT_BITS) - 1]
        assert np.array_equal(rows[:, 0], kept[is_own] * F)
        shards.close()
        assert runtime.num_held == 0
        wanted = copied[:96_000] if num_copied else hot[:192_000]
        return {"num_rows": shards.num_rows, "hottest": np.array_equal(np.sort(wanted), kept)}

    for end in values(as_sharers(2, work)):
        # Of the others' copies a rank does not know.
        own = [96_000, 96_000] if not num_copied else end["num_rows"]
        assert (end["num_rows"], max(end["num_rows"]), end["hottest"]) == (own, 96_000, True)


def test_rows_stay_in_the_hosts_memory_where_a_device_has_no_room() -> None:
    def work(membership: Membership) -> dict:
        return held(membership, gpu(membership, room_bytes=1 << 10 if membership.index else 1 << 30))

    ends = values(as_sharers(2, work))
    assert [(end["cached"], end["num_rows"], end["own"]) for end in ends] == [([], [], -1)] * 2
    assert [len(end["said"]) for end in ends] == [1, 0]
    assert "stays in the host's memory" in ends[0]["said"][0]


def test_nobody_reads_a_shard_before_it_is_filled() -> None:
    def work(membership: Membership) -> dict:
        slow = Slow(lambda: time.sleep(0.3))
        return held(membership, gpu(membership), store=slow if membership.index == 1 else None)

    values(as_sharers(2, work))


def test_memory_stays_while_another_rank_reads() -> None:
    # Freed before, the slower rank dies of SIGBUS.
    ends = values(as_sharers(2, lambda s: held(s, gpu(s), then=lambda: time.sleep(0.3 * s.index))))
    assert [end["said"] for end in ends] == [[], []]


@pytest.mark.parametrize("moment", ["allocate", "export", "open", "copy"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_rank_that_dies_on_the_way_ends_all(moment: str, index: int) -> None:
    def work(membership: Membership) -> dict:
        runtime = gpu(membership)
        if membership.index == index:
            setattr(runtime, moment, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        return held(membership, runtime)

    began = time.monotonic()
    ends = as_sharers(3, work)
    assert time.monotonic() - began < 15  # none waits for the dead one to close
    assert ends.pop(index).status == -signal.SIGKILL
    for end in ends:
        assert end.status == 1
        assert end.value.startswith("CacheShareError")
        assert f"sharer {index}" in end.value


def test_ranks_that_would_copy_other_numbers_of_rows_do_not_agree() -> None:
    def work(membership: Membership) -> None:
        with membership.connect() as peers:
            copied = np.arange(membership.index)
            fill_shared_shards(MemoryFeatureStore(ROWS), HOT[:0], SmallDevice(), peers, gpu(membership), copied=copied)

    for end in as_sharers(2, work):
        assert end.value.startswith("CacheDisagreementError")
        assert "copied rows" in end.value


@pytest.mark.parametrize("index", [0, 1])
def test_a_rank_that_fails_ends_all_with_its_words(index: int) -> None:
    def fail() -> None:
        raise OSError("disk on fire")

    def work(membership: Membership) -> dict:
        return held(membership, gpu(membership), store=Slow(fail) if membership.index == index else None)

    began = time.monotonic()
    ends = as_sharers(3, work)
    assert time.monotonic() - began < 15
    assert all("disk on fire" in end.value for end in ends), ends


def test_a_rank_that_dies_later_keeps_nobody_waiting() -> None:
    def work(membership: Membership) -> dict:
        die = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if membership.index == 1 else (lambda: time.sleep(0.2))
        return held(membership, gpu(membership), then=die)

    began = time.monotonic()
    ends = as_sharers(3, work)
    assert time.monotonic() - began < 15
    # The memory that it owned lives as long as it is mapped here; CUDA promises no such thing.
    assert [end.status for end in ends] == [0, -signal.SIGKILL, 0]


@pytest.mark.parametrize("differing", ["ids", "rows"])
def test_ranks_that_differ_are_told(differing: str) -> None:
    def work(membership: Membership) -> dict:
        hot = HOT if membership.index == 0 else HOT[::-1].copy() if differing == "ids" else HOT[:99]
        return held(membership, gpu(membership), hot=hot)

    for end in as_sharers(2, work):
        assert end.value.startswith("CacheDisagreementError")
        assert {"ids": "checksum", "rows": "100 and 99"}[differing] in end.value


@pytest.mark.parametrize("num_hot", [0, 1, 2])
def test_few_rows_and_none(num_hot: int) -> None:
    for end in values(as_sharers(3, lambda membership: held(membership, gpu(membership), hot=HOT[:num_hot]))):
        assert end["cached"] == sorted(HOT[:num_hot].tolist())


def test_a_rank_alone_needs_no_runtime_and_fills_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "_CHUNK_BYTES", 7 * F * 4)
    runtime = FakeRuntime()
    device = SmallDevice()
    location, shards = fill_shared_shards(MemoryFeatureStore(ROWS), HOT, device, None, runtime)
    check_rows(location, shards)
    assert (runtime.num_held, device.largest_put) == (0, N * 4)
    assert (location >= 0).sum() == len(HOT)
    shards.close()


def test_a_rank_alone_without_room_has_no_cache(caplog: pytest.LogCaptureFixture) -> None:
    location, shards = fill_shared_shards(MemoryFeatureStore(ROWS), HOT, SmallDevice(900), None, FakeRuntime())
    assert (int((location >= 0).sum()), shards.addresses) == (0, [])
    assert "stays in the host's memory" in caplog.text


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_ranks_that_all_reach_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 13))
    links = PeerAccess(count)
    cut = np.triu(rng.random((count, count)) < rng.random(), 1)
    links.remove([{str(peer): "no link" for peer in np.flatnonzero(row)} for row in cut])
    groups = links.groups()
    assert sorted(rank for group in groups for rank in group) == list(range(count))
    assert all(not cut[a, b] for group in groups for a in group for b in group)
    assert [len(group) for group in groups] == sorted(map(len, groups), reverse=True)
    # None is larger than the first: neighbours of a rank, in order, of all subsets.
    reaches = ~(cut | cut.T)
    largest = max(
        sum(members)
        for members in np.ndindex(*(2,) * count)
        if all(reaches[a, b] for a in range(count) for b in range(a) if members[a] and members[b])
    )
    assert len(groups[0]) == min(largest, ops.MAX_SHARDS)
