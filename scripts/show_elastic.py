"""One global batch size, 1, 2 and 4 trainers: the same training, up to rounding.

    python scripts/show_elastic.py --figure docs/elastic.png

Trains GraphSAGE on the Debian graph with each number of trainers and one sampler, in single and in double precision,
and draws the loss curves over each other and their differences below.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from lightning_gnnload import Debian, FactoredStrategy, GraphDataModule, MiniBatch, NeighborSampler
from lightning_gnnload.drawing import BLUE, GREY, ORANGE, PALE, PINK, name_lines, new_figure, save_figure, tidy
from tests.plain_sage import GraphSAGE

GLOBAL_BATCH = 1024


class Run(NamedTuple):
    """What is trained: by how many trainers, in which precision, and whether slices are weighed by their seeds."""

    num_trainers: int
    precision: str
    weighed: bool = True


PRECISIONS = {"single": torch.float32, "double": torch.float64}
RUNS = [*(Run(n, precision) for precision in PRECISIONS for n in (1, 2, 4)), Run(4, "double", weighed=False)]


class Elastic(GraphSAGE):
    """Without dropout, whose masks would depend on the slices. Writes down each slice's size and loss."""

    def __init__(self, weighed: bool, dtype: torch.dtype) -> None:
        super().__init__(in_features=128, num_classes=58, hidden=64, num_layers=2, dropout=0.0)
        self.to(dtype)
        self.weighed = weighed
        self.losses: list[tuple[int, float]] = []

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        assert batch.x is not None
        loss = super().training_step(replace(batch, x=batch.x.to(self.convs[0].own.weight.dtype)), batch_idx)
        self.losses.append((batch.num_seeds, loss.item()))
        plan = self.trainer.datamodule.source("train").plan(self.trainer.world_size)
        return loss * plan.weight(batch_idx, self.trainer.global_rank) if self.weighed else loss


def train(run: Run, epochs: int, folder: Path) -> None:
    """In each rank of a job; trainers write their losses to ``folder``."""
    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=run.num_trainers + 1,
        strategy=FactoredStrategy(samplers=1),
        max_epochs=epochs,
        limit_val_batches=0,
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False),
    )
    model = Elastic(run.weighed, PRECISIONS[run.precision])
    trainer.fit(model, GraphDataModule(Debian(), NeighborSampler([10, 5]), batch_size=GLOBAL_BATCH // run.num_trainers))
    if trainer.global_rank < run.num_trainers:  # the sampler has taken over rank 0's results, these lists too
        (folder / f"{trainer.global_rank}.json").write_text(json.dumps(model.losses))


def losses(run: Run, epochs: int) -> np.ndarray:
    """The mean loss over each global step's seeds, float64 ``[steps]``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--epochs", str(epochs), "--run", json.dumps(run), "--folder", folder]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        ranks = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    sizes, means = np.moveaxis(np.array(ranks), 2, 0)
    return (sizes * means).sum(0) / sizes.sum(0)


def draw(curves: dict[Run, np.ndarray], path: Path) -> None:
    """The losses over each other, and how far they are from one trainer's."""
    note = f"GraphSAGE on the Debian graph, {GLOBAL_BATCH} seeds a step in all. Below, equal losses have no mark."
    figure = new_figure("Whether 1, 2 or 4 trainers share a step: the losses are the same, up to rounding", 6.4, note)
    above, below = figure.subplots(2, 1, sharex=True)
    styles = {1: (PALE, 6, "-"), 2: (BLUE, 2, "-"), 4: (ORANGE, 2, ":")}
    ends, far_ends = [], []
    for run, curve in curves.items():
        color, width, dashes = styles[run.num_trainers]
        trainers = f"{run.num_trainers} trainer{'s' if run.num_trainers > 1 else ''}"
        if run.precision == "single":
            above.plot(curve, color=color, linewidth=width, linestyle=dashes)
            ends.append((curve[-1], trainers, GREY if color == PALE else color))
        if run.num_trainers > 1:
            apart = np.abs(curve - curves[Run(1, run.precision)])
            marker = {"single": "o", "double": "s"}[run.precision] if run.weighed else "x"
            color = color if run.weighed else PINK
            steps = np.flatnonzero(apart)  # where they are equal there is no place on a logarithmic scale
            below.plot(steps, apart[steps], marker, color=color, markersize=4)
            name = f"{trainers}, {run.precision if run.weighed else 'not weighed'}"
            far_ends.append((float(np.median(apart[steps][-10:])), name, color))
    above.set_ylabel("training loss")
    below.set(yscale="log", xlabel="step", ylabel="distance from 1 trainer's loss")
    for axes, names in ((above, ends), (below, far_ends)):
        tidy(axes)
        axes.set_xlim(0, max(map(len, curves.values())) - 1)
        name_lines(axes, names)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        train(Run(*json.loads(args.run)), args.epochs, args.folder)
        return
    curves = {}
    for run in RUNS:
        curves[run] = losses(run, args.epochs)
        apart = np.abs(curves[run] - curves[Run(1, run.precision)]).max()
        print(f"{run}: last loss {curves[run][-1]:.6f}, at most {apart:.1e} from one trainer's", flush=True)
    if args.figure:
        draw(curves, args.figure)
        print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
