"""A search for a learning rate, which runs on trainers: what samplers must hear of it for their scripts to go on.

``Tuner.lr_find`` returns what its callback holds, and the callback of a sampler never runs.
"""

from __future__ import annotations

from typing import Any

from lightning_gnnload.plugin.compat import LearningRates, learning_rate_name, pl

_MAX_STEPS = 2000
"""Longer searches do not fit into a message; samplers then hold None, as Lightning does where nothing was found."""


def found(trainer: pl.Trainer) -> dict[str, Any]:
    """Learning rates and losses, on a trainer that has searched."""
    callback = _callback(trainer)
    if callback is None or callback.optimal_lr is None:
        return {}
    finder = callback.optimal_lr
    if len(finder.results["lr"]) > _MAX_STEPS:
        return {}
    return {"results": finder.results}


def adopt(trainer: pl.Trainer, model: pl.LightningModule, told: dict[str, Any]) -> None:
    """On a sampler: as if it had searched itself."""
    callback = _callback(trainer)
    if callback is None:
        return
    callback.optimal_lr = None
    if told:
        callback.optimal_lr = LearningRates(
            callback._mode, callback._min_lr, callback._max_lr, callback._num_training_steps
        )
        callback.optimal_lr.results = told["results"]
        rate = callback.optimal_lr.suggestion()
        if callback._update_attr and rate is not None:
            name = learning_rate_name(model, callback._attr_name)
            pl.utilities.parsing.lightning_setattr(model, name, rate)


def _callback(trainer: pl.Trainer) -> Any:
    finders = [each for each in trainer.callbacks if isinstance(each, pl.callbacks.LearningRateFinder)]  # type: ignore[attr-defined]
    return finders[0] if finders else None
