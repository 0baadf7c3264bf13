"""Scaling that others measured, beside the simulation's: ``python -m tests.benchmarks.scaling`` prints Markdown tables.

DSP (PPoPP'23): GraphSAGE, [15, 10, 5], batches of 1,024, eight V100. An epoch of one GPU (Table 4), sampling by GPUs
(Table 6) and PCIe (Table 1) are what the simulation is told; epochs of two, four and eight GPUs are what it predicts.
BGL (NSDI'23): four V100 and 100 Gb/s a machine, eight graph store servers, batches of 1,000 of 195 MB of rows (section
2.2), 250,000 seeds a second on one machine (5.6). How many rows its caches serve is a figure that cannot be read, so
several are assumed. Seconds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
from lightning_gnnload.pipeline.forecast.steps import forecast_step
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

GPUS = (1, 2, 4, 8)
# Table 1 counts both ways; a request has 18 bytes beside those that are read (section 2.1), of rows 128 at most.
PCIE_GB_S = tuple(both / 2 * 128 / (128 + 18) for both in (32, 32, 64, 128))


@dataclass(frozen=True)
class Published:
    """A row of DSP's tables: seconds an epoch, and of these sampling, by GPUs; ``host_gb``: that a mini-batch reads of
    rows from the host, where all of them are there."""

    system: str
    graph: str
    num_steps: int
    epoch_s: tuple[float, ...]
    sampling_s: tuple[float, ...]
    host_gb: float = 0.0

    def simulated_s(self, gpus: int) -> float:
        """An epoch: what one GPU takes beside sampling and reading is its step, which more GPUs share."""
        at = GPUS.index(gpus)
        rows_s = self.host_gb * self.num_steps / PCIE_GB_S[0]
        train_ms = 1e3 * (self.epoch_s[0] - self.sampling_s[0] - rows_s) / self.num_steps
        steps = self.num_steps / gpus
        # All is kernels of one device, which take turns, those that read the host's rows among them.
        work = BatchWork(
            draw_device_ms=1e3 * self.sampling_s[at] / steps,
            gather_device_ms=1e3 * self.host_gb * gpus / PCIE_GB_S[at],
            train_device_ms=train_ms,
            exchange_ms=0.1,
        )
        layout = RunLayout(way="ddp" if gpus > 1 else "auto", trainers=gpus)
        return steps * forecast_step(work, layout, 64, gpus).step_ms / 1e3


# Steps: training nodes by 1,024; a hundredth of Friendster's nodes, which have no labels, as the paper does not say.
# Rows: 400,000 input nodes of Products (BGL, section 2.2) and 650,000 of Papers, of 400 and 512 bytes.
ROWS = (
    Published("DSP", "Products", 192, (3.11, 1.75, 0.992, 0.613), (1.60, 0.834, 0.461, 0.323)),
    Published("DSP", "Papers", 1179, (39.1, 24.5, 15.3, 4.62), (12.1, 6.91, 2.47, 1.40)),
    Published("DSP", "Friendster", 641, (270, 116, 64.6, 44.8), (61.3, 33.2, 13.4, 7.09)),
    Published("DGL-UVA", "Products", 192, (6.87, 6.03, 3.17, 1.61), (2.39, 1.97, 1.12, 0.613), 0.160),
    Published("DGL-UVA", "Papers", 1179, (47.5, 39.6, 30.2, 18.3), (14.2, 11.5, 4.91, 2.61), 0.333),
)
BGL_SEEDS_S = {1: 250_000, 4: 769_000}
BGL_ROWS_BYTES, BGL_STRUCTURE_BYTES, BGL_BATCH, BGL_GPUS = 195e6, 5e6, 1000, 4


def bgl_seeds_s(machines: int, hit_rate: float) -> float:
    """Seeds a second of GraphSAGE on Papers: the step is what one machine's 250,000 leave for it."""
    step_ms = 1e3 * BGL_BATCH * BGL_GPUS / BGL_SEEDS_S[1]
    cluster = Cluster(
        machines=machines,
        placement="owners",
        owners=8,
        owner_cores=96,
        link_gb_s=12.5,
        latency_ms=0.02,
        costs=MessageCosts(0.05, 0.05, 5.0, 5.0),
        ahead=2,
    )
    missed = (1 - hit_rate) * BGL_ROWS_BYTES
    tasks = (RemoteTask(8e3, BGL_STRUCTURE_BYTES, 20.0), RemoteTask(missed / 64, missed, 5.0))
    layout = RunLayout(way="ddp", trainers=BGL_GPUS, threads=2)
    step = forecast_step(BatchWork(train_device_ms=step_ms, exchange_ms=0.1), layout, 96, BGL_GPUS, cluster, tasks, 1e6)
    return 1e3 * BGL_BATCH * BGL_GPUS * machines / step.step_ms


def errors() -> list[float]:
    """How far simulated epochs are from DSP's table, by row and number of GPUs beyond one."""
    return [
        row.simulated_s(gpus) / seconds - 1
        for row in ROWS
        for gpus, seconds in zip(GPUS, row.epoch_s, strict=True)
        if gpus > 1
    ]


def main() -> int:
    print("| system, graph | 2 GPUs: published, simulated | 4 GPUs | 8 GPUs |\n|---|---|---|---|")
    for row in ROWS:
        cells = []
        for gpus, seconds in zip(GPUS[1:], row.epoch_s[1:], strict=True):
            simulated = row.simulated_s(gpus)
            cells.append(f"{seconds:.3g}, {simulated:.3g} ({simulated / seconds - 1:+.0%})")
        print(f"| {row.system}, {row.graph} | {' | '.join(cells)} |")
    off = np.abs(errors())
    print(f"\nMean error {off.mean():.0%}, largest {off.max():.0%}.\n")
    print(
        "| BGL, rows that caches serve | 1 machine: published, simulated | 4 machines | of linear |\n|---|---|---|---|"
    )
    for hit_rate in (0.6, 0.7, 0.8, 0.9):
        one, four = (bgl_seeds_s(machines, hit_rate) for machines in (1, 4))
        cells = [f"{BGL_SEEDS_S[count] / 1e3:.0f} k, {now / 1e3:.0f} k" for count, now in ((1, one), (4, four))]
        published = BGL_SEEDS_S[4] / 4 / BGL_SEEDS_S[1]
        print(f"| {hit_rate:.0%} | {' | '.join(cells)} | {published:.0%}, {four / 4 / one:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
