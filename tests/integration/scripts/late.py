"""Two trainers, of which one is late, fails or is told to stop. Arguments: how, num_devices, what happens, staleness...

Each trainer writes how many steps it has finished to ``finished-<rank>``, and its process id to ``pid-<rank>``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_gnnload import FactoredStrategy

LATE_STEP = 20
QUIET_S = 1.0  # a trainer that has finished no step for so long is waiting


class Module(LightningModule):
    """Learns as little as possible. With ``happens="log"`` it logs as one should not."""

    def __init__(self, happens: str) -> None:
        super().__init__()
        self.happens = happens
        self.net = nn.Linear(3, 1)
        self.num_updates = 0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss = self.net(torch.ones(4, 3) + self.global_rank).square().mean()
        self.log("my_loss", loss, sync_dist=self.happens == "log")
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        optimizer.register_step_post_hook(self._count)
        return optimizer

    def _count(self, *_: Any) -> None:
        self.num_updates += 1


class Happens(Callback):
    def __init__(self, happens: str, folder: Path) -> None:
        self.happens = happens
        self.folder = folder
        folder.mkdir(exist_ok=True, parents=True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        rank = trainer.global_rank
        if self.happens == "sigterm":
            time.sleep(0.02)
        if batch_idx != LATE_STEP - 5 * rank * (self.happens == "both fail"):
            return
        if self.happens == "late" and rank == 1:
            (self.folder / "seen").write_text(str(self._await_quiet()))
        if self.happens == f"{rank} fails" or self.happens == "both fail":
            raise ArithmeticError(f"trainer {rank} cannot go on")
        if self.happens == "1 saves" and rank == 1:
            trainer.strategy.lightning_module_state_dict()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._write(f"finished-{trainer.global_rank}", batch_idx + 1)
        if batch_idx == 5:
            self._write(f"pid-{trainer.global_rank}", os.getpid())

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._write(f"ended-{trainer.global_rank}", json.dumps([pl_module.num_updates, trainer.global_step]))

    def _await_quiet(self) -> int:
        """Steps that trainer 0 had finished when it finished no more."""
        finished, since = -1, time.monotonic()
        while finished < LATE_STEP or time.monotonic() - since < QUIET_S:
            now = int((self.folder / "finished-0").read_text())
            if now != finished:
                finished, since = now, time.monotonic()
            time.sleep(0.01)
        return finished

    def _write(self, name: str, value: object) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(str(value))
        new.rename(self.folder / name)  # readers see the old number or the new one, whole


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    _, devices, happens, *values = sys.argv[1:]
    for staleness in map(int, values):
        folder = Path.cwd() / f"k-{staleness}"
        strategy = FactoredStrategy(staleness=staleness)
        off = dict.fromkeys(
            (
                "logger",
                "enable_progress_bar",
                "enable_model_summary",
                "enable_checkpointing",
                "use_distributed_sampler",
            ),
            False,
        )
        trainer = Trainer(
            **off,
            accelerator="cpu",
            devices=int(devices),
            strategy=strategy,
            callbacks=[Happens(happens, folder)],
            max_epochs=1,
            limit_train_batches=3 if happens == "log" else 1.0,
        )
        module = Module(happens)
        trainer.fit(module, DataLoader(range(100_000 if happens == "sigterm" else 40)))  # type: ignore[arg-type]
        if strategy.staleness_stats is not None:  # not in the sampler
            stats = asdict(strategy.staleness_stats)
            (folder / f"stats-{trainer.global_rank}").write_text(json.dumps(stats))
