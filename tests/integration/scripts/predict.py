"""Predicts by rank jobs, to files. Arguments: how, num_devices, num_samplers (0: DDP), suffix...

Nodes have texts as ids, and their number is what is predicted; 101 of them in batches of 4, of which the last is
uneven. It trains before, and predicts with a checkpoint from the middle of an epoch.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint

from lightning_gnnload import FactoredStrategy, GraphData, GraphDataModule, NeighborSampler, PredictionWriter, UserIds
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import Recorder, toy_data

SEEDS = range(1, 1112, 11)
"""In the order that files are to have: 101, a prime."""


class Predicts(Recorder):
    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return torch.stack([batch.seeds.float(), self(batch)[:, 0]], dim=1)


def main(num_devices: int, num_samplers: int, suffixes: list[str]) -> None:
    seed_everything(1, verbose=False)
    toy = toy_data()
    ids = UserIds.of([f"user {node}" for node in range(toy.num_nodes)], column="user_id")
    data = GraphData(toy.graph, toy.x, user_ids=ids, class_names=("own", "first"))
    sizes: dict[str, Any] = {"batch_size": 4, "eval_batch_size": 4}
    module = GraphDataModule(data, NeighborSampler([4, 3]), **sizes, predict=SEEDS)
    quiet: dict[str, Any] = {"accelerator": "cpu", "devices": num_devices, "logger": False}
    quiet |= {"enable_progress_bar": False, "enable_model_summary": False}
    checkpoint = ModelCheckpoint("checkpoints", every_n_train_steps=47, save_top_k=-1, filename="{step}")

    def strategy() -> Any:
        return FactoredStrategy(num_samplers) if num_samplers else "ddp"

    model = Predicts()
    Trainer(max_epochs=2, strategy=strategy(), callbacks=[checkpoint], **quiet).fit(
        model, GraphDataModule(toy, NeighborSampler([4, 3]), **sizes)
    )
    for suffix in suffixes:
        trainer = Trainer(strategy=strategy(), callbacks=[PredictionWriter(f"out/found{suffix}")], **quiet)
        trainer.predict(model, module, ckpt_path="checkpoints/step=47.ckpt", return_predictions=False)


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
