"""Shuffled and proximity-aware seeds on the Debian graph: how well a model learns, and how many rows a cache saves.

    python scripts/compare_orders.py --figure docs/orders.png

Trains the same GraphSAGE with each order, and prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytorch_lightning as pl

sys.path.insert(0, str(Path(__file__).parent.parent))
from examples.models import GraphSAGE
from lightning_gnnload import Debian, GraphData, GraphDataModule, NeighborSampler, ProximityOrder
from lightning_gnnload.data.drawing import COLORS, name_lines, new_figure, save, tidy
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.orders.shuffling import label_distance

BATCH_SIZE = 1024
SAMPLER = NeighborSampler([15, 10])
CACHE_RATIO = 0.1
ORDERS = {
    "shuffle": Shuffled(),
    "512 sequences": ProximityOrder(512),
    "128 sequences": ProximityOrder(128),
    "16 sequences": ProximityOrder(16),
    "1 sequence": ProximityOrder(1),
}


@dataclass
class Result:
    """Of one order: means over the mini-batches of two epochs, and one entry for each run."""

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


def measure(order: SeedOrder, data: GraphData) -> Result:
    assert data.y is not None
    bound, classes = order.bind(data.graph, data.y, BATCH_SIZE), data.y.numpy()
    capacity = int(CACHE_RATIO * data.num_nodes)
    distances, sizes, misses = [], [], []
    # A cache that evicts first what came first holds a row until so many others have come.
    came, num_came = np.full(data.num_nodes, -capacity - 1), 0
    for epoch in range(2):
        ordered = bound.order(data.train, seed=0, epoch=epoch)
        distances.append(label_distance(classes[ordered], BATCH_SIZE))
        for step, begin in enumerate(range(0, len(ordered), BATCH_SIZE)):
            seeds = ordered[begin : begin + BATCH_SIZE]
            nodes = SAMPLER.sample(data.graph, seeds, seed=0, epoch=epoch, step=step).nodes.numpy()
            missed = nodes[came[nodes] < num_came - capacity]
            came[missed] = num_came + np.arange(len(missed))
            num_came += len(missed)
            sizes.append(len(nodes))
            misses.append(len(missed))
    return Result(float(np.mean(distances)), float(np.mean(sizes)), float(np.mean(misses)))


def train(order: SeedOrder, data: GraphData, epochs: int, seed: int, result: Result) -> None:
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
    model = GraphSAGE(in_features=data.num_features, num_classes=data.num_classes, num_layers=2)
    module = GraphDataModule(data, SAMPLER, batch_size=BATCH_SIZE, seed=seed, order=order)
    trainer.fit(model, module)
    [tested] = trainer.test(model, module, ckpt_path="best", verbose=False)
    result.test_accuracy.append(tested["test_accuracy"])
    result.val_accuracy.append(curve.accuracy)


def table(results: dict[str, Result]) -> str:
    lines = [
        "| order | label distance | input nodes | not in a FIFO cache | test accuracy | mean |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        accuracy = ", ".join(f"{value:.3f}" for value in result.test_accuracy)
        lines.append(
            f"| {name} | {result.label_distance:.3f} | {result.input_nodes:,.0f} | {result.from_behind:,.0f} "
            f"| {accuracy} | {np.mean(result.test_accuracy):.3f} |"
        )
    return "\n".join(lines)


def draw(results: dict[str, Result], title: str, path: Path) -> None:
    """A line an order, through the means of its runs, and a band from the least to the most."""
    runs = max(len(result.val_accuracy) for result in results.values())
    span = f"Lines are means, bands the least and the most of {runs} runs. " if runs > 1 else ""
    note = f"GraphSAGE on the Debian graph, batches of {BATCH_SIZE} seeds. {span}The axis does not begin at 0."
    figure = new_figure(title, 4.8, note)
    axes = figure.subplots()
    ends = []
    for (name, result), color in zip(results.items(), COLORS, strict=False):
        curves = np.array(result.val_accuracy)
        epochs = np.arange(1, curves.shape[1] + 1)
        axes.plot(epochs, curves.mean(0), color=color, linewidth=1.8)
        axes.fill_between(epochs, curves.min(0), curves.max(0), color=color, alpha=0.15, linewidth=0)
        ends.append((curves.mean(0)[-1], name, color))
    axes.set(xlabel="epoch", ylabel="validation accuracy", ylim=(0.6, 0.83), xlim=(1, len(epochs)))
    tidy(axes)
    name_lines(axes, ends)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    dataset = Debian()
    dataset.prepare()
    data = dataset.load()
    results = {}
    for name in args.only:
        print(f"== {name}", flush=True)
        results[name] = measure(ORDERS[name], data)
        for seed in args.seeds:
            train(ORDERS[name], data, args.epochs, seed, results[name])
    print(table(results))
    if args.figure:
        means = {name: np.mean(result.test_accuracy) for name, result in results.items()}
        (first, best), *_, (last, worst) = means.items()
        title = f"The closer the seeds of a batch, the less is learned: {best:.3f} by {first}, {worst:.3f} by {last}"
        draw(results, title, args.figure)
        print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
