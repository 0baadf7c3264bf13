"""Memory is not used again before every stream, and the host, is done with what was there.

On a device, work is launched behind some that takes long, so that what is freed too early holds other numbers when it
is read. The emulated device says so instead, at the allocation or the write that comes too early.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureCache, NeighborSampler
from lightning_gnnload.adapters.pyg.write import to_pyg
from lightning_gnnload.cache import static as static_cache
from lightning_gnnload.cache.device.cached import DynamicFeatures, StaticFeatures
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.cache.device.shards import fill_private_shard
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.timing import keep_busy
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.pipeline.device_batches import DeviceBatches
from lightning_gnnload.pipeline.device_slots import DeviceExporter, DeviceSlot
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import DeviceSource
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from tests.ops import graphs
from tests.unit.toy import toy_source

from .emulated import EmulatedDevice
from .fake_runtime import FakeRuntime
from .sampled import assert_equal, skewed_graph, topology_of
from .test_device_features import NUM_NODES, UnmappedStore, opened, table


class WatchedStore(UnmappedStore):
    """Writes rows as a store does, to memory that the device may read no more."""

    def __init__(self, rows: torch.Tensor, device: Device) -> None:
        super().__init__(rows)
        self._device = device

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        if isinstance(self._device, EmulatedDevice):
            self._device.streams.host_writes(out.data_ptr(), out.nbytes)
        super().gather(ids, out)


@pytest.mark.parametrize("convert", [None, to_pyg])
def test_a_step_reads_its_batch_however_late(device: Device, convert: Callable[[Any], Any] | None) -> None:
    """It is launched and its batch dropped, and other batches are made, before the device comes to it."""
    if convert is not None:
        pytest.importorskip("torch_geometric")
    source = toy_source(sampler=NeighborSampler([3, 2], expand="new"))
    features = open_on_device(FeatureCache("degree", ratio=0.5), source.data.x, source.workload, device, progress=False)
    draws = DeviceSampler(source.workload.sampler, place(source.data.graph, device), device)
    device.synchronize()
    batches = DeviceBatches(source, draws, {"x": features}, device, convert=convert or (lambda batch: batch))
    read = []
    for batch in SampledLoader(source, on_device=lambda: batches, num_threads=2):
        keep_busy(device)
        if convert is None:
            nodes, index, x, y = batch.nodes, batch.blocks[0].indices, batch.x, batch.y
        else:
            nodes, index, x, y = batch.n_id, batch.edge_index, batch.x, batch.y
        read.append([tensor.clone() for tensor in (nodes, index, x, y)])
        del batch, nodes, index, x, y
    device.synchronize()
    for batch, (nodes, index, x, y) in zip(SampledLoader(source), read, strict=True):
        if convert is None:
            assert torch.equal(index.cpu(), batch.blocks[0].indices)
        assert torch.equal(nodes.cpu(), batch.nodes)
        assert torch.equal(x.cpu(), batch.x)
        assert torch.equal(y.cpu(), batch.y)


def test_a_table_that_grows_on_another_stream_is_not_given_away(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to this stream; the side stream enters its seed, and replaces the table for what the hops may bring,
    while a thread takes memory on this stream."""
    graph = skewed_graph(seed=2, num_nodes=400, num_edges=3000)
    topology, numbers = topology_of(device, *graph), DeviceWorkspace(device, 400, "hash")
    seeds, key, allocate = np.arange(1), DrawKey(0, 0, 1), device.empty
    sample_neighbors(numbers, topology, seeds, [1], key)
    made, taken = device.record(), list[Future[torch.Tensor]]()
    with ThreadPoolExecutor(1) as other, device.side_stream():

        def beside_others(count: int, dtype: torch.dtype) -> torch.Tensor:
            taken.append(other.submit(device.zeros, 16, torch.int32))
            taken[-1].exception()  # waits
            return allocate(count, dtype)

        monkeypatch.setattr(device, "empty", beside_others)
        made.wait()
        keep_busy(device)
        sample = sample_neighbors(numbers, topology, seeds, [30, 2], key)
        done = device.record()
    done.wait()
    assert_equal(sample, graphs.sample(*graph, seeds, [30, 2], key))
    assert len(taken) > 5
    assert not any(each.result().any() for each in taken)


@pytest.mark.parametrize("cache", [None, FeatureCache("degree", 0.4), FeatureCache("fifo", 0.4)])
def test_closed_features_are_read_to_the_end(device: Device, cache: FeatureCache | None) -> None:
    rows = table()
    store = UnmappedStore(rows) if cache is None else WatchedStore(rows, device)
    features, ids = opened(device, store, cache), np.arange(NUM_NODES)[::-1].copy()
    with device.side_stream():
        asked = device.put(ids)
        keep_busy(device)
        out = features.gather(asked)
        done = device.record()
    features.close()
    if cache is not None and isinstance(device, EmulatedDevice):
        assert device.streams.is_idle  # it cannot see who reads shards, whose addresses lie on the device
    others = [device.zeros(count, torch.uint8) for count in (60, 200, 240, 600)]
    done.wait()
    assert torch.equal(out.cpu(), rows[ids])
    assert not any(other.any() for other in others)


@pytest.mark.parametrize("makes", [StaticFeatures, DynamicFeatures])
def test_rows_are_staged_anew_when_the_last_were_read(device: Device, makes: type) -> None:
    """By one thread, on two streams."""
    store = WatchedStore(table(), device)
    if makes is DynamicFeatures:
        features = DynamicFeatures(device, store, 10)
    else:
        features = StaticFeatures(device, store, *fill_private_shard(device, store, np.arange(5), None), None)
    outs = []
    for step in range(4):
        ids = np.random.default_rng(step).permutation(NUM_NODES)[:30]
        with device.side_stream():
            keep_busy(device)
            outs.append((features.gather(device.put(ids)), ids, device.record()))
        outs.append((features.gather(device.put(ids[::-1].copy())), ids[::-1], device.record()))
    for out, ids, done in outs:
        done.wait()
        assert torch.equal(out.cpu(), table()[ids.copy()])


def test_pieces_of_a_cache_wait_for_each_other(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    store = WatchedStore(table(), device)
    monkeypatch.setattr(static_cache, "_CHUNK_BYTES", 7 * store.row_bytes)
    location, shards = fill_private_shard(device, store, np.arange(NUM_NODES), None)
    features = StaticFeatures(device, store, location, shards, None)
    assert torch.equal(features.gather(device.put(np.arange(NUM_NODES))).cpu(), table())
    assert len(store.asked) == -(-NUM_NODES // 7)


def test_a_slot_is_told_when_its_batch_is_there() -> None:
    """The trainer that copies from it knows nothing of the sampler's streams."""
    device, source, runtime = EmulatedDevice(), toy_source(), FakeRuntime()
    draws = DeviceSampler(source.workload.sampler, place(source.data.graph, device), device)
    sampling = DeviceSource(source, draws, device, DeviceExporter(runtime))
    slot = DeviceSlot(runtime, 1 << 16)
    sampling.make(BatchRequest(epoch=0, rank=0, step=0, num_ranks=1), slot)
    assert device.streams.is_idle
    slot.close()
