"""Two trainers whose steps sleep: what the jitter benchmark starts.

Arguments: how, num_devices, mode, staleness of each run. Writes the milliseconds a step and the mean lag of each, a
file a trainer.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_gnnload import FactoredStrategy
from tests.benchmarks.jitter import MODES, durations_ms


class Sleeper(LightningModule):
    """Its steps take as long as they are told to, and compute next to nothing: other processes do not disturb them."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.net = nn.Linear(4, 1)
        self.began = self.ended = 0.0

    def on_train_start(self) -> None:
        self.step_s = durations_ms(self.mode)[self.global_rank] / 1e3
        self.trainer.strategy.barrier()
        self.began = time.perf_counter()

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        time.sleep(self.step_s[batch_idx])
        return self.net(torch.ones(2, 4)).mean()

    def on_train_batch_end(self, *_: Any) -> None:
        self.ended = time.perf_counter()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    _, devices, mode, *values = sys.argv[1:]
    num_steps = MODES[mode].num_steps
    runs: list[tuple[float, float]] = []
    for staleness in map(int, values):
        module, strategy = Sleeper(mode), FactoredStrategy(staleness=staleness)
        trainer = Trainer(
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            use_distributed_sampler=False,
            accelerator="cpu",
            devices=int(devices),
            strategy=strategy,
            max_epochs=1,
        )
        trainer.fit(module, DataLoader(range(num_steps)))  # type: ignore[arg-type]
        if module.ended:  # not in the sampler
            stats = strategy.staleness_stats
            step_ms = (module.ended - module.began) * 1e3 / num_steps
            runs.append((step_ms, stats.mean_lag if stats is not None else 0.0))
            Path(f"runs-{trainer.global_rank}.json").write_text(json.dumps(runs))
