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
from functools import partial
from typing import Any

import torch
from torch.nn import SyncBatchNorm
from torch.optim import LBFGS, Optimizer

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.pipeline.contributed import ContributedStep, Ledger
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import SwitchingStats
from lightning_gnnload.plugin.gradients.slice_scheduler import SamplerGradients, SliceScheduler
from lightning_gnnload.plugin.job import Job


def check_switching(strategy: pl.strategies.DDPStrategy, trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Checks a fit before it begins. Raises RoleConfigError: something that a sampler's gradients cannot take part
    in."""
    scheduled = any(isinstance(callback, pl.callbacks.GradientAccumulationScheduler) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    for is_given, setting, reason in (
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
            raise RoleConfigError(f"switching=True with {setting}: {reason}. Or use switching=False.")


def check_train_loader(loader: object) -> None:
    """Checks the loader before training. Raises RoleConfigError: nobody could tell which steps were contributed."""
    if isinstance(loader, dict | list | tuple | pl.utilities.combined_loader.CombinedLoader):
        raise several_loaders()


def check_optimizer_switches(optimizer: Optimizer) -> None:
    """Raises RoleConfigError: an optimizer that evaluates the loss several times a step."""
    if isinstance(optimizer, LBFGS):
        raise RoleConfigError(
            "switching=True with LBFGS: it evaluates the loss several times a step, and a contributed gradient was "
            "computed once. Use another optimizer, or switching=False."
        )


def several_loaders() -> RoleConfigError:
    """Returns the error of a step with several mini-batches, to be raised."""
    return RoleConfigError(
        "switching=True with several train loaders, or one in a dict or list: a step must have one mini-batch a "
        "trainer. Return one loader from train_dataloader, or use switching=False."
    )


_OVERRIDES = ("batch_to_device", "training_step", "backward", "pre_backward")
"""Methods of the strategy that :class:`Switching` replaces."""


class Switching:
    """One trainer's part of switching, for one fit: ``ledger`` knows what samplers have contributed, ``contributions``
    is for the communication hook, and ``passes`` says that the step under way was contributed, so that nothing is
    computed."""

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
        self._strategy: pl.strategies.DDPStrategy | None = None
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
        return self._slice_scheduler.stats if self._slice_scheduler is not None else None

    def after_update(self) -> None:
        # A step that was passed over takes no time, and would make the trainers look faster than they are.
        if self._slice_scheduler is not None and not self.passes:
            self._slice_scheduler.after_update()

    def pause(self) -> None:
        if self._slice_scheduler is not None:
            self._slice_scheduler.pause()

    def install(self, strategy: pl.strategies.DDPStrategy) -> None:
        """Has the strategy compute nothing for contributed steps, until :meth:`close`."""
        # On the instance, not in a class: without switching, no step passes through this.
        self._strategy = strategy
        for name in _OVERRIDES:
            setattr(strategy, name, partial(getattr(self, f"_{name}"), getattr(strategy, name)))

    def _batch_to_device(self, to_device: Callable[..., Any], batch: Any, *args: Any, **kwargs: Any) -> Any:
        return batch if isinstance(batch, ContributedStep) else to_device(batch, *args, **kwargs)

    def _training_step(self, training_step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # No number, so that nobody takes it for a loss.
        return torch.tensor(math.nan) if self.passes else training_step(*args, **kwargs)

    def _backward(self, backward: Callable[..., Any], closure_loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return closure_loss if self.passes else backward(closure_loss, *args, **kwargs)

    def _pre_backward(self, pre_backward: Callable[..., Any], closure_loss: torch.Tensor) -> None:
        if self._slice_scheduler is not None:
            self._slice_scheduler.before_backward()
        pre_backward(closure_loss)

    def begin_step(self, batch: Any) -> None:
        self.passes = isinstance(batch, ContributedStep)

    def close(self) -> None:
        if self._strategy is not None:
            for name in _OVERRIDES:
                delattr(self._strategy, name)
            self._strategy = None
        if self._slice_scheduler is not None:
            self._slice_scheduler.close()
