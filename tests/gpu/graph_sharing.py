"""One of several processes that place a graph on GPUs together, draw from it, and compare with the CPU.

Arguments: how, num_devices, name, index, count, what happens: ``close``, or ``die`` for the last one, which is killed
while the others read its lists. Writes what it saw to ``seen-<index>.json``.
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

from lightning_gnnload import Graph, NeighborSampler
from lightning_gnnload.cache.device.shared_lists import place_together
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.errors import DeviceShareError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.device.graph_placement import GraphPlacement
from lightning_gnnload.sample.device.samplers import DeviceSampler
from tests.cuda.sampled import assert_equal
from tests.ops.graphs import read_batch

N, E = 50_000, 2_000_000
NUM_STEPS = 20


def graph() -> Graph:
    """A tenth of the edges end in hubs."""
    rng = np.random.default_rng(0)
    dst = np.where(rng.random(E) < 0.1, rng.integers(0, 20, E), rng.integers(0, N, E))
    return Graph.from_coo(rng.integers(0, N, E), dst, num_nodes=N)


def share(membership: Membership, device: Device, runtime: Runtime, *, same_device: bool, dies: bool) -> dict[str, Any]:
    """What this rank saw, whose device may hold 0.7 of the graph."""
    whole, sampler = graph(), NeighborSampler([10, -1, 5], edge_ids=True)
    budget = int(0.7 * GraphPlacement.of(whole, device, 0).num_bytes) * (membership.count if same_device else 1)
    before = runtime.free_bytes()
    with membership.connect() as peers:
        topology = place_together(whole, device, peers, runtime, budget_bytes=budget)
    draws = DeviceSampler(sampler, topology, device)
    for step in range(NUM_STEPS):
        seeds = np.random.default_rng((membership.index, step)).permutation(N)[:1000]
        draw = Draw(seeds, DrawKey(1, 0, step))
        assert_equal(draws.sample(draw), read_batch(*draw_here(sampler, whole, draw)[::-1]))
    if dies and membership.index == membership.count - 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    while dies and not Path("killed").exists():
        time.sleep(0.01)
    lost = ""
    if dies:
        try:
            draws.sample(draw)
        except DeviceShareError as error:
            lost = str(error)
    began = time.monotonic()
    if topology.memory is not None:
        topology.memory.close()
    return {
        "about": topology.about,
        "lost": lost,
        "taken": before - runtime.free_bytes(),
        "closing_s": time.monotonic() - began,
    }


if __name__ == "__main__":
    from lightning_gnnload.ops.cuda.launch.open_device import open_device
    from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime

    name, index, count, end = sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
    number = index % torch.cuda.device_count()
    torch.cuda.set_device(number)
    gpu = open_device(torch.device("cuda", number))
    alone = torch.cuda.device_count() == 1
    seen = share(Membership(name, index, count), gpu, CupyRuntime(number), same_device=alone, dies=end == "die")
    Path(f"seen-{index}.json").write_text(json.dumps(seen))
