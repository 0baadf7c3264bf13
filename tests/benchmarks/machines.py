"""More machines, simulated beside measured: ``python -m tests.benchmarks.machines`` prints a Markdown table.

Two ranks, each on a machine of its own (a network namespace) whose cable has a rate, have a part of a graph each. They
sample together over gloo, ask each other for rows, train on a device that is not there (a sleep), and average
gradients. What the simulation is told comes from one process with the whole graph, and from the processor's time of the
two over an unlimited cable; not from how long anything took over a cable. Two minutes on two idle cores, as root.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lightning_gnnload.datasets.synthetic import Synthetic
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.steps import forecast_step
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from lightning_gnnload.sample.base import nodes_of
from lightning_gnnload.sample.neighbor import NeighborSampler
from tests.benchmarks.errors import BenchmarkError

RATES_MBIT = (1000, 200, 100)
STEPS_MS = (2.0, 20.0, 80.0)
FANOUTS, BATCH_SIZE, BATCHES = (10, 5), 512, 20
ROW_BYTES, GRADIENT_BYTES, SLOTS = 256, 1 << 20, 2
LIMIT_S = 90
DATASET = Synthetic("chung-lu", num_nodes=100_000, num_edges=1_500_000, num_features=0)


@dataclass(frozen=True)
class MachineRun:
    """What one run of two ranks showed, of the means of both; ``core_ms``: of a process a mini-batch."""

    step_ms: float
    core_ms: float
    remote_share: float
    tasks: list[list[float]]


def alone() -> tuple[float, float]:
    """What a mini-batch of one process takes of its core, in ms: to draw, and to gather its rows."""
    data = DATASET.load()
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


def measured(folder: Path, rate_mbit: int) -> dict[float, MachineRun]:
    """Two ranks over a cable of that rate (0: unlimited), by how long a step takes."""
    from tests.cluster.network import Network

    with Network("first", "second", bytes_per_s=rate_mbit * 125_000) as network:
        store = tempfile.mktemp(dir=folder)
        ranks = [
            network[name].popen([sys.executable, "-m", "tests.benchmarks.machines_job", str(rank), str(folder), store])
            for rank, name in enumerate(("first", "second"))
        ]
        try:
            if any(rank.wait(LIMIT_S) for rank in ranks):
                raise BenchmarkError("a rank has failed; it says above why")
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    found = [json.loads((folder / f"measured-{rank}.json").read_text()) for rank in range(2)]
    return {
        step_ms: MachineRun(
            *(
                float(np.mean([each[str(step_ms)][name] for each in found]))
                for name in ("step_ms", "core_ms", "remote")
            ),
            np.mean([each[str(step_ms)]["tasks"] for each in found], axis=0).tolist(),
        )
        for step_ms in STEPS_MS
    }


def simulated_ms(run: MachineRun, core_ms: Sequence[float], rate_mbit: int, step_ms: float, full: MachineRun) -> float:
    """What the simulation makes of it; ``full``: over the unlimited cable, of which the processor's time is taken."""
    drawn_ms, gathered_ms = core_ms
    cluster = Cluster(machines=2, placement="collective", link_gb_s=(rate_mbit or 20_000) / 8000, latency_ms=0.03)
    moved = sum(request + answer for request, answer in run.tasks)
    rest_ms = full.core_ms - drawn_ms - gathered_ms - 2 * cluster.copy_ms(moved)
    message_ms = float(max(rest_ms, 0.0) / (2 * len(run.tasks)))
    cluster = Cluster(
        machines=2, placement="collective", link_gb_s=cluster.link_gb_s, latency_ms=0.03, message_ms=message_ms
    )
    remote = run.remote_share
    shares = [drawn_ms * (1 - cluster.joining) * remote / len(FANOUTS)] * len(FANOUTS) + [gathered_ms / 2]
    tasks = tuple(RemoteTask(*sent, core_ms=ms) for sent, ms in zip(run.tasks, shares, strict=True))
    work = BatchWork(
        sample_ms=drawn_ms * (1 - remote * (1 - cluster.joining)), gather_ms=gathered_ms / 2, train_device_ms=step_ms
    )
    layout = RunLayout(batch_size=BATCH_SIZE)
    # Both machines share this one's two cores.
    return forecast_step(work, layout, 1, 1, cluster, tasks, GRADIENT_BYTES).step_ms


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", type=int, nargs="*", default=RATES_MBIT, help="in Mbit/s, beside an unlimited cable")
    parser.add_argument("--out", type=Path, default=Path("machines.json"), help="what is measured")
    parser.add_argument("--again", type=Path, help="simulate beside what such a file has")
    options = parser.parse_args(arguments)
    if options.again is None:
        DATASET.prepare()
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            partition_graph(DATASET.load(), folder / "parts", 2, "random", hops=0, features=False, progress=False)
            found = {"alone": alone(), "runs": {rate: measured(folder, rate) for rate in (0, *options.rates)}}
        options.out.write_text(json.dumps(found, default=asdict))
    found = json.loads((options.again or options.out).read_text())
    core_ms = found["alone"]
    runs = {
        int(rate): {float(step_ms): MachineRun(**run) for step_ms, run in by_step.items()}
        for rate, by_step in found["runs"].items()
    }
    print("| cable | step on its device | measured, ms a step | simulated | off |\n|---|---|---|---|---|")
    offs = []
    for rate, by_step in runs.items():
        for step_ms, run in by_step.items():
            simulated = simulated_ms(run, core_ms, rate, step_ms, runs[0][step_ms])
            offs.append(abs(simulated / run.step_ms - 1))
            name = f"{rate} Mbit/s" if rate else "unlimited"
            off = simulated / run.step_ms - 1
            print(f"| {name} | {step_ms:g} ms | {run.step_ms:.1f} | {simulated:.1f} | {off:+.0%} |")
    print(f"\nMean error {np.mean(offs):.0%}, largest {max(offs):.0%}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
