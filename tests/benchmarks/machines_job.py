"""One of two ranks on machines of their own, which the benchmark of more machines starts.

Arguments: rank, folder with the partition, a file for the ranks to meet. Writes what it measured.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.sample.base import nodes_of
from lightning_gnnload.sample.group.exchange import DistributedExchange
from lightning_gnnload.sample.group.group import OPERATIONS, OwnedLists, RankGroup, SamplingGroup
from lightning_gnnload.sample.group.messages import Message
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.storage.partitions import load_partition
from tests.benchmarks.machines_ranks import BATCH_SIZE, BATCHES, FANOUTS, GRADIENT_BYTES, ROW_BYTES, SLOTS, STEPS_MS

WARM_UP = 4
TABLE = np.zeros((200_000, ROW_BYTES), np.uint8)


def benchmark_rows(_: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Serves rows of this rank's part."""
    return {"x": TABLE[rows].ravel()}


class Loader:
    """Makes mini-batches in a thread of its own, as far ahead as a loader in process does: one while one is trained."""

    def __init__(self, group: SamplingGroup, seeds: np.ndarray) -> None:
        self.group, self.seeds = group, seeds
        self.sampler = CollectiveSampler(NeighborSampler(list(FANOUTS)), group)
        self.ready: queue.Queue[int] = queue.Queue()
        self.free = threading.Semaphore(SLOTS)
        self.tasks: list[list[tuple[int, int]]] = []

    def make_all(self) -> None:
        for turn in range(WARM_UP + BATCHES):
            self.free.acquire()
            before = self._sent()
            seeds = np.random.default_rng(turn).choice(self.seeds, BATCH_SIZE, replace=False)
            nodes = nodes_of(self.sampler, None, Draw(seeds, DrawKey(1, 2, turn)))  # type: ignore[arg-type]
            drawn = self._sent() - before
            out = np.empty((len(nodes), ROW_BYTES), np.uint8)
            for answer in self.group.ask("benchmark_rows", nodes):
                out[answer.positions] = answer.arrays["x"].reshape(-1, ROW_BYTES)
            gathered = self._sent() - before - drawn
            hops = len(FANOUTS)
            self.tasks.append([*((drawn[0] // hops, drawn[1] // hops),) * hops, (int(gathered[0]), int(gathered[1]))])
            self.ready.put(turn)

    def _sent(self) -> np.ndarray:
        counts = [(each.bytes_sent, each.bytes_received) for each in self.group.traffic.values()]
        return np.array(counts, np.int64).reshape(-1, 2).sum(0)


def run(group: SamplingGroup, seeds: np.ndarray, step_ms: float) -> dict[str, object]:
    """Trains, and returns what it took."""
    loader, gradients = Loader(group, seeds), torch.zeros(GRADIENT_BYTES // 4)
    thread = threading.Thread(target=loader.make_all)
    thread.start()
    for step in range(WARM_UP + BATCHES):
        if step == WARM_UP:
            began_s, core_s = time.monotonic(), time.process_time()
        if step:
            loader.free.release()  # only now is another one begun, as by a loader in process
        loader.ready.get(timeout=60)
        time.sleep(step_ms / 1e3)
        distributed.all_reduce(gradients)
    ended_s, core_s = time.monotonic(), time.process_time() - core_s
    thread.join()
    asked = [each for name, each in group.traffic.items() if name != "benchmark_rows"]
    return {
        "step_ms": 1e3 * (ended_s - began_s) / BATCHES,
        "began_s": began_s,
        "ended_s": ended_s,
        "core_ms": 1e3 * core_s / BATCHES,
        "remote": sum(each.num_remote for each in asked) / max(sum(each.num_nodes for each in asked), 1),
        "tasks": np.mean(loader.tasks, axis=0).tolist(),
    }


def main(rank: int, folder: Path, store: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "cable"
    torch.set_num_threads(1)
    OPERATIONS["benchmark_rows"] = benchmark_rows
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    made = load_partition(folder / "parts")
    own = np.arange(made.starts[rank], made.starts[rank + 1])
    with RankGroup(made, DistributedExchange(distributed.new_group([0, 1]))) as group:
        measured = {str(step_ms): run(group, own, step_ms) for step_ms in STEPS_MS}
        distributed.barrier()
    (folder / f"measured-{rank}.json").write_text(json.dumps(measured))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
