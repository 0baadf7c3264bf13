"""The sampler process at the other end of the queue: FactoredStrategy's service without Lightning."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from lightning_gnnload import GraphData, NeighborSampler
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.seeds import BATCH_SIZE

QUEUE_DEPTH = 4  # FactoredStrategy's default
CONNECT_TIMEOUT_S = 60.0


def train_source(data: GraphData, fanouts: list[int]) -> BatchSource:
    """What ``GraphDataModule.train_dataloader`` would read from."""
    workload = Workload(
        data.graph, NeighborSampler(fanouts), data.train, batch_size=BATCH_SIZE, order=Shuffled(), drop_last=True
    )
    return BatchSource(data, workload)


def job_name(fanouts: list[int]) -> str:
    return f"benchmark-{os.getpid()}-{'-'.join(map(str, fanouts))}"


def start(graph: str, fanouts: list[int], job: str) -> subprocess.Popen[bytes]:
    """Starts a sampler with one thread; it ends when its trainer says goodbye or is gone."""
    return subprocess.Popen([sys.executable, "-m", "tests.benchmarks.service", json.dumps([graph, fanouts, job])])


def main() -> None:
    graph, fanouts, job = json.loads(sys.argv[1])
    source = train_source(GRAPHS[graph].load(), fanouts)
    SamplerService(
        job,
        sampler=0,
        rank=1,
        num_trainers=1,
        world_size=1,
        num_threads=1,
        open_source=lambda spec: source,
        connect_timeout_s=CONNECT_TIMEOUT_S,
    ).serve()


if __name__ == "__main__":
    main()
