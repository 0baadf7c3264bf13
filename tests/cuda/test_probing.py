from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from lightning_gnnload.cache.device.budget import Allowance, MemoryUse
from lightning_gnnload.cache.sharers import Sharers
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError
from lightning_gnnload.plugin.probing import WARM_UP_STEPS, Probing

GIB = 1 << 30


class TrainingMemory:
    """Of a device of 40 GiB, on which each step reserves 2 GiB more, the first twice as much for a moment."""

    def __init__(self, device: str = "GPU-a", others: int = 0) -> None:
        self.device, self.others, self.reserved, self.peak, self.num_looks = device, others, 0, 0, 0

    def step(self) -> None:
        self.reserved += 2 * GIB
        self.peak = max(self.peak, self.reserved, 14 * GIB)

    def use(self) -> MemoryUse:
        self.num_looks += 1
        return MemoryUse(self.device, 40 * GIB, 40 * GIB - self.reserved - self.others, self.reserved, self.peak)


def train(probing: Probing, memory: TrainingMemory, num_steps: int, begin: int = 0, accumulate: int = 1) -> None:
    for batch in range(num_steps * accumulate):
        probing.begin_step(begin + batch // accumulate)
        memory.step()


class Cache:
    """Opened on a device that gives at most so many bytes in a piece."""

    opened: ClassVar[list[Cache]] = []

    def __init__(self, allowed: Allowance, largest: int = 40 * GIB) -> None:
        if allowed.num_bytes > largest:
            raise DeviceMemoryError(f"no {allowed.num_bytes} bytes in a piece")
        self.allowed = allowed
        self.opened.append(self)

    def close(self) -> None:
        self.opened.remove(self)


@pytest.fixture(autouse=True)
def _none_open() -> None:
    Cache.opened.clear()


def test_a_cache_opens_once_after_the_first_steps() -> None:
    used: list[tuple[Cache, int]] = []
    memory = TrainingMemory()
    probing = Probing(memory, Cache, lambda cache: used.append((cache, memory.reserved)))
    train(probing, memory, WARM_UP_STEPS)
    assert not used
    assert not probing.is_over
    train(probing, memory, 9, begin=WARM_UP_STEPS)
    [(cache, reserved)] = used
    assert reserved == 2 * GIB * WARM_UP_STEPS
    assert cache.allowed.num_bytes == (40 - 14 - 2) * GIB
    assert probing.is_over
    assert memory.num_looks == len(Cache.opened) == 1


def test_optimizer_steps_are_counted_and_of_this_fit() -> None:
    used: list[int] = []
    memory = TrainingMemory()
    probing = Probing(memory, Cache, lambda _: used.append(memory.reserved // GIB), num_steps=2)
    train(probing, memory, 3, begin=1000, accumulate=3)  # resumed at step 1,000
    assert used == [2 * 2 * 3]


def test_memory_in_pieces_makes_a_smaller_cache() -> None:
    used: list[Cache] = []
    memory = TrainingMemory()
    train(Probing(memory, lambda allowed: Cache(allowed, 16 * GIB), used.append), memory, 9)
    assert [cache.allowed.num_bytes for cache in used] == [24 * GIB * 80**2 // 100**2]
    assert len(Cache.opened) == 1


@pytest.mark.parametrize("error", [DeviceMemoryError("no room"), CacheShareError("a rank is gone")])
def test_training_goes_on_without_what_cannot_be_opened(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: Allowance) -> Cache:
        raise error

    memory = TrainingMemory()
    with caplog.at_level(logging.WARNING):
        train(Probing(memory, refuse, unused), memory, 9)
    [record] = caplog.records
    assert record.getMessage().startswith(
        "There is no cache of features on the devices: the cache was refused 24.0 GiB"
    )
    assert str(error) in record.getMessage()
    with pytest.raises(DeviceMemoryError, match=str(error)):
        train(Probing(memory, refuse, unused, required=True), memory, 9)


def unused(_: Cache) -> None:
    pytest.fail("there is nothing to use")


def test_no_room_is_said_with_its_sum() -> None:
    memory = TrainingMemory(others=30 * GIB)
    probing = Probing(memory, Cache, unused, required=True)
    with pytest.raises(DeviceMemoryError, match=r"2\.0 GiB free, 8\.0 GiB held, 14\.0 GiB at the peak, 2\.0 GiB in"):
        train(probing, memory, 9)


@pytest.mark.parametrize("devices", [("GPU-a", "GPU-b"), ("GPU-a", "GPU-a")])
def test_ranks_meet_in_one_step_and_agree(devices: tuple[str, str], request: pytest.FixtureRequest) -> None:
    shared = devices[0] == devices[1]
    free = 40 - 4 - 8  # as the second rank sees it
    left = free + 8 * (1 + shared) - 14 * (1 + shared) - 2

    def run(index: int) -> list[tuple[int, int, tuple[int, ...]]]:
        used: list[tuple[int, int, tuple[int, ...]]] = []
        memory = TrainingMemory(devices[index], others=index * 4 * GIB)
        probing = Probing(
            memory,
            # What the second rank's device has is in pieces.
            lambda allowed: Cache(allowed, 40 * GIB if index == 0 else left * GIB - 1),
            lambda cache: used.append((memory.reserved // GIB, cache.allowed.num_bytes, cache.allowed.owners)),
            sharers=Sharers(f"probing-{request.node.nodeid}", index, 2, timeout_s=20),
            required=True,
            progress=False,
        )
        train(probing, memory, 9)
        return used

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert first == second == [(8, left * GIB * 80 // 100, (0,) if shared else (0, 1))]
    assert len(Cache.opened) == 2


def test_a_rank_that_has_no_room_leaves_all_without(request: pytest.FixtureRequest) -> None:
    def run(index: int) -> str:
        memory = TrainingMemory(f"GPU-{index}")
        sharers = Sharers(f"probing-{request.node.nodeid}", index, 2, timeout_s=20)
        open_cache = lambda allowed: Cache(allowed, 40 * GIB * (1 - index))  # noqa: E731
        with pytest.raises(DeviceMemoryError) as raised:
            train(Probing(memory, open_cache, unused, sharers=sharers, required=True, progress=False), memory, 9)
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert "by the device of another rank" in first
    assert "in a piece" in second
    assert not Cache.opened
