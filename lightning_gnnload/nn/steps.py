"""Which step a model's dropout layers are in, from which their masks follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from lightning_gnnload.errors import DropoutError
from lightning_gnnload.nn.dropout import Dropout
from lightning_gnnload.nn.keys import DropoutStep
from lightning_gnnload.ops.checks import as_integer_within

_BITS = {"seed": 64, "epoch": 32, "step": 32, "rank": 16}
_MAX_LAYERS = 1 << 16


def set_step(model: nn.Module, epoch: int, step: int, *, seed: int = 0, rank: int | None = None) -> None:
    """Tells a model's :class:`.Dropout` layers which step begins, in a training loop by hand.

    Their masks are then a pure function of ``(seed, epoch, step, rank)``, of the layer's number in
    ``model.modules()``, of the number of its call in the step, and of an element's place in the tensor. So a run that
    is resumed at any step draws the masks that it would have drawn. Under a Trainer with a :class:`.GraphDataModule`,
    or with :class:`.Accelerate`, there is nothing to call.

    Args:
        model: its layers, by their order, get the numbers 0, 1, 2 and so on.
        epoch: below 2**32, like ``step``.
        step: of the epoch; micro-batches whose gradients are accumulated are steps, too.
        seed: of 64 bits.
        rank: of this process, whose rows are others than those of other ranks; None: that of ``torch.distributed``, or
            0 without it.

    Raises:
        DropoutError: a number is negative or too large, or all of the model's dropout is torch's.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), Dropout(0.5))
        >>> x = torch.ones(2, 4)
        >>> def masks(*steps):
        ...     return [set_step(model, 0, step) or (model(x) == 0) for step in steps]
        >>> first, second = masks(7, 8)
        >>> torch.equal(masks(8)[0], second), torch.equal(first, second)
        (True, False)
    """
    if rank is None:
        is_one_of_many = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if is_one_of_many else 0
    values = {"seed": seed, "epoch": epoch, "step": step, "rank": rank}
    numbers = DropoutStep(
        **{
            name: as_integer_within(name, values[name], 0, (1 << bits) - 1, DropoutError)
            for name, bits in _BITS.items()
        }
    )
    num_layers = follow(model, lambda: numbers)
    if not num_layers and any(isinstance(module, nn.Dropout) and module.p for module in model.modules()):
        raise DropoutError(
            "set_step: the model has torch's dropout alone, which follows no step. Call accelerate(model) once before."
        )


def following(model: nn.Module) -> Callable[[], DropoutStep] | None:
    """Returns what a model's dropout layers ask for the step: the first one's, as :func:`follow` tells all alike."""
    return next((module.keys.read for module in model.modules() if isinstance(module, Dropout)), None)


def follow(model: nn.Module, read: Callable[[], DropoutStep] | None) -> int:
    """Numbers a model's dropout layers, and has them ask ``read`` for the step at each call; None: no longer. Returns
    their number."""
    if not isinstance(model, nn.Module):
        raise DropoutError(f"a torch.nn.Module is needed, whose dropout layers follow the step, not {model!r:.100}.")
    layers = [module for module in model.modules() if isinstance(module, Dropout)]
    if len(layers) > _MAX_LAYERS:
        raise DropoutError(f"the model has {len(layers)} dropout layers, but at most {_MAX_LAYERS} have masks.")
    for layer, dropout in enumerate(layers):
        dropout.keys.follow(read, layer)
    return len(layers)
