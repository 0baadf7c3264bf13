"""What a queue's depth that follows the waits is worth: ``python -m tests.benchmarks.pacing [PATTERN ...]``.

A sampler and a trainer, joined by the real queue, sleep for as long as a pattern says, so that other processes hardly
disturb them. Beside the time of a step stand the slots that were ever made, of which each takes the memory of the
largest mini-batch. Pattern "hiccups" served to choose the rule, the others did not.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid

import numpy as np

from lightning_gnnload import NeighborSampler
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from tests.unit.toy import toy_data

NUM_STEPS = 300
DEPTHS: tuple[int | None, ...] = (2, 4, 16, 64, None)  # None follows the waits
MEMORY_BYTES = 1 << 30


def pattern(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds that each step takes to make and to train on, float64 ``[NUM_STEPS]``."""
    steps = np.arange(NUM_STEPS)
    draw = np.random.default_rng(5)
    training = np.full(NUM_STEPS, 30.0)
    making = {
        "steady": np.full(NUM_STEPS, 20.0),
        "hiccups": np.where(steps % 20 == 7, 190.0, 17.0),
        "exponential": draw.exponential(24.0, NUM_STEPS),
        "long and rare": np.where(steps % 75 == 50, 600.0, 15.0),
        "too slow": np.full(NUM_STEPS, 36.0),
    }[name]
    return making, training


class Sleeping(BatchSource):
    """Takes its time for each mini-batch; notes its slots."""

    def __init__(self, making_ms: np.ndarray) -> None:
        data = toy_data(num_nodes=2 * NUM_STEPS, num_train=NUM_STEPS)
        super().__init__(data, Workload(data.graph, NeighborSampler([2]), data.train, batch_size=1, order=Sequential()))
        self.making_s = making_ms / 1e3
        self.slots: set[int] = set()

    def make(self, request: BatchRequest, slot: object) -> Payload:
        assert isinstance(slot, Slot)
        time.sleep(self.making_s[request.step])
        self.slots.add(slot.fd)
        return super().make(request, slot)


def measure(name: str, depth: int | None) -> tuple[float, int, float]:
    """Returns the milliseconds a step, how many slots were made, and how many were allowed on the average."""
    making_ms, training_ms = pattern(name)
    source, job = Sleeping(making_ms), uuid.uuid4().hex[:16]
    first = depth or 4
    service = SamplerService(
        job,
        sampler=0,
        rank=1,
        num_trainers=1,
        world_size=1,
        num_threads=1,
        open_source=lambda spec: source,
        connect_timeout_s=20.0,
    )
    serving = threading.Thread(target=service.serve)
    serving.start()
    queue = BatchQueue(
        job,
        trainer=0,
        rank=0,
        num_samplers=1,
        queue_depth=first,
        connect_timeout_s=20.0,
        stall_timeout_s=60.0,
        queue_memory_bytes=MEMORY_BYTES if depth is None else None,
    )
    loader = QueueLoader(queue, SampledLoader(source), phase="train", loader=0, reload=0, limit=lambda: float("inf"))
    began, allowed = time.perf_counter(), []
    for step, batch in enumerate(loader):
        assert loader.last is not None
        allowed.append(loader.last.fill.slots)
        del batch
        time.sleep(training_ms[step] / 1e3)
    took_ms = (time.perf_counter() - began) * 1e3 / NUM_STEPS
    queue.goodbye()
    serving.join()
    return took_ms, len(source.slots), float(np.mean(allowed))


def main(names: list[str]) -> None:
    print("| mini-batches | queue_depth | ms a step | slots made | slots allowed, mean |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name in names:
        for depth in DEPTHS:
            took_ms, num_slots, allowed = measure(name, depth)
            print(f"| {name} | {depth or 'auto'} | {took_ms:.2f} | {num_slots} | {allowed:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["steady", "hiccups", "exponential", "long and rare", "too slow"])
