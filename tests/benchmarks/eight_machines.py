"""What to expect on eight machines: ``python -m tests.benchmarks.eight_machines`` prints a table, and draws epochs.

Three runs that are limited by different things, on 1 to 8 machines of 32 cores, a GPU, and a link of 25 Gb/s each, by
who has the graph. All of it is simulated (``gnnload plan --machines``); stages are round figures of runs of their kind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lightning_gnnload.drawing import COLORS, GREY, name_lines, new_figure, save_figure, tidy
from lightning_gnnload.pipeline.forecast.cluster import Cluster
from lightning_gnnload.pipeline.forecast.machine import Machine, machine_of
from lightning_gnnload.pipeline.forecast.memory import BatchSize, DataSize
from lightning_gnnload.pipeline.forecast.outlook import Arrangement
from lightning_gnnload.pipeline.forecast.scaling import ClusterForecast, forecast_machines
from lightning_gnnload.pipeline.forecast.search import CacheEffect, MeasuredRun
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

COUNTS = (1, 2, 4, 8)
MACHINE: Machine = machine_of({"cores": 32, "memory_gib": 256, "gpus": ["A100"]})
LAYOUT = RunLayout(threads=8, batch_size=1024)
SIZES = (0.9, 0.95, 1.0, 1.05, 1.1)
FIGURE = Path(__file__).parents[2] / "docs" / "machines.svg"


def run_of(nodes: int, edges: int, row_bytes: int, sample_ms: float, gather_ms: float) -> MeasuredRun:
    """A run of 1.2 million seeds: a mini-batch of 1,024 of them has so many input nodes and drawn edges."""
    return MeasuredRun(
        works={1024: BatchWork(sample_ms=sample_ms, gather_ms=gather_ms, train_fixed_ms=1.0)},
        sizes={1024: BatchSize(nodes, edges, 0, 0)},
        data=DataSize(100_000_000, 0, 0, 0, 0, row_bytes),
        num_seeds=1_200_000,
        mine=LAYOUT,
        gradient_bytes=2_000_000,
        cache=CacheEffect("presample", (0.05, 0.1, 0.2), (0.45, 0.6, 0.75), 150.0, 100.0),
        hops=((1_000, edges * 0.02), (16_000, edges * 0.2), (nodes * 0.25, edges * 0.78)),
        batch_sizes=SIZES,
    )


RUNS: dict[str, tuple[MeasuredRun, float]] = {
    "rows: 330 MB a mini-batch": (run_of(650_000, 900_000, 512, 60.0, 100.0), 30.0),
    "sampling: wide, narrow rows": (run_of(650_000, 1_500_000, 32, 120.0, 25.0), 12.0),
    "the model: a step of 250 ms": (run_of(150_000, 300_000, 512, 15.0, 25.0), 250.0),
}
"""By what limits it on one machine: the run, and a step on its device in ms."""
COLLECTIVE = Cluster(placement="collective", link_gb_s=25 / 8, ahead=1)
OWNERS = Cluster(placement="owners", link_gb_s=25 / 8, owners=4, owner_cores=32, ahead=1)
PLACEMENTS = {
    "a copy each": Cluster(link_gb_s=25 / 8),
    "parts, at random": COLLECTIVE,
    "parts, cut 0.4": replace(COLLECTIVE, cut=0.4),
    "parts, cut 0.4, 10 % hot": replace(COLLECTIVE, cut=0.4, hot=0.1),
    "4 owners": OWNERS,
    "4 owners, 10 % hot": replace(OWNERS, hot=0.1),
}


def simulated() -> dict[str, dict[str, list[ClusterForecast]]]:
    return {
        name: {
            placement: forecast_machines(run, LAYOUT, replace(MACHINE, step_ms=step_ms), cluster, COUNTS)
            for placement, cluster in PLACEMENTS.items()
        }
        for name, (run, step_ms) in RUNS.items()
    }


DRAWN = ("a copy each", "parts, cut 0.4, 10 % hot", "4 owners, 10 % hot")
"""The three arrangements of the figure."""


def draw(found: dict[str, dict[str, list[ClusterForecast]]], file: Path) -> None:
    title = "A copy on each machine scales; parts and owners do where neither rows nor rounds hold them up"
    note = (
        "Simulated: machines of 32 cores and a GPU, links of 25 Gb/s each way, 30 us. Parts: each machine has one, "
        "and asks the others. Cut: what crosses between parts, against parts at random. Hot: rows each has a copy of. "
        "Bands: how far the simulation was off where it was measured. Dotted: one machine's epoch, divided."
    )
    figure = new_figure(title, 6.8, note)
    for axes, (name, by_placement) in zip(figure.subplots(3, 1, sharex=True), found.items(), strict=True):
        names, alone_s = [], by_placement[DRAWN[0]][0].epoch_s
        axes.plot(COUNTS, [alone_s / count for count in COUNTS], color=GREY, linewidth=0.8, linestyle=":")
        for color, placement in zip(COLORS, DRAWN, strict=False):
            forecasts = by_placement[placement]
            epochs_s = [forecast.epoch_s for forecast in forecasts]
            bands = [Arrangement(forecast).band_s for forecast in forecasts]
            axes.fill_between(COUNTS, *zip(*bands, strict=True), color=color, alpha=0.15, linewidth=0)
            axes.plot(COUNTS, epochs_s, color=color, marker="o", markersize=3)
            names.append((epochs_s[-1], placement, color))
        axes.set_xticks(COUNTS)
        axes.set_xlim(1, 8.1)
        axes.set_ylim(0, None)
        tidy(axes, f"Limited by {name}: seconds an epoch")
        name_lines(axes, names)
    axes.set_xlabel("machines that train")
    save_figure(figure, file)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args(arguments)
    found = simulated()
    print(f"| limited by | {' | '.join(PLACEMENTS)} |\n|{'---|' * (len(PLACEMENTS) + 1)}")
    for name, by_placement in found.items():
        cells = []
        for forecasts in by_placement.values():
            last = forecasts[-1]
            cells.append(f"{last.speedup:.1f} ({last.epoch_s:.1f} s; {last.step.limit})")
        print(f"| {name} | {' | '.join(cells)} |")
    draw(found, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
