"""One of several processes that hold a cache together on GPUs, read it on several streams, and compare.

Arguments: how, num_devices, name, index, count, what happens: ``close``, or ``die`` for the last one, which is killed
while the others have its memory open; and the cache's policy. Writes what it saw to ``seen-<index>.json``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import FeatureCache, Graph, MemoryFeatureStore, NeighborSampler
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.sample.workload import Workload

N, WIDTH, NUM_CACHED, NUM_IDS = 100_000, 100, 60_000, 20_000


def share(
    membership: Membership, device: Device, runtime: Runtime, *, dies: bool, policy: str = "degree"
) -> dict[str, Any]:
    """What this rank saw."""
    rows = torch.randn(N, WIDTH, generator=torch.Generator().manual_seed(0))
    ring = Graph.from_coo(src=np.arange(N), dst=np.roll(np.arange(N), 1))
    workload = Workload(ring, NeighborSampler([1]), np.arange(N), batch_size=N, order=Sequential())
    settings = FeatureCache(policy, ratio=NUM_CACHED / N, share="partitioned", device="cuda")
    with membership.connect() as peers:
        store = MemoryFeatureStore(rows)
        features = open_on_device(settings, store, workload, device, peers=peers, runtime=runtime, progress=False)
    print("the cache is open", flush=True)
    wrong = 0
    for step in range(20):
        ids = np.random.default_rng((membership.index, step)).integers(0, N, NUM_IDS)
        if step % 2:
            with device.side_stream():
                found = device.read(features.gather(device.put(ids)))
        else:
            found = device.read(features.gather(device.put(ids)))
        wrong += int((found != rows[ids].numpy()).any(axis=1).sum())
    reads = {read.tier: read.rows for read in features.reads()}
    print("all was gathered", flush=True)
    if dies and membership.index == membership.count - 1:
        Path("dying").touch()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    while dies and not Path("killed").exists():
        time.sleep(0.01)
    before = runtime.free_bytes()
    began = time.monotonic()
    features.close()
    return {
        "wrong": wrong,
        "reads": reads,
        "freed": runtime.free_bytes() - before,
        "closing_s": time.monotonic() - began,
    }


if __name__ == "__main__":
    from lightning_gnnload.ops.cuda.launch.open_device import open_device
    from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime

    name, index, count, end, policy = sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6], sys.argv[7]
    number = index % torch.cuda.device_count()
    torch.cuda.set_device(number)
    gpu = open_device(torch.device("cuda", number))
    print("the device is open", flush=True)
    seen = share(Membership(name, index, count), gpu, CupyRuntime(number), dies=end == "die", policy=policy)
    Path(f"seen-{index}.json").write_text(json.dumps(seen))
