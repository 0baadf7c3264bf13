"""Applies trainer 0's outcome to a sampler's objects, so that its script goes on as if it had trained itself."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchmetrics import Metric

from lightning_gnnload.errors import OutcomeError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import TrainerStatus, pl
from lightning_gnnload.plugin.strategy.outcome import Outcome, finder_of, holders_of, items_of, owned

_log = logging.getLogger(__name__)


def apply_outcome(
    trainer: pl.Trainer, model: pl.LightningModule, datamodule: Any, outcome: Outcome, set_up: Callable[[], None]
) -> Any:
    """Makes a sampler's objects as if it had trained itself; returns what the Trainer's call returns. ``set_up`` sets
    the data module up where that has not been done. Raises OutcomeError: the module is not built as trainer 0's is."""
    trainer.state.status, trainer.state.stage = TrainerStatus.FINISHED, None
    model.trainer = trainer
    _ = model.hparams  # made at the first look, which Lightning takes on trainers
    compat.attach_data_hooks(trainer, model, datamodule)
    compat.attach_model_callbacks(trainer)
    _build_missing(trainer, model, outcome["modules"], set_up)
    _load_weights(model, outcome["weights"])
    holders = holders_of(trainer, model)
    lost = [*outcome["lost"], *_load_loops(trainer, outcome["loops"])]
    # configure_optimizers may read the Trainer's attributes, and may change the module's: so it runs between the two.
    attributes = outcome["attributes"]
    trainers = [name for name in attributes if name.startswith("trainer")]
    lost += _fill(holders, {name: attributes.pop(name) for name in trainers})
    lost += _load_optimizers(trainer, model, outcome)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in outcome["frozen"]
    lost += _fill(holders, attributes)
    for name, state in outcome["states"].items():
        try:
            holders[name].load_state_dict(owned(state))
        except Exception:  # of the user's callback, which has not been set up here
            lost.append(name)
    for part in model.modules():
        if isinstance(part, Metric):
            # It came with the counts of all trainers. Here these are its own: there is no state to go back to.
            part._is_synced, part._cache = False, None
    _load_search(trainer, outcome["search"])
    if lost:
        _log.warning(
            "Of what the trainers' scripts hold, this sampler's lacks %s: only plain values and tensors go from rank "
            "to rank. Use these where trainer.is_global_zero.",
            _some(lost),
        )
    return owned(outcome["result"])


def _load_loops(trainer: pl.Trainer, states: dict[str, Any]) -> list[str]:
    for name, state in states.items():
        if state is not None:
            getattr(trainer, name).load_state_dict(state)
    return [f"trainer.{name}" for name, state in states.items() if state is None]


def _build_missing(
    trainer: pl.Trainer, model: pl.LightningModule, modules: list[str], set_up: Callable[[], None]
) -> None:
    """Builds modules that hooks have made on trainers, by the same hooks."""
    missing = set(modules) - {name for name, _ in model.named_modules()}
    if not missing:
        return
    try:
        set_up()
        compat.build_model(trainer, str(trainer.state.fn and trainer.state.fn.value))
    except Exception as error:
        raise OutcomeError(
            f"trainers' module has {_some(missing)}, which this rank's gets in setup or configure_model; "
            f"there, these failed: {error!r}"
        ) from error


@torch.no_grad()
def _load_weights(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    parameters: dict[str, torch.Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if parameters.keys() != weights.keys():
        differing = sorted(parameters.keys() ^ weights.keys())
        raise OutcomeError(f"trainers' module has other parameters or buffers than this rank's: {_some(differing)}.")
    for name, parameter in parameters.items():
        weight = weights[name]
        if nn.parameter.is_lazy(parameter):
            parameter.materialize(weight.shape, dtype=weight.dtype)
        if parameter.shape != weight.shape:
            raise OutcomeError(
                f"{name} is of shape {tuple(weight.shape)} on trainers, and {tuple(parameter.shape)} on this rank."
            )
        if (parameter.dtype, parameter.device) != (weight.dtype, weight.device):
            parameter.data = torch.empty_like(weight)
        parameter.data.copy_(weight)  # in place: what shares this memory goes on to


def _fill(holders: dict[str, Any], attributes: dict[str, Any]) -> list[str]:
    """Sets the attributes of each holder; returns the names of those that could not be set."""
    lost = []
    for name, changes in attributes.items():
        if name not in holders:
            lost.append(name)
            continue
        for key, (is_exact, value) in changes.items():
            if not _set(holders[name], key, owned(value), is_exact=is_exact):
                lost.append(f"{name}.{key}")
    return lost


def _set(holder: Any, key: str, value: Any, *, is_exact: bool) -> bool:
    """Fills a container in place, as others may refer to it; else sets the attribute. Returns whether it could."""
    there = vars(holder).get(key)
    if isinstance(there, dict | list | set | deque) and type(items_of(there)) is type(value):
        there.clear()
        fill: Any = there.extend if isinstance(there, list | deque) else there.update
        fill(value)
    elif is_exact:
        # Past properties and ``nn.Module.__setattr__``, as the value was read from there, too.
        vars(holder)[key] = value
    return is_exact or there is not None


def _load_optimizers(trainer: pl.Trainer, model: pl.LightningModule, outcome: Outcome) -> list[str]:
    """Makes the optimizers and loads the trainers' states; returns what could not be loaded."""
    if not outcome["optimizers"]:
        return []
    try:
        compat.make_optimizers(trainer)
    except Exception as error:
        return [f"trainer.optimizers (configure_optimizers raised {error!r})"]
    parameters = dict(model.named_parameters())
    # Not strict: another number of optimizers is reported below.
    for optimizer, (groups, _) in zip(trainer.optimizers, outcome["optimizers"], strict=False):
        # Callbacks may add groups, or freeze parameters. Without all names, the groups stay as they are here.
        if all(parameters.keys() >= {*names} for names in groups):
            optimizer.param_groups = [{"params": [parameters[name] for name in names]} for names in groups]
    states = [state for _, state in outcome["optimizers"]]
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return _load_states("trainer.optimizers", trainer.optimizers, states) + _load_states(
        "trainer.lr_scheduler_configs", schedulers, outcome["schedulers"]
    )


def _load_states(name: str, targets: list[Any], states: list[Any]) -> list[str]:
    if len(targets) != len(states):
        return [name]
    lost = []
    for number, (target, state) in enumerate(zip(targets, states, strict=True)):
        try:
            if state is None:
                raise ValueError("its state is not plain")
            target.load_state_dict(owned(state))
        except (ValueError, KeyError, TypeError):
            lost.append(f"{name}[{number}]")
    return lost


def _load_search(trainer: pl.Trainer, results: Outcome | None) -> None:
    callback = finder_of(trainer)
    if callback is None:
        return
    callback.optimal_lr = None
    if results is not None:
        callback.optimal_lr = compat.LearningRates(
            callback._mode, callback._min_lr, callback._max_lr, callback._num_training_steps
        )
        callback.optimal_lr.results = results
        callback.optimal_lr.suggestion()  # it stores the suggestion, which scripts then read


def _some(names: Any) -> str:
    named = sorted(names)
    return ", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else "")
