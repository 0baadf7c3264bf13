"""What dropout costs of a training step on a CPU: ``python -m tests.benchmarks.step`` prints tables in Markdown.

The same GraphSAGE and mini-batches for all, in turns, step by step in one process. Figures are medians of processor
milliseconds, so other work on the machine counts little; ratios are medians of the turns' own. A minute for Debian, and
as long for G3, which takes 3 GB of memory; ``--seeds 5`` adds accuracy after some epochs.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn import functional as F

from lightning_gnnload import Dropout, GraphDataModule, NeighborSampler, accelerate, ops
from tests.benchmarks import machine
from tests.benchmarks.graphs import GRAPHS
from tests.plain_sage import GraphSAGE

P = 0.5
FANOUTS = {"debian": [15, 10], "g3": [15, 10, 5]}
DROPOUTS: dict[str, Callable[[], nn.Module]] = {
    "torch's relu and dropout": lambda: nn.Sequential(nn.ReLU(), nn.Dropout(P)),
    "`accelerate(model, fuse_relu=True)`": lambda: accelerated(nn.Sequential(nn.ReLU(), nn.Dropout(P))),
    "our dropout after torch's relu": lambda: nn.Sequential(nn.ReLU(), Dropout(P)),
    "no dropout at all": nn.ReLU,
}


def accelerated(model: nn.Module) -> nn.Module:
    accelerate(model, fuse_relu=True)
    return model


class Training:
    """One contender: its own model and optimizer, from the same first weights."""

    def __init__(self, dropout: Callable[[], nn.Module], sizes: dict[str, Any], bf16: bool) -> None:
        torch.manual_seed(0)
        self.model, self.bf16 = GraphSAGE(**sizes), bf16
        self.model.dropout = dropout()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, batch: Any) -> float:
        """Returns the milliseconds of all of this process's threads together."""
        began = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            logits = self.model(batch)
        loss = F.cross_entropy(logits.float(), batch.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return (time.process_time() - began) * 1e3


def table(graph: str, turns: int, num_threads: int) -> str:
    torch.set_num_threads(num_threads)
    data = GRAPHS[graph].load()
    module = GraphDataModule(data, NeighborSampler(FANOUTS[graph]), batch_size=1024, num_threads=0)
    batches = list(itertools.islice(module.train_dataloader(), 4))
    sizes = {
        "in_features": data.x.shape[1],
        "num_classes": data.num_classes,
        "hidden": 256,
        "num_layers": len(FANOUTS[graph]),
        "dropout": P,
    }
    rows = {
        (name, bf16): Training(dropout, sizes, bf16)
        for bf16 in (False, True)
        for name, dropout in DROPOUTS.items()
        if not bf16 or name != "our dropout after torch's relu"
    }
    spent = {row: [training.step(batches[0])] for row, training in rows.items()}  # the first one warms up
    for turn in range(turns):
        for row, training in rows.items():
            spent[row].append(training.step(batches[turn % len(batches)]))
    first = next(iter(spent.values()))
    threads = f"{num_threads} thread{'s' if num_threads > 1 else ''}"
    lines = [
        f"| {graph}, {threads}, {turns} steps each | float32, ms | times as fast | bf16 autocast, ms | times as fast |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in DROPOUTS:
        cells = []
        for bf16 in (False, True):
            if times := spent.get((name, bf16)):
                ratio = statistics.median(a / b for a, b in zip(first[1:], times[1:], strict=True))
                cells += [f"{statistics.median(times[1:]):.1f}", f"{ratio:.2f}"]
            else:
                cells += ["", ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def alone(rows: int = 5144, width: int = 256, turns: int = 30) -> str:
    """Relu and dropout by themselves, forward and both passes, on one thread: of the size that Debian's step has."""
    torch.set_num_threads(1)
    contenders = {name: make() for name, make in DROPOUTS.items() if name != "no dropout at all"}
    lines = ["| relu and dropout of 5,144 x 256, one thread, ms | float32 | both passes | bfloat16 | both passes |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    torchs, ours, *_ = contenders
    available = ops.instruction_sets()[::-1]
    for name, instruction_set in [(torchs, available[0])] + [(ours, each) for each in available]:
        ops.use_instruction_set(instruction_set)
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            x, grad = torch.randn(rows, width).to(dtype).requires_grad_(), torch.randn(rows, width).to(dtype)
            forward, both = [], []
            for _ in range(turns):
                began = time.thread_time()
                out = contenders[name](x)
                forward.append(time.thread_time() - began)
                out.backward(grad)
                both.append(time.thread_time() - began)
            cells += [f"{statistics.median(times) * 1e3:.2f}" for times in (forward, both)]
        by = f", {instruction_set}" if name == ours else ""
        lines.append(f"| {name}{by} | {' | '.join(cells)} |")
    ops.use_instruction_set(available[0])
    return "\n".join(lines)


def accuracy(dropout: Callable[[], nn.Module], seed: int, epochs: int) -> float:
    """Of the test nodes, after some epochs on Debian."""
    data = GRAPHS["debian"].load()
    module = GraphDataModule(data, NeighborSampler(FANOUTS["debian"]), batch_size=1024, num_threads=0, seed=seed)
    pl.seed_everything(seed, verbose=False)
    model = GraphSAGE(data.x.shape[1], data.num_classes)
    model.dropout = dropout()
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=epochs, limit_val_batches=0, enable_model_summary=False, **settings
    )
    trainer.fit(model, module)
    return float(trainer.test(model, module, verbose=False)[0]["test_accuracy"])


def accuracies(num_seeds: int, epochs: int) -> str:
    lines = [f"| test accuracy after {epochs} epochs, {num_seeds} seeds | mean | standard deviation | each |"]
    lines.append("| --- | ---: | ---: | --- |")
    for name in list(DROPOUTS)[:2]:
        found = [100 * accuracy(DROPOUTS[name], seed, epochs) for seed in range(num_seeds)]
        each = ", ".join(f"{value:.2f}" for value in found)
        lines.append(f"| {name} | {statistics.mean(found):.2f} | {statistics.stdev(found):.2f} | {each} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.step", description=__doc__)
    parser.add_argument("--graph", nargs="+", choices=tuple(FANOUTS), default=["debian", "g3"])
    parser.add_argument("--turns", type=int, default=20, metavar="STEPS", help="of each contender")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of torch")
    parser.add_argument("--seeds", type=int, default=0, help="of the runs whose accuracy is compared; 0: none")
    parser.add_argument("--epochs", type=int, default=5, help="of these runs")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    neighbours = machine.Neighbours()
    print(alone(), end="\n\n", flush=True)
    for graph, num_threads in itertools.product(args.graph, args.threads):
        print(table(graph, args.turns, num_threads), end="\n\n", flush=True)
    if args.seeds:
        print(accuracies(args.seeds, args.epochs))
    print("\n" + "\n".join(f"- {line}" for line in (*machine.describe(), neighbours.describe())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
