"""Every sampler on the Debian graph: how many input nodes a batch needs, how long it takes, how well a model learns.

    python scripts/compare_samplers.py --figure docs/samplers.png

Trains the same GraphSAGE with each, and prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from lightning_gnnload import (
    Debian,
    GraphData,
    GraphDataModule,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    RandomWalkSampler,
    Sampler,
    ShadowSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.drawing import BLUE, INK, ORANGE, SMALL, new_figure, save_figure, tidy
from lightning_gnnload.ops import ARENA_ALIGNMENT, DrawKey
from tests.plain_sage import GraphSAGE

BATCH_SIZE = 1024
NUM_TIMED = 30
ARENA_BYTES = 256 << 20
SAMPLERS = {
    "NeighborSampler": NeighborSampler([15, 10]),
    "NeighborSampler, all": NeighborSampler([-1, -1]),
    "WeightedNeighborSampler": WeightedNeighborSampler([15, 10]),
    "LaborSampler": LaborSampler([15, 10]),
    "LaborSampler, importance=1": LaborSampler([15, 10], importance=1),
    "RandomWalkSampler": RandomWalkSampler(
        num_layers=2, num_neighbors=10, num_walks=10, termination_prob=0.5, weighted=False
    ),
    "LayerSampler, ladies": LayerSampler([2048, 4096], method="ladies", weighted=False),
    "LayerSampler, fastgcn": LayerSampler([2048, 4096], method="fastgcn", weighted=False),
    "ShadowSampler": ShadowSampler([15, 10], num_layers=2),
}


@dataclass
class Result:
    """Of one sampler: medians over batches, and one entry an epoch of each run."""

    input_nodes: float
    edges: float
    sample_ms: float
    test_accuracy: list[float] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    val_accuracy: list[list[float]] = field(default_factory=list)

    @property
    def epoch_seconds(self) -> float:
        """The fastest epoch: whatever else the machine does can only add to it."""
        return float(min(np.diff(run).min() for run in self.seconds))


class Curve(pl.Callback):
    """Validation accuracy against the time spent in training epochs."""

    def __init__(self) -> None:
        self.seconds, self.accuracy = [0.0], [float("nan")]

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._started = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.seconds.append(self.seconds[-1] + time.perf_counter() - self._started - self._validated)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._validation_started = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._validated = time.perf_counter() - self._validation_started
        if not trainer.sanity_checking:
            self.accuracy.append(float(trainer.callback_metrics["val_accuracy"]))


def measure(sampler: Sampler, data: GraphData) -> Result:
    """The first batches of an epoch, sampled by one thread."""
    order = np.random.default_rng(0).permutation(np.asarray(data.split("train")))
    rows = []
    raw = np.empty(ARENA_BYTES + ARENA_ALIGNMENT, np.uint8)
    arena = raw[-raw.ctypes.data % ARENA_ALIGNMENT :][:ARENA_BYTES]  # recycled, as the loader does
    for step in range(NUM_TIMED):
        seeds = order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        begin = time.thread_time()
        layout = sampler.sample_into(data.graph, seeds, DrawKey(0, 0, step), arena)
        seconds = time.thread_time() - begin
        rows.append((layout.num_nodes, sum(hop.num_edges for hop in layout.hops), seconds))
    nodes, edges, seconds = np.median(rows, axis=0)
    return Result(float(nodes), float(edges), 1e3 * float(seconds))


def train(sampler: Sampler, data: GraphData, epochs: int, seed: int, result: Result) -> None:
    pl.seed_everything(seed)
    curve, best = Curve(), pl.callbacks.ModelCheckpoint(monitor="val_accuracy", mode="max")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        num_sanity_val_steps=0,
        default_root_dir="runs/compare_samplers",
        callbacks=[curve, best],
        logger=False,
        enable_model_summary=False,
    )
    model = GraphSAGE(in_features=data.num_features, num_classes=data.num_classes, num_layers=2)
    module = GraphDataModule(data, sampler, batch_size=BATCH_SIZE, seed=seed)
    trainer.fit(model, module)
    [tested] = trainer.test(model, module, ckpt_path="best", verbose=False)
    result.test_accuracy.append(tested["test_accuracy"])
    result.seconds.append(curve.seconds)
    result.val_accuracy.append(curve.accuracy)


def with_weights(data: GraphData, dataset: Debian) -> GraphData:
    """The graph with an edge weight by the kind of relation, for the sampler that needs one."""
    strong = np.array([4.0 if "epends" in name else 1.0 for name in dataset.edge_type_names], np.float32)
    graph = data.graph
    graph = type(graph)(graph.indptr, graph.indices, edge_weight=strong[graph.edge_type], edge_type=graph.edge_type)
    splits = {name: data.split(name) for name in ("train", "val", "test")}
    return GraphData(graph, x=data.x, y=data.y, num_classes=data.num_classes, **splits)


def table(results: dict[str, Result]) -> str:
    lines = [
        "| sampler | input nodes | edges | sampling, ms | epoch, s | test accuracy |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        epoch = result.epoch_seconds
        accuracy = ", ".join(f"{value:.3f}" for value in result.test_accuracy)
        lines.append(
            f"| {name} | {result.input_nodes:,.0f} | {result.edges:,.0f} | {result.sample_ms:.2f} | {epoch:.2f} "
            f"| {accuracy} |"
        )
    return "\n".join(lines)


def draw(results: dict[str, Result], path: Path) -> None:
    """A row a sampler: what a batch needs, what an epoch takes, and what is learned."""
    some, every = (results.get(name) for name in ("NeighborSampler", "NeighborSampler, all"))
    title = "What each sampler costs, and what a model learns by it"
    if some is not None and every is not None:
        dearer = every.epoch_seconds / some.epoch_seconds
        points = 100 * (np.mean(every.test_accuracy) - np.mean(some.test_accuracy))
        title = f"Taking all neighbours makes epochs {dearer:.0f} times as long, for {points:.1f} points of accuracy"
    note = f"GraphSAGE of 2 layers on the Debian graph, batches of {BATCH_SIZE} seeds; input nodes are of a batch."
    figure = new_figure(title, 0.34 * len(results) + 1.6, note)
    panels = {
        "input nodes, thousands": [result.input_nodes / 1e3 for result in results.values()],
        "seconds an epoch": [result.epoch_seconds for result in results.values()],
        "test accuracy": [float(np.mean(result.test_accuracy)) for result in results.values()],
    }
    for axes, (what, values) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
        is_accuracy = what == "test accuracy"
        if is_accuracy:  # which lie close together, so that bars from zero would all look alike
            axes.plot(values, range(len(values)), "o", color=ORANGE, markersize=7)
            axes.set_xlim(min(values) - 0.01, max(values) + 0.02)
        else:
            axes.barh(range(len(values)), values, 0.62, color=BLUE)
            axes.set_xlim(0, 1.25 * max(values))
        for place, value in enumerate(values):
            text = f"{value:.3f}" if is_accuracy else f"{value:.1f}"
            axes.annotate(
                text, (value, place), (6, 0), textcoords="offset points", va="center", fontsize=SMALL, color=INK
            )
        axes.set_yticks(range(len(values)), list(results))
        axes.set_ylim(len(values) - 0.5, -0.5)
        tidy(axes, what, grid="x")
        axes.tick_params(axis="y", length=0)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    dataset = Debian()
    dataset.prepare()
    data = with_weights(dataset.load(), dataset)
    results = {}
    for name in args.only:
        print(f"== {name}", flush=True)
        results[name] = measure(SAMPLERS[name], data)
        for seed in args.seeds:
            train(SAMPLERS[name], data, args.epochs, seed, results[name])
    print(table(results))
    if args.figure:
        draw(results, args.figure)
        print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
