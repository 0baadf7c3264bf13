"""Features of several ranks, gathered by kernels from shards that other processes hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureCache, MemoryFeatureStore
from lightning_gnnload.cache.copies import ReadCosts, rows_to_copy
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.sample.workload import Workload
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime
from tests.cuda.ranks import as_sharers
from tests.cuda.test_device_features import UnmappedStore, workload

N, F = 50, 3
ROWS = torch.randn(N, F, generator=torch.Generator().manual_seed(0))


class Own(CachePolicy):
    is_own = True

    def hotness(self, workload: Workload, epoch: int = 0) -> np.ndarray:
        return np.arange(N, 0, -1)


def reads(
    membership: Membership,
    store: FeatureStore,
    settings: FeatureCache | list[FeatureCache],
    room: int | None = None,
    visible: list[str] | None = None,
    costs: ReadCosts | None = None,
    **gpu: Any,
):
    """Rows by where they were read, after all were found to be the store's. By default, each rank has a GPU."""
    device = EmulatedDevice(seed=membership.index)
    own_first = [f"gpu-{(membership.index + other) % membership.count}" for other in range(membership.count)]
    runtime = FakeRuntime(visible or own_first, **gpu)
    with membership.connect() as peers:
        features = open_on_device(
            settings,
            store,
            workload(N),
            device,
            peers=peers,
            runtime=runtime,
            room_bytes=room,
            costs=costs,
            progress=False,
        )
    expected = torch.empty(N, F)
    store.gather(torch.arange(N), expected)
    ids = np.random.default_rng(membership.index).permutation(N)
    assert torch.equal(features.gather(device.put(ids)), expected[ids])
    found = {read.tier: read.rows for read in features.reads()}
    features.close()
    assert runtime.num_held == 0
    return found


def found(
    count: int, store: FeatureStore, settings: FeatureCache | list[FeatureCache], **arguments: Any
) -> list[dict[str, int]]:
    reads_alone(store)  # compiles the kernels, which the ranks then load
    ends = as_sharers(count, lambda membership: reads(membership, store, settings, **arguments))
    assert [end.status for end in ends] == [0] * count, ends
    return [end.value for end in ends]


def reads_alone(store: FeatureStore) -> None:
    device = EmulatedDevice()
    features = open_on_device(FeatureCache("degree", 0.1), store, workload(N), device, progress=False)
    features.gather(device.put(np.arange(3)))


@pytest.mark.parametrize("share", ["auto", "partitioned"])
def test_a_third_of_the_cache_is_this_ranks(share: str) -> None:
    store = MemoryFeatureStore(ROWS)
    each = {"cache": 10, "cache of peers": 20, "memory": 20}
    assert found(3, store, FeatureCache("degree", ratio=0.6, share=share)) == [each] * 3


def test_each_rank_has_a_copy_where_asked() -> None:
    store = MemoryFeatureStore(ROWS)
    assert found(2, store, FeatureCache("degree", ratio=0.6, share="replicated")) == [{"cache": 30, "memory": 20}] * 2


def test_levels_are_one_cache_of_copied_rows_and_of_the_next_ones() -> None:
    store = MemoryFeatureStore(ROWS)
    near, far = (FeatureCache("degree", ratio, share=share) for ratio, share in ((0.2, "replicated"), (0.4, "auto")))
    # Of 10 rows each has a copy; of the next 20 one lies with each in turn.
    each = {"cache": 20, "cache of peers": 10, "memory": 20}
    assert found(2, store, [near, far]) == [each] * 2
    assert found(2, store, [far, near]) == [each] * 2
    covered = [near, FeatureCache("degree", 1.0, share="partitioned")]
    assert found(2, store, covered) == [{"cache": 30, "cache of peers": 20, "memory": 0}] * 2
    assert found(2, store, [near, far], room_bytes=1) == [{"memory": N}] * 2
    # Of a rank that chooses for itself, whether the cache is in front or behind.
    own, shared = FeatureCache(Own(), 0.2), FeatureCache("degree", 0.4, share="partitioned")
    assert found(2, store, [own, shared]) == found(2, store, [shared, own]) == [each] * 2
    # Each has room by itself.
    for end in as_sharers(2, lambda membership: reads(membership, store, [near, far], room=500)):
        assert "less than asked for" in end.value


@pytest.mark.parametrize(("copied", "own", "peers"), [(0.0, 15, 15), (0.2, 18, 12), (0.5, 22, 8), (1.0, 30, 0)])
def test_a_share_of_the_rows_is_copied(copied: float, own: int, peers: int) -> None:
    settings = FeatureCache("degree", ratio=0.6, copied=copied)
    each = {"cache": own, "cache of peers": peers, "memory": 20}
    seen = found(2, MemoryFeatureStore(ROWS), settings)
    assert {tier: reads for tier, reads in seen[0].items() if reads} == {t: reads for t, reads in each.items() if reads}
    assert seen[0]["cache"] + seen[0].get("cache of peers", 0) == 30


def test_copies_take_memory_of_the_same_limit() -> None:
    # 30 rows once; of 24 rows in all, 6 copied.
    limit = 2 * N * 4 + 30 * F * 4
    settings = FeatureCache("degree", capacity_bytes=limit, copied=0.25)
    assert found(2, MemoryFeatureStore(ROWS), settings) == [{"cache": 15, "cache of peers": 9, "memory": 26}] * 2


class Steep(CachePolicy):
    counts_visits = True

    def hotness(self, workload: Workload, epoch: int = 0) -> np.ndarray:
        return 1000.0 / np.arange(1, N + 1)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("links", [1, 20, 50])
def test_as_many_rows_are_copied_as_make_reads_cheapest(count: int, links: int) -> None:
    limit, costs = count * N * 4 + 30 * F * 4, ReadCosts(local_s=1, peers_s=links, behind_s=50)
    copied = rows_to_copy(Steep().hotness(None)[:30], count, costs)
    cached = 30 - copied * (count - 1)
    assert copied in ({1: [0], 50: [30 // count]}.get(links) or range(1, 30 // count))
    seen = found(count, MemoryFeatureStore(ROWS), FeatureCache(Steep(), capacity_bytes=limit), costs=costs)
    for reads in seen:
        assert reads["memory"] == N - cached
        assert reads["cache"] >= copied + (cached - copied) // count
    # Of what is there once, each row lies with one rank.
    assert sum(reads["cache"] for reads in seen) == cached + copied * (count - 1)
    assert found(count, MemoryFeatureStore(ROWS), FeatureCache(Steep(), ratio=0.6), costs=costs)[0]["memory"] == 20


def test_what_reads_take_is_measured() -> None:
    settings = FeatureCache(Steep(), capacity_bytes=2 * N * 4 + 30 * F * 4)
    seen = found(2, MemoryFeatureStore(ROWS), settings)
    copied = 30 - (N - seen[0]["memory"])
    assert 0 <= copied <= 15  # whatever this machine does
    assert sum(reads["cache"] for reads in seen) == 30
    # Kernels cannot read the rows behind, and devices cannot read each other's.
    stored = found(2, UnmappedStore(ROWS), settings)
    assert [reads["store"] for reads in stored] == [20, 20]
    apart = [frozenset(("gpu-0", "gpu-1"))]
    assert all(reads["memory"] for reads in found(2, MemoryFeatureStore(ROWS), settings, apart=apart))


def test_each_rank_has_all_rows_where_they_have_room() -> None:
    store = MemoryFeatureStore(ROWS)
    all_bytes = N * (F * 4 + 4)
    assert found(2, store, FeatureCache("degree"), room=all_bytes) == [{"cache": N}] * 2
    peers = {"cache": N // 2, "cache of peers": N // 2, "memory": 0}
    assert found(2, store, FeatureCache("degree"), room=all_bytes - 1) == [peers] * 2


def test_ranks_of_one_device_share_its_room() -> None:
    one_copy = N * (F * 4 + 4)
    for each in found(2, MemoryFeatureStore(ROWS), FeatureCache("degree"), room=one_copy, visible=["gpu-0"]):
        assert each.get("cache of peers", 0) > 0  # not a copy in each


def test_quantized_rows_are_shared_as_they_are_stored() -> None:
    codes = torch.randint(-128, 128, (N, F), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    store = QuantizedFeatureStore(codes, torch.tensor([0.5, 1.0, 2.0]))
    each = {"cache": 15, "cache of peers": 15, "memory": 20}
    assert found(2, store, FeatureCache("degree", ratio=0.6)) == [each] * 2


def test_rows_come_from_the_host_where_devices_have_no_room() -> None:
    store = MemoryFeatureStore(ROWS)
    assert found(2, store, FeatureCache("degree", ratio=0.6), room_bytes=1) == [{"memory": N}] * 2


def test_a_cache_that_has_to_be_on_devices_is_an_error_where_one_has_no_room() -> None:
    settings = FeatureCache("degree", ratio=0.6, device="cuda")

    def work(membership: Membership) -> dict[str, int]:
        room = {"room_bytes": 1} if membership.index else {}
        return reads(membership, MemoryFeatureStore(ROWS), settings, **room)

    for end in as_sharers(2, work):
        assert end.value.startswith("DeviceMemoryError"), end
