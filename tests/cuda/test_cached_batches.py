"""Mini-batches whose features come from a device's cache are those of the host, whatever stands behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lightning_gnnload import DiskFeatureStore, FeatureCache, GraphData, MemoryFeatureStore
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.quantize import quantize
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.pipeline.device_batches import DeviceBatches
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from lightning_gnnload.storage.prepare import save_features
from tests.unit.toy import content, toy_data, toy_source


def in_memory(rows: torch.Tensor, folder: Path) -> FeatureStore:
    return MemoryFeatureStore(rows)


def on_disk(rows: torch.Tensor, folder: Path) -> FeatureStore:
    save_features(rows, folder / "x", progress=False)
    return DiskFeatureStore(folder / "x")


def quantised(rows: torch.Tensor, folder: Path) -> FeatureStore:
    return quantize(rows, dtype=torch.float16)


@pytest.mark.parametrize("policy", ["degree", "fifo"])
@pytest.mark.parametrize("stored", [in_memory, on_disk, quantised])
def test_caches_on_a_device_change_no_batch(
    device: Device, policy: str, stored: Callable[[torch.Tensor, Path], FeatureStore], tmp_path: Path
) -> None:
    plain = toy_data()
    store = stored(plain.x.rows, tmp_path)
    source = toy_source(GraphData(plain.graph, store, plain.y, plain.train))
    expected = SampledLoader(source)
    rows = open_on_device(FeatureCache(policy, ratio=0.3), store, source.workload, device, progress=False)
    device.record().synchronize()
    draws = DeviceSampler(source.workload.sampler, place(plain.graph, device, weighted=False), device)
    batches = DeviceBatches(source, draws, {"x": rows}, device, convert=lambda batch: batch)
    made = SampledLoader(source, on_device=lambda: batches, num_threads=2)
    for epoch in range(2):  # the cache that admits is full in the second
        made.set_epoch(epoch)
        expected.set_epoch(epoch)
        assert [content(batch.to("cpu")) for batch in made] == [content(batch) for batch in expected]
    rows.close()
    store.close()
