"""How much of their summed rate samplers of unequal speed reach together, for one trainer that takes steps in order.

    python -m tests.benchmarks.unequal

Sampling sleeps for as long as a case says, so that a core plays several samplers; processes, sockets and shared memory
are real. Each sampler is measured alone first. *tuned* says whether the dealing was tuned on the case.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload

QUEUE_DEPTH = 4  # FactoredStrategy's default
EPOCH_S = 4.0  # at the samplers' summed rate
TIMEOUT_S = 60.0


class Law(NamedTuple):
    """How long a sampler takes for a mini-batch: ``low_ms`` to ``high_ms``, drawn evenly."""

    low_ms: float
    high_ms: float

    @classmethod
    def of(cls, text: str) -> Law:
        low, _, high = text.partition("-")
        return cls(float(low), float(high or low))

    @property
    def mean_ms(self) -> float:
        return (self.low_ms + self.high_ms) / 2


class Case(NamedTuple):
    """Samplers by their laws, and a trainer's step as a share of the time between two mini-batches of all samplers."""

    samplers: Sequence[str]
    busy: float = 0.0
    tuned: bool = False


CASES = (
    Case(["20"], tuned=True),
    Case(["20", "20"], tuned=True),
    Case(["20", "100"], tuned=True),
    Case(["20", "100"], 0.9, tuned=True),
    Case(["20", "100"], 1.5, tuned=True),
    Case(["15", "45", "90"]),
    Case(["15", "45", "90"], 0.9),
    Case(["12", "120"]),
    Case(["12", "120"], 0.9),
    Case(["25", "10-80"]),
    Case(["25", "10-80"], 0.9),
    Case(["10-80", "10-80"]),
)


class Slow(NeighborSampler):
    """Takes as long as a law says."""

    def __init__(self, law: Law, seed: int) -> None:
        super().__init__([1])
        self.law = law
        self._random = random.Random(seed)

    def draw(self, *arguments: Any) -> Any:
        until = time.monotonic() + self._random.uniform(*self.law) / 1e3
        made = super().draw(*arguments)
        time.sleep(max(until - time.monotonic(), 0))
        return made


def source(sampler: NeighborSampler, num_steps: int) -> BatchSource:
    """Mini-batches of one seed."""
    ids = np.arange(num_steps)
    graph = Graph.from_coo(ids, np.roll(ids, 1), num_nodes=num_steps)
    return BatchSource(
        GraphData(graph, x=torch.ones(num_steps, 4)), Workload(graph, sampler, ids, batch_size=1, order=Sequential())
    )


def serve(job: str, sampler: int, law: str, num_steps: int, num_threads: int) -> None:
    """A sampler's process."""
    made = source(Slow(Law.of(law), sampler), num_steps)
    settings = {"num_trainers": 1, "world_size": 1, "num_threads": num_threads, "connect_timeout_s": TIMEOUT_S}
    SamplerService(job, sampler=sampler, rank=1 + sampler, open_source=lambda spec: made, **settings).serve()


@contextmanager
def loader(laws: Sequence[str], num_steps: int, num_threads: int) -> Iterator[QueueLoader]:
    """The mini-batches of samplers with these laws."""
    job = f"unequal-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "tests.benchmarks.unequal", "--serve"]
    processes = [
        subprocess.Popen([*command, json.dumps([job, sampler, law, num_steps, num_threads])])
        for sampler, law in enumerate(laws)
    ]
    try:
        timeouts = {"connect_timeout_s": TIMEOUT_S, "stall_timeout_s": TIMEOUT_S}
        queue = BatchQueue(
            job, trainer=0, rank=0, num_samplers=len(laws), first_sampler_rank=1, queue_depth=QUEUE_DEPTH, **timeouts
        )
        local = SampledLoader(source(NeighborSampler([1]), num_steps))
        yield QueueLoader(queue, local, phase="train", loader=0, reload=0, limit=lambda: float("inf"))
        queue.goodbye()
    finally:
        for process in processes:
            process.wait(TIMEOUT_S)


def rate(laws: Sequence[str], num_steps: int, step_s: float = 0.0, num_threads: int = 1) -> tuple[float, list[int]]:
    """Mini-batches a second over the second of two epochs, and how many each sampler made."""
    with loader(laws, num_steps, num_threads) as batches:
        for epoch in range(2):
            batches.set_epoch(epoch)
            made = [0] * len(laws)
            began = time.perf_counter()
            for _ in batches:
                made[batches.last.made_by - 1] += 1
                time.sleep(step_s)
            passed = time.perf_counter() - began
    return num_steps / passed, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help="sampling threads of each")
    parser.add_argument("--cases", nargs="*", type=int, help="numbers of cases, from 0; all of them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.serve:
        serve(*arguments.serve)
        return
    heads = ["ms a mini-batch, by sampler", "trainer's step, ms", "tuned", "alone, a second", "sum", "asked for"]
    print(f"| {' | '.join([*heads, 'reached', 'share', 'made by each'])} |")
    print("| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | --- |")
    alone: dict[str, float] = {}
    for number, case in enumerate(CASES):
        if arguments.cases and number not in arguments.cases:
            continue
        for law in case.samplers:
            if law not in alone:
                alone[law], _ = rate(
                    [law], int(EPOCH_S / 2 * 1e3 / Law.of(law).mean_ms * arguments.threads), 0, arguments.threads
                )
        rates = [alone[law] for law in case.samplers]
        step_s = case.busy / sum(rates)
        asked = sum(rates) / max(case.busy, 1)
        reached, made = rate(case.samplers, int(EPOCH_S * asked), step_s, arguments.threads)
        cells = [
            ", ".join(case.samplers),
            f"{step_s * 1e3:.1f}",
            "yes" if case.tuned else "no",
            ", ".join(f"{each:.1f}" for each in rates),
            f"{sum(rates):.1f}",
            f"{asked:.1f}",
            f"{reached:.1f}",
            f"{reached / asked:.2f}",
            ", ".join(map(str, made)),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
