"""Understudy: the model on a sampler, which learns no more than the trainers tell it and computes gradients."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torchmetrics import Metric

from lightning_gnnload.errors import SwitchingError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl

if TYPE_CHECKING:
    from lightning_gnnload.plugin.strategy.factored import FactoredStrategy


class Understudy:
    """Runs ``training_step`` and backward where there is no fit loop.

    The hooks that build a model (``setup``, ``configure_model``) have run; the callbacks' have not. ``self.trainer``
    is there, with the epoch and the global step of the parameters; ``self.log`` does nothing; there is no process
    group. Dropout draws from the mini-batch's own seed, so that a gradient does not depend on when it is computed.

    Args:
        strategy: of this sampler.
        trainer: Lightning's.
        datamodule: whose transfer hooks apply.
    """

    def __init__(self, strategy: FactoredStrategy, trainer: pl.Trainer, datamodule: Any) -> None:
        assert strategy.lightning_module is not None
        self.module = strategy.lightning_module
        self._strategy = strategy
        self._trainer = trainer
        self.module.trainer = trainer
        compat.attach_data_hooks(trainer, self.module, datamodule)
        trainer.training = True
        compat.build_model(trainer)
        strategy.precision_plugin.convert_module(self.module)
        self.module.to(strategy.root_device)
        self.module.train()
        for log in ("log", "log_dict"):
            setattr(self.module, log, _log_nothing)

    def train(self, batch: Any, step: int, *, global_step: int, seed: int) -> dict[str, torch.Tensor | None]:
        """The gradients of one mini-batch, by parameter name; None where a parameter has none.

        Raises:
            SwitchingError: ``training_step`` returned no loss.
        """
        compat.set_global_step(self._trainer, global_step)
        with self._own_draws(seed):
            moved = self._to_device(batch)
            with self._strategy.precision_plugin.train_step_context():
                output = self._training_step(moved, step)
            loss = output.get("loss") if isinstance(output, Mapping) else output
            if not isinstance(loss, torch.Tensor):
                raise SwitchingError(
                    f"training_step returned {output!r:.100} on a sampler: a loss is needed, for every mini-batch."
                )
            self.module.backward(loss)
        gradients = {}
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                gradients[name], parameter.grad = parameter.grad, None
        for part in self.module.modules():
            if isinstance(part, Metric):
                part.reset()  # the trainers' own count; this one would only grow
        return gradients

    def dismiss(self) -> None:
        """The module is its script's again."""
        for log in ("log", "log_dict"):
            delattr(self.module, log)

    @property
    def _training_step(self) -> Callable[[Any, int], Any]:
        step = self.module.training_step
        return step if compat.takes_batch_idx(self.module) else lambda batch, _: step(batch)

    def _to_device(self, batch: Any) -> Any:
        batch = self._strategy.precision_plugin.convert_input(batch)
        return self._strategy.batch_to_device(compat.before_transfer(self.module, batch))

    @contextmanager
    def _own_draws(self, seed: int) -> Iterator[None]:
        device = self._strategy.root_device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield


def seed_of(seed: int, epoch: int, number: int) -> int:
    """What dropout draws from, for one slice of an epoch."""
    said = hashlib.blake2b(f"{seed}/{epoch}/{number}".encode(), digest_size=8)
    return int.from_bytes(said.digest(), "big") >> 1


def _log_nothing(*_: Any, **__: Any) -> None:
    """In place of ``self.log``: what samplers contribute is not logged."""
