"""Shuffled and proximity-aware seeds: how well a model learns, and how many rows a cache misses.

    python scripts/compare_orders.py --quick --figure docs/orders.png
    python scripts/compare_orders.py --quick --graph web citation --only shuffle default "1 sequence"

Trains the same GraphSAGE with each order, and prints a table in Markdown. The limit of label distance was chosen on
Debian and on `communities`; `web` and `citation` were not looked at before.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl

sys.path.insert(0, str(Path(__file__).parent.parent))
from lightning_gnnload import Debian, GraphData, GraphDataModule, NeighborSampler, ProximityOrder, Synthetic
from lightning_gnnload.cache.trace import node_lists
from lightning_gnnload.data.orders.reads import cache_reads
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.orders.shuffling import mean_distance
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.drawing import COLORS, name_lines, new_figure, save_figure, tidy
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.workload import Workload
from tests.plain_sage import GraphSAGE

BATCH_SIZE = 1024
SAMPLER = NeighborSampler([15, 10])
QUICK: dict[str, Any] = {"sampler": NeighborSampler([10, 5]), "hidden": 64, "lr": 0.01}
_RANDOM: dict[str, Any] = {"num_features": 16, "feature_noise": 0.6, "max_test": 10_000}
GRAPHS: dict[str, StoredDataset] = {
    "debian": Debian(),
    "communities": Synthetic(
        "citation", 60_000, 600_000, num_classes=40, homophily=0.7, train_fraction=0.3, seed=5, **_RANDOM
    ),
    "web": Synthetic("web", 100_000, 1_000_000, homophily=0.8, train_fraction=0.2, **_RANDOM),
    "citation": Synthetic("citation", 100_000, 1_000_000, train_fraction=0.2, **_RANDOM),
}
ORDERS = {
    "shuffle": Shuffled(),
    "default": ProximityOrder(),
    "64 sequences": ProximityOrder(64),
    "16 sequences": ProximityOrder(16),
    "1 sequence": ProximityOrder(1),
}


@dataclass
class Result:
    """Of one order: means over mini-batches, and one entry for each run."""

    label_distance: float
    input_nodes: float
    from_behind: float
    test_accuracy: list[float] = field(default_factory=list)
    val_accuracy: list[list[float]] = field(default_factory=list)


class Curve(pl.Callback):
    """Validation accuracy after each epoch."""

    def __init__(self) -> None:
        self.accuracy: list[float] = []

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.accuracy.append(float(trainer.callback_metrics["val_accuracy"]))


def measure(order: SeedOrder, data: GraphData, sampler: Sampler = SAMPLER) -> Result:
    assert data.y is not None
    order = order.bind(data.graph, data.y, BATCH_SIZE)
    distance = mean_distance(order, data.train, data.y, seed=0, global_batch_size=BATCH_SIZE)
    workload = Workload(data.graph, sampler, data.train, batch_size=BATCH_SIZE, order=order)
    requests = [*workload.requests(0), *workload.requests(1)]
    read = cache_reads((nodes for _, nodes in node_lists(workload, requests)), len(requests) // 2, data.num_nodes)
    return Result(distance, read.rows / read.batches, read.missed / read.batches)


def train(
    order: SeedOrder, data: GraphData, epochs: int, seed: int, result: Result, sampler: Sampler = SAMPLER, **model: Any
) -> None:
    pl.seed_everything(seed)
    curve, best = Curve(), pl.callbacks.ModelCheckpoint(monitor="val_accuracy", mode="max")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        num_sanity_val_steps=0,
        default_root_dir="runs/compare_orders",
        callbacks=[curve, best],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    network = GraphSAGE(in_features=data.num_features, num_classes=data.num_classes, num_layers=2, **model)
    module = GraphDataModule(data, sampler, batch_size=BATCH_SIZE, seed=seed, order=order)
    trainer.fit(network, module)
    [tested] = trainer.test(network, module, ckpt_path="best", verbose=False)
    result.test_accuracy.append(tested["test_accuracy"])
    result.val_accuracy.append(curve.accuracy)


def table(results: dict[str, Result]) -> str:
    lines = [
        "| order | label distance | input nodes | not in a cache | test accuracy | mean |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        accuracy = ", ".join(f"{value:.3f}" for value in result.test_accuracy)
        lines.append(
            f"| {name} | {result.label_distance:.3f} | {result.input_nodes:,.0f} | {result.from_behind:,.0f} "
            f"| {accuracy} | {np.mean(result.test_accuracy):.3f} |"
        )
    return "\n".join(lines)


def draw(results: dict[str, Result], title: str, path: Path, graph: str = "debian") -> None:
    """A line an order, through the means of its runs, and a band from the least to the most."""
    runs = max(len(result.val_accuracy) for result in results.values())
    span = f"Lines are means, bands the least and the most of {runs} runs. " if runs > 1 else ""
    note = f"GraphSAGE on the graph {graph!r}, batches of {BATCH_SIZE} seeds. {span}The axis does not begin at 0."
    figure = new_figure(title, 4.8, note)
    axes = figure.subplots()
    ends = []
    for (name, result), color in zip(results.items(), COLORS, strict=False):
        curves = np.array(result.val_accuracy)
        epochs = np.arange(1, curves.shape[1] + 1)
        axes.plot(epochs, curves.mean(0), color=color, linewidth=1.8)
        axes.fill_between(epochs, curves.min(0), curves.max(0), color=color, alpha=0.15, linewidth=0)
        ends.append((curves.mean(0)[-1], name, color))
    axes.set(
        xlabel="epoch",
        ylabel="validation accuracy",
        ylim=(min(end for end, *_ in ends) - 0.1, None),
        xlim=(1, len(epochs)),
    )
    tidy(axes)
    name_lines(axes, ends)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--graph", nargs="+", choices=list(GRAPHS), default=["debian"])
    parser.add_argument("--quick", action="store_true", help="fanouts 10 and 5, 64 hidden channels")
    parser.add_argument("--figure", type=Path, help="of the last graph")
    args = parser.parse_args()
    settings = QUICK if args.quick else {"sampler": SAMPLER}
    for graph in args.graph:
        GRAPHS[graph].prepare()
        data, results = GRAPHS[graph].load(), {}
        for name in args.only:
            print(f"== {graph}, {name}", flush=True)
            results[name] = measure(ORDERS[name], data, settings["sampler"])
            for seed in args.seeds:
                train(ORDERS[name], data, args.epochs, seed, results[name], **settings)
        print(f"\n{graph}:\n\n{table(results)}\n", flush=True)
    if args.figure:
        means = {name: np.mean(result.test_accuracy) for name, result in results.items()}
        (first, best), *_, (last, worst) = means.items()
        title = f"The closer the seeds of a batch, the less is learned: {best:.3f} by {first}, {worst:.3f} by {last}"
        draw(results, title, args.figure, args.graph[-1])
        print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
