"""A cache in front of quantised features holds bytes: in the same room, four times the rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, NeighborSampler, quantize
from lightning_gnnload.cache.cache import FeatureCache, open_all
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.sample.workload import Workload


@pytest.fixture
def workload() -> Workload:
    ring = Graph.from_coo(np.arange(400), (np.arange(400) + 1) % 400)
    return Workload(ring, NeighborSampler([1]), np.arange(400), batch_size=8, order=Sequential())


@pytest.mark.parametrize("policy", ["degree", "fifo"])
@pytest.mark.parametrize("levels", [1, 2])
def test_rows_are_the_same_and_bytes_are_cached(workload, policy, levels):
    x = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    store = quantize(x, progress=False)
    settings = [FeatureCache(policy, capacity_bytes=4000)] * levels
    cache = open_all(settings, store, workload, progress=False)
    ids = torch.arange(400)
    wanted, out = torch.empty(2, 400, 16)
    store.gather(ids, wanted)
    for _ in range(2):
        reads = {read.tier: read for read in cache.gather(ids, out) or ()}
        assert torch.equal(out, wanted)
    assert sum(read.rows for read in reads.values()) == 400
    assert all(read.num_bytes == 16 * read.rows for read in reads.values())
    if policy == "degree" and levels == 1:  # 400 locations of 4 bytes, and 2400 bytes of rows, which as floats were 37
        assert reads["cache"].rows > 100
    cache.close()
    store.gather(ids, out)  # stays open
    assert torch.equal(out, wanted)
