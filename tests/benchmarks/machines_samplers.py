"""A machine that samples for another one, over a cable with a rate, measured, and what the simulation makes of it.

Two machines (network namespaces) run ``FactoredStrategy(samplers=0, sampler_nodes=1)``: the second makes mini-batches,
which come over TCP; the first trains on a device that is not there (a sleep). The simulation is told what one process
takes to make a mini-batch, its bytes, and what the processor of both did over an unlimited cable.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightning_gnnload import GraphDataModule, NeighborSampler, Synthetic
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.forecast.cluster import Cluster
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
from lightning_gnnload.pipeline.forecast.run import PipelineRun
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from lightning_gnnload.pipeline.slots import Slot
from tests.benchmarks.compared import Compared
from tests.benchmarks.load import watched

STEPS_MS = (5.0, 40.0)
FANOUTS, BATCH_SIZE, THREADS = (10, 5), 512, 2
FIRST, BATCHES = 10, 30
LIMIT_S = 150
PORT = "29817"  # within the machines' own networks
FAST_GB_S, LATENCY_MS = 2.5, 0.03
DATASET = Synthetic("chung-lu", num_nodes=100_000, num_edges=1_500_000, num_features=64, train_fraction=0.54)
CASES = tuple((rate_mbit, step_ms) for rate_mbit in (0, 500, 100) for step_ms in STEPS_MS)
"""A cable's rate in Mbit/s, 0: unlimited; and ms of a step."""


@dataclass(frozen=True)
class SamplersRun:
    """Ms a step, of these the processor's of trainer and sampler, and the cores left by others; and what a mini-batch
    takes of one process that makes it, and the bytes that came."""

    step_ms: float
    trainer_core_ms: float
    sampler_core_ms: float
    cores: float
    making_ms: float
    num_bytes: float


def name_of(case: tuple[float, float]) -> str:
    rate_mbit, step_ms = case
    return f"{f'{rate_mbit:g} Mbit/s' if rate_mbit else 'an unlimited cable'}, a step of {step_ms:g} ms"


def measured(cases: Sequence[tuple[int, float]]) -> dict[str, SamplersRun]:
    DATASET.prepare()
    making_ms = _making_ms()
    found = {}
    for rate_mbit in dict.fromkeys(rate for rate, _ in cases):
        runs = _measured(rate_mbit, making_ms)
        found |= {name_of((rate_mbit, step_ms)): run for step_ms, run in runs.items()}
    return found


def _making_ms() -> float:
    """Ms of a core to make a mini-batch here."""
    module = GraphDataModule(DATASET, NeighborSampler(list(FANOUTS)), BATCH_SIZE)
    module.setup("fit")
    source, slot, took_ms = module.source("train"), Slot(), []
    for step in range(FIRST + BATCHES):
        began = time.thread_time()
        source.make(BatchRequest(0, step, 0, 1), slot)
        took_ms.append(1e3 * (time.thread_time() - began))
    return float(np.mean(took_ms[FIRST:]))


def _measured(rate_mbit: int, making_ms: float) -> dict[float, SamplersRun]:
    from tests.cluster.network import Network

    with Network("trainer", "sampler", bytes_per_s=rate_mbit * 125_000) as network, tempfile.TemporaryDirectory() as at:
        secret = Path(at, "secret")
        secret.touch(0o600)
        secret.write_text("a secret of thirty-two characters")
        shared = {"MASTER_ADDR": network["trainer"].address, "MASTER_PORT": PORT, "GNNLOAD_SECRET_FILE": str(secret)}
        shared |= {"GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.benchmarks.machines_samplers_job", at]
        jobs = [
            network[name].popen(command, env={**os.environ, **shared, "NODE_RANK": str(rank)})
            for rank, name in enumerate(("trainer", "sampler"))
        ]
        watch = watched(jobs, LIMIT_S)
        trained = json.loads(Path(at, "trained.json").read_text())
    runs = {}
    for step_ms, run in trained.items():
        window = run["began_s"], run["ended_s"]
        ours_ms = 1e3 * watch.ours_s(*window) / BATCHES
        core_ms = run["trainer_core_ms"]
        runs[float(step_ms)] = SamplersRun(
            run["step_ms"], core_ms, max(ours_ms - core_ms, 0.0), watch.cores_left(*window), making_ms, run["num_bytes"]
        )
    return runs


def compared(cases: Sequence[tuple[int, float]], found: dict[str, SamplersRun]) -> list[Compared]:
    plain = min(
        (found[name_of((0, step_ms))] for step_ms in STEPS_MS),
        key=lambda run: run.trainer_core_ms + run.sampler_core_ms,
    )
    return [
        Compared(
            "samplers elsewhere",
            name_of(case),
            found[name_of(case)].step_ms,
            simulated_ms(*case, found[name_of(case)], plain),
        )
        for case in cases
    ]


def simulated_ms(rate_mbit: int, step_ms: float, run: SamplersRun, plain: SamplersRun) -> float:
    """``plain``: over the unlimited cable, which tells of processors and bytes; of ``run``, only the cores left."""
    sampler_ms = max(plain.sampler_core_ms - plain.making_ms, 0.1)
    # What a trainer's processor does is its thread that receives, and the step's own Python: halves of it, where
    # nothing tells them apart.
    trainer_ms = max(plain.trainer_core_ms / 2, 0.1)
    costs = MessageCosts(0.1, 0.1, plain.num_bytes / trainer_ms / 1e6, plain.num_bytes / sampler_ms / 1e6)
    cluster = Cluster(
        sampler_nodes=1,
        link_gb_s=rate_mbit / 8000 or FAST_GB_S,
        latency_ms=LATENCY_MS,
        costs=costs,
        is_one_host=True,
    )
    work = BatchWork(sample_ms=plain.making_ms, train_fixed_ms=trainer_ms, train_device_ms=step_ms)
    layout = RunLayout(way="factored", threads=THREADS, batch_size=BATCH_SIZE)
    return PipelineRun(work, layout, run.cores, 1, cluster, batch_bytes=plain.num_bytes).forecast().step_ms
