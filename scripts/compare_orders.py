"""Shuffled and proximity-aware seeds on the Debian graph: how well a model learns, and how many rows a cache saves.

    python scripts/compare_orders.py --figure docs/orders.png

Trains the same GraphSAGE with each order, and prints a table in Markdown. Needs matplotlib for the figure.
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


def draw(results: dict[str, Result], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for index, (name, result) in enumerate(results.items()):
        curves = np.array(result.val_accuracy)
        epochs = np.arange(1, curves.shape[1] + 1)
        axes.plot(epochs, curves.mean(0), color=f"C{index}", marker="osD^v"[index % 5], markersize=4, label=name)
        axes.fill_between(epochs, curves.min(0), curves.max(0), color=f"C{index}", alpha=0.15)
    axes.set(xlabel="epoch", ylabel="validation accuracy", ylim=(0.6, None))
    axes.legend()
    axes.grid(alpha=0.3)
    axes.set_title(
        f"Debian graph, batches of {BATCH_SIZE} seeds: mean, least and most of {len(curves)} runs", fontsize=10
    )
    figure.savefig(path, dpi=110)


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
        draw(results, args.figure)
        print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
