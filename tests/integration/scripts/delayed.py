"""Fits under FactoredStrategy(staleness=k): each case's trace of weights, updates and lags, a file a trainer.

Arguments: how, num_devices, names of cases (all when there are none). The batches are functions
of (epoch, step, rank), whatever the loader yields, so that a plain loop can have the same. Steps are late at random, so
that trainers are at different versions of the parameters.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lightning_gnnload import FactoredStrategy
from tests.integration.scripts.toy import digest

NUM_BATCHES = 9
LATE_S, LATE_SHARE = 0.006, 0.25
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02, weight_decay=0.1),
}
SCHEDULERS: dict[str, Any] = {
    "step": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * NUM_BATCHES),
    "epoch": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.3),
}


@dataclass(frozen=True)
class Case:
    """A fit that a plain loop can repeat.

    Attributes:
        clip: how, and to what.
        precision: as Lightning calls it.
        max_steps: updates after which the fit ends; -1 for none.
        stop_at: update after which a callback sets ``should_stop``.
        validate_every: batches; 0 validates at no time.
        save_every: updates between checkpoints.
        silent_at: batch of each epoch whose training step returns None.
        has_buffers: the model has BatchNorm.
        has_unused: the model has parameters that no loss depends on.
        repeats: the checkpoint of a case that this one repeats.
        ddp: arguments of DDP.
    """

    staleness: int = 2
    optimizer: str = "sgd"
    scheduler: str = ""
    num_epochs: int = 2
    accumulate: int = 1
    clip: tuple[str, float] = ("norm", 0.0)
    precision: str = "32-true"
    max_steps: int = -1
    stop_at: int = -1
    validate_every: int = 0
    save_every: int = 0
    silent_at: int = -1
    has_buffers: bool = False
    has_unused: bool = False
    repeats: str = ""
    ddp: dict[str, Any] = field(default_factory=dict)


SMALL_BUCKETS = {"bucket_cap_mb": 0.0001}
CASES = {
    **{f"sgd_{k}": Case(k) for k in (0, 1, 2, 4)},
    **{f"adam_{k}": Case(k, "adam") for k in (0, 1, 3)},
    "longer_than_the_epoch": Case(NUM_BATCHES + 3, "adam"),
    "accumulate": Case(accumulate=2),
    "accumulate_views": Case(1, accumulate=4, ddp={"gradient_as_bucket_view": True}),
    "clip_norm": Case(clip=("norm", 0.05)),
    "clip_value": Case(1, "adam", clip=("value", 0.01)),
    "buckets": Case(ddp=SMALL_BUCKETS),
    "buckets_views": Case(1, ddp=SMALL_BUCKETS | {"gradient_as_bucket_view": True}),
    "static_graph": Case(ddp={"static_graph": True}),
    "bf16": Case(precision="bf16-mixed"),
    "rate_by_step": Case(scheduler="step"),
    "rate_by_epoch": Case(3, scheduler="epoch"),
    "max_steps": Case(max_steps=13),
    "stop": Case(stop_at=5),
    "stop_and_validate": Case(stop_at=5, validate_every=NUM_BATCHES),
    "validate": Case(validate_every=4),
    "validate_between_updates": Case(1, accumulate=2, validate_every=3),
    "save": Case(1, "adam", save_every=4),
    "silent": Case(silent_at=3),
    "silent_at_the_end": Case(silent_at=NUM_BATCHES - 1, scheduler="epoch"),
    "unused": Case(1, "adam", has_unused=True, ddp={"static_graph": True}),
    "buffers": Case(has_buffers=True, validate_every=4),
    "own_buffers": Case(has_buffers=True, ddp={"broadcast_buffers": False}),
    "recorded": Case(3, "adam", scheduler="step", accumulate=2, clip=("norm", 0.05), save_every=5),
    "repeated": Case(3, "adam", scheduler="step", accumulate=2, clip=("norm", 0.05), repeats="recorded/step=10.ckpt"),
}


def batch_of(epoch: int, step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Inputs ``[5, 6]`` and targets ``[5, 3]``."""
    random = torch.Generator().manual_seed(epoch * 1000 + step * 10 + rank)
    return torch.randn(5, 6, generator=random), torch.randn(5, 3, generator=random)


def network(case: Case) -> nn.Module:
    torch.manual_seed(7)
    middle = nn.BatchNorm1d(16) if case.has_buffers else nn.Identity()
    layers = [nn.Linear(6, 16), middle, nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)]
    net = nn.Sequential(*layers)
    if case.has_unused:
        net[0].register_parameter("unused", nn.Parameter(torch.ones(4)))
    return net


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


class Module(LightningModule):
    """Counts the optimizer's steps itself."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = network(case)
        self.num_updates = 0
        self.num_hooks = 0
        self.lags: list[list[int]] | None = None

    def on_train_start(self) -> None:
        self.lateness = random.Random(f"{self.global_rank} {self.case.repeats}")

    def on_train_end(self) -> None:
        updates = self.trainer.strategy._updates  # type: ignore[attr-defined]
        self.lags = updates.lags_of_all().tolist() if updates is not None else None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        if batch_idx == self.case.silent_at:
            return None
        time.sleep(LATE_S * (self.lateness.random() < LATE_SHARE))
        return loss_of(self.net, batch_of(self.current_epoch, batch_idx, self.global_rank))

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        self.num_hooks += 1
        norms = [p.grad.norm() for p in self.parameters() if p.grad is not None]
        self.log("gradient", sum(norms, torch.zeros(())))  # in flushes too, whatever the stage

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", float(batch_idx))

    def train_dataloader(self) -> Any:
        return DataLoader(range(NUM_BATCHES))  # type: ignore[arg-type]

    def val_dataloader(self) -> Any:
        return DataLoader(range(2))  # type: ignore[arg-type]

    def configure_optimizers(self) -> Any:
        optimizer = OPTIMIZERS[self.case.optimizer](self.parameters())
        optimizer.register_step_post_hook(self._count)
        if not self.case.scheduler:
            return optimizer
        scheduler = SCHEDULERS[self.case.scheduler](optimizer)
        return [optimizer], [{"scheduler": scheduler, "interval": self.case.scheduler}]

    def _count(self, *_: Any) -> None:
        self.num_updates += 1


class Watch(Callback):
    """What a callback sees: the weights after each step, their moving average, and the counts where all must agree."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.trace: list[str] = []
        self.points: list[tuple[str, int, int]] = []
        self.average: Tensor | None = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        weights = nn.utils.parameters_to_vector(pl_module.parameters()).detach()
        self.trace.append(digest([weights]))
        self.average = weights.clone() if self.average is None else self.average.lerp(weights, 0.1)
        trainer.should_stop = trainer.should_stop or trainer.global_step == self.case.stop_at

    def _point(self, name: str, trainer: Trainer, module: Any) -> None:
        self.points.append((name, module.num_updates, trainer.global_step))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._point("validation", trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._point("epoch", trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._point("end", trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._point("checkpoint", trainer, pl_module)
        if self.case.optimizer == "adam":
            (states,) = checkpoint["optimizer_states"]
            steps = {int(state["step"]) for state in states["state"].values()}
            self.points.append(("saved optimizer", *steps, checkpoint["global_step"]))


def run(name: str, case: Case, folder: Path, devices: int) -> None:
    module, watch = Module(case), Watch(case)
    callbacks: list[Callback] = [watch]
    if case.save_every:
        callbacks.append(ModelCheckpoint(folder / name, "{step}", every_n_train_steps=case.save_every, save_top_k=-1))
    lags = str(folder / case.repeats) if case.repeats else "record" if case.staleness else None
    strategy = FactoredStrategy(staleness=case.staleness, lags=lags, **case.ddp)
    off = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler"), False)
    trainer = Trainer(
        **off,
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        callbacks=callbacks,
        enable_checkpointing=bool(case.save_every),
        num_sanity_val_steps=2,
        max_epochs=case.num_epochs,
        max_steps=case.max_steps,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_algorithm=case.clip[0],
        gradient_clip_val=case.clip[1],
        precision=case.precision,  # type: ignore[arg-type]
        limit_val_batches=2 if case.validate_every else 0,
        val_check_interval=case.validate_every or 1.0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module)
    if trainer.local_rank == devices - 1:
        return  # the sampler
    assert watch.average is not None
    record = {
        "trace": watch.trace,
        "lags": module.lags,
        "weights": digest(module.state_dict().values()),
        "final": [value.hex() for value in nn.utils.parameters_to_vector(module.parameters()).tolist()],
        "average": digest([watch.average]),
        "points": watch.points,
        "num_updates": module.num_updates,
        "num_hooks": module.num_hooks,
        "global_step": trainer.global_step,
        "stats": asdict(strategy.staleness_stats) if strategy.staleness_stats else None,
        "warnings": [str(warning.message) for warning in caught],
        "callbacks": [type(callback).__name__ for callback in trainer.callbacks],
    }
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}-{trainer.global_rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    _, devices, *names = sys.argv[1:]
    for name in names or CASES:
        run(name, CASES[name], Path.cwd() / "records", int(devices))
