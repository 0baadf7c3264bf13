"""Gathers of a real size: what races, and what is beyond 32 bits, would show here alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload import MemoryFeatureStore, ops
from lightning_gnnload.cache.device.cached import DynamicFeatures, StaticFeatures
from lightning_gnnload.cache.device.shards import fill_private_shard, map_rows
from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.metrics import hit_rate
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.tables.bus_order import AS_THEY_COME
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.cuda.tables.tiers import TieredTable, gather_tiered, order_missed

NUM_NODES, NUM_IDS = 400_000, 500_000


@pytest.mark.parametrize("width", [1, 25, 100, 128, 1024])
@pytest.mark.parametrize("far_blocks", [0, 1, None, 10_000])
def test_many_rows_from_everywhere(device: Device, width: int, far_blocks: int | None) -> None:
    """By as many blocks for rows of the host; 0: by all of them, in no order."""
    draw = torch.Generator().manual_seed(width)
    rows = torch.randint(1 << 31, (NUM_NODES // max(width // 100, 1), width), generator=draw, dtype=torch.int32)
    there, num_nodes = rows.to(device.torch_device), len(rows)
    holder = torch.randint(-1, 3, (num_nodes,), generator=draw)
    location, shards = torch.full((num_nodes,), -1, dtype=torch.int32), []
    for shard in range(3):
        held = (holder == shard).nonzero()[:, 0]
        location[held] = (torch.arange(len(held)) | shard << ops.SLOT_BITS).int()
        shards.append(there[held.to(there.device)].contiguous())
    table = TieredTable.of(
        device,
        location.to(there.device),
        [shard.data_ptr() for shard in shards],
        [len(shard) for shard in shards],
        4 * width,
        device.map_host(rows.numpy()),
    )
    ids = torch.randint(num_nodes, (NUM_IDS,), generator=draw)
    taken, error = device.zeros(ops.MAX_SHARDS + 1, torch.int64), device.zeros(1, torch.int64)
    out = device.empty(NUM_IDS * width, torch.int32).view(NUM_IDS, width)
    there_ids = ids.to(there.device)
    far = order_missed(device, table, there_ids) if far_blocks != 0 else AS_THEY_COME
    gather_tiered(device, table, there_ids, out, taken, error, far, far_blocks)
    assert torch.equal(out, there[ids.to(there.device)])
    assert taken.tolist() == [
        *torch.bincount(holder[ids] % 4, minlength=4)[:3].tolist(),
        *[0] * 5,
        int((holder[ids] < 0).sum()),
    ]
    assert error.item() == 0


def test_a_table_of_more_than_4_gib(device: Device) -> None:
    num_rows, width = (1 << 20) + 7, 8192
    if device.free_bytes() < 10 << 30:
        pytest.skip("needs 10 GiB of device memory")
    table = (
        torch.arange(num_rows, device=device.torch_device).to(torch.uint8).unsqueeze(1).expand(-1, width).contiguous()
    )
    ids = torch.randint(num_rows, (50_000,), device=device.torch_device)
    out, error = device.empty(50_000 * width, torch.uint8).view(-1, width), device.zeros(1, torch.int64)
    gather_rows(device, table, ids, out, error)
    assert torch.equal(out, ids.to(torch.uint8).unsqueeze(1).expand(-1, width))


def test_admissions_of_large_batches_are_the_cpus(device: Device) -> None:
    store = MemoryFeatureStore(torch.arange(NUM_NODES * 3.0).view(-1, 3))
    features, cpu = DynamicFeatures(device, store, 60_000, map_rows(device, store)), DynamicCache(store, 60_000)
    draw = np.random.default_rng(0)
    for count in (50_000, 100_000, 30_000, 200_000, 1, 90_000):
        ids = draw.permutation(NUM_NODES)[:count]
        expected = torch.empty(count, 3)
        reads = cpu.gather(torch.from_numpy(ids), expected)
        assert torch.equal(features.gather(device.put(ids)).cpu(), expected)
        assert hit_rate(features.reads()) == hit_rate(reads)


def test_a_gather_does_not_make_the_host_wait(device: Device) -> None:
    """Behind work that takes long, it is launched before that is done."""
    store = MemoryFeatureStore(torch.randn(100_000, 64))
    backing = map_rows(device, store)
    location, shard = fill_private_shard(device, store, np.arange(30_000), backing)
    ids = device.put(np.random.default_rng(0).integers(0, 100_000, 50_000))
    busy = torch.empty(8192, 8192, device=device.torch_device)
    for features in (
        StaticFeatures(device, store, location, shard, backing),
        DynamicFeatures(device, store, 10_000, backing),
    ):
        features.gather(ids)  # compiles, allocates
        busy @ busy
        torch.cuda.synchronize()
        for _ in range(20):
            busy @ busy
        begun = device.record()
        out = features.gather(ids)
        assert not begun.is_done()
        assert torch.equal(out.cpu(), store.rows[ids.cpu()])
