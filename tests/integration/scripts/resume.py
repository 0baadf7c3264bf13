"""Runs each case whole; cut short after a checkpoint was made; and resumed from that checkpoint.

Arguments: how, num_devices, strategy, folder of another launch, runs (of whole, cut, resumed and crossed, with commas
between them), names of cases. Writes what each trainer saw to ``<case>/<run>/trainer-<rank>.json`` and the checkpoint
to ``<case>/cut.ckpt``; a crossed run resumes that of the other launch. The strategy "2" has two samplers.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import OnExceptionCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from lightning_gnnload import FactoredStrategy, GraphData, GraphDataModule, NeighborSampler, SeedTable
from tests.integration.scripts.toy import Recorder, TwoValLoaders, digest, toy_data, toy_module

CHECKPOINT = "cut.ckpt"


class BoomError(Exception):
    """What a case raises in mid-epoch."""


class SaveIn(Callback):
    """Makes a checkpoint in one hook, when a batch of an epoch is at hand, and asks the loop to stop."""

    def __init__(self, hook: str, batch: int = 6, epoch: int = 0) -> None:
        self.at = None if hook == "on_fit_end" else (epoch, batch)
        setattr(self, hook, self._save)

    def _save(self, trainer: Trainer, *_: Any) -> None:
        if self.at in (None, (trainer.current_epoch, trainer.fit_loop.batch_idx)):
            trainer.save_checkpoint(Path(trainer.default_root_dir) / CHECKPOINT)
            trainer.should_stop = True


class Do(Callback):
    """Does something in one hook, at one batch."""

    def __init__(self, hook: str, action: Callable[[Trainer], Any], batch: int = 6) -> None:
        self.batch, self.action = batch, action
        setattr(self, hook, self._do)

    def _do(self, trainer: Trainer, *_: Any) -> None:
        if trainer.fit_loop.batch_idx == self.batch:
            self.action(trainer)


def stop(trainer: Trainer) -> None:
    trainer.should_stop = True


def boom(trainer: Trainer) -> None:
    raise BoomError


def terminate(trainer: Trainer) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def save_broken(hook: str, end: Callable[[Trainer], Any]) -> Callable[[], list[Callback]]:
    return lambda: [Do(hook, end), OnExceptionCheckpoint(".", CHECKPOINT.removesuffix(".ckpt"))]


def two_val_loaders() -> GraphDataModule:
    return TwoValLoaders(toy_data(), NeighborSampler([4, 3]), batch_size=16, seed=5)


def rows() -> GraphDataModule:
    """Trains on rows, in which nodes come several times, each with nodes of its own."""
    data, random = toy_data(), np.random.default_rng(1)
    train, val = (
        SeedTable(
            nodes := random.choice(split, 320), y=data.y[nodes], time=random.permutation(320), weight=np.ones(320)
        )
        for split in (data.train, data.val)
    )
    data = GraphData(data.graph, data.x, data.y, train, val)
    return GraphDataModule(data, NeighborSampler([4, 3], sharing="disjoint"), batch_size=16, seed=5, order="time")


@dataclass
class Case:
    """How the checkpoint is made, and the Trainer's options: of all runs, and of the one that makes it."""

    cut: Callable[[], list[Callback]]
    options: dict[str, Any] = field(default_factory=dict)
    cut_options: dict[str, Any] = field(default_factory=dict)
    data: Callable[[], GraphDataModule] = toy_module


ENDLESS = {"max_steps": 31, "max_epochs": -1}  # with max_steps, Lightning restarts in ways of its own
CASES = {
    "batch_end": Case(lambda: [SaveIn("on_train_batch_end")]),
    "accumulate": Case(lambda: [SaveIn("on_train_batch_end", batch=8)], {"accumulate_grad_batches": 3}),
    "validated": Case(lambda: [SaveIn("on_validation_end", batch=9)], {"val_check_interval": 0.25}),
    "validating": Case(lambda: [SaveIn("on_validation_batch_end", batch=9)], {"val_check_interval": 0.25}),
    "two_val_loaders": Case(
        lambda: [SaveIn("on_validation_end", batch=9)], {"val_check_interval": 0.5}, data=two_val_loaders
    ),
    "rows": Case(lambda: [SaveIn("on_train_batch_end")], data=rows),
    "last_batch": Case(lambda: [SaveIn("on_train_batch_end", batch=19)]),
    "validated_last": Case(lambda: [SaveIn("on_validation_end", batch=19)]),
    "epoch_end": Case(lambda: [SaveIn("on_train_epoch_end", batch=19)]),
    "reload": Case(lambda: [SaveIn("on_train_batch_end", epoch=1)], {"reload_dataloaders_every_n_epochs": 1}),
    "limited": Case(lambda: [SaveIn("on_train_batch_end", epoch=1)], {"limit_train_batches": 9}),
    "max_steps": Case(lambda: [SaveIn("on_train_batch_end")], cut_options={"max_steps": 7, "max_epochs": -1}),
    "endless": Case(lambda: [SaveIn("on_train_batch_end")], ENDLESS),
    "endless_last_batch": Case(lambda: [SaveIn("on_train_batch_end", batch=19)], ENDLESS),
    "endless_validated": Case(lambda: [SaveIn("on_validation_end", batch=19)], ENDLESS),
    "endless_epoch_end": Case(lambda: [SaveIn("on_train_epoch_end", batch=19)], ENDLESS),
    "endless_ended": Case(lambda: [SaveIn("on_fit_end")], ENDLESS, {"max_steps": 27}),
    "stopped": Case(lambda: [Do("on_train_batch_end", stop), SaveIn("on_fit_end")]),
}
BREAKING = {
    "error": Case(save_broken("on_train_batch_start", boom)),
    "error_after": Case(save_broken("on_train_batch_end", boom)),
    "sigterm": Case(save_broken("on_train_batch_start", terminate)),
}
"""These end with an exception."""


class WriteDown(Callback):
    """At the end of a fit, in each rank that trained."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        record = {
            "seen": pl_module.seen,
            "step": trainer.global_step,
            "weights": digest(pl_module.state_dict().values()),
        }
        self.folder.mkdir(exist_ok=True, parents=True)
        (self.folder / f"trainer-{trainer.global_rank}.json").write_text(json.dumps(record))


def run(case: Case, folder: Path, name: str, devices: int, strategy: Any, checkpoint: Path | None) -> None:
    seed_everything(1, verbose=False)
    folder.mkdir(exist_ok=True)
    cutting = name == "cut"
    callbacks = [WriteDown(folder / name), *(case.cut() if cutting else [])]
    for callback in callbacks:
        if isinstance(callback, OnExceptionCheckpoint):
            callback.dirpath = str(folder)
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    quiet["enable_checkpointing"] = any(isinstance(callback, OnExceptionCheckpoint) for callback in callbacks)
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, **case.options, **(case.cut_options if cutting else {})}
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        callbacks=callbacks,
        default_root_dir=folder,
        **quiet,
        **options,
    )
    try:
        trainer.fit(Recorder(), case.data(), ckpt_path=checkpoint)
    except (BoomError, SIGTERMException):
        if case not in BREAKING.values() or not cutting:
            raise


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    _, devices, kind, other, runs, *names = sys.argv[1:]
    for name in names:
        case, folder = (CASES | BREAKING)[name], Path.cwd() / name
        for each in runs.split(","):
            strategy: Any = FactoredStrategy(int(kind)) if kind.isdecimal() else kind
            checkpoints = {"resumed": folder / CHECKPOINT, "crossed": Path(other) / name / CHECKPOINT}
            run(case, folder, each, int(devices), strategy, checkpoints.get(each))
            print(name, each, flush=True)
