"""One of two machines, which train and sample for each other, as the benchmark of machines starts it.

Arguments: folder. Writes what its trainer measured, by the step, to ``trained.json``. The environment says which
machine it is, as for any job of Lightning.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.compat import pl
from tests.benchmarks.machines_samplers import BATCH_SIZE, BATCHES, DATASET, FANOUTS, FIRST, STEPS_MS, THREADS


class Sleeper(pl.LightningModule):
    """A model whose step is a sleep, and which notes when its steps ended."""

    def __init__(self, step_ms: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.step_ms = step_ms
        self.marks: list[tuple[float, float, int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(self.step_ms / 1e3)
        received = psutil.net_io_counters(pernic=True)["cable"].bytes_recv
        self.marks.append((time.monotonic(), time.process_time(), received))
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def trained(step_ms: float) -> dict[str, float]:
    data = GraphDataModule(DATASET, NeighborSampler(list(FANOUTS)), BATCH_SIZE)
    model = Sleeper(step_ms)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=2,
        strategy=FactoredStrategy(samplers=0, sampler_nodes=1, sampler_threads=THREADS),
        max_epochs=1,
        limit_train_batches=FIRST + BATCHES,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(model, data)
    if len(model.marks) < FIRST + BATCHES:
        return {}
    (began_s, began_core_s, before), (ended_s, ended_core_s, after) = model.marks[FIRST - 1], model.marks[-1]
    return {
        "step_ms": 1e3 * (ended_s - began_s) / BATCHES,
        "trainer_core_ms": 1e3 * (ended_core_s - began_core_s) / BATCHES,
        "num_bytes": (after - before) / BATCHES,
        "began_s": began_s,
        "ended_s": ended_s,
    }


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    found = {str(step_ms): trained(step_ms) for step_ms in STEPS_MS}
    if all(found.values()):
        Path(sys.argv[1], "trained.json").write_text(json.dumps(found))
