"""Gathers on a device: equal to the CPU's, for rows of any size that begin anywhere."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch

from lightning_gnnload import ops
from lightning_gnnload.errors import CacheShareError, GnnLoadError, SeedError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.state import BAD_ID
from lightning_gnnload.ops.cuda.tables.gather import gather_rows, raise_error
from lightning_gnnload.ops.cuda.tables.tiers import TieredTable, gather_tiered, list_missed, order_missed

from .emulated import EmulatedDevice

ROW_BYTES = (1, 2, 3, 6, 100, 400, 512, 4096)
LEFT_ALONE = 77
MAP_NORESERVE = 0x4000  # linux/mman.h; Python 3.13 is the first to name it


def on_device(device: Device, rows: np.ndarray, offset: int = 0) -> torch.Tensor:
    """uint8 ``[R, row_bytes]`` that begin ``offset`` bytes after an aligned address."""
    memory = device.put(np.concatenate([np.zeros(offset, np.uint8), rows.reshape(-1)]))
    return memory[offset:].view(rows.shape)


def random_rows(draw: np.random.Generator, num_rows: int, row_bytes: int) -> np.ndarray:
    return draw.integers(0, 256, (num_rows, row_bytes), dtype=np.uint8)


def error_word(device: Device) -> torch.Tensor:
    return device.zeros(1, torch.int64)


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_rows_of_any_size_that_begin_anywhere(device: Device, row_bytes: int) -> None:
    draw = np.random.default_rng(row_bytes)
    table = random_rows(draw, 40, row_bytes)
    for count, offset in ((1, 0), (70, 0), (33, 1), (20, 2), (9, 4), (9, 8), (0, 0)):
        ids = draw.integers(0, 40, count)
        expected = np.empty((count, row_bytes), np.uint8)
        ops.gather_rows(table, ids, expected)
        out = on_device(device, np.full((count, row_bytes), LEFT_ALONE, np.uint8), offset)
        error = error_word(device)
        gather_rows(device, on_device(device, table, offset), device.put(ids), out, error)
        assert np.array_equal(device.read(out), expected)
        assert device.read(error)[0] == 0


def test_rows_to_positions_and_from_mapped_memory(device: Device) -> None:
    draw = np.random.default_rng(0)
    rows = random_rows(draw, 90, 12)
    positions = draw.permutation(100)[:90]
    expected = np.full((100, 12), LEFT_ALONE, np.uint8)
    expected[positions] = rows
    out, error = device.put(np.full((100, 12), LEFT_ALONE, np.uint8)), error_word(device)
    gather_rows(device, device.map_host(rows), None, out, error, device.put(positions))
    assert np.array_equal(device.read(out), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8])
def test_labels_of_any_dtype(device: Device, dtype: torch.dtype) -> None:
    labels = torch.arange(20).to(dtype).to(device.torch_device)
    out = device.empty(3, dtype)
    gather_rows(device, labels, device.put(np.array([19, 0, 7])), out, error_word(device))
    assert out.tolist() == [19, 0, 7]


def test_the_first_bad_id_is_told_and_reads_no_memory(device: Device) -> None:
    ids = np.arange(300) % 5
    ids[[250, 41, 99]] = [5, -1, 1 << 40]
    table = np.arange(1, 11, dtype=np.uint8).reshape(5, 2)
    out, error = device.put(np.full((300, 2), LEFT_ALONE, np.uint8)), error_word(device)
    gather_rows(device, device.put(table), device.put(ids), out, error)
    sound = (ids >= 0) & (ids < 5)
    expected = np.where(sound[:, None], table[ids % 5], 0)
    assert np.array_equal(device.read(out), expected)
    with pytest.raises(SeedError, match=r"ids\[41\]"):
        raise_error(int(device.read(error)[0]), num_rows=5)


def test_a_position_outside_the_output_is_not_written(device: Device) -> None:
    memory = device.put(np.full((4, 1), LEFT_ALONE, np.uint8))
    error = error_word(device)
    gather_rows(device, device.put(np.ones((2, 1), np.uint8)), None, memory[1:3], error, device.put(np.array([2, -1])))
    assert device.read(memory).ravel().tolist() == [LEFT_ALONE] * 4
    with pytest.raises(SeedError, match=r"positions\[0\]"):
        raise_error(int(device.read(error)[0]), num_rows=2)


class Shards:
    """Random rows of which some shards hold a part, on the CPU and on a device.

    Args:
        offset: of the shards' first rows from an aligned address.
    """

    def __init__(
        self, device: Device, row_bytes: int, num_shards: int, *, seed: int, num_nodes: int = 60, offset: int = 0
    ) -> None:
        draw = self.draw = np.random.default_rng(seed)
        self.rows = random_rows(draw, num_nodes, row_bytes)
        holder = draw.integers(-1, num_shards, num_nodes)
        self.location = np.full(num_nodes, -1, np.int32)
        self.shards = []
        for shard in range(num_shards):
            held = draw.permutation(np.flatnonzero(holder == shard))
            self.location[held] = shard << ops.SLOT_BITS | np.arange(len(held))
            self.shards.append(np.ascontiguousarray(self.rows[held]))
        self.device, self.row_bytes = device, row_bytes
        self._held = [on_device(device, shard, offset) for shard in self.shards]
        self._mapped = device.map_host(self.rows)

    def table(self, *, backed: bool) -> TieredTable:
        return TieredTable.of(
            self.device,
            self.device.put(self.location),
            [shard.data_ptr() for shard in self._held],
            [len(shard) for shard in self.shards],
            self.row_bytes,
            self._mapped if backed else None,
        )


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_rows_come_from_the_shard_that_holds_them(device: Device, row_bytes: int) -> None:
    for num_shards, count, offset in ((1, 50, 0), (3, 130, 1), (8, 77, 4), (0, 20, 0), (2, 0, 0)):
        case = Shards(device, row_bytes, num_shards, seed=row_bytes * 10 + num_shards, offset=offset)
        ids = case.draw.integers(0, 60, count)
        expected = np.full((count, row_bytes), LEFT_ALONE, np.uint8)
        missed = np.empty((2, count), np.int64)
        hits, misses = ops.gather_tiered(case.location, case.shards, None, ids, expected, missed[0], missed[1])
        out, on_ids = device.put(np.full((count, row_bytes), LEFT_ALONE, np.uint8)), device.put(ids)
        taken, error = device.zeros(ops.MAX_SHARDS + 1, torch.int64), error_word(device)
        gather_tiered(device, case.table(backed=False), on_ids, out, taken, error)
        assert np.array_equal(device.read(out), expected)
        assert device.read(taken).tolist() == [*hits, *[0] * (8 - num_shards), misses]
        missed_ids, positions = device.empty(count, torch.int64), device.empty(count, torch.int64)
        number = list_missed(device, device.put(case.location), on_ids, missed_ids, positions)
        assert device.read(number).tolist() == [misses]
        assert np.array_equal(device.read(missed_ids)[:misses], missed[0][:misses])
        assert np.array_equal(device.read(positions)[:misses], missed[1][:misses])
        gather_tiered(device, case.table(backed=True), on_ids, out, taken, error)
        assert np.array_equal(device.read(out), case.rows[ids])
        assert device.read(taken).tolist() == [*(2 * hit for hit in hits), *[0] * (8 - num_shards), 2 * misses]
        assert device.read(error)[0] == 0


def test_any_number_of_blocks_for_rows_of_the_host(device: Device) -> None:
    case = Shards(device, 40, 2, seed=1)
    ids, table = case.draw.integers(0, 60, 700), case.table(backed=True)
    on_ids = device.put(ids)
    for far_blocks in (1, 2, 5):
        out = device.put(np.zeros((700, 40), np.uint8))
        taken, error = device.zeros(ops.MAX_SHARDS + 1, torch.int64), error_word(device)
        far = order_missed(device, table, on_ids)
        gather_tiered(device, table, on_ids, out, taken, error, far, far_blocks)
        assert np.array_equal(device.read(out), case.rows[ids])
        assert device.read(taken).sum() == 700


@pytest.mark.parametrize("location", [2 << ops.SLOT_BITS, 3, 7 << ops.SLOT_BITS | 1, (1 << 31) - 1])
def test_a_location_of_no_slot_is_told_and_reads_no_memory(device: Device, location: int) -> None:
    case = Shards(device, 8, 2, seed=2, num_nodes=6)
    case.location[:] = [0, 1 << ops.SLOT_BITS, -1, -1, location, location]
    case.shards = [case.rows[:1], case.rows[1:2]]
    out, error = device.put(np.full((6, 8), LEFT_ALONE, np.uint8)), error_word(device)
    taken = device.zeros(ops.MAX_SHARDS + 1, torch.int64)
    gather_tiered(device, case.table(backed=True), device.put(np.arange(6)[::-1].copy()), out, taken, error)
    assert not device.read(out)[:2].any()
    assert np.array_equal(device.read(out)[2:4], case.rows[[3, 2]])
    with pytest.raises(CacheShareError, match=r"ids\[0\]"):
        raise_error(int(device.read(error)[0]), num_rows=6)


def test_an_id_of_no_node_is_a_row_of_zeros_and_not_missed(device: Device) -> None:
    case = Shards(device, 8, 1, seed=3)
    ids = np.array([3, 60, -1, 5])
    for backed in (False, True):
        out, error = device.put(np.full((4, 8), LEFT_ALONE, np.uint8)), error_word(device)
        taken = device.zeros(ops.MAX_SHARDS + 1, torch.int64)
        gather_tiered(device, case.table(backed=backed), device.put(ids), out, taken, error)
        assert not device.read(out)[1:3].any()
        assert device.read(taken).sum() == 2
        with pytest.raises(SeedError, match=r"ids\[1\]"):
            raise_error(int(device.read(error)[0]), num_rows=60)
    missed = device.empty(4, torch.int64)
    number = list_missed(device, device.put(np.full(60, -1, np.int32)), device.put(ids), missed, missed.clone())
    assert device.read(number).tolist() == [2]
    assert device.read(missed)[:2].tolist() == [3, 5]


def test_missed_ids_of_many_tiles_keep_their_order(device: Device) -> None:
    draw = np.random.default_rng(4)
    location = np.where(draw.random(500) < 0.5, 0, -1).astype(np.int32)
    ids = draw.integers(0, 500, 3000)
    missed_ids, positions = device.empty(3000, torch.int64), device.empty(3000, torch.int64)
    number = list_missed(device, device.put(location), device.put(ids), missed_ids, positions)
    expected = np.flatnonzero(location[ids] < 0)
    assert device.read(number).tolist() == [len(expected)]
    assert np.array_equal(device.read(positions)[: len(expected)], expected)
    assert np.array_equal(device.read(missed_ids)[: len(expected)], ids[expected])


def test_tables_of_more_than_32_bits_of_bytes() -> None:
    """In memory that nobody has touched, which takes none."""
    device = EmulatedDevice()
    num_rows, row_bytes = (1 << 17) + 3, 1 << 16
    memory = mmap.mmap(-1, num_rows * row_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    rows = np.frombuffer(memory, np.uint8).reshape(num_rows, row_bytes)
    ids = np.array([num_rows - 1, (1 << 16) + 1, 5])
    rows[ids] = random_rows(np.random.default_rng(5), 3, row_bytes)
    table = device.map_host(rows)
    for location in (np.full(num_rows, -1, np.int32), np.arange(num_rows, dtype=np.int32)):
        tiers = TieredTable.of(device, device.put(location), [rows.ctypes.data], [num_rows], row_bytes, table)
        out, error = device.zeros(3 * row_bytes, torch.uint8).view(3, row_bytes), error_word(device)
        gather_tiered(device, tiers, device.put(ids), out, device.zeros(9, torch.int64), error)
        assert np.array_equal(device.read(out), rows[ids])
    out = device.zeros(3 * row_bytes, torch.uint8).view(3, row_bytes)
    gather_rows(device, table, device.put(ids), out, error)
    assert np.array_equal(device.read(out), rows[ids])


def test_what_does_not_fit_is_refused(device: Device) -> None:
    table, ids, error = device.zeros(6, torch.float32).view(3, 2), device.put(np.arange(3)), error_word(device)
    for out in (torch.zeros(3, 3), torch.zeros(3, 2, dtype=torch.float64), torch.zeros(2, 2), torch.zeros(2, 3).T):
        with pytest.raises(GnnLoadError):
            gather_rows(device, table, ids, out.to(device.torch_device), error)
    with pytest.raises(GnnLoadError, match="int64"):
        gather_rows(device, table, ids.int(), table.clone(), error)
    location = device.put(np.zeros(3, np.int32))
    with pytest.raises(GnnLoadError, match="shards"):
        TieredTable.of(device, location, [0] * 9, [0] * 9, 8)
    with pytest.raises(GnnLoadError, match="rows"):
        gather_tiered(
            device, TieredTable.of(device, location, [], [], 8), ids, device.zeros(3, torch.int32), ids, error
        )


def test_no_error_and_errors_of_nobody() -> None:
    raise_error(0, num_rows=3)
    with pytest.raises(GnnLoadError, match="error 99"):
        raise_error(99, num_rows=3)
    assert BAD_ID != 99
