"""DelayedUpdates: when averaged gradients that may come k steps late are applied.

A backward pass leaves a trainer's own gradient in the parameters and starts its reduction
(:class:`.reduction.DelayedReduction`). Averages are applied in their order, clipped as ever, at three points:

- A step's begin applies those that have come by then, and waits for none. Where nobody is late that is all of them.
- A step's end waits for the average of k steps ago, and applies it unless an earlier begin did.
- A flush applies all, where parameters must be complete: at an epoch's last batch and at ``max_steps``, when
  ``should_stop`` ends an epoch early, before validation, before a checkpoint, at the end of training.

Trainers come to the same version of the parameters at different steps. So that it is the same, an update may depend on
nothing that differs between them: it finds the settings of the optimizer's groups, and the global step, of the step
that computed its gradient. Callbacks that read the parameters in mid-epoch find them up to k updates behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer

from lightning_gnnload.errors import RoleConfigError, StalenessError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.group_settings import GroupSettings
from lightning_gnnload.plugin.gradients.lags import CHECKPOINT_KEY, Lags
from lightning_gnnload.plugin.gradients.reduction import DelayedReduction, Launch, hook

_ONE_HOOK = "DDP takes one communication hook, and staleness is one"
_EXCLUDED = {
    "find_unused_parameters": "a parameter may have a gradient in one step and none in another, which would be lost",
    "ddp_comm_hook": _ONE_HOOK,
    "ddp_comm_state": _ONE_HOOK,
    "ddp_comm_wrapper": _ONE_HOOK,
    "model_averaging_period": "averaged models have no delayed gradients",
}


def check_staleness(staleness: object, ddp: dict[str, Any], *, switching: bool = False) -> None:
    """Checks the settings. Raises RoleConfigError: no number of steps, or DDP arguments that exclude staleness."""
    if not isinstance(staleness, int) or isinstance(staleness, bool) or staleness < 0:
        raise RoleConfigError(f"staleness={staleness!r}: a whole number of optimizer steps is needed, 0 for plain DDP.")
    for name, reason in _EXCLUDED.items():
        if (staleness or switching) and ddp.get(name):
            setting = f"staleness={staleness}" if staleness else "switching=True"
            raise RoleConfigError(
                f"{setting} with {name}={ddp[name]!r}: {reason}. Leave {name} out, or use staleness=0, switching=False."
            )


def check_module(staleness: int, module: pl.LightningModule, precision: object) -> None:
    """Checks the model. Raises RoleConfigError: it or the precision excludes delayed gradients."""
    if not module.automatic_optimization:
        raise RoleConfigError(
            f"staleness={staleness} with {type(module).__name__}.automatic_optimization=False: the strategy must know "
            f"which steps end in an update. Use automatic optimization, or staleness=0."
        )
    if getattr(precision, "scaler", None) is not None:
        raise RoleConfigError(
            f"staleness={staleness} with precision='16-mixed': the gradient scaler would unscale a gradient by a later "
            f"step's scale. Use precision='bf16-mixed', which needs no scaler, or staleness=0."
        )


def check_optimizer(staleness: int, optimizer: Optimizer) -> None:
    """Refuses LBFGS, which evaluates the gradients of a step several times."""
    if isinstance(optimizer, LBFGS):
        raise _evaluates_again(staleness, optimizer)


class DelayedUpdates:
    """Applies the gradients that a delayed reduction averages, in one trainer, for one fit. ``step`` is the
    ``optimizer_step`` of Lightning's strategy; ``after_step`` is called when the parameters of the next step are
    there."""

    def __init__(
        self,
        strategy: pl.strategies.DDPStrategy,
        step: Callable[..., Any],
        reduction: DelayedReduction,
        *,
        lags: Lags | None = None,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.reduction = reduction
        self._strategy = strategy
        self._step = step
        self._lags = lags
        self._after_step = after_step
        self._syncs_buffers = False
        self._is_stepping = False
        self._is_between_steps = True
        self._has_after_step = False
        self._has_saved = False
        # Those that got a gradient. A static graph's unused parameters are in DDP's buckets too, as zeros, which would
        # still move them.
        self._trained: set[Parameter] = set()
        self._launched_at: deque[int] = deque()  # global steps of launches that no optimizer has applied
        self._undo = ExitStack()

    def begin(self, model: DistributedDataParallel) -> None:
        """Registers with DDP, and ends what binds each step of each trainer to trainer 0. Buffers, such as BatchNorm's,
        that DDP would broadcast in each step are broadcast by flushes."""
        model.register_comm_hook(self.reduction, hook)
        if pl.utilities.model_helpers.is_overridden("on_after_backward", self.module, pl.LightningModule):
            pl.utilities.rank_zero.rank_zero_warn(
                f"{type(self.module).__name__}.on_after_backward sees the gradients of one trainer, and what it "
                f"changes in them changes no update. Those of all trainers are there in on_before_optimizer_step."
            )
        self._syncs_buffers, model.broadcast_buffers = model.broadcast_buffers, False
        trainer = self.trainer
        self._undo.enter_context(_first_callback(trainer, _FlushFirst(self)))
        # Else each step would wait for trainer 0. SIGTERM is announced by the reduction's control words instead.
        self._undo.enter_context(compat.no_sigterm_broadcast(trainer))
        # SLURM's warning interrupts each rank somewhere else; a checkpoint needs all of them after one step.
        self._undo.enter_context(compat.requeue_deferred(trainer, self._ask_to_save))
        self._undo.callback(self.reduction.close)

    def end(self) -> None:
        self._undo.close()

    @property
    def module(self) -> pl.LightningModule:
        assert self._strategy.lightning_module is not None
        return self._strategy.lightning_module

    @property
    def trainer(self) -> pl.Trainer:
        return self.module.trainer

    @cached_property
    def _settings(self) -> GroupSettings:
        return GroupSettings(self._strategy.optimizers[0])  # which is not there yet when this object is made

    def before_step(self) -> None:
        """Applies what has come, before the first forward pass of a step."""
        if not self._is_between_steps:
            return  # in gradient accumulation, whose forward passes share their parameters
        self._is_between_steps = False
        number, reduction = self.trainer.global_step, self.reduction
        target = self._lags.target(number) if self._lags is not None else None
        self._apply(reduction.arrived() if target is None else reduction.awaited(target))
        if self._lags is not None:
            self._lags.record(number, reduction.num_unapplied)
        self._end_step()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], *, passes_over: bool = False, **kwargs: Any
    ) -> Any:
        """Runs one step of Lightning's: forward, backward, and the update that is due. With ``passes_over``, samplers
        have trained this step: the closure computes no gradient, and there is no update."""
        bound, num_launched = self.reduction.staleness, self.reduction.stats.launched
        optimizer._opt_called = True  # type: ignore[attr-defined]  # else schedulers warn: they may go first
        with self._stepping():
            result = closure()
            if self.reduction.stats.launched > num_launched:
                self._trained = {parameter for parameter in self.module.parameters() if parameter.grad is not None}
                self._settings.launch()
                self._launched_at.append(self.trainer.global_step)
                self._apply(self.reduction.awaited(bound), result, **kwargs)
                self.reduction.act_on_words(bound)
            elif not passes_over:
                self._step(optimizer, lambda: result, **kwargs)  # no loss, hence no gradient: Lightning's way
        self._is_between_steps = self._has_after_step = True
        # Known alike in all trainers, as a flush must be: a trainer's own wish to stop would not be.
        if self.reduction.stop_agreed or compat.is_last_step(self.trainer):
            self.flush()
        if self.reduction.is_drained or not bound:
            self._end_step()
        return result

    def flush(self) -> None:
        """Applies what is in flight. Every trainer must do so after the same step. Raises StalenessError: in the middle
        of one."""
        if self.reduction.is_drained:
            return
        if self._is_stepping:
            raise StalenessError(
                "the model's state was asked for between a backward pass and its update, where delayed gradients "
                "cannot be completed. Ask for it, or save a checkpoint, in on_train_batch_end or later."
            )
        # Validation and checkpoints may have turned these off; an update must be as any other.
        with _training(self.trainer), torch.inference_mode(False), torch.enable_grad():
            self._apply(self.reduction.drain())
            if self._syncs_buffers:
                self.reduction.broadcast(self.module.buffers())
        self._end_step()
        self.apply_stop_request()

    def apply_stop_request(self) -> None:
        """Passes a SIGTERM to Lightning once all trainers know of it, at the same step."""
        if self.reduction.stop_agreed:
            compat.end_by_sigterm(self.trainer)

    def _apply(self, launches: Iterable[Launch], result: Any = None, **kwargs: Any) -> None:
        optimizer = self._strategy.optimizers[0]
        # The trainer's own gradients stay: validation may flush during accumulation, which goes on with them.
        own_gradients = [(parameter, parameter.grad) for parameter in self.module.parameters()]
        with self._stepping():
            for launch in launches:
                gradients = launch.gradients()
                for parameter, _ in own_gradients:
                    parameter.grad = gradients.get(parameter) if parameter in self._trained else None
                with (
                    self._settings.of_oldest_launch(),
                    compat.at_global_step(self.trainer, self._launched_at.popleft()),
                ):
                    self._step(optimizer, _Once(result, self.reduction.staleness, optimizer), **kwargs)
                self.reduction.count_update(launch)
        for parameter, gradient in own_gradients:
            parameter.grad = gradient

    def _end_step(self) -> None:
        if self._has_after_step:
            self._has_after_step = False
            self._after_step()

    def save_if_agreed(self) -> None:
        """Saves a checkpoint after a step, once all trainers know that SLURM will end the job; SLURM ends it once."""
        if self.reduction.save_agreed and not self._has_saved:
            self._has_saved = True
            compat.requeue(self.trainer)

    def _ask_to_save(self) -> None:
        self.reduction.save_asked = True

    def lags_of_all(self) -> Tensor | None:
        """All trainers' recorded lags, a row each; a collective. None if there are none, or after a failure."""
        if self._lags is None or self.reduction.is_abandoned:
            return None
        return self.reduction.gather(self._lags.upto(self.trainer.global_step))

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        outer, self._is_stepping = self._is_stepping, True
        try:
            yield
        finally:
            self._is_stepping = outer


class _FlushFirst(pl.Callback):
    """Flushes ahead of all other callbacks, which read the parameters or save them."""

    def __init__(self, updates: DelayedUpdates) -> None:
        self._updates = updates
        self._has_warned = False

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._updates.save_if_agreed()
        staleness = self._updates.reduction.staleness
        if staleness and not self._has_warned and (binding := compat.collectives_each_step(trainer)):
            self._has_warned = True
            pl.utilities.rank_zero.rank_zero_warn(
                f"staleness={staleness} cannot hide late trainers while each step waits for all "
                f"of them elsewhere: {', '.join(binding)}."
            )

    def on_validation_start(self, *_: Any) -> None:
        self._updates.flush()

    def on_train_epoch_end(self, *_: Any) -> None:
        self._updates.flush()
        self._updates.reduction.agree()
        self._updates.apply_stop_request()

    def on_train_end(self, *_: Any) -> None:
        self._updates.flush()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if (lags := self._updates.lags_of_all()) is not None:
            checkpoint[CHECKPOINT_KEY] = lags

    def on_exception(self, *_: Any) -> None:
        self._updates.reduction.abandon()


@contextmanager
def _first_callback(trainer: pl.Trainer, first: pl.Callback) -> Iterator[None]:
    trainer.callbacks = [first, *trainer.callbacks]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        trainer.callbacks = [callback for callback in trainer.callbacks if callback is not first]  # type: ignore[attr-defined]


@contextmanager
def _training(trainer: pl.Trainer) -> Iterator[None]:
    stage = trainer.state.stage
    trainer.state.stage = compat.RunningStage.TRAINING
    try:
        yield
    finally:
        trainer.state.stage = stage


class _Once:
    """The closure of an update, whose loss was computed before: a second call would need it at other parameters."""

    def __init__(self, result: Any, staleness: int, optimizer: Optimizer) -> None:
        self._result, self._staleness, self._optimizer = result, staleness, optimizer
        self._is_asked = False

    def __call__(self) -> Any:
        if self._is_asked:
            raise _evaluates_again(self._staleness, self._optimizer)
        self._is_asked = True
        return self._result


def _evaluates_again(staleness: int, optimizer: Optimizer) -> RoleConfigError:
    return RoleConfigError(
        f"staleness={staleness} with {type(optimizer).__name__}, which evaluates the loss several times a step: each "
        f"needs the gradient of its own parameters, at once. Use another optimizer, or staleness=0."
    )
