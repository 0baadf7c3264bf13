"""The cache on a device that admits what it misses: after every batch it holds what the CPU's does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload import ops
from lightning_gnnload.errors import DeviceMemoryError, GnnLoadError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.tables.dynamic_cache import EvictingSlots
from lightning_gnnload.ops.cuda.tables.tiers import gather_tiered

from .emulated import EmulatedDevice


class Twins:
    """One cache on the CPU and one on a device, which take the same batches."""

    def __init__(self, device: Device, num_nodes: int, num_slots: int, row_bytes: int) -> None:
        self.device, self.num_nodes = device, num_nodes
        self.rows = np.random.default_rng(num_slots).integers(0, 256, (num_nodes, row_bytes), dtype=np.uint8)
        self.cpu = ops.EvictingSlots(num_nodes, num_slots, row_bytes, "fifo")
        self.cuda = EvictingSlots(device, num_nodes, num_slots, row_bytes)

    def take(self, ids: np.ndarray) -> None:
        """A batch: the same hits, the same rows, and then the same contents."""
        count, device = len(ids), self.device
        expected = np.empty((count, self.rows.shape[1]), np.uint8)
        missed = np.empty((2, count), np.int64)
        hits = self.cpu.read(ids, expected, missed[0], missed[1])
        missed = missed[:, : count - hits]
        expected[missed[1]] = self.rows[missed[0]]
        self.cpu.admit(missed[0], expected, missed[1])

        on_ids, out = device.put(ids), device.put(self.rows[ids])
        out.view(-1).zero_()
        places = device.put(missed[1])
        out[places] = device.put(self.rows[missed[0]])  # as whoever stands behind would
        taken, error = device.zeros(ops.MAX_SHARDS + 1, torch.int64), device.zeros(1, torch.int64)
        gather_tiered(device, self.cuda.table, on_ids, out, taken, error)
        assert device.read(taken)[0] == hits
        assert np.array_equal(device.read(out), expected)
        self.cuda.admit(on_ids, out)
        has = self.cpu.contains(np.arange(self.num_nodes))
        assert np.array_equal(device.read(self.cuda.slot_of) >= 0, has)


@pytest.mark.parametrize(("num_slots", "row_bytes"), [(1, 1), (5, 3), (40, 8), (100, 400)])
def test_batches_of_distinct_ids(device: Device, num_slots: int, row_bytes: int) -> None:
    twins = Twins(device, 100, num_slots, row_bytes)
    draw = np.random.default_rng(num_slots)
    for count in (3, 0, 1, 60, 100, 30, 30, 100, 7, 7):  # some of more misses than slots
        twins.take(draw.permutation(100)[:count])


def test_a_batch_again_and_ids_that_repeat(device: Device) -> None:
    twins = Twins(device, 100, num_slots=30, row_bytes=16)
    draw = np.random.default_rng(1)
    batch = draw.integers(0, 12, 25)
    for ids in (batch, batch, draw.integers(0, 30, 30), draw.permutation(100), batch):
        twins.take(ids)
        twins.take(ids)


def test_ids_that_are_evicted_by_their_own_batch(device: Device) -> None:
    twins = Twins(device, 50, num_slots=4, row_bytes=5)
    for ids in ([0, 1, 2, 3, 4, 5], [2, 0, 5], [0, 1, 2, 3, 4, 5], [9, 8, 7, 6, 5, 4, 3, 2, 1], [1, 9, 2]):
        twins.take(np.array(ids))


def test_ids_that_repeat_beyond_the_slots_keep_their_rows(device: Device) -> None:
    """What is admitted may differ from the CPU's there; a slot holds the row of its node all the same."""
    rows = np.random.default_rng(5).integers(0, 256, (20, 3), dtype=np.uint8)
    cache, draw = EvictingSlots(device, 20, num_slots=3, row_bytes=3), np.random.default_rng(6)
    for _ in range(8):
        ids = draw.integers(0, 20, 60)
        cache.admit(device.put(ids), device.put(rows[ids]))
        slot_of, held = device.read(cache.slot_of), device.read(cache.rows).reshape(3, 3)
        cached = np.flatnonzero(slot_of >= 0)
        assert sorted(slot_of[cached]) == [0, 1, 2]
        assert np.array_equal(held[slot_of[cached]], rows[cached])


def test_many_small_batches(device: Device) -> None:
    twins = Twins(device, 400, num_slots=64, row_bytes=2)
    draw = np.random.default_rng(2)
    for _ in range(40):
        popular = np.unique((400 * draw.random(30) ** 3).astype(np.int64))
        twins.take(draw.permutation(popular))


def test_ids_of_no_node_are_passed_over(device: Device) -> None:
    cache = EvictingSlots(device, 5, num_slots=2, row_bytes=1)
    cache.admit(device.put(np.array([7, 3, -1])), device.zeros(3, torch.uint8))
    assert device.read(cache.slot_of).tolist() == [-1, -1, -1, 0, -1]


def test_a_batch_without_memory_for_its_lists_leaves_the_cache_as_it_was() -> None:
    device = EmulatedDevice(memory_bytes=1 << 20)
    twins = Twins(device, 100, num_slots=60, row_bytes=4)
    ids, rows = device.put(np.arange(50)), device.put(twins.rows[:50])
    rest = device.empty(device.free_bytes() - 500, torch.uint8)  # less than a list takes
    with pytest.raises(DeviceMemoryError):
        twins.cuda.admit(ids, rows)
    del rest
    twins.take(np.arange(50)[::-1].copy())


def test_rows_of_another_width_are_refused(device: Device) -> None:
    cache = EvictingSlots(device, 5, num_slots=2, row_bytes=4)
    with pytest.raises(GnnLoadError, match="4 bytes"):
        cache.admit(device.put(np.arange(2)), device.zeros(2, torch.int64))
