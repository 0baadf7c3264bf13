"""What the queue between the ranks costs a trainer: prepared mini-batches through it, by shared memory, and over
loopback, as between machines, by TCP and TLS; and in its own process.

    python -m tests.benchmarks.transport

Mini-batches are prepared: a slot is written once, and published again and again, so that neither side waits for
sampling. The consumer reads every byte (``pass``), or trains a dense layer on it (``step``). The floor is the same
work on a tensor of its own.
"""

from __future__ import annotations

import os
import secrets
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.remote import NO_REMOTE, RemoteListener, RemoteSamplers, connect_to_remote
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.strategy.certificates import CERTIFICATE_FILE, KEY_FILE, load_certificate, trusting
from lightning_gnnload.sample.workload import Workload
from tests.cluster.certificates import Certificate, make_certificate

SIZES_MB = (1, 8, 64)
NUM_ROWS = 512
QUEUE_DEPTH = 4
ROUNDS = 7
ROUND_S = 0.4
HIDDEN = 64
QUEUES = ("queue", "tcp", "tls")


class SameStep(Workload):
    """The same seeds at every step."""

    def seeds_of(self, request: BatchRequest) -> np.ndarray:
        return self.seeds


class Prepared(BatchSource):
    """The same mini-batch at every step; a slot that holds it is not written again."""

    def __init__(self, num_mb: int) -> None:
        graph = Graph.from_coo(np.arange(NUM_ROWS), np.roll(np.arange(NUM_ROWS), 1), num_nodes=NUM_ROWS)
        x = torch.ones(NUM_ROWS, (num_mb << 20) // (4 * NUM_ROWS))
        ids = np.arange(NUM_ROWS)
        workload = SameStep(graph, NeighborSampler([1]), ids, batch_size=NUM_ROWS, order=Sequential())
        super().__init__(GraphData(graph, x=x), workload)
        self._made: dict[int, tuple[Slot, Payload]] = {}

    def plan(self, num_ranks: int) -> Any:
        return SimpleNamespace(num_steps=1 << 30)

    def make(self, request: BatchRequest, slot: Slot) -> Payload:
        if id(slot) not in self._made:
            self._made[id(slot)] = (slot, super().make(request, slot))
        return self._made[id(slot)][1]


def read(x: torch.Tensor) -> None:
    x.sum()


def train(x: torch.Tensor) -> None:
    weight = torch.full((x.shape[1], HIDDEN), 0.01, requires_grad=True)
    (x @ weight).sum().backward()


CONSUMERS: dict[str, Callable[[torch.Tensor], None]] = {"pass": read, "step": train}


def ms_a_batch(batches: Iterator[torch.Tensor], consume: Callable[[torch.Tensor], None]) -> float:
    """Of one round."""
    number, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < ROUND_S:
        consume(next(batches))
        number += 1
    return passed * 1e3 / number


def xs(loader: Any) -> Iterator[torch.Tensor]:
    return (batch.x for batch in loader)


def measure(num_mb: int, certificate: Certificate) -> dict[str, dict[str, float]]:
    """Medians over rounds that take turns, ms a batch: by consumer, then by where batches come from."""
    jobs = {way: f"transport-{uuid.uuid4().hex[:8]}" for way in QUEUES}
    samplers = {
        way: subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.transport", job, str(num_mb), way],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            env=os.environ | {CERTIFICATE_FILE: str(certificate.certificate), KEY_FILE: str(certificate.key)},
        )
        for way, job in jobs.items()
    }
    secret = secrets.token_bytes(32)
    trust = {"tls": trusting(certificate.certificate.read_text())}
    try:
        queues = {way: open_queue(job, samplers[way], secret, trust.get(way)) for way, job in jobs.items()}
        local = SampledLoader(Prepared(num_mb))
        own = torch.ones(NUM_ROWS, (num_mb << 20) // (4 * NUM_ROWS))
        sources = {"floor": iter(lambda: own, None), "in-process": xs(local)}
        for way, queue in queues.items():
            loader = QueueLoader(queue, local, phase="train", loader=0, reload=0, limit=lambda: float("inf"))
            sources[way] = xs(loader)
        found: dict[str, dict[str, list[float]]] = {name: {source: [] for source in sources} for name in CONSUMERS}
        for turn in range(ROUNDS + 1):
            for name, consume in CONSUMERS.items():
                for source, batches in sources.items():
                    value = ms_a_batch(batches, consume)
                    if turn:  # the first warms up
                        found[name][source].append(value)
        for source in ("in-process", *QUEUES):
            sources[source].close()  # type: ignore[attr-defined]
        for queue in queues.values():
            queue.goodbye()
    finally:
        for sampler in samplers.values():
            sampler.communicate(timeout=120)
    return {name: {source: statistics.median(v) for source, v in values.items()} for name, values in found.items()}


def open_queue(job: str, sampler: subprocess.Popen[bytes], secret: bytes, tls: ssl.SSLContext | None) -> BatchQueue:
    """The trainer's end of the queue to a sampler, which tells its port if it listens at one."""
    assert sampler.stdin is not None
    assert sampler.stdout is not None
    sampler.stdin.write(secret)
    sampler.stdin.flush()
    port = int(sampler.stdout.readline())
    remote = (
        RemoteSamplers([1], 1, lambda rank: connect_to_remote("127.0.0.1", port, secret, tls)) if port else NO_REMOTE
    )
    return BatchQueue(
        job,
        trainer=0,
        rank=0,
        num_samplers=0 if port else 1,
        queue_depth=QUEUE_DEPTH,
        connect_timeout_s=120,
        stall_timeout_s=120,
        takeover=False,
        remote=remote,
    )


def serve(job: str, num_mb: int, way: str) -> None:
    """The sampler's process."""
    source = Prepared(num_mb)
    secret = sys.stdin.buffer.read(32)
    served = load_certificate() if way == "tls" else None
    listener = RemoteListener("127.0.0.1", secret, served and served.context) if way != "queue" else None
    print(0 if listener is None else listener.address[1], flush=True)
    SamplerService(
        job,
        sampler=0,
        rank=1,
        num_trainers=1,
        world_size=1,
        num_threads=1,
        open_source=lambda spec: source,
        connect_timeout_s=120,
        listener=listener,
    ).serve()


def main() -> None:
    torch.set_num_threads(1)
    print(f"{os.cpu_count()} cores; ms a batch, medians of {ROUNDS} rounds of {ROUND_S} s that take turns\n")
    print(
        "| MB a batch | consumer | floor | in-process | queue | tcp | tls "
        "| queue / in-process | tcp / queue | tls / tcp |"
    )
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder))
        for num_mb in SIZES_MB:
            for name, ms in measure(num_mb, certificate).items():
                row = " | ".join(f"{ms[source]:.3f}" for source in ("floor", "in-process", *QUEUES))
                ratios = f"{ms['queue'] / ms['in-process']:.3f} | {ms['tcp'] / ms['queue']:.2f}"
                print(f"| {num_mb} | {name} | {row} | {ratios} | {ms['tls'] / ms['tcp']:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        main()
