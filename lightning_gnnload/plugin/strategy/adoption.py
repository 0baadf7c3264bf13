"""Adoption: a sampler's script takes over what trainer 0 has told of the training."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torchmetrics import Metric

from lightning_gnnload.errors import OutcomeError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import TrainerStatus, pl
from lightning_gnnload.plugin.strategy.outcome import Outcome, finder_of, holders_of, items_of

_log = logging.getLogger(__name__)


def adopt(
    trainer: pl.Trainer, model: pl.LightningModule, datamodule: Any, outcome: Outcome, set_up: Callable[[], None]
) -> Any:
    """Makes a sampler's objects as if it had trained itself. Returns what the call returns here.

    Args:
        set_up: sets the data module up, where that has not been done.

    Raises:
        OutcomeError: the module is not built as trainer 0's is.
    """
    trainer.state.status, trainer.state.stage = TrainerStatus.FINISHED, None
    model.trainer = trainer
    _ = model.hparams  # made by the first who looks, as Lightning does on trainers
    compat.attach_data_hooks(trainer, model, datamodule)
    compat.attach_model_callbacks(trainer)
    if missing := set(outcome["modules"]) - {name for name, _ in model.named_modules()}:
        try:
            set_up()
            compat.build_model(trainer, str(trainer.state.fn and trainer.state.fn.value))
        except Exception as error:
            raise OutcomeError(
                f"trainers' module has {_some(missing)}, which this rank's gets in setup or configure_model; "
                f"there, these failed: {error!r}"
            ) from error
    _load_weights(model, outcome["weights"])
    lost = list(outcome["lost"])
    holders = holders_of(trainer, model)
    for name, state in outcome["loops"].items():
        if state is None:
            lost.append(f"trainer.{name}")
        else:
            getattr(trainer, name).load_state_dict(state)
    attributes = outcome["attributes"]
    trainers = [name for name in attributes if name.startswith("trainer")]
    lost += _fill(holders, {name: attributes.pop(name) for name in trainers})
    # To make these may ask the trainer for its plans and the module for what it trains, and change the module.
    lost += _adopt_optimizers(trainer, model, outcome)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in outcome["frozen"]
    lost += _fill(holders, attributes)
    for name, state in outcome["states"].items():
        try:
            holders[name].load_state_dict(_owned(state))
        except Exception:  # the callback's own, which has not been set up here
            lost.append(name)
    for part in model.modules():
        if isinstance(part, Metric):
            # Told while all trainers' counts were together in it; here they are its own, with nothing to go back to.
            part._is_synced, part._cache = False, None
    _adopt_search(trainer, outcome["search"])
    if lost:
        _log.warning(
            "Of what the trainers' scripts hold, this sampler's lacks %s: only plain values and tensors go from rank "
            "to rank. Use these where trainer.is_global_zero.",
            _some(lost),
        )
    return _owned(outcome["result"])


@torch.no_grad()
def _load_weights(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    own: dict[str, torch.Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if own.keys() != weights.keys():
        differing = sorted(own.keys() ^ weights.keys())
        raise OutcomeError(f"trainers' module has other parameters or buffers than this rank's: {_some(differing)}.")
    for name, parameter in own.items():
        told = weights[name]
        if nn.parameter.is_lazy(parameter):
            parameter.materialize(told.shape, dtype=told.dtype)
        if parameter.shape != told.shape:
            raise OutcomeError(
                f"{name} is of shape {tuple(told.shape)} on trainers, and {tuple(parameter.shape)} on this rank."
            )
        if (parameter.dtype, parameter.device) != (told.dtype, told.device):
            parameter.data = torch.empty_like(told)
        parameter.data.copy_(told)  # in place: what shares this memory goes on to


def _fill(holders: dict[str, Any], attributes: dict[str, Any]) -> list[str]:
    """Sets the told attributes of each holder; returns the names of those that could not be set."""
    lost = []
    for name, changes in attributes.items():
        if name not in holders:
            lost.append(name)
            continue
        for key, (is_exact, value) in changes.items():
            if not _set(holders[name], key, _owned(value), is_exact=is_exact):
                lost.append(f"{name}.{key}")
    return lost


def _set(holder: Any, key: str, value: Any, *, is_exact: bool) -> bool:
    """Fills a container that is there, as others may hold it too; else sets the attribute. Returns whether it could."""
    there = vars(holder).get(key)
    if isinstance(there, dict | list | set | deque) and type(items_of(there)) is type(value):
        there.clear()
        fill: Any = there.extend if isinstance(there, list | deque) else there.update
        fill(value)
    elif is_exact:
        # Past properties and ``nn.Module.__setattr__``, as the value was read from there, too.
        vars(holder)[key] = value
    return is_exact or there is not None


def _owned(value: Any) -> Any:
    """Copies the tensors, as those that came are views, and would keep the whole memory."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _owned(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_owned, value))
    return value


def _adopt_optimizers(trainer: pl.Trainer, model: pl.LightningModule, outcome: Outcome) -> list[str]:
    """Makes the optimizers, and brings them to where the trainers' are; returns what could not be."""
    if not outcome["optimizers"]:
        return []
    try:
        compat.make_optimizers(trainer)
    except Exception as error:
        return [f"trainer.optimizers (configure_optimizers raised {error!r})"]
    own = dict(model.named_parameters())
    # Not strict: another number of optimizers is reported below.
    for optimizer, (groups, _) in zip(trainer.optimizers, outcome["optimizers"], strict=False):
        if all(name in own for names in groups for name in names):  # callbacks may add groups, or freeze parameters
            optimizer.param_groups = [{"params": [own[name] for name in names]} for names in groups]
    lost: list[str] = []
    schedulers: list[Any] = [each.scheduler for each in trainer.lr_scheduler_configs]
    for name, own_states, told_states in (
        ("trainer.optimizers", trainer.optimizers, [state for _, state in outcome["optimizers"]]),
        ("trainer.lr_scheduler_configs", schedulers, outcome["schedulers"]),
    ):
        if len(own_states) != len(told_states):
            lost.append(name)
            continue
        for number, (each, state) in enumerate(zip(own_states, told_states, strict=True)):
            try:
                if state is None:
                    raise ValueError("its state is not plain")
                each.load_state_dict(_owned(state))
            except (ValueError, KeyError, TypeError):
                lost.append(f"{name}[{number}]")
    return lost


def _adopt_search(trainer: pl.Trainer, results: Outcome | None) -> None:
    callback = finder_of(trainer)
    if callback is None:
        return
    callback.optimal_lr = None
    if results is not None:
        callback.optimal_lr = compat.LearningRates(
            callback._mode, callback._min_lr, callback._max_lr, callback._num_training_steps
        )
        callback.optimal_lr.results = results
        callback.optimal_lr.suggestion()  # it keeps what it found


def _some(names: Any) -> str:
    named = sorted(names)
    return ", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else "")
