from __future__ import annotations

import pytest

from lightning_gnnload.cache.device.memory_use import MAX_SHRINKS, MemoryUse, allowance, shrinking
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError

GIB = 1 << 30


def use(device: str = "GPU-a", total: int = 80, free: int = 60, reserved: int = 10, peak: int = 14) -> MemoryUse:
    return MemoryUse(device, total * GIB, free * GIB, reserved * GIB, peak * GIB)


@pytest.mark.parametrize(
    ("uses", "num_gib", "num_devices"),
    [
        ([use()], 60 + 10 - 14 - 4, 1),
        ([use(total=16, free=10, reserved=2, peak=2)], 10 - 1, 1),  # 5 % would be less than 1 GiB
        ([use(free=5, reserved=0, peak=14)], 0, 1),  # never less than nothing
        ([use(), use("GPU-b", free=50)], 42, 2),  # the device that has least left
        # On a shared device both peaks come at once, and what is free is counted once.
        ([use(free=50), use(free=50, reserved=6, peak=6)], 50 + 16 - 20 - 4, 1),
        ([use("GPU-b"), use("GPU-a", free=50), use("GPU-b", reserved=14)], 42, 2),
    ],
)
def test_a_cache_gets_what_all_peaks_leave(uses: list[MemoryUse], num_gib: int, num_devices: int) -> None:
    allowed = allowance(uses)
    assert (allowed.num_bytes, allowed.num_devices) == (num_gib * GIB, num_devices)


def test_the_least_free_that_ranks_of_one_device_saw_counts() -> None:
    assert allowance([use(free=50), use(free=40)]).num_bytes == (40 + 20 - 28 - 4) * GIB


def test_what_a_rank_tells_of_its_memory_is_checked() -> None:
    assert MemoryUse.from_fields(use().fields()) == use()
    for wrong in ({}, use().fields() | {"free": -1}, use().fields() | {"peak": 1.5}, use().fields() | {"device": 0}):
        with pytest.raises(CacheShareError, match="where a UUID and four numbers"):
            MemoryUse.from_fields(wrong)


class Memory:
    """Gives at most so many bytes at once, and keeps the books."""

    def __init__(self, largest: int) -> None:
        self.largest, self.asked, self.held = largest, [], 0

    def allocate(self, num_bytes: int) -> int:
        self.asked.append(num_bytes)
        if num_bytes > self.largest:
            raise DeviceMemoryError(f"no {num_bytes} bytes in a piece")
        self.held += num_bytes
        return num_bytes

    def free(self, num_bytes: int) -> None:
        self.held -= num_bytes


@pytest.mark.parametrize(("largest", "asked"), [(1000, [1000]), (999, [1000, 800]), (512, [1000, 800, 640, 512])])
def test_what_is_refused_is_asked_for_again_by_a_fifth_less(largest: int, asked: list[int]) -> None:
    memory = Memory(largest)
    assert shrinking(memory.allocate, 1000) == memory.held == asked[-1]
    assert memory.asked == asked


def test_a_device_that_refuses_four_times_is_believed() -> None:
    memory = Memory(511)
    with pytest.raises(DeviceMemoryError, match=r"refused 1000 B, 800 B, 640 B, 512 B: no 512 bytes.*capacity_bytes"):
        shrinking(memory.allocate, 1000)
    assert len(memory.asked) == MAX_SHRINKS + 1


@pytest.mark.parametrize("told_inside", [True, False])
def test_ranks_shrink_together(told_inside: bool) -> None:
    memory, told = Memory(1000), []

    def allocate(num_bytes: int) -> int:
        if told_inside and num_bytes > 700:
            memory.asked.append(num_bytes)
            raise CacheShareError("the other rank failed")
        return memory.allocate(num_bytes)

    def all_have(has: bool) -> bool:
        told.append(has)
        return memory.asked[-1] <= 700  # as the other rank's device gives so much

    assert shrinking(allocate, 1000, close=memory.free, all_have=all_have) == 640
    assert memory.held == 640  # what others could not match was given back
    assert told == [not told_inside, not told_inside, True]


def test_ranks_give_up_together() -> None:
    memory = Memory(1000)
    with pytest.raises(DeviceMemoryError, match="512 B by the device of another rank"):
        shrinking(memory.allocate, 1000, close=memory.free, all_have=lambda _: False)
    assert memory.held == 0
