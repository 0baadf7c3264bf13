"""What is read over the bus is read in the order of its places, and goes where it would have gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import MemoryFeatureStore, ops
from lightning_gnnload.cache.device.cached import DynamicFeatures, StaticFeatures
from lightning_gnnload.cache.device.features import QuantizedFeatures, WholeFeatures
from lightning_gnnload.cache.device.shards import fill_private_shard, map_rows
from lightning_gnnload.data.quantize import quantize
from lightning_gnnload.errors import CacheShareError, SeedError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import batch as batches
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.ops.cuda.tables.bus_order import (
    AS_THEY_COME,
    FEW_READS,
    NUM_BUCKETS,
    SCRATCH_WORDS,
    BusOrder,
    OrderScratch,
    Reads,
    can_order,
    order_reads,
)
from lightning_gnnload.ops.cuda.tables.gather import gather_rows, raise_error
from lightning_gnnload.ops.cuda.tables.rows import RowCodes
from lightning_gnnload.ops.cuda.tables.tiers import MissCounts, TieredTable, gather_tiered, order_missed

from . import test_neighbors, test_typed, test_weighted
from .emulated import EmulatedDevice

LEFT_ALONE = 77
MOST_SORTED = 2048  # kMostSorted of kernels/order_reads/order_reads_cuda.cu


@pytest.fixture(params=[1, 3])
def device_of(request: pytest.FixtureRequest, device: Device) -> Device:
    """With one block a launch, and with many that take turns in another order."""
    if isinstance(device, EmulatedDevice):
        return EmulatedDevice(seed=request.param, num_processors=request.param)
    return device


def entries_of(device: Device, order: BusOrder) -> tuple[np.ndarray, np.ndarray]:
    """The ids and positions, as far as there are some."""
    assert order.entries is not None
    assert order.num_entries is not None
    entries = device.read(order.entries)[: device.read(order.num_entries)[0]].view(np.uint64)
    return (entries >> np.uint64(order.position_bits)).astype(np.int64), (
        entries & np.uint64((1 << order.position_bits) - 1)
    ).astype(np.int64)


@pytest.mark.parametrize("num_rows", [1, 60, NUM_BUCKETS - 1, NUM_BUCKETS, 5 * NUM_BUCKETS, 2**40])
def test_entries_are_in_the_order_of_ids(device_of: Device, num_rows: int) -> None:
    device, draw = device_of, np.random.default_rng(num_rows % 101)
    for count in (1, 2, 700, 3000):
        ids = draw.integers(0, num_rows, count)
        found, positions = entries_of(device, order_reads(device, Reads(device.put(ids), count, num_rows)))
        expected = np.argsort(ids, kind="stable")
        if np.bincount(ids % MOST_SORTED if num_rows > 60 else ids).max() <= MOST_SORTED:
            assert np.array_equal(found, ids[expected])
            assert np.array_equal(positions, expected)  # repeated ids in the order of their places


def test_only_what_no_shard_has_is_listed(device_of: Device) -> None:
    device, draw = device_of, np.random.default_rng(0)
    location = np.where(draw.random(500) < 0.5, 0, -1).astype(np.int32)
    ids = draw.integers(-20, 520, 3000)
    reads = Reads(device.put(ids), len(ids), 500, device.put(location))
    found, positions = entries_of(device, order_reads(device, reads))
    is_id = (ids >= 0) & (ids < 500)
    expected = np.flatnonzero(is_id & (location[ids % 500] < 0))
    assert np.array_equal(found, np.sort(ids[expected]))
    assert np.array_equal(np.sort(positions), expected)
    assert np.array_equal(ids[positions], found)


@pytest.mark.parametrize("count", [MOST_SORTED, MOST_SORTED + 1])
def test_a_bucket_beyond_what_a_block_sorts_stays_as_it_is(device_of: Device, count: int) -> None:
    """All of one bucket: of 2^40 rows one has 2^28."""
    device = device_of
    ids = np.random.default_rng(1).permutation(1 << 20)[:count] + (5 << 28)
    found, positions = entries_of(device, order_reads(device, Reads(device.put(ids), count, 1 << 40)))
    assert np.array_equal(np.sort(found), np.sort(ids))
    assert np.array_equal(ids[positions], found)
    assert (np.diff(found) > 0).all() == (count <= MOST_SORTED)


def test_a_part_of_the_ids_below_what_stands_above_them(device_of: Device) -> None:
    """As destinations of a hop have them: where they begin and end is known to the device alone."""
    device, draw = device_of, np.random.default_rng(2)
    ids = draw.integers(0, 9, 900) << 20 | draw.integers(0, 700, 900)
    reads = Reads(
        device.put(ids),
        800,
        700,
        first=device.put(np.array([100])),
        end=device.put(np.array([850])),
        id_mask=(1 << 20) - 1,
    )
    found, positions = entries_of(device, order_reads(device, reads))
    low = ids[100:850] & (1 << 20) - 1
    assert np.array_equal(positions, np.argsort(low, kind="stable"))
    assert np.array_equal(found, np.sort(low))
    # No more than there is room for, whatever the device says.
    found, _ = entries_of(device, order_reads(device, replace(reads, count=20)))
    assert np.array_equal(found, np.sort(low[:20]))
    found, _ = entries_of(device, order_reads(device, replace(reads, end=reads.first)))
    assert not len(found)


def test_a_table_of_more_rows_than_entries_have_bits_for_is_read_as_it_comes(device: Device) -> None:
    assert can_order(1 << 24, (1 << 39) - 1)
    assert not can_order(1 << 24, 1 << 39)
    assert not can_order(1 << 31, 10)
    case = Cached(device, 8, 0.5)
    assert order_missed(device, case.table, device.zeros(0, torch.int64)) is AS_THEY_COME
    assert order_missed(device, replace(case.table, backing=None), device.put(np.arange(9))) is AS_THEY_COME


def test_the_caller_may_give_the_memory(device: Device) -> None:
    ids = device.put(np.array([5, 3, 9]))
    scratch = OrderScratch(device.zeros(SCRATCH_WORDS, torch.int64), device.empty(3, torch.int64))
    order = order_reads(device, Reads(ids, 3, 10), scratch)
    assert order.entries is scratch.entries
    assert entries_of(device, order)[0].tolist() == [3, 5, 9]
    if isinstance(device, EmulatedDevice):
        before = device.free_bytes()
        order_reads(device, Reads(ids, 3, 10), scratch._replace(words=scratch.words.zero_()))
        assert device.free_bytes() == before


class Cached:
    """Rows of which a share is in two shards, and all are in the host's memory."""

    def __init__(self, device: Device, row_bytes: int, hits: float, *, num_nodes: int = 6000) -> None:
        draw = self.draw = np.random.default_rng(row_bytes)
        self.rows = draw.integers(0, 256, (num_nodes, row_bytes), dtype=np.uint8)
        holder = np.where(draw.random(num_nodes) < hits, draw.integers(0, 2, num_nodes), -1)
        self.location, self.num_rows, self.held = np.full(num_nodes, -1, np.int32), [], []
        for shard in range(2):
            nodes = draw.permutation(np.flatnonzero(holder == shard))
            self.location[nodes] = shard << ops.SLOT_BITS | np.arange(len(nodes))
            self.held.append(device.put(self.rows[nodes].reshape(-1)))
            self.num_rows.append(len(nodes))
        self.device = device
        self.table = self.table_of()

    def table_of(self) -> TieredTable:
        return TieredTable.of(
            self.device,
            self.device.put(self.location),
            [held.data_ptr() for held in self.held],
            self.num_rows,
            self.rows.shape[1],
            self.device.map_host(self.rows),
        )

    def gather(self, ids: np.ndarray, **more: Any) -> tuple[np.ndarray, np.ndarray, int]:
        """The rows, the counts and the error."""
        device, count = self.device, len(ids)
        on_ids = device.put(ids)
        out = device.put(np.full((count, self.rows.shape[1]), LEFT_ALONE, np.uint8))
        taken, error = device.zeros(ops.MAX_SHARDS + 1, torch.int64), device.zeros(1, torch.int64)
        far = order_missed(device, self.table, on_ids)
        gather_tiered(device, self.table, on_ids, out, taken, error, far, **more)
        return device.read(out), device.read(taken), int(device.read(error)[0])


@pytest.mark.parametrize("row_bytes", [1, 6, 100, 512])
@pytest.mark.parametrize("hits", [0.0, 0.5, 0.99, 1.0])
def test_rows_are_those_of_the_table_at_any_share_of_hits(device_of: Device, row_bytes: int, hits: float) -> None:
    case = Cached(device_of, row_bytes, hits)
    for count in (0, 1, 700, 2500):
        ids = case.draw.integers(0, 6000, count)  # some of them repeat
        rows, taken, error = case.gather(ids)
        assert np.array_equal(rows, case.rows[ids])
        assert error == 0
        holder = np.where(case.location[ids] < 0, 8, case.location[ids] >> ops.SLOT_BITS)
        assert np.array_equal(taken, np.bincount(holder, minlength=9))


@pytest.mark.parametrize("far_blocks", [1, 2, 7])
def test_any_number_of_blocks_reads_the_host(far_blocks: int) -> None:
    case = Cached(EmulatedDevice(num_processors=8), 40, 0.5)
    ids = case.draw.permutation(6000)
    rows, taken, _ = case.gather(ids, far_blocks=far_blocks)
    assert np.array_equal(rows, case.rows[ids])
    assert taken.sum() == 6000


def test_ids_and_locations_of_none_are_told(device_of: Device) -> None:
    case = Cached(device_of, 8, 0.5)
    case.location[[7, 9]] = 2 << ops.SLOT_BITS, (1 << 31) - 1
    case.table = case.table_of()
    ids = case.draw.integers(10, 6000, 900)
    ids[[30, 40, 600, 700]] = 6000, -1, 7, 9
    rows, taken, error = case.gather(ids)
    sound = np.setdiff1d(np.arange(900), [30, 40, 600, 700])
    assert np.array_equal(rows[sound], case.rows[ids[sound]])
    assert not rows[[30, 40, 600, 700]].any()
    assert taken.sum() == 898
    with pytest.raises((SeedError, CacheShareError)):
        raise_error(error, num_rows=6000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float64])
def test_rows_of_a_mapped_table(device_of: Device, dtype: torch.dtype) -> None:
    device, draw, count = device_of, np.random.default_rng(3), FEW_READS + 100
    table = torch.from_numpy(draw.integers(-100, 100, (9000, 3))).to(dtype)
    ids, positions = draw.integers(0, 9000, count), draw.permutation(count + 50)[:count]
    mapped = device.map_host(table.view(torch.uint8).numpy())
    out = device.put(np.full((count + 50, table.shape[1] * dtype.itemsize), LEFT_ALONE, np.uint8))
    gather_rows(device, mapped, device.put(ids), out, device.zeros(1, torch.int64), device.put(positions))
    expected = np.full(out.shape, LEFT_ALONE, np.uint8)
    expected[positions] = table.view(torch.uint8).numpy()[ids]
    assert np.array_equal(device.read(out), expected)


def test_ids_of_no_row_of_a_mapped_table(device: Device) -> None:
    draw, count = np.random.default_rng(4), FEW_READS
    table, ids = draw.integers(1, 256, (500, 2), dtype=np.uint8), draw.integers(0, 500, count)
    ids[[3000, 41, 99]] = [500, -1, 1 << 40]
    out, error = device.put(np.full((count, 2), LEFT_ALONE, np.uint8)), device.zeros(1, torch.int64)
    gather_rows(device, device.map_host(table), device.put(ids), out, error)
    sound = (ids >= 0) & (ids < 500)
    assert np.array_equal(device.read(out), np.where(sound[:, None], table[ids % 500], 0))
    with pytest.raises(SeedError, match=r"ids\[41\]"):
        raise_error(int(device.read(error)[0]), num_rows=500)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("where", ["device", "mapped", "tiers"])
def test_codes_are_decoded_as_on_the_cpu(device: Device, where: str, dtype: torch.dtype) -> None:
    """From sizes that the dtype rounds to nothing to those beyond it; widths and addresses that four codes at a time do
    not divide."""
    for width, offset_bytes, count in ((4, 0, 500), (128, 0, 70), (7, 0, 300), (8, 2, 300), (8, 4, FEW_READS)):
        draw = np.random.default_rng(width)
        codes = draw.integers(-128, 128, (600, width), dtype=np.int8)
        scale = (10.0 ** draw.uniform(-9, 3, width)).astype(np.float32)
        offset = (draw.standard_normal(width) * scale * 50).astype(np.float32)
        ids = draw.integers(0, 600, count)
        expected = torch.empty(count, width, dtype=dtype)
        numbers = expected.view(torch.uint16) if dtype is torch.bfloat16 else expected
        ops.gather_quantized(codes, scale, offset, ids, numbers.numpy())
        memory = device.put(np.zeros(offset_bytes + expected.nbytes, np.uint8))
        out = memory[offset_bytes:].view(count, width * dtype.itemsize)
        columns = RowCodes(device.put(scale), device.put(offset), dtype)
        on_ids, error = device.put(ids), device.zeros(1, torch.int64)
        held, mapped = device.put(codes.view(np.uint8)), device.map_host(codes.view(np.uint8))
        if where == "tiers":
            location = np.where(np.arange(600) < 300, np.arange(600), -1).astype(np.int32)
            table = TieredTable.of(device, device.put(location), [held.data_ptr()], [300], width, mapped)
            taken, far = device.zeros(ops.MAX_SHARDS + 1, torch.int64), order_missed(device, table, on_ids)
            gather_tiered(device, table, on_ids, out, taken, error, far, codes=columns)
        else:
            gather_rows(device, held if where == "device" else mapped, on_ids, out, error, codes=columns)
        assert np.array_equal(device.read(out), expected.view(torch.uint8).numpy())


def test_few_misses_are_read_as_they_come(device: Device) -> None:
    counts = MissCounts(device)
    assert not counts.expects_few(10_000)  # nobody knows yet
    words = counts._counts.tensor
    words[0], words[-1] = 9_000, 1_000
    assert not counts.expects_few(100_000)
    assert counts.expects_few(10_000)  # a tenth of them is few
    assert not counts.expects_few(100_000)  # no batch since: what the last ones said still holds
    words[0] += 90_000
    assert counts.expects_few(100_000)
    words[-1] += 100_000
    assert not counts.expects_few(5_000)
    assert counts.expects_few(FEW_READS - 1)


ORDER = ["order_reads/count_reads", "order_reads/place_reads", "order_reads/sort_reads"]


class Noting(EmulatedDevice):
    """Notes launches in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def launch(self, op: str, kernel: str, types: Any = (), **more: Any) -> None:
        self.noted.append(f"{op}/{kernel}")
        super().launch(op, kernel, types, **more)

    def taken(self) -> list[str]:
        noted, self.noted = self.noted, []
        return noted


def test_launches_of_a_gather() -> None:
    device = Noting()
    case = Cached(device, 8, 0.5)
    case.gather(np.arange(5000))
    assert device.taken() == [*ORDER, "gather_tiered/gather_tiered"]
    case.table = replace(case.table, backing=None)
    case.gather(np.arange(5000))
    assert device.taken() == ["gather_tiered/gather_tiered"]
    rows, out, error = (
        device.map_host(case.rows),
        device.zeros(5000 * 8, torch.uint8).view(-1, 8),
        device.zeros(1, torch.int64),
    )
    gather_rows(device, rows, device.put(np.arange(5000)), out, error)
    assert device.taken() == [*ORDER, "gather_rows/gather_rows"]
    gather_rows(device, rows, device.put(np.arange(FEW_READS - 1)), out, error)  # few
    gather_rows(device, rows, None, out, error)  # in order
    gather_rows(device, device.put(case.rows), device.put(np.arange(5000)), out, error)  # not over the bus
    assert device.taken() == ["gather_rows/gather_rows"] * 3


def test_launches_of_a_cache() -> None:
    """In order, until a batch has told that there is little to put in order; again when that has changed."""
    device = Noting()
    store = MemoryFeatureStore(torch.arange(12_000.0).view(-1, 2))
    backing = map_rows(device, store)
    location, shard = fill_private_shard(device, store, np.arange(5000)[::-1].copy(), backing)
    assert device.taken() == [*ORDER, "gather_rows/gather_rows"]
    features = StaticFeatures(device, store, location, shard, backing)
    one = ["gather_tiered/gather_tiered"]
    near, far = np.arange(5000), np.arange(5999, 999, -1)
    for ids, launches in (
        (near, [*ORDER, *one]),
        (near, one),
        (far, one),
        (far, one),
        (np.repeat(far, 20), [*ORDER, *one]),
        (near, one),
    ):
        assert torch.equal(features.gather(device.put(ids)), store.rows[ids])
        assert device.taken() == launches
    assert [read.rows for read in features.reads()] == [5000 * 3 + 4000 * 22, 1000 * 22]
    features.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_launches_of_quantised_rows(dtype: torch.dtype) -> None:
    device = Noting()
    store = quantize(torch.arange(900.0).view(-1, 3), dtype=dtype, progress=False)
    codes = store.codes
    expected, ids = torch.empty(90, 3, dtype=dtype), torch.arange(180, 0, -2)
    store.gather(ids, expected)
    backing = map_rows(device, codes)
    location, shard = fill_private_shard(device, codes, np.arange(150), backing)
    admitted = [f"dynamic_cache/{kernel}" for kernel in ("claim", "list_admitted", "admit")]
    tiered, decoded = "gather_tiered/gather_tiered", "gather_rows/gather_rows"
    for features, launches in (
        (WholeFeatures(device, backing, codes.shape, codes.dtype, "memory"), [decoded]),
        (StaticFeatures(device, codes, location, shard, backing), [tiered]),
        (StaticFeatures(device, codes, location, shard), ["gather_tiered/list_missed", tiered, decoded]),
        (DynamicFeatures(device, codes, 50, backing), [tiered, *admitted, decoded]),
    ):
        device.taken()
        out = QuantizedFeatures(store, features).gather(device.put(ids.numpy()))
        assert torch.equal(out, expected)
        assert device.taken() == launches


@pytest.fixture
def _all_lists_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "FEW_LISTS", 1)
    monkeypatch.setattr(Topology, "is_on_bus", True)


def test_only_lists_that_come_over_the_bus_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "FEW_LISTS", 16)
    device = Noting()
    test_neighbors.check(device, test_neighbors.skewed_graph(seed=1), [5, 3])
    assert not [name for name in device.taken() if name.startswith("order_reads")]
    test_neighbors.test_lists_are_read_from_shards(device, np.int64)  # [5, 3] and [-1, 2] for 6 seeds
    assert [name for name in device.taken() if name.startswith("order_reads")] == ORDER * 2


@pytest.mark.usefixtures("_all_lists_in_order")
class TestDestinationsInOrder:
    """Batches are the CPU's in whatever order destinations are drawn for."""

    @pytest.mark.parametrize("fanouts", [[1], [5, 3], [16, 4], [17], [33], [-1, 2], [3, -1]], ids=str)
    def test_uniform(self, device_of: Device, fanouts: list[int]) -> None:
        test_neighbors.test_a_batch_is_that_of_the_cpu(device_of, fanouts, np.int32)

    @pytest.mark.parametrize("kind", ["random", "skewed"])
    @pytest.mark.parametrize("fanouts", [[5, 3], [-1, 2], [33]], ids=str)
    def test_by_weight(self, device_of: Device, kind: str, fanouts: list[int]) -> None:
        test_weighted.test_a_batch_is_that_of_the_cpu(device_of, kind, fanouts)

    @pytest.mark.parametrize("number", range(8))
    def test_by_type_time_and_query(self, device_of: Device, number: int) -> None:
        test_typed.test_a_batch_of_any_graph_is_that_of_the_cpu(device_of, number)

    def test_places_are_those_of_nodes_whatever_query_stands_above_them(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        most_ids = []

        def order(device: Device, reads: Reads) -> BusOrder:
            found = order_reads(device, reads)
            most_ids.append(int(entries_of(device, found)[0].max()))
            return found

        monkeypatch.setattr(batches, "order_reads", order)
        test_typed.test_many_rows_of_one_node(device)  # of 60
        assert len(most_ids) == 2
        assert max(most_ids) < 60

    def test_launches(self) -> None:
        device = Noting()
        test_neighbors.check(device, test_neighbors.skewed_graph(seed=1), [5, 3])
        assert [name for name in device.taken() if name.startswith("order_reads")] == ORDER * 2
