"""A long training of small mini-batches, for :mod:`tests.faults.soak`. Arguments: how, num_devices, num_batches."""

from __future__ import annotations

import sys
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch.nn import functional

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from tests.integration.scripts.toy import Recorder, toy_data


class Forgetful(Recorder):
    """Keeps nothing of what it sees."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return functional.cross_entropy(self(batch), batch.y)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self(batch)


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
    trainer.fit(Forgetful(), GraphDataModule(toy_data(), NeighborSampler([4, 3]), batch_size=2, seed=5))
