"""Trains whole, and cut short after a step at which a checkpoint is made; or resumes, with settings of then or others.

Arguments: how, num_devices, num_samplers (0: the trainer samples itself), "whole" or "resume", the step, and what is
other than then. Writes what trainer 0 saw.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pytorch_lightning import Callback, Trainer, seed_everything

from lightning_gnnload import FactoredStrategy, Graph, GraphData, GraphDataModule, LaborSampler, NeighborSampler
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.plugin.job import Role
from tests.integration.scripts.toy import NUM_NODES, Recorder, digest, toy_data

CHECKPOINT = Path("cut.ckpt")
OTHERS = ("seeds", "seed", "order", "graph", "weights", "fanout", "sampler", "batch size")


class Cut(Callback):
    """Makes a checkpoint after a step, in each rank, and goes on."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(CHECKPOINT)


def module(other: str) -> GraphDataModule:
    """The data module of then, with one thing other than it was."""
    data, random = toy_data(), np.random.default_rng(7)
    graph, train = data.graph, data.train
    if other == "seeds":  # as many as there were
        train = np.setdiff1d(np.arange(NUM_NODES), train)[: len(train)]
    if other == "graph":  # of the same sizes
        graph = Graph(graph.indptr, random.permutation(graph.indices))
    if other == "weights":
        graph = Graph(graph.indptr, graph.indices, edge_weight=random.random(graph.num_edges, np.float32) + 0.1)
    fanouts = [4, 4] if other == "fanout" else [4, 3]
    return GraphDataModule(
        GraphData(graph, data.x, data.y, train, data.val, data.test),
        LaborSampler(fanouts) if other == "sampler" else NeighborSampler(fanouts),
        batch_size=8 if other == "batch size" else 16,
        seed=6 if other == "seed" else 5,
        order="sequential" if other == "order" else "shuffle",
    )


def main(devices: int, num_samplers: int, what: str, step: int, other: str) -> None:
    seed_everything(1, verbose=False)
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=FactoredStrategy(num_samplers) if num_samplers else "auto",
        callbacks=[Cut(step)] if what == "whole" else [],
        max_epochs=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    model = Recorder()
    told: dict[str, Any] = {}
    try:
        trainer.fit(model, module(other), ckpt_path=CHECKPOINT if what == "resume" else None)
    except GnnLoadError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    if getattr(trainer.strategy, "role", Role.TRAINER) is Role.TRAINER and trainer.global_rank == 0:
        told |= {"seen": model.seen, "weights": digest(model.state_dict().values())}
        Path(f"{what}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
