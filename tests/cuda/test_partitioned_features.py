"""A cache that evicts, over the devices of several processes, which admit and read at the same time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureCache, MemoryFeatureStore
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.cache.device.partitioned import PartitionedFeatures
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime
from tests.cuda.ranks import End, as_sharers, wait_until
from tests.cuda.test_device_features import UnmappedStore, workload

N, F, NUM_BATCHES = 400, 40, 60
ROWS = torch.arange(N * F, dtype=torch.float32).view(N, F)
FIFO = FeatureCache("fifo", ratio=0.2, share="partitioned")


@pytest.fixture(autouse=True)
def compiled() -> None:
    """The kernels, which the ranks then load."""
    from tests.cuda.test_partitioned_cache import ranks

    ranks(1, 8)[0].batch(np.arange(3))


def gather_all(
    membership: Membership, store: FeatureStore, settings: FeatureCache = FIFO, room: int | None = None, **gpu: Any
) -> dict[str, int]:
    """Rows by where they were read, after all were found to be the store's. Each rank has a GPU."""
    device = EmulatedDevice(seed=membership.index)
    own_first = [f"gpu-{(membership.index + other) % membership.count}" for other in range(membership.count)]
    runtime = FakeRuntime(own_first, **gpu)
    with membership.connect() as peers:
        features = open_on_device(
            settings, store, workload(N), device, peers=peers, runtime=runtime, room_bytes=room, progress=False
        )
    expected = torch.empty(N, F)
    store.gather(torch.arange(N), expected)
    rng = np.random.default_rng(membership.index)
    for _ in range(NUM_BATCHES):
        ids = (N * rng.random(50) ** 3).astype(np.int64)
        assert torch.equal(features.gather(device.put(ids)), expected[ids])
    found = {read.tier: read.rows for read in features.reads()}
    assert sum(found.values()) == NUM_BATCHES * 50
    features.close()
    assert runtime.num_held == 0
    return found


def check(ends: list[End]) -> list[dict[str, int]]:
    assert [end.status for end in ends] == [0] * len(ends), ends
    return [end.value for end in ends]


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("count", [2, 3])
def test_ranks_fill_one_cache_that_all_hit(count: int, mapped: bool) -> None:
    store = MemoryFeatureStore(ROWS) if mapped else UnmappedStore(ROWS)
    for reads in check(as_sharers(count, lambda membership: gather_all(membership, store))):
        assert reads["cache"] > NUM_BATCHES
        assert reads["cache of peers"] > NUM_BATCHES


def test_quantized_rows_are_shared_as_they_are_stored() -> None:
    codes = torch.randint(-128, 128, (N, F), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    store = QuantizedFeatureStore(codes, torch.rand(F))
    for reads in check(as_sharers(2, lambda membership: gather_all(membership, store))):
        assert reads["cache of peers"] > NUM_BATCHES


def test_devices_that_are_not_linked_have_a_cache_each() -> None:
    apart = [frozenset((f"gpu-{first}", "gpu-2")) for first in range(2)]
    first, second, alone = check(
        as_sharers(3, lambda membership: gather_all(membership, MemoryFeatureStore(ROWS), apart=apart))
    )
    assert first["cache of peers"] > NUM_BATCHES < second["cache of peers"]
    assert "cache of peers" not in alone
    assert alone["cache"] > NUM_BATCHES


def test_each_rank_has_its_own_unless_asked() -> None:
    settings = FeatureCache("fifo", ratio=0.2)
    for reads in check(as_sharers(2, lambda membership: gather_all(membership, MemoryFeatureStore(ROWS), settings))):
        assert reads.keys() == {"cache", "memory"}


def test_limits_count_the_rows_of_all_ranks_and_what_comes_with_them() -> None:
    def held(membership: Membership) -> list[int]:
        runtime = FakeRuntime([f"gpu-{membership.index}", f"gpu-{1 - membership.index}"])
        opened = []
        for settings in (FIFO, FeatureCache("fifo", capacity_bytes=40_000, share="partitioned")):
            part = Membership(membership.name + str(len(opened)), membership.index, membership.count, 20.0)
            with part.connect() as peers:
                features = open_on_device(
                    settings,
                    MemoryFeatureStore(ROWS),
                    workload(N),
                    EmulatedDevice(),
                    peers=peers,
                    runtime=runtime,
                    progress=False,
                )
            assert isinstance(features, PartitionedFeatures)
            opened.append(features._slots.num_slots)
            features.close()
        return opened

    for by_ratio, by_bytes in check(as_sharers(2, held)):
        assert by_ratio == N * 0.2 / 2
        # Of 40,000 bytes, locations take 4 N in each rank and slots 4 N in all; a row 160, its node 8, and a quarter of
        # a row, its id and two numbers.
        assert by_bytes == (40_000 - 3 * 4 * N) // (160 + 8 + 46) // 2


def test_no_room_is_an_error_in_all_ranks() -> None:
    def work(membership: Membership) -> dict[str, int]:
        room = {"room_bytes": 1} if membership.index else {}
        return gather_all(membership, MemoryFeatureStore(ROWS), **room)

    for end in as_sharers(2, work):
        assert end.value.startswith("DeviceMemoryError"), end
    few = FeatureCache("fifo", capacity_bytes=3 * 4 * N + 250, share="partitioned")
    for end in as_sharers(2, lambda membership: gather_all(membership, MemoryFeatureStore(ROWS), few)):
        assert "each needs room for one" in end.value, end


def test_a_group_whose_index_takes_all_memory_is_an_error_in_all_ranks() -> None:
    """A rank that is linked to nobody has the slots of all nodes, which its share of three has no room for."""
    apart = [frozenset((f"gpu-{first}", "gpu-2")) for first in range(2)]
    few = FeatureCache("fifo", ratio=0.03, share="partitioned")
    ends = as_sharers(3, lambda membership: gather_all(membership, MemoryFeatureStore(ROWS), few, apart=apart))
    for end in ends:
        assert "the device of rank 2 has 2.1 KiB for its part" in end.value, end


def test_a_rank_that_is_killed_inside_keeps_nobody_waiting(tmp_path: Path) -> None:
    """The job ends then, as CUDA frees its memory, which stays here; until that, the others admit nothing more."""

    def work(membership: Membership) -> int:
        device = EmulatedDevice(seed=membership.index)
        runtime = FakeRuntime([f"gpu-{membership.index}", f"gpu-{1 - membership.index}"])
        with membership.connect() as peers:
            features = open_on_device(
                FIFO, MemoryFeatureStore(ROWS), workload(N), device, peers=peers, runtime=runtime, progress=False
            )
        if membership.index:
            assert isinstance(features, PartitionedFeatures)
            features.gather(device.put(np.arange(50)))
            features._slots.enter()
            (tmp_path / "inside").touch()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        wait_until((tmp_path / "inside").exists)
        rng = np.random.default_rng(0)
        for _ in range(NUM_BATCHES):
            ids = (N * rng.random(50) ** 3).astype(np.int64)
            assert torch.equal(features.gather(device.put(ids)), ROWS[ids])
        features.close()
        return runtime.num_held

    alive, killed = as_sharers(2, work)
    assert (alive.status, alive.value, killed.status) == (0, 0, -signal.SIGKILL)
