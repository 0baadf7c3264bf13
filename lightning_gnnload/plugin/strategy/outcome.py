"""Outcome: what trainer 0 sends the samplers of its machine after a run, so that their scripts can go on as its own
does.

Weights and buffers; the plain attributes that the run has changed in the module and its parts (states of metrics too),
callbacks, loggers, and the Trainer with its loops; optimizers and schedulers; what the call returns. Plain is what
:func:`~lightning_gnnload.pipeline.queue.sealed.to_json` takes; a warning names the rest.
"""

from __future__ import annotations

import hashlib
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from inspect import isroutine
from typing import Any

import numpy as np
import torch
from torch import nn
from torchmetrics import Metric

from lightning_gnnload.pipeline.queue.sealed import NotPlainError, to_json
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import TrainerFn, pl

_DIGESTED_BYTES = 1 << 20
"""Tensors up to here are compared by their bytes; larger ones by their version, as the graph's own features may be."""
_OF_MODULES = vars(pl.LightningModule()).keys() - {"training", "_dtype"}
_PREDICTED = {"_predictions", "epoch_batch_indices"}
"""Attributes of the prediction loop that are not sent, as each rank has its own."""
_ALWAYS = {"training", "_version", "_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint"}
"""Told even where the run did not change them: a version may have been looked up before, a sampler may have trained."""
_KNOWN_PACKAGES = {"torch", "torchmetrics", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_gnnload"}

Outcome = dict[str, Any]


class Snapshot:
    """A snapshot, on trainer 0, of all that a script can read after a run, to find what the run has changed.

    What a run does not change is the same in all ranks already, or differs on purpose.
    """

    def __init__(self, trainer: pl.Trainer, model: pl.LightningModule) -> None:
        self._trainer = trainer
        self._model = model
        self._before = {
            name: {key: _Fingerprint(value) for key, value in attributes_of(holder).items()}
            for name, holder in holders_of(trainer, model).items()
        }

    def outcome(self, result: Any) -> Outcome:
        """Returns what to send, as plain values; ``result`` is what the Trainer's call returned here."""
        trainer, model = self._trainer, self._model
        # Before the attributes are compared: a logger looks its version up at the first request, and stores it.
        for logger in trainer.loggers:
            if "_version" in vars(logger):
                _ = logger.version
        attributes, states, lost = self._all_changes()
        # Where the loaders are is the trainers' alone, so a loop's ``state_dict`` is left out of its state.
        loops = {name: getattr(trainer, name).state_dict() for name in compat.LOOPS}
        optimizers, schedulers = _optimizers(trainer, model) if trainer.state.fn == TrainerFn.FITTING else ([], [])
        evaluated = trainer.state.fn in (TrainerFn.VALIDATING, TrainerFn.TESTING)
        return {
            "weights": _weights(model),
            "attributes": attributes,
            "states": states,
            "lost": lost,
            "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
            "modules": [name for name, _ in model.named_modules()],
            "loops": {
                name: _plain({key: entry for key, entry in state.items() if key != "state_dict"})
                for name, state in loops.items()
            },
            "search": _search(trainer),
            "optimizers": optimizers,
            "schedulers": schedulers,
            "result": _plain(result) if evaluated else _no_rows(result),
        }

    def _all_changes(self) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
        """Returns the changed attributes and the callbacks' states by holder, and the names of what cannot be sent."""
        attributes, states, all_lost = {}, {}, []
        for name, holder in holders_of(self._trainer, self._model).items():
            changed, lost = self._changes(name, holder)
            if changed:
                attributes[name] = changed
            if lost and isinstance(holder, pl.Callback) and (state := _plain(holder.state_dict())):
                states[name] = state
            elif _is_users(holder) and name in self._before:  # else the sampler makes one itself
                all_lost += lost
        return attributes, states, all_lost

    def _changes(self, name: str, holder: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns the changed attributes, each with whether a sampler may assign it or only fill its own container, and
        the value; and the names of changed attributes that are not plain."""
        before = self._before.get(name, {})
        changed, lost = {}, []
        for key, value in attributes_of(holder).items():
            mark = before.get(key)
            if key not in _ALWAYS and mark is not None and mark == _Fingerprint(value):
                continue
            try:
                plain = items_of(value)
                to_json(plain)
                changed[key] = [type(value) is type(plain) or isinstance(value, str), plain]
            except NotPlainError:
                if (_is_users(value) or isinstance(value, Enum)) and not isroutine(value):  # Lightning sets some
                    lost.append(f"{name}.{key} ({type(value).__name__})")
        return changed, lost + [f"{name}.{key} (deleted)" for key in before if key not in attributes_of(holder)]


class _Fingerprint:
    """A fingerprint of a value, to detect changes without keeping anything large alive.

    It does not detect changes in place of NumPy arrays above a megabyte, nor deep within an object.
    """

    def __init__(self, value: Any) -> None:
        self._objects: list[Any] = []
        self._text = self._look(value, depth=1)

    def __eq__(self, earlier: object) -> bool:
        return (
            isinstance(earlier, _Fingerprint)
            and self._text == earlier._text
            # Objects that live have one weak reference, and one that is gone equals none.
            and len(self._objects) == len(earlier._objects)
            and all(ours is theirs for ours, theirs in zip(self._objects, earlier._objects, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def _look(self, value: Any, depth: int) -> str:
        try:
            description, tensors = to_json(items_of(value))
            return repr((description, [self._look_at_tensor(part) for part in tensors]))
        except NotPlainError:
            self._know(value)
            # A meter, say, whose own attributes have changed.
            parts = getattr(value, "__dict__", {}) if depth and _is_users(value) else {}
            return repr([(key, self._look(part, depth - 1)) for key, part in parts.items()])

    def _look_at_tensor(self, tensor: torch.Tensor | np.ndarray) -> tuple[Any, ...]:
        form = (tensor.dtype, tuple(tensor.shape))
        if tensor.nbytes <= _DIGESTED_BYTES:
            return (*form, _digest(tensor))
        self._know(tensor)
        counts = isinstance(tensor, torch.Tensor) and not tensor.is_inference()
        return (*form, tensor._version if counts else None)  # type: ignore[union-attr]

    def _know(self, value: Any) -> None:
        try:
            self._objects.append(weakref.ref(value))
        except TypeError:
            self._objects.append(value)


@contextmanager
def metrics_together(model: pl.LightningModule) -> Iterator[None]:
    """Makes metrics hold the counts of all trainers meanwhile, for those that nobody has computed yet: a sampler, which
    is in no process group, could not ask. A collective of all trainers; only by gloo, as metrics lie in host memory
    after a run."""
    group = torch.distributed
    metrics = [module for module in model.modules() if isinstance(module, Metric)]
    if not (metrics and group.is_initialized() and group.get_world_size() > 1 and group.get_backend() == "gloo"):
        yield
        return
    # Only those that each trainer would: one of which a single rank keeps count must not make the others wait.
    open_ones = torch.tensor([_is_open(metric) for metric in metrics], dtype=torch.uint8)
    group.all_reduce(open_ones, group.ReduceOp.MIN)
    synced = [metric for metric, is_open in zip(metrics, open_ones.tolist(), strict=True) if is_open]
    for metric in synced:
        metric.sync()
    try:
        yield
    finally:
        for metric in synced:
            metric.unsync()


# What there is to look at.


def holders_of(trainer: pl.Trainer, model: pl.LightningModule) -> dict[str, Any]:
    """The objects whose attributes are compared and sent, by names that are alike in all ranks."""
    holders: dict[str, Any] = {"trainer": trainer}
    for name in compat.CONNECTORS:
        holders[f"trainer.{name}"] = getattr(trainer, name)
    for name in compat.LOOPS:
        holders |= _loops(f"trainer.{name}", getattr(trainer, name))
    for part in (*trainer.callbacks, *trainer.loggers):  # type: ignore[attr-defined]
        number = sum(type(holder) is type(part) for holder in holders.values())
        holders[f"{type(part).__name__}{number or ''}"] = part
    for name, module in model.named_modules():
        holders[f"model.{name}" if name else "model"] = module
    return holders


def _loops(name: str, loop: Any) -> dict[str, Any]:
    loops = {name: loop}
    for key, value in vars(loop).items():
        if isinstance(value, compat.Loop):
            loops |= _loops(f"{name}.{key}", value)
    return loops


def attributes_of(holder: Any) -> dict[str, Any]:
    """Returns the attributes of a loop, module or callback that the outcome may have, by name."""
    skipped = _OF_MODULES if isinstance(holder, nn.Module) else _PREDICTED if isinstance(holder, compat.Loop) else ()
    return {key: value for key, value in getattr(holder, "__dict__", {}).items() if key not in skipped}


def items_of(value: Any) -> Any:
    """Turns containers of subclasses that a sampler can fill into plain ones, and Lightning's stages into text."""
    if isinstance(value, str) and isinstance(value, Enum):
        return value.value
    for container in (dict, list, set):
        if isinstance(value, container):
            return value if type(value) is container else container(value)
    return list(value) if isinstance(value, deque) else value


def _plain(value: Any) -> Any:
    with suppress(NotPlainError):
        to_json(value)
        return value
    return None


def _digest(tensor: torch.Tensor | np.ndarray) -> str:
    if isinstance(tensor, torch.Tensor):
        data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        tensor = data.reshape(-1).view(torch.uint8).numpy()
    return hashlib.blake2b(tensor.tobytes(), digest_size=16).hexdigest()


def _is_users(value: Any) -> bool:
    """Whether the value's type is neither Lightning's nor torch's, whose internals no script reads."""
    return type(value).__module__.partition(".")[0] not in _KNOWN_PACKAGES


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, also those that no checkpoint has; shared ones once."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def _no_rows(predictions: Any) -> Any:
    """A sampler's part of the predictions: no rows, in the form of trainer 0's first ones, so that a script can
    concatenate the parts of all ranks."""
    if not isinstance(predictions, list):
        return None
    if predictions and isinstance(predictions[0], list):  # one list for each loader
        return [_no_rows(part) for part in predictions]
    try:
        rows = [_emptied(predictions[0])] if predictions else []
        to_json(rows)
        return rows
    except NotPlainError:
        return []


def _emptied(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim:
        return owned(value[:0])
    if type(value) is dict:
        return {key: _emptied(entry) for key, entry in value.items()}
    if type(value) in (list, tuple) and any(isinstance(entry, torch.Tensor | np.ndarray) for entry in value):
        return type(value)(map(_emptied, value))
    if type(value) is list:
        return []
    raise NotPlainError(type(value).__name__)


def owned(value: Any) -> Any:
    """Copies the tensors in plain containers: views would keep the whole memory that they are of."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: owned(entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(owned, value))
    return value


def _optimizers(trainer: pl.Trainer, model: pl.LightningModule) -> tuple[list[Any], list[Any]]:
    """The states of optimizers, each with the names of its groups' parameters, and of schedulers."""
    # By name: optimizers refer to parameters by identity, which no other process shares.
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizers = [
        (
            [[names.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups],
            _plain(optimizer.state_dict()),
        )
        for optimizer in trainer.optimizers
    ]
    return optimizers, [_plain(config.scheduler.state_dict()) for config in trainer.lr_scheduler_configs]


def _is_open(metric: Metric) -> bool:
    return metric._update_count > 0 and metric._computed is None and metric._to_sync and not metric._is_synced


def _search(trainer: pl.Trainer) -> Outcome | None:
    """The result of a learning rate search, as ``Tuner.lr_find`` returns an attribute of its callback."""
    callback = finder_of(trainer)
    return None if callback is None or callback.optimal_lr is None else _plain(callback.optimal_lr.results)


def finder_of(trainer: pl.Trainer) -> Any:
    """Returns the Trainer's callback that searches for a learning rate, or None."""
    finders = [callback for callback in trainer.callbacks if isinstance(callback, pl.callbacks.LearningRateFinder)]  # type: ignore[attr-defined]
    return finders[0] if finders else None
