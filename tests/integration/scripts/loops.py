"""Runs cases with one strategy, many Trainers in one launch, and writes what each trainer saw.

Arguments: how, num_devices, strategy, names of cases (all when there are none). With "factored" on three devices all
cases run twice: with one sampler and two trainers, and with two samplers and one trainer. "stale" is "factored" with a
staleness of 2.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import NUM_FEATURES, Recorder, TwoValLoaders, digest, toy_data, toy_module

Callback, Trainer, EarlyStopping, ModelCheckpoint = (
    pl.Callback,
    pl.Trainer,
    pl.callbacks.EarlyStopping,
    pl.callbacks.ModelCheckpoint,
)


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


def plain_loader() -> pl.LightningDataModule:
    rows = torch.arange(64 * NUM_FEATURES, dtype=torch.float32).view(64, NUM_FEATURES) / 1000
    return pl.LightningDataModule.from_datasets(TensorDataset(rows), batch_size=8)


class PlainRecorder(Recorder):
    """Reads batches of a torch DataLoader."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.second(self.first(batch[0].repeat(1, 2)).repeat(1, 2)).square().mean()
        self.seen.append([batch_idx, batch[0][:, 0].tolist(), loss.item().hex()])
        return loss


@dataclass
class Case:
    """One use of a Trainer: its options, and what is called besides ``fit``."""

    options: dict[str, Any] = field(default_factory=dict)
    data: Callable[[], GraphDataModule] = toy_module
    callbacks: Callable[[], list[Callback]] = list
    after: tuple[str, ...] = ()
    record: Callable[[], pl.LightningModule] = Recorder
    strategy: dict[str, Any] = field(default_factory=dict)
    by_name: bool = False
    checkpoint: str = "step=7.ckpt"


def save_every_7() -> list[Callback]:
    return [ModelCheckpoint(dirpath="checkpoints", filename="{step}", every_n_train_steps=7, save_top_k=-1)]


CASES = {
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
    "union": Case({"limit_train_batches": 3, "limit_val_batches": 0}, record=lambda: Recorder(keep_edges=True)),
    "barebones": Case({"barebones": True}),
    "after": Case({}, after=("validate", "test", "predict")),
    # The order of these three matters: the last one starts from a checkpoint of the second.
    "uninterrupted": Case({"max_epochs": 2}),
    "interrupted": Case({"max_epochs": 2}, callbacks=lambda: [*save_every_7(), StopAt(9)]),
    "resumed": Case({"max_epochs": 2}, after=("resume",)),
}
"""By name; each must give the same with sampling in the training ranks as with samplers."""

FACTORED_ONLY = {
    **{f"threads_{n}": Case({"limit_train_batches": 8}, strategy={"sampler_threads": n}) for n in (1, 2, 4)},
    "shallow": Case({"limit_train_batches": 8}, strategy={"queue_depth": 1}),
    # Predictions are views of their batches: more of them than there are slots.
    "hoard": Case({"limit_train_batches": 0}, lambda: toy_module(4), after=("predict",), strategy={"queue_depth": 2}),
    "plain_loader": Case({"limit_val_batches": 0}, plain_loader, record=PlainRecorder),
    "by_name": Case({"limit_train_batches": 3}, by_name=True),
}


SAVING = {"max_epochs": 2, "limit_train_batches": 10}
STALE_ONLY = {
    # The order matters: the second goes on from a checkpoint of the first, with the lags that its last one has.
    "saving": Case(
        SAVING,
        callbacks=lambda: [ModelCheckpoint(filename="saved-{step}", every_n_train_steps=5, save_top_k=-1)],
        strategy={"lags": "record"},
    ),
    "resumed_saving": Case(
        SAVING, after=("resume",), strategy={"lags": "saved-step=20.ckpt"}, checkpoint="saved-step=5.ckpt"
    ),
}


WITH_TWO_TRAINERS = [
    *(
        "two_val_loaders",
        "limit_float",
        "val_interval",
        "accumulate",
        "should_stop",
        "reload",
        "after",
        "union",
    ),
    *("uninterrupted", "interrupted", "resumed", "plain_loader", "by_name", *STALE_ONLY),
]
ALL_CASES = [name for name in (*CASES, *FACTORED_ONLY, *STALE_ONLY) if name != "by_name"]


class WriteDown(Callback):
    """At the end of a stage, in the process that trained: under spawn the script's own sees nothing of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        record = {
            "seen": pl_module.seen,
            "drawn": pl_module.drawn,
            "step": trainer.global_step,
            "updates": max((int(each["step"]) for each in trainer.optimizers[0].state.values()), default=0),
            "weights": digest(pl_module.state_dict().values()),
        }
        self.path.mkdir(exist_ok=True, parents=True)
        (self.path / f"trainer-{trainer.global_rank}.json").write_text(json.dumps(record))


def run(case: Case, out: Path, devices: int, strategy: Any) -> None:
    """Writes ``out/trainer-<rank>.json``, and in every local rank what its script has in hand afterwards."""
    pl.seed_everything(1, verbose=False)
    module, data = case.record(), case.data()
    callbacks = [*case.callbacks(), WriteDown(out)]
    options: dict[str, Any] = {"max_epochs": 1}
    if not case.options.get("barebones"):
        saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
        options |= dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        options |= {"num_sanity_val_steps": 0, "enable_checkpointing": saves}
    options |= {"accelerator": "cpu", "devices": devices, "strategy": strategy, "callbacks": callbacks}
    # The checkpoints of an earlier case, one folder for each number of trainers.
    checkpoint = out.parent / "checkpoints" / case.checkpoint if "resume" in case.after else None
    for callback in callbacks:
        if isinstance(callback, ModelCheckpoint):
            callback.dirpath = str(out.parent / "checkpoints")
    trainer = Trainer(**options | case.options)
    trainer.fit(module, data, ckpt_path=checkpoint)
    results = {
        call: getattr(trainer, call)(module, data, verbose=False) for call in ("validate", "test") if call in case.after
    }
    predicted = trainer.predict(module, data) if "predict" in case.after else None
    hands = {
        "epoch": trainer.current_epoch,
        "metrics": {name: value.item().hex() for name, value in trainer.callback_metrics.items()},
        "results": results,
        "predicted": [ids.tolist() for ids in predicted or []],
        "best": os.path.basename(getattr(trainer.checkpoint_callback, "best_model_path", "")),
    }
    out.mkdir(exist_ok=True, parents=True)
    (out / f"hands-{trainer.local_rank}.json").write_text(json.dumps(hands))


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    how, devices, kind, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    cases = CASES | {"factored": FACTORED_ONLY, "stale": STALE_ONLY}.get(kind, {})
    is_factored = kind in ("factored", "stale")
    numbers_of_samplers = range(1, devices) if is_factored else [0]
    start_method = how if how in ("spawn", "fork") else "popen"
    for num_samplers in numbers_of_samplers:
        num_trainers = devices - num_samplers
        for name in names or (ALL_CASES if num_trainers == 1 else WITH_TWO_TRAINERS):
            if name not in cases:
                continue
            case, out = cases[name], Path.cwd() / f"trainers-{num_trainers}" / name
            strategy: Any = kind
            if is_factored and not case.by_name:
                staleness = 2 if kind == "stale" else 0
                strategy = FactoredStrategy(num_samplers, staleness, start_method=start_method, **case.strategy)
                if strategy.lags is not None and strategy.lags.endswith(".ckpt"):
                    strategy.lags = str(out.parent / "checkpoints" / strategy.lags)
            if name == "union":
                case.data = partial(toy_module, 32 // num_trainers)
            run(case, out, devices, strategy)
            print(os.environ.get("LOCAL_RANK"), num_trainers, name, flush=True)
