"""The README's main job, as ``gnnload fit`` runs it: whole epochs of GraphSAGE under Lightning's Trainer."""

from __future__ import annotations

import logging
import os
import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.host.malloc import freed_memory_kept
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import PROCESSOR_MS
from tests.plain_sage import GraphSAGE

BATCH_SIZE, FANOUTS, HIDDEN, DROPOUT, LR = 1024, [15, 10], 256, 0.5, 0.003
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}


class EpochClock(pl.Callback):
    """The milliseconds of each epoch, of the clock and of the processor, and its mean loss."""

    def on_train_epoch_start(self, *_: Any) -> None:
        self.losses: list[torch.Tensor] = []
        self.began = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(outputs["loss"].detach())

    def on_train_epoch_end(self, *_: Any) -> None:
        began, began_using = self.began
        took, used = time.perf_counter() - began, time.process_time() - began_using
        loss = float(torch.stack(self.losses).mean())
        self.reply = {"values": [took * 1e3], PROCESSOR_MS: used * 1e3, "loss": loss}


def model_of_ours(data: GraphData) -> GraphSAGE:
    """The example's model, from the same weights at each call."""
    torch.manual_seed(0)
    return GraphSAGE(data.num_features, data.num_classes, HIDDEN, len(FANOUTS), dropout=DROPOUT, lr=LR)


class OurTraining:
    """On the first ``cores`` cores; a turn is an epoch of a Trainer that goes on where it was."""

    def __init__(self, graph: str, cores: int) -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        torch.set_num_threads(cores)
        warnings.filterwarnings("ignore")
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        self._memory = freed_memory_kept()
        self._memory.__enter__()
        self.data = GRAPHS[graph].load()
        self._jobs: dict[str, tuple[pl.Trainer, EpochClock, GraphSAGE, GraphDataModule]] = {}

    def epoch(self, turn: int, precision: str) -> dict[str, Any]:
        trainer, clock, model, module = self._job(precision)
        trainer.fit_loop.max_epochs = turn + 1
        trainer.fit(model, module)
        return clock.reply

    def _job(self, precision: str) -> tuple[pl.Trainer, EpochClock, GraphSAGE, GraphDataModule]:
        if precision not in self._jobs:
            clock = EpochClock()
            trainer = pl.Trainer(
                accelerator="cpu",
                devices=1,
                precision=PRECISIONS[precision],  # type: ignore[arg-type]
                max_epochs=0,
                limit_val_batches=0,
                callbacks=[clock],
                **dict.fromkeys(
                    ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False
                ),
            )
            model = model_of_ours(self.data)
            module = GraphDataModule(self.data, NeighborSampler(FANOUTS), batch_size=BATCH_SIZE)
            self._jobs[precision] = (trainer, clock, model, module)
        return self._jobs[precision]


if __name__ == "__main__":
    serve(OurTraining)
