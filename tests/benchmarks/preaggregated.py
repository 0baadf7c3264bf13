"""What a first layer that was aggregated beforehand wins and costs: ``python -m tests.benchmarks.preaggregated``.

GraphSAGE of two layers on the Debian graph, whose first layer takes a mean of sampled in-neighbours, or of all of them
from a table, and SIGN over two hops, which samples nothing. Each is trained three times, in turns, one thread of torch
and one of the loader; models of three layers for an epoch, to time their steps. Time is the processor's, of the steps
alone: other processes disturb it little.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything

from lightning_gnnload import SAGE, SIGN, Debian, GraphData, GraphDataModule, MiniBatch, NeighborSampler, preaggregate
from lightning_gnnload.drawing import BLUE, GREEN, ORANGE, name_lines, new_figure, save_figure, tidy
from tests.benchmarks import machine

COUNTED = 20  # mini-batches whose bytes are counted


@dataclass
class Way:
    """A way to train: its model, fanouts and tables, and what was measured of it."""

    name: str
    make: Callable[[], LightningModule]
    fanouts: list[int]
    tables: list[str]
    color: str = ""  # of a line; none: it is not trained to its end
    step_ms: list[float] = field(default_factory=list)  # of each run
    curves: list[list[tuple[float, float]]] = field(default_factory=list)  # (seconds, accuracy) by epoch, of each run
    tested: list[float] = field(default_factory=list)
    load_ms: float = 0.0
    nodes: float = 0.0
    megabytes: float = 0.0

    def module(self, data: GraphData, seed: int) -> GraphDataModule:
        sampler = NeighborSampler(self.fanouts)
        return GraphDataModule(data.only_tables(self.tables), sampler, batch_size=1024, seed=seed, num_threads=1)


def ways() -> list[Way]:
    return [
        Way("sampled [15, 10]", lambda: SAGE(first_layer="sampled"), [15, 10], [], BLUE),
        Way("pre-aggregated, [15]", lambda: SAGE(first_layer="preaggregated"), [15], ["x_mean_1"], ORANGE),
        Way("SIGN, 2 hops", lambda: SIGN(hops=2), [], ["x_mean_1", "x_mean_2"], GREEN),
        Way("sampled [15, 10, 5]", lambda: SAGE(first_layer="sampled"), [15, 10, 5], []),
        Way("pre-aggregated, [15, 10]", lambda: SAGE(first_layer="preaggregated"), [15, 10], ["x_mean_1"]),
    ]


class Watch(Callback):
    """Counts the processor's seconds of training, without validation, and notes its accuracy."""

    def __init__(self) -> None:
        self.seconds, self.num_steps, self._began = 0.0, 0, 0.0
        self.curve: list[tuple[float, float]] = []
        self.best, self.tested = -1.0, 0.0

    def on_train_epoch_start(self, *_: Any) -> None:
        self._began = time.process_time()

    def on_train_batch_end(self, *_: Any) -> None:
        # Up to the last step of the epoch, which validation follows.
        now = time.process_time()
        self.seconds, self.num_steps, self._began = self.seconds + now - self._began, self.num_steps + 1, now

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        accuracy = float(trainer.callback_metrics["val_accuracy"])
        self.curve.append((self.seconds, accuracy))
        if accuracy > self.best:
            self.best, self.weights = accuracy, {name: w.clone() for name, w in module.state_dict().items()}


def run(way: Way, data: GraphData, seed: int, epochs: int) -> None:
    """Trains once, and tests the weights of the epoch that validated best."""
    seed_everything(seed, verbose=False)
    off = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    watch, module, model = Watch(), way.module(data, seed), way.make()
    trainer = Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[watch], num_sanity_val_steps=0, **off)  # type: ignore[arg-type]
    trainer.fit(model, module)
    model.load_state_dict(watch.weights)
    way.step_ms.append(1e3 * watch.seconds / watch.num_steps)
    way.curves.append(watch.curve)
    way.tested.append(float(trainer.test(model, module, verbose=False)[0]["test_accuracy"]))


def load_alone(way: Way, data: GraphData) -> None:
    """Measures the loader alone: its time, and the nodes and bytes of mini-batches, as a device would get them."""
    loader = way.module(data, 0).train_dataloader()
    batches = list(islice(loader, COUNTED))
    began = time.process_time()
    num_batches = sum(1 for _ in loader)
    way.load_ms = 1e3 * (time.process_time() - began) / num_batches
    way.nodes = mean(batch.num_nodes for batch in batches)
    way.megabytes = mean(bytes_of(batch) for batch in batches) / 1e6


def bytes_of(batch: MiniBatch) -> int:
    tensors = [batch.nodes, batch.x, batch.y, *batch.tables.values()]
    tensors += [rows for block in batch.blocks for rows in (block.indptr, block.indices)]
    return sum(rows.nbytes for rows in tensors if rows is not None)


def draw(found: list[Way], note: str, file: Path) -> None:
    """Draws the accuracy of validation over the processor's seconds of training."""
    sampled, dense, sign = (mean(way.step_ms) for way in found)
    title = (
        f"Steps take {dense / sampled:.0%} of the time without the first hop, and {sign / sampled:.0%} without a graph"
    )
    figure = new_figure(title, 3.6, note)
    axes = figure.add_subplot()
    for way in found:
        for curve in way.curves:
            axes.plot(*zip(*curve, strict=True), color=way.color, linewidth=1.2, marker=".", markersize=4)
    axes.set_xlim(left=0)
    axes.set_xlabel("processor seconds of training")
    axes.set_ylabel("accuracy of validation, %")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    tidy(axes, grid="both")
    name_lines(axes, [(mean(curve[-1][1] for curve in way.curves), way.name, way.color) for way in found])
    save_figure(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.preaggregated")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path, metavar="PNG")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("pytorch_lightning", "lightning_gnnload", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    neighbours = machine.Neighbours()
    debian = Debian()
    debian.prepare()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        data = preaggregate(debian, hops=2, out=Path(folder) / "debian", progress=False)
        beforehand_s = time.process_time() - began
        found = ways()
        for seed in range(options.seeds):
            for way in found[seed % 3 : 3] + found[: seed % 3]:
                run(way, data, seed, options.epochs)
        for way in found[3:] * 2:
            run(way, data, 0, 1)
        for way in found:
            load_alone(way, data)
    print(f"{options.epochs} epochs, {options.seeds} seeds; {beforehand_s:.1f} processor seconds for both tables.")
    print(f"{neighbours.describe()}\n")
    print("| | ms a step | times as fast | ms of it to load | nodes a batch | MB a batch | test accuracy, % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for number, way in enumerate(found):
        step_ms, sampled = mean(way.step_ms), mean(found[number // 3 * 3].step_ms)
        tested = f"{100 * mean(way.tested):.2f}" + (f" ± {100 * stdev(way.tested):.2f}" if options.seeds > 1 else "")
        cells = (f"{step_ms:.1f}", f"{sampled / step_ms:.1f}", f"{way.load_ms:.1f}")
        cells += (f"{way.nodes:,.0f}", f"{way.megabytes:.1f}")
        print(f"| {way.name} | {' | '.join(cells)} | {tested if way.color else ''} |")
    if options.figure is not None:
        note = "GraphSAGE of two layers and SIGN on the Debian graph, batches of 1,024, three seeds, one thread each."
        draw(found[:3], note, options.figure)


if __name__ == "__main__":
    main()
