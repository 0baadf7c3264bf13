"""Several Trainers in one script, on three devices: a search for a learning rate, then other numbers of samplers.

Arguments: how, num_devices. Each local rank writes what its script has in hand.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.tuner import Tuner

from lightning_gnnload import FactoredStrategy
from tests.integration.scripts.toy import Recorder, toy_module


class Tunable(Recorder):
    """Its learning rate can be searched for."""

    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        self.lr = lr

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def trainer(num_samplers: int, **options: Any) -> Trainer:
    seed_everything(1, verbose=False)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    strategy = FactoredStrategy(num_samplers)
    return Trainer(accelerator="cpu", devices=3, strategy=strategy, max_epochs=1, **quiet, **options)


if __name__ == "__main__":
    searching, model = trainer(1), Tunable()
    suggestion = Tuner(searching).lr_find(model, toy_module(4), num_training=40).suggestion()
    hands: list[Any] = [suggestion, model.lr]
    for num_samplers in (1, 2, 1):
        once = trainer(num_samplers, limit_train_batches=5)
        once.fit(Tunable(), toy_module())
        hands.append([once.world_size, once.callback_metrics["val_loss"].item()])
    Path(f"hands-{os.environ['LOCAL_RANK']}.json").write_text(json.dumps(hands))
