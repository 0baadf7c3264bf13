"""What PipelineMonitor costs: ms a step of a fit with it and without it, in turns, in one process.

    python -m tests.benchmarks.monitoring

The steps are as small as steps can be, so that the difference is the monitor's. Prints a Markdown table.
"""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import CSVLogger

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler, PipelineMonitor
from tests.unit.toy import toy_graph

NUM_STEPS, WARM_UP, ROUNDS = 1500, 100, 5


class Tiny(LightningModule):
    """As little as a training step can be."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch.x).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Clock(Callback):
    """Times the steps after the warm-up: how long they took, and how long the trainer's thread ran on a core."""

    def __init__(self) -> None:
        self.began = self.ended = np.zeros(2)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == WARM_UP:
            self.began = _now()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.ended = _now()

    @property
    def ms_a_step(self) -> np.ndarray:
        return (self.ended - self.began) * 1e3 / (NUM_STEPS - WARM_UP)


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.thread_time()])


def fit(folder: str, *monitors: Callback) -> np.ndarray:
    """ms a step, by the clock and on a core."""
    clock = Clock()
    data = GraphData(toy_graph(NUM_STEPS, NUM_STEPS), x=torch.ones(NUM_STEPS, 4), train=range(NUM_STEPS))
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[clock, *monitors],  # the clock stops before the monitor writes its files
        logger=CSVLogger(folder),
        log_every_n_steps=10,
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Tiny(), GraphDataModule(data, NeighborSampler([2]), batch_size=1, num_threads=1))
    return clock.ms_a_step


def main() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):  # the monitor prints its tables
        fit(folder)
        turns = [(fit(folder), fit(folder, PipelineMonitor(figure=False, trace=False))) for _ in range(ROUNDS)]
    plain, watched = np.median(turns, axis=0)
    extra = np.median([with_it - without for without, with_it in turns], axis=0)
    print("| ms a step | without | with PipelineMonitor | difference, median of the turns |")
    print("| --- | --- | --- | --- |")
    for name, *figures in zip(("by the clock", "on a core"), plain, watched, extra, strict=True):
        print(f"| {name} | {figures[0]:.3f} | {figures[1]:.3f} | {figures[2]:+.3f} |")


if __name__ == "__main__":
    main()
