"""Owners behind links with a latency and a rate, measured, and what the simulation makes of them.

The simulation is told what the processor of each side takes for a mini-batch and the bytes of it, from a run whose
links have neither; and the latency, rate, threads and step of each case. Owners, links and the trainer share this
machine's cores, and so do they in the simulation, less what other programs use meanwhile.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler, load_partition, partition_graph
from lightning_gnnload.owners.address import SECRET_FILE
from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
from lightning_gnnload.pipeline.forecast.run import PipelineRun
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from tests.benchmarks.compared import Compared
from tests.benchmarks.load import LoadWatch
from tests.cluster.delay import DelayProxy
from tests.unit.owners.serving import SECRET, OwnerProcess

FANOUTS, BATCH_SIZE, ROW_BYTES = (10, 5), 512, 256
FIRST, BATCHES = 10, 30
FAST_GB_S = 20.0  # a link without a rate: as fast as memory


@dataclass(frozen=True)
class Case:
    owners: int
    delay_ms: float
    rate_mbit: int  # of each owner's link, each way; 0: as fast as it can
    threads: int
    step_ms: float

    def __str__(self) -> str:
        rate = f", {self.rate_mbit} Mbit/s" if self.rate_mbit else ""
        return (
            f"{self.owners} owners, {self.delay_ms:g} ms{rate}, {self.threads} threads, a step of {self.step_ms:g} ms"
        )


CASES = (
    *(Case(2, delay_ms, 0, threads, 20.0) for delay_ms in (0.1, 1.0, 10.0) for threads in (1, 4)),
    *(Case(3, delay_ms, 0, 2, 20.0) for delay_ms in (0.1, 1.0, 10.0)),
    Case(2, 10.0, 0, 8, 5.0),
    Case(2, 1.0, 200, 4, 20.0),
    Case(2, 1.0, 50, 4, 20.0),
    Case(3, 10.0, 50, 8, 20.0),
)


@dataclass(frozen=True)
class OwnersRun:
    """What a case showed, a mini-batch: ms, of these the processor's of trainer and owners, and bytes each way."""

    step_ms: float
    trainer_core_ms: float
    owners_core_ms: float
    sent_bytes: float
    received_bytes: float
    num_nodes: float
    cores: float


class Serving:
    """Owners of as many parts, a link to each, and modules that train over them."""

    def __init__(self, data: GraphData, owners: int, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        partition_graph(data, folder / "parts", owners, "random", hops=0, progress=False)
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text(SECRET)
        os.environ[SECRET_FILE] = str(secret)
        self.parts = folder / "parts"
        started = [
            stack.enter_context(OwnerProcess(self.parts, secret, "--parts", str(part))) for part in range(owners)
        ]
        ports = [int(owner.wait_until_ready().rpartition(":")[2]) for owner in started]
        self.links = [stack.enter_context(DelayProxy(port)) for port in ports]
        self._others = psutil.Process().children()  # owners and links

    def run(self, case: Case, watch: LoadWatch) -> OwnersRun:
        for link in self.links:
            link.set_delay(round(1000 * case.delay_ms))
            link.set_rate(125_000 * case.rate_mbit)
        addresses = [f"127.0.0.1:{link.port}" for link in self.links]
        module = GraphDataModule(
            load_partition(self.parts),
            NeighborSampler(list(FANOUTS)),
            BATCH_SIZE,
            num_threads=case.threads,
            graph=addresses,
            features=addresses,
        )
        module.setup()
        try:
            return self._measured(iter(module.train_dataloader()), case, watch)
        finally:
            module.owners.close()

    def _measured(self, batches: Iterator[object], case: Case, watch: LoadWatch) -> OwnersRun:
        for _ in itertools.islice(batches, FIRST):
            time.sleep(case.step_ms / 1e3)
        began, own, others, passed = time.monotonic(), time.process_time(), self._others_s(), self._passed()
        num_nodes = []
        for _ in range(BATCHES):
            batch = next(batches)
            num_nodes.append(len(batch.nodes))  # type: ignore[attr-defined]
            del batch
            time.sleep(case.step_ms / 1e3)
        ended = time.monotonic()
        own, others = time.process_time() - own, self._others_s() - others
        up, down = (after - before for after, before in zip(self._passed(), passed, strict=True))
        return OwnersRun(
            1e3 * (ended - began) / BATCHES,
            1e3 * own / BATCHES,
            1e3 * others / BATCHES,
            up / BATCHES,
            down / BATCHES,
            statistics.fmean(num_nodes),
            watch.cores_left(began, ended),
        )

    def _others_s(self) -> float:
        return sum(each.cpu_times().user + each.cpu_times().system for each in self._others)

    def _passed(self) -> tuple[int, int]:
        counts = [link.count() for link in self.links]
        return sum(count.bytes_up for count in counts), sum(count.bytes_down for count in counts)


def measured(data: GraphData, cases: Sequence[Case]) -> dict[str, tuple[OwnersRun, OwnersRun]]:
    """By case, its run, and that of as many owners whose links hold nothing up."""
    data = GraphData(data.graph, torch.zeros(data.num_nodes, ROW_BYTES // 4), train=np.arange(data.num_nodes // 2))
    found = {}
    with LoadWatch() as watch:
        for owners, chosen in itertools.groupby(sorted(cases, key=lambda case: case.owners), lambda case: case.owners):
            with ExitStack() as stack:
                serving = Serving(data, owners, stack)
                plain = serving.run(Case(owners, 0.0, 0, 1, 20.0), watch)
                for case in chosen:
                    found[str(case)] = (serving.run(case, watch), plain)
    return found


def compared(
    cases: Sequence[Case], found: dict[str, tuple[OwnersRun, OwnersRun]], core_ms: Sequence[float]
) -> list[Compared]:
    return [
        Compared("owners", str(case), run.step_ms, simulated_ms(case, run, plain, core_ms))
        for case in cases
        for run, plain in [found[str(case)]]
    ]


def simulated_ms(case: Case, run: OwnersRun, plain: OwnersRun, core_ms: Sequence[float]) -> float:
    """``plain`` tells what is asked for; of ``run``, only the cores that others have left. ``core_ms``: to draw and to
    gather a mini-batch by one process that has all."""
    drawn_ms, gathered_ms = core_ms
    hops = len(FANOUTS)
    row_bytes = plain.num_nodes * ROW_BYTES
    structure = max(plain.received_bytes - row_bytes, 0.0)
    joining = Cluster().joining
    served_ms = drawn_ms * (1 - joining) + gathered_ms
    tasks = [
        RemoteTask(plain.sent_bytes / (hops + 1), structure / hops, drawn_ms * (1 - joining) / hops)
        for _ in range(hops)
    ]
    tasks.append(RemoteTask(plain.sent_bytes / (hops + 1), row_bytes, gathered_ms))
    num_messages, num_bytes = len(tasks) * case.owners, plain.sent_bytes + plain.received_bytes
    # Half of what is no drawing and no gathering is of bytes, half of messages.
    asking = max(plain.trainer_core_ms - drawn_ms * joining, 0.1) / 2
    answering = max(plain.owners_core_ms - served_ms, 0.1) / 2
    costs = MessageCosts(
        asking / num_messages, answering / num_messages, num_bytes / asking / 1e6, num_bytes / answering / 1e6
    )
    cluster = Cluster(
        placement="owners",
        owners=case.owners,
        link_gb_s=FAST_GB_S,
        owner_link_gb_s=case.rate_mbit / 8000 or FAST_GB_S,
        latency_ms=case.delay_ms + 0.02,
        costs=costs,
        is_one_host=True,
    )
    work = BatchWork(sample_ms=drawn_ms * joining, train_device_ms=case.step_ms)
    layout = RunLayout(batch_size=BATCH_SIZE, threads=case.threads)
    return PipelineRun(work, layout, run.cores, 1, cluster, tuple(tasks)).forecast().step_ms
