"""What a first layer that was aggregated beforehand wins and costs: ``python -m tests.benchmarks.preaggregated``.

With ``--typed``, accuracy and time of the graph with types, where sources and maintainers are nodes as well.

GraphSAGE of two layers on the Debian graph, whose first layer takes a mean of sampled in-neighbours, or of all of them
from a table, and SIGN over two hops, which samples nothing. Each is trained three times, in turns, one thread of torch
and one of the loader; models of three layers for an epoch, to time their steps. Time is the processor's, of the steps
alone: other processes disturb it little.

With ``--typed``, the graph with types, whose sources and maintainers of packages are nodes, too. GraphSAGE takes the
means of their packages' features for theirs; SIGN takes tables along metapaths by node types.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything

from lightning_gnnload import SAGE, SIGN, Debian, GraphData, GraphDataModule, NeighborSampler, preaggregate
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.drawing import BLUE, GREEN, ORANGE, name_lines, new_figure, save_figure, tidy
from tests.benchmarks import machine

COUNTED = 20  # mini-batches whose bytes are counted


@dataclass
class Way:
    """A way to train: its model, fanouts and tables, and what was measured of it."""

    name: str
    make: Callable[[], LightningModule]
    fanouts: list[int]
    data: GraphData
    color: str = ""  # of a line; none: it is not trained to its end
    step_ms: list[float] = field(default_factory=list)  # of each run
    curves: list[list[tuple[float, float]]] = field(default_factory=list)  # (seconds, accuracy) by epoch, of each run
    tested: list[float] = field(default_factory=list)
    load_ms: float = 0.0
    nodes: float = 0.0
    megabytes: float = 0.0

    def module(self, seed: int) -> GraphDataModule:
        sampler = NeighborSampler(self.fanouts)
        return GraphDataModule(self.data, sampler, batch_size=1024, seed=seed, num_threads=1)


def sampled() -> SAGE:
    return SAGE(first_layer="sampled")


def aggregated() -> SAGE:
    return SAGE(first_layer="preaggregated")


def ways(folder: Path) -> list[Way]:
    data = preaggregate(Debian(), hops=2, out=folder / "debian", progress=False)
    bare, mean = data.only_tables([]), data.only_tables(["x_mean_1"])
    return [
        Way("sampled [15, 10]", sampled, [15, 10], bare, BLUE),
        Way("pre-aggregated, [15]", aggregated, [15], mean, ORANGE),
        Way("SIGN, 2 hops", lambda: SIGN(hops=2), [], data, GREEN),
        Way("sampled [15, 10, 5]", sampled, [15, 10, 5], bare),
        Way("pre-aggregated, [15, 10]", aggregated, [15, 10], mean),
    ]


def typed_ways(folder: Path) -> list[Way]:
    debian = Debian(typed=True)
    debian.prepare()
    bare = debian.load()
    hops = preaggregate(bare, hops=2, node_type="package", merge_relations=True, progress=False)
    splits = {split: {"package": bare.split(split, "package")} for split in SPLITS}
    x = {"package": bare.tables["x.package"].store}
    for name, relation in (("source", "rev_builds"), ("maintainer", "rev_maintains")):
        means = preaggregate(bare, node_type=name, progress=False).tables
        x[name] = means[f"x_mean_1_package__{relation}__{name}.{name}"].store
    data = GraphData(bare.graph, x=x, y={"package": bare.labels_of("package")}, num_classes=bare.num_classes, **splits)
    means = preaggregate(data, out=folder / "debian", progress=False)
    return [
        Way("sampled [5, 3]", sampled, [5, 3], data, BLUE),
        Way("pre-aggregated, [5]", aggregated, [5], means, ORANGE),
        Way("SIGN, 2 hops", lambda: SIGN(hops=2), [], hops, GREEN),
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


def run(way: Way, seed: int, epochs: int) -> None:
    """Trains once, and tests the weights of the epoch that validated best."""
    seed_everything(seed, verbose=False)
    off = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    watch, module, model = Watch(), way.module(seed), way.make()
    trainer = Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[watch], num_sanity_val_steps=0, **off)  # type: ignore[arg-type]
    trainer.fit(model, module)
    model.load_state_dict(watch.weights)
    way.step_ms.append(1e3 * watch.seconds / watch.num_steps)
    way.curves.append(watch.curve)
    way.tested.append(float(trainer.test(model, module, verbose=False)[0]["test_accuracy"]))


def load_alone(way: Way) -> None:
    """Measures the loader alone: its time, and the nodes and bytes of mini-batches, as a device would get them."""
    loader = way.module(0).train_dataloader()
    batches = list(islice(loader, COUNTED))
    began = time.process_time()
    num_batches = sum(1 for _ in loader)
    way.load_ms = 1e3 * (time.process_time() - began) / num_batches
    nodes = [batch.nodes for batch in batches]
    way.nodes = mean(sum(map(len, ids.values())) if isinstance(ids, dict) else len(ids) for ids in nodes)
    way.megabytes = mean(bytes_of(batch) for batch in batches) / 1e6


def bytes_of(part: Any) -> int:
    """The bytes of a mini-batch's tensors, which may be in lists, dicts and blocks."""
    if isinstance(part, torch.Tensor):
        return part.nbytes
    if is_dataclass(part):
        part = [getattr(part, field.name) for field in fields(part)]
    if isinstance(part, dict):
        part = list(part.values())
    return sum(map(bytes_of, part)) if isinstance(part, list) else 0


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
    parser.add_argument("--typed", action="store_true")
    parser.add_argument("--figure", type=Path, metavar="PNG")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("pytorch_lightning", "lightning_gnnload", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    neighbours = machine.Neighbours()
    with tempfile.TemporaryDirectory() as folder:
        Debian().prepare()
        began = time.process_time()
        found = (typed_ways if options.typed else ways)(Path(folder))
        beforehand_s = time.process_time() - began
        for seed in range(options.seeds):
            for way in found[seed % 3 : 3] + found[: seed % 3]:
                run(way, seed, options.epochs)
        for way in found[3:] * 2:
            run(way, 0, 1)
        for way in found:
            load_alone(way)
    print(f"{options.epochs} epochs, {options.seeds} seeds; {beforehand_s:.1f} processor seconds for all tables.")
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
