"""Runs every case of CASES with one strategy, many Trainers in one launch, and writes what each trainer saw.

Arguments: how, num_devices, "auto" | "ddp" | "factored". With "factored" on three devices all cases run twice: with
two samplers and one trainer, and with one sampler and two trainers.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from lightning_gnnload import FactoredStrategy, GraphDataModule
from tests.integration.scripts.toy import Recorder, TwoValLoaders, digest, toy_data, toy_module
from lightning_gnnload import NeighborSampler

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class StopAt(Callback):
    """Asks the loop to stop in mid-epoch."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.step


class Shrinking(GraphDataModule):
    """A curriculum: the train loader depends on the epoch."""

    def train_dataloader(self) -> Any:
        assert self.trainer is not None
        self.batch_size = 8 * (1 + self.trainer.current_epoch)
        return super().train_dataloader()


def two_val_loaders() -> GraphDataModule:
    return TwoValLoaders(toy_data(), NeighborSampler([4, 3]), batch_size=16, seed=5)


def shrinking() -> GraphDataModule:
    return Shrinking(toy_data(), NeighborSampler([4, 3]), batch_size=8, seed=5)


@dataclass
class Case:
    """One use of a Trainer: its options, and what is called besides ``fit``."""

    options: dict[str, Any] = field(default_factory=dict)
    data: Callable[[], GraphDataModule] = toy_module
    callbacks: Callable[[], list[Callback]] = list
    after: tuple[str, ...] = ()


def save_every_7() -> list[Callback]:
    return [ModelCheckpoint(dirpath="checkpoints", filename="{step}", every_n_train_steps=7, save_top_k=-1)]


CASES = {
    "plain": Case({"max_epochs": 2}),
    "sanity": Case({"num_sanity_val_steps": 2}),
    "two_val_loaders": Case({"num_sanity_val_steps": 1}, two_val_loaders),
    "limit_int": Case({"limit_train_batches": 3, "limit_val_batches": 2}),
    "limit_float": Case({"limit_train_batches": 0.5, "limit_val_batches": 0.5}),
    "limit_0": Case({"limit_train_batches": 0}),
    "max_steps": Case({"max_steps": 7, "max_epochs": -1}),
    "overfit": Case({"overfit_batches": 3, "max_epochs": 2}),
    "val_interval": Case({"val_check_interval": 0.25, "num_sanity_val_steps": 1}),
    "should_stop": Case({"max_epochs": 3}, callbacks=lambda: [StopAt(5)]),
    "early_stopping": Case(
        {"max_epochs": 9}, callbacks=lambda: [EarlyStopping("val_loss", patience=1, min_delta=10.0)]
    ),
    "fast_dev_run": Case({"fast_dev_run": 3}),
    "accumulate": Case({"accumulate_grad_batches": 3}),
    "clip": Case({"gradient_clip_val": 0.1}),
    "reload": Case({"reload_dataloaders_every_n_epochs": 1, "max_epochs": 3}, shrinking),
    "barebones": Case({"barebones": True}),
    "after": Case({}, after=("validate", "test", "predict")),
    # The order of these three matters: the last one starts from a checkpoint of the second.
    "uninterrupted": Case({"max_epochs": 2}),
    "interrupted": Case({"max_epochs": 2}, callbacks=lambda: [*save_every_7(), StopAt(9)]),
    "resumed": Case({"max_epochs": 2}, after=("resume",)),
}
"""By name; each must give the same with sampling in the training ranks as with samplers."""


def run(name: str, case: Case, out: Path, **strategy: Any) -> None:
    seed_everything(1, verbose=False)
    module, data = Recorder(), case.data()
    options = dict(max_epochs=1, num_sanity_val_steps=0, logger=False, enable_progress_bar=False)
    options |= dict(enable_model_summary=False, enable_checkpointing=name == "interrupted")
    if case.options.get("barebones"):
        options = dict(max_epochs=1)
    trainer = Trainer(accelerator="cpu", callbacks=case.callbacks(), default_root_dir=".", **options | case.options, **strategy)
    trainer.fit(module, data, ckpt_path="checkpoints/step=7.ckpt" if "resume" in case.after else None)
    results: dict[str, Any] = {}
    for call in ("validate", "test", "predict"):
        if call in case.after:
            quiet = {} if call == "predict" else {"verbose": False}
            results[call] = getattr(trainer, call)(module, data, **quiet)
    samples = getattr(trainer.strategy, "num_samplers", 0) > trainer.local_rank - trainer.strategy.world_size >= 0
    predicted = [ids.tolist() for ids in results.pop("predict", None) or []]
    record = {
        "seen": module.seen,
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "weights": digest(module.state_dict().values()),
        "metrics": {name: value.item().hex() for name, value in trainer.callback_metrics.items()},
        "results": results,
        "predicted": predicted,
    }
    role = "sampler" if samples else "trainer"
    (out / f"{name}-{role}-{trainer.global_rank}.json").write_text(json.dumps(record))


def run_all(out: Path, **strategy: Any) -> None:
    out.mkdir(exist_ok=True)
    for name, case in CASES.items():
        make = strategy.get("strategy")
        run(name, case, out, **strategy | {"strategy": make() if callable(make) else make})
        print(os.environ.get("LOCAL_RANK"), out.name, name, flush=True)


if __name__ == "__main__":
    devices, kind = int(sys.argv[2]), sys.argv[3]
    if kind == "factored":
        for samplers in range(1, devices):
            run_all(Path(f"trainers-{devices - samplers}"), devices=devices, strategy=lambda s=samplers: FactoredStrategy(samplers=s))
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()  # the next world has another size
    else:
        run_all(Path(f"trainers-{devices}"), devices=devices, strategy=kind)
