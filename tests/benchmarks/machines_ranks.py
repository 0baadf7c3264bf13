"""Two ranks that sample together over cables with a rate, measured, and what the simulation makes of them.

Each rank is on a machine of its own (a network namespace), has a part of a graph, and asks the other for lists and
rows; it trains on a device that is not there (a sleep), and averages gradients. The simulation is told the work of one
process that has all, and of the two over an unlimited cable what the processor did and the bytes; not how long anything
took over a cable.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
from lightning_gnnload.pipeline.forecast.run import PipelineRun
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from lightning_gnnload.sample.base import nodes_of
from lightning_gnnload.sample.neighbor import NeighborSampler
from tests.benchmarks.compared import Compared
from tests.benchmarks.load import watched

STEPS_MS = (2.0, 20.0, 80.0)
FANOUTS, BATCH_SIZE, BATCHES = (10, 5), 512, 14
ROW_BYTES, GRADIENT_BYTES, SLOTS = 256, 1 << 20, 2
LIMIT_S = 120
COPY_GB_S = 1.5
FAST_GB_S = 2.5  # an unlimited cable: what a kernel passes
LATENCY_MS = 0.03


@dataclass(frozen=True)
class RanksRun:
    """What one run of two ranks showed, of the means of both; ``core_ms``: of a process a mini-batch; ``cores``: left
    by other programs."""

    step_ms: float
    core_ms: float
    remote_share: float
    tasks: list[list[float]]
    cores: float


def alone(data: GraphData) -> tuple[float, float]:
    """What a mini-batch of one process takes of its core, in ms: to draw, and to gather its rows."""
    rows = np.zeros((data.num_nodes, ROW_BYTES), np.uint8)
    out = np.empty((data.num_nodes, ROW_BYTES), np.uint8)
    sampler, drawn_ms, gathered_ms = NeighborSampler(list(FANOUTS)), [], []
    for turn in range(BATCHES):
        seeds = np.random.default_rng(turn).choice(data.num_nodes, BATCH_SIZE, replace=False)
        times = [time.thread_time()]
        nodes = nodes_of(sampler, data.graph, Draw(seeds, DrawKey(1, 2, turn)))
        times.append(time.thread_time())
        np.take(rows, nodes, axis=0, out=out[: len(nodes)])
        times.append(time.thread_time())
        drawn_ms.append(1e3 * (times[1] - times[0]))
        gathered_ms.append(1e3 * (times[2] - times[1]))
    return float(np.mean(drawn_ms[4:])), float(np.mean(gathered_ms[4:]))


def measured(data: GraphData, rates_mbit: Sequence[int]) -> dict[int, dict[float, RanksRun]]:
    """Runs by a cable's rate (0: unlimited), and by how long a step takes."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        partition_graph(data, folder / "parts", 2, "random", hops=0, features=False, progress=False)
        return {rate: _measured(folder, rate) for rate in (0, *rates_mbit)}


def _measured(folder: Path, rate_mbit: int) -> dict[float, RanksRun]:
    from tests.cluster.network import Network

    with Network("first", "second", bytes_per_s=rate_mbit * 125_000) as network:
        store = tempfile.mktemp(dir=folder)
        ranks = [
            network[name].popen([sys.executable, "-m", "tests.benchmarks.machines_job", str(rank), str(folder), store])
            for rank, name in enumerate(("first", "second"))
        ]
        watch = watched(ranks, LIMIT_S)
    found = [json.loads((folder / f"measured-{rank}.json").read_text()) for rank in range(2)]
    runs = {}
    for step_ms in STEPS_MS:
        both = [each[str(step_ms)] for each in found]
        means = (float(np.mean([each[name] for each in both])) for name in ("step_ms", "core_ms", "remote"))
        tasks = np.mean([each["tasks"] for each in both], axis=0).tolist()
        runs[step_ms] = RanksRun(*means, tasks, watch.cores_left(both[0]["began_s"], both[0]["ended_s"]))
    return runs


def compared(found: dict[int, dict[float, RanksRun]], core_ms: Sequence[float]) -> list[Compared]:
    rows = []
    for rate, runs in found.items():
        for step_ms, run in runs.items():
            cable = f"{rate} Mbit/s" if rate else "an unlimited cable"
            # The processor's work of the longest step, which hides the most of what it waits.
            full = found[0][max(STEPS_MS)]
            rows.append(
                Compared(
                    "ranks in rounds",
                    f"{cable}, a step of {step_ms:g} ms",
                    run.step_ms,
                    simulated_ms(run, core_ms, rate, step_ms, full),
                )
            )
    return rows


def simulated_ms(run: RanksRun, core_ms: Sequence[float], rate_mbit: int, step_ms: float, full: RanksRun) -> float:
    """``full``: over the unlimited cable, which tells what is asked for; of ``run``, only the cores left by others."""
    drawn_ms, gathered_ms = core_ms
    moved = sum(request + answer for request, answer in full.tasks)
    costs = MessageCosts(0.0, 0.0, COPY_GB_S, COPY_GB_S)
    rest_ms = full.core_ms - drawn_ms - gathered_ms - costs.asked_ms(moved) - costs.answered_ms(moved)
    message_ms = float(max(rest_ms, 0.0) / (2 * len(full.tasks)))
    cluster = Cluster(
        machines=2,
        placement="collective",
        link_gb_s=rate_mbit / 8000 or FAST_GB_S,
        latency_ms=LATENCY_MS,
        costs=MessageCosts(message_ms, message_ms, COPY_GB_S, COPY_GB_S),
        is_one_host=True,
    )
    remote, hops = full.remote_share, len(FANOUTS)
    shares = [drawn_ms * (1 - cluster.joining) * remote / hops] * hops + [gathered_ms / 2]
    tasks = tuple(RemoteTask(*sent, core_ms=ms) for sent, ms in zip(full.tasks, shares, strict=True))
    work = BatchWork(
        sample_ms=drawn_ms * (1 - remote * (1 - cluster.joining)), gather_ms=gathered_ms / 2, train_device_ms=step_ms
    )
    layout = RunLayout(batch_size=BATCH_SIZE)
    return PipelineRun(work, layout, run.cores, 1, cluster, tasks, GRADIENT_BYTES).forecast().step_ms
