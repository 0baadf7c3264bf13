"""What is run of a model: the method, and where its arguments are found in a mini-batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from lightning_gnnload.adapters.formats import FORMATS
from lightning_gnnload.errors import InferenceError

_LIGHTNING = ("pytorch_lightning.", "lightning.")


class Layers(nn.Module):
    """Makes convolutions of ``layer(i, block, h)``, for a model that says so what each of its ``num_layers`` does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(model, number) for number in range(model.num_layers))  # type: ignore[arg-type]

    def forward(self, batch: Any) -> Any:
        rows = batch.x
        for layer, block in zip(self.layers, batch.blocks, strict=True):
            rows = layer(block, rows)
        return rows


class _Layer(nn.Module):
    def __init__(self, model: nn.Module, number: int) -> None:
        super().__init__()
        self._held, self.number = [model], number  # in a list, as the model is no part of this one

    def forward(self, block: Any, rows: Any) -> Any:
        return self._held[0].layer(self.number, block, rows)  # type: ignore[operator]


def has_layers(model: nn.Module) -> bool:
    """Whether the model says itself what each layer does."""
    return callable(getattr(model, "layer", None)) and isinstance(getattr(model, "num_layers", None), int)


def call_of(
    model: nn.Module, method: str | None, batch_format: str, feature_name: str
) -> tuple[Callable[[Any], Any], bool]:
    """Returns what runs a model on a mini-batch, and whether it takes one graph for all layers.

    It is ``method``, or ``predict_step``, if that is the model's own, or ``forward``. Either takes a batch, or several
    arguments that are found in it by their names.

    Args:
        model: is run.
        method: its name; None for the rule above.
        batch_format: of the batches.
        feature_name: of features in frames of DGL.

    Raises:
        InferenceError: there is no such method, or no such thing in batches as it needs.
    """
    form = FORMATS[batch_format]
    if method is None:
        own = getattr(type(model), "predict_step", None)
        method = "predict_step" if own is not None and not own.__module__.startswith(_LIGHTNING) else "forward"
    function = model if method == "forward" else getattr(model, method, None)
    if not callable(function):
        raise InferenceError(f"{type(model).__name__} has no method {method!r} to run. Give method= the name of one.")
    parameters = inspect.signature(model.forward if method == "forward" else function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [each for each in parameters if each.kind in kinds]
    needed = [each.name for each in named if each.default is inspect.Parameter.empty]
    if needed[1:2] == ["batch_idx"]:
        return lambda batch: function(batch, 0), form.is_one_graph(())
    if len(needed) <= 1:
        return function, form.is_one_graph(())

    def run(batch: Any) -> Any:
        given = {}
        for each in named:
            found = form.argument(batch, each.name, feature_name)
            if found is None and each.name in needed:
                raise InferenceError(
                    f"{type(model).__name__}.{method} needs {each.name!r}, which batches of batch_format="
                    f"{batch_format!r} do not have. Give the data a table of that name, or the model a method that "
                    "takes a batch: method=."
                )
            if found is not None:
                given[each.name] = found
        return function(**given)

    return run, form.is_one_graph(needed)
