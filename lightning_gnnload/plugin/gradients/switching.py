"""Switching: what FactoredStrategy(switching=True) asks of a model and a Trainer, and the trainers' parts of it.

Lightning sees every planned step. One whose mini-batches samplers have all trained comes from the loader as a
:class:`~lightning_gnnload.pipeline.contributed.ContributedStep` and passes through the loop without forward, backward
or update; so lengths, limits, ``max_steps``, ``val_check_interval``, schedulers, ``batch_idx`` and ``global_step`` all
count planned steps.

Source: GNNLab (EuroSys'22), section 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import SyncBatchNorm
from torch.optim import LBFGS, Optimizer

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.pipeline.contributed import ContributedStep, Ledger
from lightning_gnnload.pipeline.queue import BatchQueue
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import SwitchingStats
from lightning_gnnload.plugin.gradients.slice_scheduler import SamplerGradients, SliceScheduler
from lightning_gnnload.plugin.job import Job


def check_switching(strategy: pl.strategies.DDPStrategy, trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Checks a fit before it begins. Raises RoleConfigError: something that a sampler's gradients cannot take part
    in."""
    scheduled = any(isinstance(each, pl.callbacks.GradientAccumulationScheduler) for each in trainer.callbacks)  # type: ignore[attr-defined]
    for is_given, given, reason in (
        (strategy.num_nodes > 1, f"num_nodes={strategy.num_nodes}", "parameters reach samplers of one machine only"),
        (
            trainer.accumulate_grad_batches != 1 or scheduled,
            f"accumulate_grad_batches={trainer.accumulate_grad_batches}",
            "a contributed mini-batch counts as one of a step's; use a larger batch_size",
        ),
        (
            not module.automatic_optimization,
            f"{type(module).__name__}.automatic_optimization=False",
            "the strategy must know which gradients make an update",
        ),
        (
            getattr(strategy.precision_plugin, "scaler", None) is not None,
            "precision='16-mixed'",
            "a sampler does not know the gradient scaler's scale; use precision='bf16-mixed'",
        ),
        (
            compat.reads_loader_itself(module),
            f"{type(module).__name__}.training_step(dataloader_iter)",
            "the strategy must know which mini-batch a step trains",
        ),
        (
            any(isinstance(part, SyncBatchNorm) for part in module.modules()) or strategy._layer_sync is not None,
            "synchronised BatchNorm",
            "it needs all ranks in every forward pass, and a sampler trains by itself; plain BatchNorm works",
        ),
    ):
        if is_given:
            raise RoleConfigError(f"switching=True with {given}: {reason}. Or use switching=False.")


def check_train_loader(loader: object) -> None:
    """Checks the loader before training. Raises RoleConfigError: nobody could tell which steps were contributed."""
    if isinstance(loader, dict | list | tuple | pl.utilities.combined_loader.CombinedLoader):
        raise several_loaders()


def check_optimizer_switches(optimizer: Optimizer) -> None:
    """Checks the optimizer. Raises RoleConfigError: it needs several gradients of the same mini-batch."""
    if isinstance(optimizer, LBFGS):
        raise RoleConfigError(
            "switching=True with LBFGS: it evaluates the loss several times a step, and a contributed gradient was "
            "computed once. Use another optimizer, or switching=False."
        )


def several_loaders() -> RoleConfigError:
    return RoleConfigError(
        "switching=True with several train loaders, or one in a dict or list: a step must have one mini-batch a "
        "trainer. Return one loader from train_dataloader, or use switching=False."
    )


class Switching:
    """Takes part in switching on one trainer, for one fit.

    Args:
        job: that this trainer is part of.
        queue: connected to the samplers.
        trainer: Lightning's.
        module: the model, as it was built.
        num_updates: counts the optimizer steps of this fit.

    Attributes:
        ledger: what samplers have contributed.
        contributions: for the communication hook.
        passes: the step under way was contributed: nothing is to be computed.
    """

    def __init__(
        self,
        job: Job,
        queue: BatchQueue,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        num_updates: Callable[[], int],
    ) -> None:
        self.ledger = Ledger(job.roles.world_size)
        self.passes = False
        self._slice_scheduler: SliceScheduler | None = None
        if job.global_rank == 0:
            self._slice_scheduler = SliceScheduler(
                queue,
                module,
                self.ledger,
                staleness=job.staleness,
                # In one step trainers apply all that has come, which may be ``staleness + 1`` averages.
                bound=max(job.staleness + 1, int(job.switching)),
                version=num_updates,
                global_step=lambda: trainer.global_step,
                max_steps=trainer.max_steps,
            )
        self.contributions = SamplerGradients(
            self.ledger, module, rank=job.global_rank, slice_scheduler=self._slice_scheduler
        )

    @property
    def stats(self) -> SwitchingStats | None:
        """The counts of switching, in trainer 0."""
        return self._slice_scheduler.stats if self._slice_scheduler is not None else None

    def before_backward(self) -> None:
        if self._slice_scheduler is not None:
            self._slice_scheduler.before_backward()

    def after_update(self) -> None:
        # A step that was passed over takes no time, and would make the trainers look faster than they are.
        if self._slice_scheduler is not None and not self.passes:
            self._slice_scheduler.after_update()

    def pause(self) -> None:
        if self._slice_scheduler is not None:
            self._slice_scheduler.pause()

    def close(self) -> None:
        if self._slice_scheduler is not None:
            self._slice_scheduler.close()


class StepSkippingDDP(pl.strategies.DDPStrategy):
    """DDP that computes nothing for a step which samplers have trained already."""

    _switch: Switching | None = None

    @property
    def passes_over_step(self) -> bool:
        return self._switch is not None and self._switch.passes

    def on_train_start(self) -> None:
        if self._switch is not None:
            check_train_loader(self.lightning_module.trainer.train_dataloader)  # type: ignore[union-attr]
        super().on_train_start()

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        if isinstance(batch, ContributedStep):
            return batch
        return super().batch_to_device(batch, device, dataloader_idx)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self._switch is not None:
            # Set at each step's begin, before any hook below asks for it.
            self._switch.passes = isinstance(batch, ContributedStep)
        super().on_train_batch_start(batch, batch_idx)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self.passes_over_step:
            return torch.tensor(math.nan)  # no number, lest somebody take it for a loss
        return super().training_step(*args, **kwargs)

    def backward(self, closure_loss: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.passes_over_step:
            return closure_loss
        return super().backward(closure_loss, *args, **kwargs)

    def pre_backward(self, closure_loss: torch.Tensor) -> None:
        if self._switch is not None:
            self._switch.before_backward()
        super().pre_backward(closure_loss)
