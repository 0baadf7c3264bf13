from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from lightning_gnnload.cache.device.budget import Allowance, MemoryUse
from lightning_gnnload.cache.sharers import Meeting, Sharers
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


def test_a_cache_opens_once_after_the_first_steps() -> None:
    opened: list[tuple[Allowance, Meeting | None, int]] = []
    memory = TrainingMemory()
    probing = Probing(memory, lambda allowed, meeting: opened.append((allowed, meeting, memory.reserved)))
    train(probing, memory, WARM_UP_STEPS)
    assert not opened
    assert not probing.is_over
    train(probing, memory, 9, begin=WARM_UP_STEPS)
    [(allowed, meeting, reserved)] = opened
    assert reserved == 2 * GIB * WARM_UP_STEPS
    assert allowed.num_bytes == (40 - 14 - 2) * GIB
    assert meeting is None
    assert probing.is_over
    assert memory.num_looks == 1


def test_optimizer_steps_are_counted_and_of_this_fit() -> None:
    opened: list[int] = []
    memory = TrainingMemory()
    probing = Probing(memory, lambda *_: opened.append(memory.reserved // GIB), num_steps=2)
    train(probing, memory, 3, begin=1000, accumulate=3)  # resumed at step 1,000
    assert opened == [2 * 2 * 3]


@pytest.mark.parametrize("error", [DeviceMemoryError("no room"), CacheShareError("a rank is gone")])
def test_training_goes_on_without_what_cannot_be_opened(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise error

    memory = TrainingMemory()
    with caplog.at_level(logging.WARNING):
        train(Probing(memory, refuse), memory, 9)
    assert [record.getMessage() for record in caplog.records] == [
        f"There is no cache of features on the devices: {error}"
    ]
    with pytest.raises(type(error), match=str(error)):
        train(Probing(memory, refuse, required=True), memory, 9)


def test_no_room_is_said_with_its_sum() -> None:
    memory = TrainingMemory(others=30 * GIB)
    probing = Probing(memory, lambda *_: pytest.fail("nothing to open"), required=True)
    with pytest.raises(DeviceMemoryError, match=r"2\.0 GiB free, 8\.0 GiB held, 14\.0 GiB at the peak, 2\.0 GiB in"):
        train(probing, memory, 9)


@pytest.mark.parametrize("devices", [("GPU-a", "GPU-b"), ("GPU-a", "GPU-a")])
def test_ranks_meet_in_one_step_and_agree(devices: tuple[str, str], request: pytest.FixtureRequest) -> None:
    shared = devices[0] == devices[1]

    def run(index: int) -> list[tuple[int, float]]:
        seen = []
        memory = TrainingMemory(devices[index], others=index * 4 * GIB)

        def open_cache(allowed: Allowance, meeting: Meeting | None) -> None:
            assert meeting is not None
            meeting.agree({"bytes": allowed.num_bytes})
            seen.append((memory.reserved / GIB, allowed.num_bytes / GIB))

        sharers = Sharers(f"probing-{request.node.nodeid}", index, 2, timeout_s=20)
        train(Probing(memory, open_cache, sharers=sharers, required=True, progress=False), memory, 9)
        return seen

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    free = 40 - 4 - 8  # as the second rank sees it
    left = (free + 8 + 8 - 14 - 14 - 2) / 2 if shared else free + 8 - 14 - 2
    assert first == second == [(8, left)]


def test_a_rank_that_fails_to_open_ends_it_for_all(request: pytest.FixtureRequest) -> None:
    def run(index: int) -> str:
        def open_cache(_: Allowance, meeting: Meeting | None) -> None:
            assert meeting is not None
            if index:
                raise DeviceMemoryError("rank 1 has no room")
            meeting.exchange({})

        memory = TrainingMemory(f"GPU-{index}")
        sharers = Sharers(f"probing-{request.node.nodeid}", index, 2, timeout_s=20)
        with pytest.raises((DeviceMemoryError, CacheShareError)) as raised:
            train(Probing(memory, open_cache, sharers=sharers, required=True, progress=False), memory, 9)
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        assert all("rank 1 has no room" in text for text in pool.map(run, range(2)))
