"""Runs fits with samplers that train, and writes what every rank trained.

Arguments: how, num_devices, a JSON list of Settings. Each rank writes ``<name>/rank-<n>.json`` for each of them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from lightning_gnnload import FactoredStrategy, MiniBatch
from lightning_gnnload.pipeline.contributed import ContributedStep
from tests.integration.scripts.toy import NUM_CLASSES, NUM_FEATURES, Recorder, digest, toy_module


@dataclass
class Settings:
    """One fit.

    Attributes:
        strategy, trainer, model: arguments of these.
        save_every: steps between checkpoints; 0 saves none.
        checkpoint: to resume from.
        stop_at: the step to stop at; 0 goes on to the end.
    """

    name: str = "run"
    batch_size: int = 4
    strategy: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    save_every: int = 0
    checkpoint: str | None = None
    stop_at: int = 0


class Contributing(Recorder):
    """Writes down which rank trained which seeds, and in which step.

    Args:
        train_ms: what a training step takes at least, on every rank; ``sampler_ms`` overrules it on samplers, where a
            list has one for each.
        built_in: which hook builds the model: ``"init"``, ``"setup"`` or ``"configure_model"``.
        kill_at: a sampler is sent a signal in the middle of its so-manyeth mini-batch.
        kill_by: the signal.
        fails: ``training_step`` raises on samplers.
    """

    trained: ClassVar[list[Any]] = []  # by this rank: a sampler's script comes to hold trainer 0's attributes

    def __init__(
        self,
        train_ms: float = 15.0,
        sampler_ms: float | Sequence[float] | None = None,
        built_in: str = "init",
        kill_at: int = -1,
        kill_by: int = signal.SIGKILL,
        fails: bool = False,
        dropout: float = 0.0,
        batch_norm: bool = False,
        lr: float = 0.04,
    ) -> None:
        super().__init__()
        self.train_ms, self.sampler_ms, self.built_in = train_ms, sampler_ms, built_in
        self.kill_at, self.kill_by, self.fails, self.lr = kill_at, kill_by, fails, lr
        self.extra: nn.Module | None = None
        self.layers = [nn.Dropout(dropout)] + ([nn.BatchNorm1d(NUM_FEATURES)] if batch_norm else [])
        type(self).trained = []
        if built_in == "init":
            self.build()

    def build(self) -> None:
        if self.extra is None:
            self.extra = nn.Sequential(*self.layers, nn.Linear(NUM_FEATURES, NUM_CLASSES))

    def setup(self, stage: str) -> None:
        if self.built_in == "setup":
            self.build()

    def configure_model(self) -> None:
        if self.built_in == "configure_model":
            self.build()

    def loss(self, batch: MiniBatch) -> Tensor:
        assert self.extra is not None
        return nn.functional.cross_entropy(self(batch) + self.extra(batch.x[: batch.num_seeds]), batch.y)

    @property
    def is_sampler(self) -> bool:
        return self.trainer.global_rank >= self.trainer.world_size

    @property
    def step_ms(self) -> float:
        if not self.is_sampler or self.sampler_ms is None:
            return self.train_ms
        if isinstance(self.sampler_ms, Sequence):
            return self.sampler_ms[self.trainer.global_rank - self.trainer.world_size]
        return self.sampler_ms

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        assert self.training
        at = [self.trainer.current_epoch, self.trainer.global_step, batch_idx]
        if self.is_sampler and self.fails:
            raise ValueError("this model trains on trainers only")
        if self.is_sampler and len(self.trained) == self.kill_at:
            os.kill(os.getpid(), self.kill_by)
        time.sleep(self.step_ms / 1e3)
        loss = self.loss(batch)
        self.log("train_loss", loss, batch_size=batch.num_seeds)
        self.trained.append([*at, batch.seeds.tolist(), loss.item()])
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.5)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.99), "interval": "step"}]


class Watch(Callback):
    """What Lightning's loop and its callbacks see."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at = stop_at
        self.merged: list[Any] = []
        self.versions: list[int] = []
        self.steps: list[Any] = []
        self.validated_at: list[int] = []
        self.left_out: list[Any] = []
        self.epoch_ms: list[float] = []
        self._began = 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        is_contributed = isinstance(batch, ContributedStep)
        assert is_contributed == bool(outputs["loss"].isnan())
        if batch_idx == trainer.num_training_batches - 1:
            self.epoch_ms.append((time.perf_counter() - self._began) * 1e3)
        self.steps.append([trainer.current_epoch, batch_idx, trainer.global_step, is_contributed])
        switch = trainer.strategy._switch  # type: ignore[attr-defined]
        if switch is not None and not is_contributed and switch.ledger.has(batch_idx, trainer.global_rank):
            self.left_out.append([trainer.current_epoch, batch_idx])

        trainer.should_stop = trainer.should_stop or trainer.global_step == self.stop_at

    def on_after_backward(self, trainer: Trainer, pl_module: Any) -> None:
        self.versions.append(trainer.strategy.num_updates)  # type: ignore[attr-defined]
        switch = trainer.strategy._switch  # type: ignore[attr-defined]
        if switch is not None and (slice_scheduler := switch._slice_scheduler) is not None:
            merging = [[gradient.slice, gradient.version] for gradient in slice_scheduler._merging]
            self.merged.append([trainer.current_epoch, trainer.fit_loop.batch_idx, merging])

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.validated_at.append(trainer.global_step)


def run(settings: Settings, how: str, devices: int) -> None:
    seed_everything(3, verbose=False)
    folder = Path.cwd() / settings.name
    folder.mkdir(parents=True, exist_ok=True)
    start_method = how if how in ("spawn", "fork") else "popen"
    strategy = FactoredStrategy(start_method=start_method, **{"switching": True} | settings.strategy)
    watch = Watch(settings.stop_at)
    callbacks: list[Callback] = [watch]
    if settings.save_every:
        checkpoints = ModelCheckpoint(folder, "{step}", every_n_train_steps=settings.save_every, save_top_k=-1)
        callbacks.append(checkpoints)
    options: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    options |= {"max_epochs": 2, "num_sanity_val_steps": 0, "limit_val_batches": 1}
    options |= {"enable_checkpointing": bool(settings.save_every), "callbacks": callbacks}
    trainer = Trainer(accelerator="cpu", devices=devices, strategy=strategy, **options | settings.trainer)
    model = Contributing(**settings.model)
    trainer.fit(model, toy_module(settings.batch_size), ckpt_path=settings.checkpoint)
    stats = strategy.switching_stats
    record = {
        "role": strategy.role.value,
        "trained": model.trained,
        "steps": watch.steps,
        "merged": watch.merged,
        "versions": watch.versions,
        "epoch_ms": watch.epoch_ms,
        "left_out": watch.left_out,
        "validated_at": watch.validated_at,
        "weights": digest(model.state_dict().values()),
        "parameters": parameters_to_vector(model.parameters()).tolist(),
        "global_step": trainer.global_step,
        "num_batches": trainer.num_training_batches,
        "stats": vars(stats) if stats is not None else None,
    }
    (folder / f"rank-{strategy.local_rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.INFO)
    for each in json.loads(sys.argv[3]):
        run(Settings(**each), sys.argv[1], int(sys.argv[2]))
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # the next world may have another size
