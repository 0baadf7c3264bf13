"""Trains with 2, 1 and 4 trainers at one global batch size, in one launch of five devices; the others sample.

Writes ``<number of trainers>/<run>/trainer-<rank>.json`` and ``weights.pt``. Runs: in single and in double precision;
double, with each slice weighed by its seeds; and a run that is handed on, with its checkpoint, from 2 trainers to 1
and then to 4. Arguments: how, num_devices.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, Trainer, seed_everything

from lightning_gnnload import FactoredStrategy, GraphData, GraphDataModule, MiniBatch, NeighborSampler
from tests.integration.scripts.toy import Recorder, edges, toy_data

NUM_TRAINERS = (2, 1, 4)
GLOBAL_BATCH, NUM_TRAIN, EPOCHS = 32, 310, 2
STEPS = 10  # an epoch; the last one has 22 seeds, which are 5, 6, 5 and 6 for four trainers
HANDED_ON_AT = {2: 4, 1: 13}
"""Steps after which the run with so many trainers makes its checkpoint and stops."""


class Elastic(Recorder):
    """Writes down, for each of its batches: step, seeds, edges and loss.

    Args:
        dtype: of weights and features.
        weighed: a slice counts by its seeds, where DDP gives all trainers the same weight.
    """

    def __init__(self, dtype: torch.dtype, weighed: bool) -> None:
        super().__init__()
        self.to(dtype)
        self.weighed = weighed

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        x, weight = batch.x, self.first.weight
        assert x is not None
        loss = torch.nn.functional.cross_entropy(self(replace(batch, x=x.to(weight.dtype))), batch.y)
        step = self.trainer.current_epoch * STEPS + batch_idx
        self.seen.append([step, batch.seeds.tolist(), edges(batch), loss.item()])
        if not self.weighed:
            return loss
        plan = self.trainer.datamodule.source("train").plan(self.trainer.world_size)  # type: ignore[attr-defined]
        return loss * plan.weight(batch_idx, self.trainer.global_rank)


class HandOn(Callback):
    """Makes a checkpoint after a step, and stops."""

    def __init__(self, path: Path, step: int) -> None:
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


def data() -> GraphData:
    whole = toy_data()
    return GraphData(whole.graph, x=whole.x, y=whole.y, train=np.asarray(whole.train)[:NUM_TRAIN])


def run(
    folder: Path,
    num_trainers: int,
    devices: int,
    dtype: torch.dtype,
    weighed: bool,
    callbacks: list[Callback],
    start: Any,
) -> None:
    seed_everything(1, verbose=False)
    module = Elastic(dtype, weighed)
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=FactoredStrategy(devices - num_trainers),
        max_epochs=EPOCHS,
        callbacks=callbacks,
        default_root_dir=folder,
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False),
    )
    batches = GraphDataModule(data(), NeighborSampler([4, 3]), batch_size=GLOBAL_BATCH // num_trainers, seed=5)
    trainer.fit(module, batches, ckpt_path=start)
    if trainer.strategy.local_rank < num_trainers:
        folder.mkdir(exist_ok=True, parents=True)
        (folder / f"trainer-{trainer.global_rank}.json").write_text(json.dumps(module.seen))
        if trainer.is_global_zero:
            torch.save(module.state_dict(), folder / "weights.pt")


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    devices, handed_on = int(sys.argv[2]), Path.cwd() / "handed_on.ckpt"
    start: Path | None = None
    for num_trainers in NUM_TRAINERS:
        folder = Path.cwd() / str(num_trainers)
        for name, dtype in (("single", torch.float32), ("double", torch.float64), ("weighed", torch.float64)):
            run(folder / name, num_trainers, devices, dtype, name == "weighed", [], None)
        at = HANDED_ON_AT.get(num_trainers)
        callbacks: list[Callback] = [] if at is None else [HandOn(handed_on, at)]
        run(folder / "handed_on", num_trainers, devices, torch.float64, True, callbacks, start)
        start = handed_on
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # the next world has another size
        print(num_trainers, flush=True)
