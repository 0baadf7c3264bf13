from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from pytorch_lightning import seed_everything

from lightning_gnnload import FeatureCache, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.cache.budget import Allowance
from lightning_gnnload.cache.device import device_builder as cache_opening
from lightning_gnnload.cache.device.memory_use import MemoryUse
from lightning_gnnload.cache.peers import Membership, PeerGroup
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.plugin.module import device_tables
from lightning_gnnload.plugin.module.probe import WARM_UP_STEPS, CacheProbe
from tests.integration.learnable import quiet_trainer
from tests.integration.scripts.toy import Recorder, toy_data

from .emulated import EmulatedDevice

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


def train(probing: CacheProbe, memory: TrainingMemory, num_steps: int, begin: int = 0, accumulate: int = 1) -> None:
    for batch in range(num_steps * accumulate):
        probing.begin_step(begin + batch // accumulate)
        memory.step()


def test_a_cache_opens_once_after_the_first_steps() -> None:
    opened: list[tuple[Allowance, PeerGroup | None, int]] = []
    memory = TrainingMemory()
    probing = CacheProbe(memory, lambda allowed, peers: opened.append((allowed, peers, memory.reserved)))
    train(probing, memory, WARM_UP_STEPS)
    assert not opened
    assert not probing.is_over
    train(probing, memory, 9, begin=WARM_UP_STEPS)
    [(allowed, peers, reserved)] = opened
    assert reserved == 2 * GIB * WARM_UP_STEPS
    assert allowed.num_bytes == (40 - 14 - 2) * GIB
    assert peers is None
    assert probing.is_over
    assert memory.num_looks == 1


def test_optimizer_steps_are_counted_and_of_this_fit() -> None:
    opened: list[int] = []
    memory = TrainingMemory()
    probing = CacheProbe(memory, lambda *_: opened.append(memory.reserved // GIB), num_steps=2)
    train(probing, memory, 3, begin=1000, accumulate=3)  # resumed at step 1,000
    assert opened == [2 * 2 * 3]


@pytest.mark.parametrize("error", [DeviceMemoryError("no room"), CacheShareError("a rank is gone")])
def test_training_goes_on_without_what_cannot_be_opened(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise error

    memory = TrainingMemory()
    with caplog.at_level(logging.WARNING):
        train(CacheProbe(memory, refuse), memory, 9)
    assert [record.getMessage() for record in caplog.records] == [
        f"There is no cache of features on the devices: {error}"
    ]
    with pytest.raises(type(error), match=str(error)):
        train(CacheProbe(memory, refuse, required=True), memory, 9)


def test_no_room_is_said_with_its_sum() -> None:
    memory = TrainingMemory(others=30 * GIB)
    probing = CacheProbe(memory, lambda *_: pytest.fail("nothing to open"), required=True)
    with pytest.raises(DeviceMemoryError, match=r"2\.0 GiB free, 8\.0 GiB held, 14\.0 GiB at the peak, 2\.0 GiB in"):
        train(probing, memory, 9)


@pytest.mark.parametrize("devices", [("GPU-a", "GPU-b"), ("GPU-a", "GPU-a")])
def test_ranks_meet_in_one_step_and_agree(devices: tuple[str, str], request: pytest.FixtureRequest) -> None:
    shared = devices[0] == devices[1]

    def run(index: int) -> list[tuple[int, float]]:
        seen = []
        memory = TrainingMemory(devices[index], others=index * 4 * GIB)

        def open_cache(allowed: Allowance, peers: PeerGroup | None) -> None:
            assert peers is not None
            peers.agree({"bytes": allowed.num_bytes})
            seen.append((memory.reserved / GIB, allowed.num_bytes / GIB))

        membership = Membership(f"probing-{request.node.nodeid}", index, 2, timeout_s=20)
        train(CacheProbe(memory, open_cache, membership=membership, required=True, progress=False), memory, 9)
        return seen

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    free = 40 - 4 - 8  # as the second rank sees it
    left = free + (8 - 14) * (1 + shared) - 2
    assert first == second == [(8, left)]


def test_a_rank_that_fails_to_open_ends_it_for_all(request: pytest.FixtureRequest) -> None:
    def run(index: int) -> str:
        def open_cache(_: Allowance, peers: PeerGroup | None) -> None:
            assert peers is not None
            if index:
                raise DeviceMemoryError("rank 1 has no room")
            peers.all_gather({})

        memory = TrainingMemory(f"GPU-{index}")
        membership = Membership(f"probing-{request.node.nodeid}", index, 2, timeout_s=20)
        with pytest.raises((DeviceMemoryError, CacheShareError)) as raised:
            train(CacheProbe(memory, open_cache, membership=membership, required=True, progress=False), memory, 9)
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        assert all("rank 1 has no room" in text for text in pool.map(run, range(2)))


# In a fit.

ROOM_BYTES = 20_000


class Room:
    """A device whose training leaves so many bytes; remembers the step of each look."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self.room_bytes, self.looks, self.trainer = room_bytes, [], None

    def use(self) -> MemoryUse:
        self.looks.append(self.trainer.global_step)
        return MemoryUse("GPU-a", 20 * GIB, 1 * GIB + self.room_bytes, 0, 0)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    emulated, room = EmulatedDevice(), Room()
    monkeypatch.setattr(opening, "open_device", lambda of: emulated)
    monkeypatch.setattr(device_tables, "memory_of", lambda of: room)
    return room


def fitted(room: Room, data: GraphData, **settings: Any) -> tuple[list[list[Any]], dict[str, int]]:
    """What a model saw, and rows by tier."""
    seed_everything(3, verbose=False)
    model, module = Recorder(), GraphDataModule(data, NeighborSampler([4, 3]), 16, seed=5, **settings)
    room.trainer = trainer = quiet_trainer(max_epochs=1, limit_val_batches=0)
    trainer.fit(model, module)
    return model.seen, {read.tier: read.rows for read in trainer.train_dataloader.stats.reads}


def test_a_fit_begins_without_the_cache_and_sees_the_same(room: Room) -> None:
    plain, _ = fitted(room, toy_data(), sampling_device="cpu")
    probed, tiers = fitted(room, toy_data(), sampling_device="cuda", cache=FeatureCache("degree"))
    assert probed == plain
    assert room.looks == [WARM_UP_STEPS]
    at_once, all_tiers = fitted(
        room, toy_data(), sampling_device="cuda", cache=FeatureCache("degree", capacity_bytes=ROOM_BYTES)
    )
    assert at_once == plain
    assert room.looks == [WARM_UP_STEPS]  # what has a limit is not probed
    assert sum(tiers.values()) == sum(all_tiers.values())
    assert 0 < tiers["cache"] < all_tiers["cache"]


def test_tables_share_the_room_by_their_size(room: Room) -> None:
    data = toy_data()
    wide = GraphData(data.graph, data.x, data.y, data.train, tables={"wide": torch.arange(2000 * 48.0).view(2000, 48)})
    caches = {"x": FeatureCache("degree"), "wide": FeatureCache("degree")}
    room.room_bytes = 4 * (8000 + 64 * 100)  # x gets a quarter: its index, and 100 of its rows of 64 bytes
    rooms: list[int | None] = []

    def open_on_device(*args: Any, **settings: Any) -> Any:
        rooms.append(settings["room_bytes"])
        return real(*args, **settings)

    real = cache_opening.open_on_device
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_opening, "open_on_device", open_on_device)
        probed, tiers = fitted(room, wide, sampling_device="cuda", cache=caches)
    assert rooms == [None, None, 8000 + 6400, 3 * (8000 + 6400)]
    assert probed == fitted(room, wide, sampling_device="cpu")[0]
    assert tiers["cache"] > 0


def test_a_fit_without_room_goes_on_unless_the_cache_is_required(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.room_bytes = -1
    _, tiers = fitted(room, toy_data(), sampling_device="cuda", cache=FeatureCache("degree"))
    assert set(tiers) == {"memory"}
    assert caplog.text.count("There is no cache of features on the devices: training leaves no room") == 1
    with pytest.raises(DeviceMemoryError, match="training leaves no room"):
        fitted(room, toy_data(), sampling_device="cuda", cache=FeatureCache("degree", device="cuda"))
