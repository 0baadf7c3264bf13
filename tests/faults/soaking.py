"""A long training of small mini-batches, for :mod:`tests.faults.soak`. Arguments: how, num_devices, num_batches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch.nn import functional

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from tests.integration.scripts.toy import Recorder, toy_data


class Forgetful(Recorder):
    """Keeps nothing of what it sees; marks the time from its first quarter on."""

    def __init__(self, num_batches: int) -> None:
        super().__init__()
        self.warm_at = num_batches // 4

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.trainer.global_step == self.warm_at:
            Path("warm").touch()
        return functional.cross_entropy(self(batch), batch.y)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self(batch)

    def on_train_end(self) -> None:
        Path("warm").unlink()


if __name__ == "__main__":
    devices, num_batches = int(sys.argv[2]), int(sys.argv[3])
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=FactoredStrategy(samplers=devices - 1),
        max_steps=num_batches,
        max_epochs=-1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(Forgetful(num_batches), GraphDataModule(toy_data(), NeighborSampler([4, 3]), batch_size=2, seed=5))
