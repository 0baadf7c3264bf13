"""DelayedUpdates: when gradients that come k steps late are applied.

A backward pass at step t hands out the average gradient of step t - k
(:class:`.reduction.DelayedReduction`), and the optimizer applies it, clipped as ever. Around
that stand two rules:

- Gate. In the first k steps nothing is handed out, and the optimizer does not step at all: zero gradients would still
  move Adam's averages and decay weights.
- Flush. Where parameters must be complete, what is in flight is applied, oldest first: at an epoch's last batch and at
  ``max_steps``, when ``should_stop`` ends an epoch early, before validation, before a checkpoint, at the end of
  training. After it, the optimizer has stepped as often as ``global_step`` says.

An update uses the learning rate in force when it is applied, k steps after its gradient's; those of a flush use one and
the same, at an epoch's last batch still that epoch's. Callbacks that read the parameters in mid-epoch find them up to
k updates behind. The larger k, the smaller the learning rate must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer

from lightning_gnnload.errors import RoleConfigError, StalenessError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
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
            wanted = f"staleness={staleness}" if staleness else "switching=True"
            raise RoleConfigError(
                f"{wanted} with {name}={ddp[name]!r}: {reason}. Leave {name} out, or use staleness=0, switching=False."
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
    """Checks the optimizer. Raises RoleConfigError: it is known to compute several gradients a step."""
    if isinstance(optimizer, LBFGS):
        raise _evaluates_again(staleness, optimizer)


class DelayedUpdates:
    """Applies the gradients that a delayed reduction hands out, in one trainer, for one fit.

    Args:
        strategy: whose model and optimizer.
        step: applies the gradients there are: ``optimizer_step`` of Lightning's own strategy.
        reduction: hands them out.
    """

    def __init__(
        self, strategy: pl.strategies.DDPStrategy, step: Callable[..., Any], reduction: DelayedReduction
    ) -> None:
        self.reduction = reduction
        self._strategy = strategy
        self._step = step
        self._syncs_buffers = False
        self._is_stepping = False
        self._has_saved = False
        # Those that got a gradient. A static graph's unused parameters are in DDP's buckets too, as zeros, which would
        # still move them.
        self._trained: list[Parameter] = []
        self._undo = ExitStack()

    def begin(self, model: DistributedDataParallel) -> None:
        """Takes DDP's reduction over, and ends what binds each step of each trainer to trainer 0. Buffers, such as
        BatchNorm's, that DDP would have broadcast in each step are broadcast by flushes."""
        model.register_comm_hook(self.reduction, hook)
        self._syncs_buffers, model.broadcast_buffers = model.broadcast_buffers, False
        trainer = self.trainer
        self._undo.enter_context(_first_callback(trainer, _FlushFirst(self)))
        self._undo.enter_context(compat.no_sigterm_broadcast(trainer))
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

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], *, passes_over: bool = False, **kwargs: Any
    ) -> Any:
        """Runs one step of Lightning's: forward, backward, and the update with what was handed out, if anything was.

        Args:
            passes_over: the closure computes no gradient, as samplers have trained this step: there is no update.
        """
        num_launched = self.reduction.stats.launched
        with self._stepping():
            result = closure()
            if passes_over:
                optimizer._opt_called = True  # type: ignore[attr-defined]  # else schedulers warn: they go first
            elif self.reduction.stats.launched == num_launched:
                self._step(optimizer, lambda: result, **kwargs)  # no loss, hence no gradient: Lightning's way
            else:
                self._trained = [each for each in self.module.parameters() if each.grad is not None]
                if self.reduction.handed_out is not None:
                    self._apply(optimizer, self.reduction.handed_out, result, **kwargs)
                else:
                    optimizer._opt_called = True  # type: ignore[attr-defined]  # else schedulers warn: they go first
        # Known alike in all trainers, as a flush must be: a trainer's own wish to stop would not be.
        if self.reduction.stop_agreed or compat.is_last_step(self.trainer):
            self.flush()
        return result

    def flush(self) -> None:
        """Applies what is in flight. Every trainer must do so after the same step.

        Raises:
            StalenessError: in the middle of a step.
        """
        if self.reduction.is_drained:
            return
        if self._is_stepping:
            raise StalenessError(
                "the model's state was asked for between a backward pass and its update, where delayed gradients "
                "cannot be completed. Ask for it, or save a checkpoint, in on_train_batch_end or later."
            )
        optimizer = self._strategy.optimizers[0]
        # Validation and checkpoints may have turned these off; an update must be as any other.
        with self._stepping(), _training(self.trainer), torch.inference_mode(False), torch.enable_grad():
            # Validation may begin amid gradient accumulation, whose gradients so far must survive the flush.
            kept = [(parameter, parameter.grad) for parameter in self.module.parameters()]
            for parameter, _ in kept:
                parameter.grad = None
            for launch in self.reduction.drain():
                gradients = launch.gradients()
                for parameter in self._trained:
                    parameter.grad = gradients.get(parameter)
                self._apply(optimizer, launch, None)
            for parameter, gradient in kept:
                parameter.grad = gradient
            if self._syncs_buffers:
                self.reduction.broadcast(self.module.buffers())
        self.apply_stop_request()

    def apply_stop_request(self) -> None:
        """Tells Lightning of a SIGTERM once all trainers know of it, at the same step."""
        if self.reduction.stop_agreed:
            compat.end_by_sigterm(self.trainer)

    def _apply(self, optimizer: Optimizer, launch: Launch, result: Any, **kwargs: Any) -> None:
        evaluations = 0

        def evaluated() -> Any:
            nonlocal evaluations
            evaluations += 1
            if evaluations > 1:
                raise _evaluates_again(self.reduction.delay, optimizer)
            return result

        # The loss was computed before: who asks for it again wants it at other parameters, and would get the old one.
        self._step(optimizer, evaluated, **kwargs)
        self.reduction.count_update(launch)

    def save_if_agreed(self) -> None:
        """Saves a checkpoint after a step, once all trainers know that SLURM will end the job; SLURM ends it once."""
        if self.reduction.save_agreed and not self._has_saved:
            self._has_saved = True
            compat.requeue(self.trainer)

    def _ask_to_save(self) -> None:
        self.reduction.save_asked = True

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False


class _FlushFirst(pl.Callback):
    """Flushes ahead of all other callbacks, which read the parameters or save them."""

    def __init__(self, updates: DelayedUpdates) -> None:
        self._updates = updates
        self._has_warned = False

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._updates.save_if_agreed()
        staleness = self._updates.reduction.delay
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

    def on_exception(self, *_: Any) -> None:
        self._updates.reduction.abandon()


@contextmanager
def _first_callback(trainer: pl.Trainer, first: pl.Callback) -> Iterator[None]:
    trainer.callbacks = [first, *trainer.callbacks]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        trainer.callbacks = [each for each in trainer.callbacks if each is not first]  # type: ignore[attr-defined]


@contextmanager
def _training(trainer: pl.Trainer) -> Iterator[None]:
    """Sets the training stage meanwhile, so that hooks of a flush log to the training's results."""
    stage = trainer.state.stage
    trainer.state.stage = compat.RunningStage.TRAINING
    try:
        yield
    finally:
        trainer.state.stage = stage


def _evaluates_again(staleness: int, optimizer: Optimizer) -> RoleConfigError:
    return RoleConfigError(
        f"staleness={staleness} with {type(optimizer).__name__}, which evaluates the loss several times a step: each "
        f"needs the gradient of its own parameters, at once. Use another optimizer, or staleness=0."
    )
