"""Feature rows gathered on a device: the store's rows, wherever they lie, and what is told of where."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_gnnload import FeatureCache, Graph, MemoryFeatureStore, NeighborSampler, ops
from lightning_gnnload.cache.device.cached import DynamicFeatures, StaticFeatures
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.cache.device.features import DeviceFeatures, WholeFeatures
from lightning_gnnload.cache.device.shards import Shards, fill_private_shard, map_rows
from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.metrics import hit_rate
from lightning_gnnload.cache.static import deal_to_shards
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.quantize import quantize
from lightning_gnnload.errors import (
    CacheConfigError,
    CacheShareError,
    CacheTooSmallError,
    CudaUnavailableError,
    DeviceMemoryError,
    FeatureFileError,
    GnnLoadError,
    SeedError,
)
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.sample.workload import Workload

from .emulated import EmulatedDevice

NUM_NODES = 50
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float64]


def table(dtype: torch.dtype = torch.float32, width: int = 3, num_nodes: int = NUM_NODES) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(-100, 100, (num_nodes, width), generator=draw).to(dtype)


class UnmappedStore(FeatureStore):
    """Rows that kernels cannot read in place, as those on disk."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = MemoryFeatureStore(rows)
        self.asked: list[list[int]] = []

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows.shape

    @property
    def dtype(self) -> torch.dtype:
        return self._rows.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        self.asked.append(ids.tolist())
        self._rows.gather(ids, out)


def gathered(features: DeviceFeatures, ids: np.ndarray) -> torch.Tensor:
    return features.gather(features.device.put(ids)).cpu()


def static(device: Device, store: FeatureStore, hot: list[int]) -> StaticFeatures:
    backing = map_rows(device, store)
    location, shard = fill_private_shard(device, store, np.array(hot, np.int64), backing)
    return StaticFeatures(device, store, location, shard, backing)


def workload(num_nodes: int = NUM_NODES) -> Workload:
    """Node 0 has every other node as a neighbour, so degrees rank node ids from last to first."""
    src = np.concatenate([np.full(v, v) for v in range(num_nodes)])
    dst = np.concatenate([np.arange(v) for v in range(num_nodes)])
    graph = Graph.from_coo(src=src, dst=dst)
    return Workload(graph, NeighborSampler([2]), np.arange(num_nodes), batch_size=10, order=Sequential())


def opened(device: Device, store: FeatureStore, settings: FeatureCache | None, **arguments: int) -> DeviceFeatures:
    return open_on_device(settings, store, workload(), device, progress=False, **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("policy", ["degree", "fifo"])
def test_rows_are_the_stores(device: Device, dtype: torch.dtype, mapped: bool, policy: str) -> None:
    rows = table(dtype)
    features = opened(device, MemoryFeatureStore(rows) if mapped else UnmappedStore(rows), FeatureCache(policy, 0.3))
    draw = np.random.default_rng(0)
    for count in (20, 0, 50, 7, 30):
        ids = draw.permutation(NUM_NODES)[:count]
        out = gathered(features, ids)
        assert out.dtype == dtype
        assert torch.equal(out, rows[ids])
    features.check()


def test_the_host_waits_only_where_kernels_cannot_read_the_store(device: Device) -> None:
    ids = device.put(np.arange(20))
    for store, reads in ((MemoryFeatureStore(table()), 0), (UnmappedStore(table()), 1)):
        for features in (static(device, store, [1, 2, 3]), DynamicFeatures(device, store, 4, map_rows(device, store))):
            before = device.num_reads
            features.gather(ids)
            assert device.num_reads - before == reads


class WithoutWaiting(TorchDispatchMode):
    """Refuses what makes the host wait for a CUDA device, which nobody notices on another."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert func.overloadpacket.__name__ not in self.WAITS, f"{func} waits for the device"
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("cache", [None, FeatureCache("degree", 0.4), FeatureCache("fifo", 0.4)])
def test_no_operation_of_torch_waits_in_secret(device: Device, cache: FeatureCache | None) -> None:
    for store in (MemoryFeatureStore(table()), quantize(table())):
        features, ids = opened(device, store, cache), device.put(np.arange(20))
        before = device.num_reads
        with WithoutWaiting():
            features.gather(ids)
        assert device.num_reads == before


def test_reads_are_told_since_the_last_time(device: Device) -> None:
    features = static(device, MemoryFeatureStore(table()), hot=[7, 3, 40])
    gathered(features, np.array([3, 4, 40, 3]))
    gathered(features, np.array([5]))
    assert features.reads() == (("cache", 3, 36), ("memory", 2, 24))
    assert hit_rate(features.reads()) != hit_rate(features.reads())  # nan: nothing since
    gathered(features, np.array([3]))
    assert features.reads() == (("cache", 1, 12), ("memory", 0, 0))


def test_rows_of_peers_are_told_apart(device: Device) -> None:
    rows = table()
    places = deal_to_shards(20, num_shards=3)
    location = np.full(NUM_NODES, -1, np.int32)
    location[:20] = places
    held = [device.put(rows[:20][places >> ops.SLOT_BITS == shard].numpy()) for shard in range(3)]
    store = MemoryFeatureStore(rows)
    shards = Shards([shard.data_ptr() for shard in held], [len(shard) for shard in held], own_shard=1)
    features = StaticFeatures(device, store, device.put(location), shards, map_rows(device, store))
    assert torch.equal(gathered(features, np.arange(NUM_NODES)), rows)
    own = len(held[1])
    counts = {read.tier: read.rows for read in features.reads()}
    assert counts == {"cache": own, "cache of peers": 20 - own, "memory": 30}


def test_a_store_is_asked_for_what_is_missed_alone_and_in_order(device: Device) -> None:
    store = UnmappedStore(table())
    features = static(device, store, hot=[1, 2])
    store.asked.clear()
    gathered(features, np.array([9, 1, 4, 2, 3]))
    gathered(features, np.array([2, 1]))
    assert store.asked == [[9, 4, 3]]
    assert features.reads() == (("cache", 4, 48), ("store", 3, 36))


def test_admissions_and_hits_are_the_cpus(device: Device) -> None:
    store = MemoryFeatureStore(table())
    features, cpu = DynamicFeatures(device, store, 12, map_rows(device, store)), DynamicCache(store, 12)
    draw = np.random.default_rng(3)
    for _ in range(12):
        ids = draw.permutation(NUM_NODES)[: draw.integers(1, 30)]
        expected = torch.empty(len(ids), 3)
        reads = cpu.gather(torch.from_numpy(ids), expected)
        assert torch.equal(gathered(features, ids), expected)
        assert hit_rate(features.reads()) == hit_rate(reads)


def test_a_store_that_fails_leaves_the_cache_sound(device: Device) -> None:
    class FailsOnce(UnmappedStore):
        def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
            fails, self.fails = self.fails, False
            if fails:
                raise FeatureFileError("the disk is gone")
            super().gather(ids, out)

    store = FailsOnce(table())
    store.fails = True
    features = DynamicFeatures(device, store, 10)
    with pytest.raises(FeatureFileError):
        gathered(features, np.arange(5))
    for _ in range(2):
        assert torch.equal(gathered(features, np.arange(5)), table()[:5])
    assert store.asked == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("mapped", [True, False])
def test_an_id_of_no_node_is_told_later(device: Device, mapped: bool) -> None:
    store = MemoryFeatureStore(table()) if mapped else UnmappedStore(table())
    features = static(device, store, hot=[1])
    out = gathered(features, np.array([1, NUM_NODES, 2]))
    assert torch.equal(out, torch.stack([table()[1], torch.zeros(3), table()[2]]))
    for tell in (features.check, features.reads):
        with pytest.raises(SeedError, match=r"ids\[1\]"):
            tell()


def test_a_damaged_table_of_locations_is_told_later(device: Device) -> None:
    store = MemoryFeatureStore(table())
    location, shard = fill_private_shard(device, store, np.array([4, 5]), None)
    location[9] = 2
    features = StaticFeatures(device, store, location, shard, map_rows(device, store))
    gathered(features, np.array([4, 9]))
    with pytest.raises(CacheShareError, match=r"ids\[1\]"):
        features.check()


def test_an_output_of_ones_own_is_filled_and_has_to_fit(device: Device) -> None:
    features, ids = static(device, MemoryFeatureStore(table()), hot=[1]), device.put(np.array([1, 8]))
    out = device.zeros(6, torch.float32).view(2, 3)
    assert features.gather(ids, out) is out
    assert torch.equal(out.cpu(), table()[[1, 8]])
    for wrong in (out[:1], out.double(), out.T, out.view(3, 2)):
        with pytest.raises(GnnLoadError, match="out"):
            features.gather(ids, wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cache", [None, FeatureCache("degree", 0.5), FeatureCache("fifo", 0.1)])
def test_quantised_rows_equal_the_cpus(device: Device, dtype: torch.dtype, cache: FeatureCache | None) -> None:
    rows = torch.randn(NUM_NODES, 5, generator=torch.Generator().manual_seed(2)) * 100
    store = quantize(rows, dtype=dtype)
    ids = np.random.default_rng(4).permutation(NUM_NODES)
    expected = torch.empty(NUM_NODES, 5, dtype=dtype)
    store.gather(torch.from_numpy(ids), expected)
    features = opened(device, store, cache)
    out = gathered(features, ids)
    assert out.dtype == dtype
    assert torch.equal(out, expected)
    assert sum(read.num_bytes for read in features.reads()) == NUM_NODES * 5  # codes, not floats
    features.check()
    features.close()


def test_a_cache_of_all_rows_and_none(device: Device) -> None:
    rows = table()
    for store in (MemoryFeatureStore(rows), UnmappedStore(rows)):
        for settings, tier in (
            (FeatureCache("degree", 1.0), "cache"),
            (FeatureCache("degree", 0.0), None),
            (None, None),
        ):
            features = opened(device, store, settings)
            assert torch.equal(gathered(features, np.arange(NUM_NODES)[::-1].copy()), rows.flip(0))
            (read,) = features.reads()
            assert (read.rows, read.tier) == (
                NUM_NODES,
                tier or ("memory" if type(store) is MemoryFeatureStore else "store"),
            )


def test_the_hottest_rows_are_held(device: Device) -> None:
    features = opened(device, MemoryFeatureStore(table()), FeatureCache("degree", 0.2))
    gathered(features, np.arange(40, 50))
    gathered(features, np.arange(40))
    assert [read.rows for read in features.reads()] == [10, 40]


def test_rows_without_columns_or_nodes(device: Device) -> None:
    for shape in ((NUM_NODES, 0), (0, 4), (0, 0)):
        features = open_on_device(None, MemoryFeatureStore(torch.empty(shape)), workload(), device, progress=False)
        assert gathered(features, np.arange(0)).shape == (0, shape[1])
    features = opened(device, MemoryFeatureStore(torch.empty(NUM_NODES, 0)), FeatureCache("degree", 0.2))
    assert gathered(features, np.arange(3)).shape == (3, 0)


@pytest.mark.parametrize(
    ("settings", "room_bytes", "rows"),
    [
        (FeatureCache("degree"), 4 * NUM_NODES + 12 * 7 + 3, 7),  # without limits, all of the room
        (FeatureCache("fifo"), 4 * NUM_NODES + 20 * 5, 5),
        (FeatureCache("degree", 0.1), 1 << 20, 5),
        (FeatureCache("degree", capacity_bytes=4 * NUM_NODES + 12 * 3), 1 << 20, 3),
    ],
)
def test_a_cache_keeps_within_its_room(device: Device, settings: FeatureCache, room_bytes: int, rows: int) -> None:
    features = opened(device, MemoryFeatureStore(table()), settings, room_bytes=room_bytes)
    for _ in range(2):
        gathered(features, np.arange(NUM_NODES)[::-1].copy())
        counts = {read.tier: read.rows for read in features.reads()}
    assert f"{rows} of" in repr(features)
    assert settings.policy == "fifo" or counts["cache"] == rows


def test_room_that_is_too_small_is_an_error(device: Device) -> None:
    store = MemoryFeatureStore(table())
    with pytest.raises(DeviceMemoryError, match="less than asked for"):
        opened(device, store, FeatureCache("degree", 0.9), room_bytes=300)
    levels = [FeatureCache("degree", 0.4)] * 2  # of which each has room by itself
    with pytest.raises(DeviceMemoryError, match="less than asked for"):
        opened(device, store, levels, room_bytes=4 * NUM_NODES + 12 * 25)
    with pytest.raises(CacheTooSmallError):
        opened(device, store, FeatureCache("degree"), room_bytes=100)
    small = EmulatedDevice(memory_bytes=1000)
    with pytest.raises(DeviceMemoryError):
        opened(small, MemoryFeatureStore(table(width=30)), FeatureCache("degree", 1.0))


@pytest.mark.parametrize("policy", ["clock", "s3fifo", "belady", "clairvoyant"])
def test_what_devices_cannot_hold_is_refused(policy: str) -> None:
    with pytest.raises(CacheConfigError, match="device='cuda'"):
        FeatureCache(policy, 0.1, device="cuda")
    with pytest.raises(CacheConfigError, match="cannot lie on a device"):
        opened(EmulatedDevice(), MemoryFeatureStore(table()), FeatureCache(policy, 0.1))


def test_settings_name_a_device() -> None:
    assert [FeatureCache(device=device).device for device in ("auto", "cpu", "cuda")] == ["auto", "cpu", "cuda"]
    with pytest.raises(CudaUnavailableError, match="device='auto'"):
        FeatureCache("degree", 0.5, device="cuda").open(MemoryFeatureStore(table()), workload(), progress=False)
    with pytest.raises(CacheConfigError, match="'gpu'"):
        FeatureCache(device="gpu")  # type: ignore[arg-type]


def test_memory_that_cannot_be_page_locked_is_copied_through_the_host(caplog: pytest.LogCaptureFixture) -> None:
    class Refuses(EmulatedDevice):
        def map_host(self, array: np.ndarray) -> object:
            if not array.flags.writeable:  # the table, which nobody may write
                raise DeviceMemoryError("ulimit -l is 64 KB.")
            return super().map_host(array)

    store = MemoryFeatureStore(table())
    features = opened(Refuses(), store, FeatureCache("degree", 0.2))
    assert torch.equal(gathered(features, np.arange(NUM_NODES)), store.rows)
    assert [record.message.count("ulimit") for record in caplog.records] == [1]


@pytest.mark.parametrize("cache", [None, FeatureCache("degree", 0.4), FeatureCache("fifo", 0.4)])
@pytest.mark.parametrize("mapped", [True, False])
def test_threads_gather_on_streams_of_their_own(device: Device, cache: FeatureCache | None, mapped: bool) -> None:
    rows = table()
    features = opened(device, MemoryFeatureStore(rows) if mapped else UnmappedStore(rows), cache)
    wrong: list[object] = []

    def gather(seed: int) -> None:
        draw = np.random.default_rng(seed)
        try:
            for _ in range(6):
                ids = draw.permutation(NUM_NODES)[:30]
                with device.side_stream() if seed else nullcontext():
                    out = device.read(features.gather(device.put(ids)))
                if not np.array_equal(out, rows[ids].numpy()):
                    wrong.append(ids)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert sum(read.rows for read in features.reads()) == 3 * 6 * 30


def test_a_table_says_what_it_is(device: Device) -> None:
    assert "memory" in repr(opened(device, MemoryFeatureStore(table()), None))
    assert isinstance(opened(device, MemoryFeatureStore(table()), None), WholeFeatures)
    assert "float16" in repr(opened(device, quantize(table(), dtype=torch.float16), None))


def test_a_cache_shrinks_where_memory_is_in_pieces() -> None:
    class InPieces(EmulatedDevice):
        largest = 12 * 17

        def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
            if dtype == torch.uint8 and count > self.largest:
                raise DeviceMemoryError("no block is so large.")
            return super().empty(count, dtype)

    store = MemoryFeatureStore(table())
    features = opened(InPieces(), store, FeatureCache("degree", 0.5))
    assert "16 of 50" in repr(features)  # 25, 20, 16
    assert torch.equal(gathered(features, np.arange(NUM_NODES)), store.rows)
