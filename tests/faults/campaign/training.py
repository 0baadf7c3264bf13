"""A training whose graph and rows lie with owners, or here; it goes on from its last checkpoint.

Arguments: how, num_devices, kind ("alone", "ddp", "factored", one of whose ranks samples, or "nodes", the second of
which samples), the folder of a partition's head or "whole", and the file of the owners' addresses, a JSON list. Each
rank writes its process id, trainer 0 the steps that it has done, and each trainer in the end what it saw and its
weights. Every fifth step is saved in the folder ``saved``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import Role
from tests.integration.scripts import launch
from tests.integration.scripts.toy import Recorder, digest, toy_module

WHOLE = "whole"
STEP_MS, SAVE_EACH, NUM_EPOCHS = 60, 5, 2
STEPS, SAVED = Path("steps"), Path("saved")
CONNECT_S, STALL_S = 30.0 * launch.PATIENCE, 10.0 * launch.PATIENCE


class Training(Recorder):
    """Takes its time for each step."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(STEP_MS / 1e3)
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, *_: object) -> None:
        if self.trainer.is_global_zero:
            with STEPS.open("a") as steps:
                print(json.dumps({"step": self.trainer.global_step, "at": time.monotonic()}), file=steps)
        if self.trainer.global_step % SAVE_EACH == 0:
            self.trainer.save_checkpoint(SAVED / f"{self.trainer.global_step:04d}.ckpt")


class OwnedData(GraphDataModule):
    """Tells which process plays which role."""

    def setup(self, stage: str | None = None) -> None:
        assert self.trainer is not None
        role = getattr(self.trainer.strategy, "role", Role.TRAINER)
        write_pid("sampler" if role is Role.SAMPLER else "trainer", self.trainer.global_rank)
        super().setup(stage)


def write_pid(role: str, rank: int) -> None:
    # Renamed into place, so that whoever sees the file reads a whole number.
    Path(f".{role}-{rank}").write_text(str(os.getpid()))
    Path(f".{role}-{rank}").rename(f"{role}-{rank}.pid")


def last_checkpoint() -> Path | None:
    """Returns the last that is whole: a full disk has room for a part of one."""
    for file in sorted(SAVED.glob("*.ckpt"), reverse=True):
        with suppress(RuntimeError, OSError, EOFError):
            torch.load(file, weights_only=True)
            return file
    return None


def main(num_devices: int, kind: str, head: str, addresses: str) -> None:
    pl.seed_everything(1, verbose=False)
    limits: dict[str, Any] = {"connect_timeout_s": CONNECT_S, "stall_timeout_s": STALL_S}
    strategies = {
        "alone": lambda: "auto",
        "ddp": lambda: "ddp",
        "factored": lambda: FactoredStrategy(1, **limits),
        "nodes": lambda: FactoredStrategy(0, sampler_nodes=1, **limits),
    }
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=num_devices,
        num_nodes=2 if kind == "nodes" else 1,
        strategy=strategies[kind](),
        max_epochs=NUM_EPOCHS,
        num_sanity_val_steps=0,
        limit_val_batches=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    if head == WHOLE:
        data = toy_module()
    else:
        trainer.strategy.owner_addresses = lambda: json.loads(Path(addresses).read_text())
        data = OwnedData(head, NeighborSampler([4, 3]), graph="remote", features="remote", batch_size=16, seed=5)
    SAVED.mkdir(exist_ok=True)
    model = Training()
    trainer.fit(model, data, ckpt_path=last_checkpoint())
    if getattr(trainer.strategy, "role", Role.TRAINER) is Role.TRAINER:
        wrote = {"seen": model.seen, "weights": digest(model.state_dict().values())}
        Path(f"record-{trainer.global_rank}.json").write_text(json.dumps(wrote))


if __name__ == "__main__":
    main(int(sys.argv[2]), *sys.argv[3:])
