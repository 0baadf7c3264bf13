"""Outcome: trainer 0 tells the samplers of its machine what training came to, and their scripts go on as its own.

Weights and buffers; what the run has changed in the plain attributes of the module and its parts (metrics' states among
them), the callbacks, the loggers, and the Trainer with its loops; optimizers and schedulers; what the call returns.
Plain is what :func:`~lightning_gnnload.pipeline.sealed.to_json` takes. What is not is named in a warning.
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

from lightning_gnnload.pipeline.sealed import NotPlainError, to_json
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import TrainerFn, pl

_DIGESTED_BYTES = 1 << 20
"""Tensors up to here are compared by their bytes; larger ones by their version, as the graph's own features may be."""
_OF_MODULES = vars(pl.LightningModule()).keys() - {"training", "_dtype"}
_PREDICTED = {"_predictions", "epoch_batch_indices"}
"""Attributes of the prediction loop that are not told, as each rank has its own."""
_ALWAYS = {"training", "_version", "_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint"}
"""Told even where the run did not change them: a version may have been looked up before, a sampler may have trained."""
_KNOWN_PACKAGES = {"torch", "torchmetrics", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_gnnload"}

Outcome = dict[str, Any]


class Watch:
    """A snapshot, on trainer 0, of what a script can read after a run; it shows what the run has changed.

    What it does not change is the same in all ranks already, or differs on purpose.
    """

    def __init__(self, trainer: pl.Trainer, model: pl.LightningModule) -> None:
        self._trainer = trainer
        self._model = model
        self._before = {
            name: {key: _Mark(value) for key, value in attributes_of(holder).items()}
            for name, holder in holders_of(trainer, model).items()
        }

    def outcome(self, result: Any) -> Outcome:
        """Returns all there is to tell, as plain values.

        Args:
            result: what the call returned here.
        """
        trainer, model = self._trainer, self._model
        # Before the attributes are compared, as the look-up sets one.
        for logger in trainer.loggers:
            if "_version" in vars(logger):
                _ = logger.version  # looked up by the first who asks
        told: Outcome = {"weights": _weights(model), "attributes": {}, "states": {}, "lost": []}
        told["frozen"] = [name for name, each in model.named_parameters() if not each.requires_grad]
        told["modules"] = [name for name, _ in model.named_modules()]
        for name, holder in holders_of(trainer, model).items():
            changed, lost = self._changes(name, holder)
            if changed:
                told["attributes"][name] = changed
            if lost and isinstance(holder, pl.Callback) and (state := _plain(holder.state_dict())):
                told["states"][name] = state
            elif _is_users(holder) and name in self._before:  # else the sampler makes one itself
                told["lost"] += lost
        # All but where the loaders are, which is the trainers' alone.
        loops = {name: getattr(trainer, name).state_dict().items() for name in compat.LOOPS}
        told["loops"] = {
            name: _plain({key: each for key, each in state if key != "state_dict"}) for name, state in loops.items()
        }
        told["search"] = _search(trainer)
        told["optimizers"] = told["schedulers"] = []
        if trainer.state.fn == TrainerFn.FITTING:
            # By name: optimizers hold parameters by identity, which no other process shares.
            names = {id(each): name for name, each in model.named_parameters()}
            told["optimizers"] = [
                (
                    [[names.get(id(each)) for each in group["params"]] for group in optimizer.param_groups],
                    _plain(optimizer.state_dict()),
                )
                for optimizer in trainer.optimizers
            ]
            told["schedulers"] = [_plain(each.scheduler.state_dict()) for each in trainer.lr_scheduler_configs]
        evaluated = trainer.state.fn in (TrainerFn.VALIDATING, TrainerFn.TESTING)
        told["result"] = _plain(result) if evaluated else _no_rows(result)
        return told

    def _changes(self, name: str, holder: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns by attribute whether a sampler may assign it, or only fill what it has, and the value; and the names
        of those that have changed and are no plain values."""
        before = self._before.get(name, {})
        changed, lost = {}, []
        for key, value in attributes_of(holder).items():
            mark = before.get(key)
            if key not in _ALWAYS and mark is not None and mark == _Mark(value):
                continue
            try:
                plain = items_of(value)
                to_json(plain)
                changed[key] = [type(value) is type(plain) or isinstance(value, str), plain]
            except NotPlainError:
                if (_is_users(value) or isinstance(value, Enum)) and not isroutine(value):  # Lightning sets some
                    lost.append(f"{name}.{key} ({type(value).__name__})")
        return changed, lost + [f"{name}.{key} (deleted)" for key in before if key not in attributes_of(holder)]


class _Mark:
    """A mark by which a value can be seen to have changed, which keeps nothing large alive.

    Not seen: what changes in place in an array of numpy's above a megabyte, or deep within an object.
    """

    def __init__(self, value: Any) -> None:
        self._objects: list[Any] = []
        self._text = self._look(value, depth=1)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Mark)
            and self._text == other._text
            # Objects that live have one weak reference, and one that is gone equals none.
            and len(self._objects) == len(other._objects)
            and all(ours is theirs for ours, theirs in zip(self._objects, other._objects, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def _look(self, value: Any, depth: int) -> str:
        try:
            description, tensors = to_json(items_of(value))
            return repr((description, [self._look_at_tensor(each) for each in tensors]))
        except NotPlainError:
            self._know(value)
            # A meter, say, whose own attributes have changed.
            parts = getattr(value, "__dict__", {}) if depth and _is_users(value) else {}
            return repr([(key, self._look(each, depth - 1)) for key, each in parts.items()])

    def _look_at_tensor(self, tensor: torch.Tensor | np.ndarray) -> tuple[Any, ...]:
        seen = (tensor.dtype, tuple(tensor.shape))
        if tensor.nbytes <= _DIGESTED_BYTES:
            return (*seen, _digest(tensor))
        self._know(tensor)
        counts = isinstance(tensor, torch.Tensor) and not tensor.is_inference()
        return (*seen, tensor._version if counts else None)  # type: ignore[union-attr]

    def _know(self, value: Any) -> None:
        try:
            self._objects.append(weakref.ref(value))
        except TypeError:
            self._objects.append(value)


@contextmanager
def metrics_together(model: pl.LightningModule) -> Iterator[None]:
    """Lets metrics whose result nobody has asked for yet hold meanwhile what all trainers have counted: a sampler,
    which is in no process group, could not ask the others. All trainers call it alike.

    Only where they could ask each other, by gloo: metrics lie in host memory once a run is over.
    """
    group = torch.distributed
    metrics = [each for each in model.modules() if isinstance(each, Metric)]
    if not (metrics and group.is_initialized() and group.get_world_size() > 1 and group.get_backend() == "gloo"):
        yield
        return
    # Only those that each trainer would: one of which a single rank keeps count must not make the others wait.
    open_ones = torch.tensor([_is_open(each) for each in metrics], dtype=torch.uint8)
    group.all_reduce(open_ones, group.ReduceOp.MIN)
    synced = [each for each, is_open in zip(metrics, open_ones.tolist(), strict=True) if is_open]
    for metric in synced:
        metric.sync()
    try:
        yield
    finally:
        for metric in synced:
            metric.unsync()


# What there is to look at.


def holders_of(trainer: pl.Trainer, model: pl.LightningModule) -> dict[str, Any]:
    """Returns the objects whose attributes are compared and told, by names that are alike in all ranks."""
    holders: dict[str, Any] = {"trainer": trainer}
    for name in compat.CONNECTORS:
        holders[f"trainer.{name}"] = getattr(trainer, name)
    for name in compat.LOOPS:
        holders |= _loops(f"trainer.{name}", getattr(trainer, name))
    for each in (*trainer.callbacks, *trainer.loggers):  # type: ignore[attr-defined]
        number = sum(type(other) is type(each) for other in holders.values())
        holders[f"{type(each).__name__}{number or ''}"] = each
    for name, module in model.named_modules():
        holders[f"model.{name}" if name else "model"] = module
    return holders


def _loops(name: str, loop: Any) -> dict[str, Any]:
    found = {name: loop}
    for key, value in vars(loop).items():
        if isinstance(value, compat.Loop):
            found |= _loops(f"{name}.{key}", value)
    return found


def attributes_of(holder: Any) -> dict[str, Any]:
    skipped = _OF_MODULES if isinstance(holder, nn.Module) else _PREDICTED if isinstance(holder, compat.Loop) else ()
    return {key: value for key, value in getattr(holder, "__dict__", {}).items() if key not in skipped}


def items_of(value: Any) -> Any:
    """Returns containers of types that a sampler can fill as plain ones, and Lightning's stages as text."""
    if isinstance(value, str) and isinstance(value, Enum):
        return value.value
    for kind in (dict, list, set):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    return list(value) if isinstance(value, deque) else value


def _plain(value: Any) -> Any:
    """Returns the value if it is plain, else None."""
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
    """Whether the value is of a type that is neither Lightning's nor torch's, whose workings no script looks at."""
    return type(value).__module__.partition(".")[0] not in _KNOWN_PACKAGES


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns all parameters and buffers, those included that no checkpoint has; shared ones once."""
    return {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}


def _no_rows(predictions: Any) -> Any:
    """Returns a sampler's part of the predictions: no rows, in the form of trainer 0's first ones, so that a script can
    put the parts of all ranks together."""

    def empty(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim():
            return value[:0].clone()
        if isinstance(value, np.ndarray) and value.ndim:
            return value[:0].copy()
        if type(value) is dict:
            return {key: empty(each) for key, each in value.items()}
        if type(value) in (list, tuple) and any(isinstance(each, torch.Tensor | np.ndarray) for each in value):
            return type(value)(map(empty, value))
        if type(value) is list:
            return []
        raise NotPlainError(type(value).__name__)

    if not isinstance(predictions, list):
        return None
    if predictions and isinstance(predictions[0], list):  # one list for each loader
        return [_no_rows(each) for each in predictions]
    try:
        rows = [empty(predictions[0])] if predictions else []
        to_json(rows)
        return rows
    except NotPlainError:
        return []


def _is_open(metric: Metric) -> bool:
    return metric._update_count > 0 and metric._computed is None and metric._to_sync and not metric._is_synced


def _search(trainer: pl.Trainer) -> Outcome | None:
    """The result of a search for a learning rate: ``Tuner.lr_find`` returns what its callback holds, no plain value."""
    callback = finder_of(trainer)
    return None if callback is None or callback.optimal_lr is None else _plain(callback.optimal_lr.results)


def finder_of(trainer: pl.Trainer) -> Any:
    finders = [each for each in trainer.callbacks if isinstance(each, pl.callbacks.LearningRateFinder)]  # type: ignore[attr-defined]
    return finders[0] if finders else None
