"""What late gradients cost in learning: ``python -m tests.benchmarks.jitter_learning``.

GraphSAGE on the Debian graph, on two trainers and a sampler, by SGD at one learning rate for all: with averages that
are applied as they come, and with averages that are all as late as the bound allows, which lags that nobody recorded
bring about. A *late* trainer sleeps for 40 ms in a fifth of its steps, drawn at random.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything

from lightning_gnnload import Debian, FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.gradients.lags import CHECKPOINT_KEY
from tests.integration.scripts import launch
from tests.plain_sage import GraphSAGE

LATE_S, LATE_SHARE = 0.04, 0.2
NUM_EPOCHS, NUM_STEPS = 4, 30
RATE = 0.1
RUNS = [(0, "plain DDP")] + [
    (staleness, how)
    for staleness in (1, 2, 4)
    for how in ("always at the bound", "as they come", "as they come, late trainers")
]


class Descent(GraphSAGE):
    """Learns by SGD with momentum, and may be late."""

    def __init__(self, is_late: bool) -> None:
        super().__init__(in_features=128, num_classes=58, hidden=64)
        self.is_late = is_late
        self.losses: list[float] = []

    def on_train_start(self) -> None:
        self.lateness = random.Random(self.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.is_late and self.lateness.random() < LATE_SHARE:
            time.sleep(LATE_S)
        loss: torch.Tensor = super().training_step(batch, batch_idx)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=RATE, momentum=0.9)


def latest(staleness: int, num_trainers: int) -> str:
    """Writes lags by which each average is applied when the bound demands it; flushes end epochs."""
    epoch = [min(step, staleness) for step in range(NUM_STEPS)]
    lags = torch.tensor([epoch * NUM_EPOCHS] * num_trainers, dtype=torch.uint8)
    path = f"lags-{os.getpid()}.ckpt"  # each rank its own: they do not come here at the same time
    torch.save({CHECKPOINT_KEY: lags}, path)
    return path


def fit(staleness: int, how: str, devices: int) -> tuple[int, tuple[float, float, float]]:
    """Returns this trainer's rank, and its loss in the last epoch, the accuracy of the validation, and its mean lag."""
    lags = latest(staleness, devices - 1) if how == "always at the bound" else None
    seed_everything(0, verbose=False)
    model, strategy = Descent(how == "as they come, late trainers"), FactoredStrategy(staleness=staleness, lags=lags)
    off = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = Trainer(
        **off,
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        max_epochs=NUM_EPOCHS,
        limit_train_batches=NUM_STEPS,
        limit_val_batches=5,
        check_val_every_n_epoch=NUM_EPOCHS,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, GraphDataModule(Debian(), NeighborSampler([10, 5]), batch_size=256))
    stats, last = strategy.staleness_stats, model.losses[-NUM_STEPS:]
    accuracy = float(trainer.callback_metrics["val_accuracy"])
    lag = stats.mean_lag if stats is not None else 0.0
    return trainer.global_rank, (sum(last) / NUM_STEPS, accuracy, lag)


def table(records: list[list[tuple[float, float, float]]]) -> str:
    """Markdown, of the figures of each trainer."""
    rows = [
        "| staleness | averages | mean lag, updates | loss, last epoch | accuracy |",
        "| --- | --- | --: | --: | --: |",
    ]
    for (staleness, how), *both in zip(RUNS, *records, strict=True):
        loss, accuracy, lag = (sum(each) / len(both) for each in zip(*both, strict=True))
        rows.append(f"| {staleness} | {how} | {lag:.2f} | {loss:.2f} | {accuracy:.1%} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:]:
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        torch.set_num_threads(1)
        ranks, figures = zip(*(fit(*run, int(sys.argv[2])) for run in RUNS), strict=True)
        Path(f"learned-{ranks[0]}.json").write_text(json.dumps(figures))
    else:
        with tempfile.TemporaryDirectory() as folder:
            launch.run(Path(__file__), folder=Path(folder), num_devices=3, timeout_s=900)
            print(table([json.loads((Path(folder) / f"learned-{rank}.json").read_text()) for rank in range(2)]))
