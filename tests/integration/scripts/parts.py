"""Fits over the whole graph in the order of the parts, then over the parts, whole and resumed, in one launch.

Arguments: how, num_devices, strategy ("ddp" or "factored", which has one sampler), the folder of a partition. Writes
what each trainer saw to ``<run>-<trainer>.json``.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from lightning_gnnload import FactoredStrategy, FeatureCache, GraphDataModule, NeighborSampler, load_partition
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import Recorder, digest, toy_data

CHECKPOINT, CUT_AFTER = "cut.ckpt", 4
RUNS = ("whole", "parts", "cut", "resumed")


class Cut(pl.Callback):
    """Makes a checkpoint in mid-epoch and stops."""

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == (1, CUT_AFTER):
            trainer.save_checkpoint(CHECKPOINT)
            trainer.should_stop = True


class Counting(pl.Callback):
    """Sums where this trainer's rows came from."""

    def __init__(self) -> None:
        self.reads: dict[str, int] = {}

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        for tier, rows, _ in trainer.train_dataloader.last.reads:  # type: ignore[union-attr]
            self.reads[tier] = self.reads.get(tier, 0) + rows


def data_module(folder: Path, **settings: Any) -> GraphDataModule:
    return GraphDataModule(toy_data(), NeighborSampler([4, 3]), batch_size=16, seed=5, predict="test", **settings)


def run(name: str, folder: Path, strategy: Any, num_devices: int) -> None:
    pl.seed_everything(1, verbose=False)
    if name == "whole":
        data = data_module(folder, order=LocalOrder([part.seeds["train"] for part in load_partition(folder).parts]))
    else:
        data = data_module(folder, partition=folder, cache=FeatureCache("degree", ratio=0.1))
    counting = Counting()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=num_devices,
        strategy=strategy,
        max_epochs=2,
        num_sanity_val_steps=0,
        callbacks=[counting, *([Cut()] if name == "cut" else [])],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    model = Recorder()
    trainer.fit(model, data, ckpt_path=CHECKPOINT if name == "resumed" else None)
    wrote = {
        "seen": model.seen,
        "weights": digest(model.state_dict().values()),
        "reads": counting.reads,
        "sampler": type(data.workload("train").sampler).__name__,
    }
    Path(f"{name}-{trainer.global_rank}.json").write_text(json.dumps(wrote))


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    num_devices, kind, folder = int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    for name in RUNS:
        run(name, folder, FactoredStrategy(samplers=1) if kind == "factored" else kind, num_devices)
