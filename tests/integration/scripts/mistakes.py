"""Trains a model whose step fails, or logs as one trainer may. Arguments: how, num_devices, samplers, what happens.

``happens`` is a rank whose step raises, ``all``, ``labels`` for data that are refused, or ``log``. With no samplers,
Lightning's DDP trains.
"""

from __future__ import annotations

import sys

import torch
from pytorch_lightning import Trainer

from lightning_gnnload import FactoredStrategy
from tests.integration.scripts.toy import Recorder, toy_module


def my_loss(batch: object) -> torch.Tensor:
    raise ArithmeticError("my loss is wrong")


class Mistaken(Recorder):
    happens = ""

    def training_step(self, batch, batch_idx):
        if batch_idx == 1 and self.happens in ("all", str(self.global_rank)):
            return my_loss(batch)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.log("mine", 1.0, batch_size=1)


def main() -> None:
    how, num_devices, samplers, happens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    model = Mistaken()
    model.happens = happens
    data = toy_module()
    if happens == "labels":
        data.graph_data.y[data.graph_data.train[:3]] = -1
    start_method = {"start_method": how} if how == "spawn" else {}
    trainer = Trainer(
        accelerator="cpu",
        devices=num_devices,
        strategy=FactoredStrategy(samplers=samplers, **start_method) if samplers else "ddp",
        max_epochs=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)


if __name__ == "__main__":
    main()
