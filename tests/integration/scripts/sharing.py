"""One of several processes that share a cache whose rows change all the time, and read it as fast as they can.

Arguments: how, num_devices, name, index, count. Ends when there is a file ``stop``; writes what it saw.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload import Graph, MemoryFeatureStore, NeighborSampler
from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.sample.workload import Workload

N, WIDTH = 20_000, 64
EPOCH_S = 0.03


class Shifting(CachePolicy):
    """Every epoch has its own hot nodes."""

    window = 1

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return np.random.default_rng(epoch).permutation(N)


class Reader(threading.Thread):
    """Gathers and compares; row ``v`` is ``v`` all over, so that a row torn between two nodes shows."""

    def __init__(self, cache: FeatureStore, seed: int) -> None:
        super().__init__(daemon=True)
        self.cache, self.seed = cache, seed
        self.gathers = self.hits = self.wrong = 0
        self.is_over = False

    def run(self) -> None:
        draw, out = torch.Generator().manual_seed(self.seed), torch.empty(2000, WIDTH)
        while not self.is_over:
            ids = torch.randint(0, N, (len(out),), generator=draw)
            reads = self.cache.gather(ids, out)
            assert reads is not None
            self.wrong += int((out != ids.unsqueeze(1)).any(dim=1).sum())
            self.hits += reads[0].rows
            self.gathers += 1


if __name__ == "__main__":
    name, index, count = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    table = MemoryFeatureStore(torch.arange(N, dtype=torch.float32).unsqueeze(1).repeat(1, WIDTH))
    graph = Graph.from_coo(np.arange(N), np.arange(N), num_nodes=N)
    workload = Workload(graph, NeighborSampler([1]), np.arange(N), batch_size=1000, order=Sequential())
    membership = Membership(name, index, count, timeout_s=60)
    cache = FeatureCache(Shifting(), ratio=0.3).open(table, workload, membership=membership, progress=False)
    readers = [Reader(cache, seed) for seed in range(2)]
    for reader in readers:
        reader.start()
    Path(f"open-{index}").touch()
    epoch = 0
    while not Path("stop").exists():
        epoch += 1
        cache.announce(BatchRequest(epoch, 0, 0, 1))
        time.sleep(EPOCH_S)
    for reader in readers:
        reader.is_over = True
        reader.join()
    seen = {name: sum(getattr(reader, name) for reader in readers) for name in ("gathers", "hits", "wrong")}
    Path(f"seen-{index}.json").write_text(json.dumps(seen | {"renewals": cache.renewals}))  # type: ignore[attr-defined]
    cache.close()
