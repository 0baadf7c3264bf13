"""What is run of a model: the method, and where its arguments are in a mini-batch."""

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
        # In a list, as nn.Module would make an attribute a part of this module, with all its parameters.
        self._model, self.number = [model], number

    def forward(self, block: Any, rows: Any) -> Any:
        return self._model[0].layer(self.number, block, rows)  # type: ignore[operator]


def has_layers(model: nn.Module) -> bool:
    """Whether a model says itself what each of its layers computes."""
    return callable(getattr(model, "layer", None)) and isinstance(getattr(model, "num_layers", None), int)


def call_of(
    model: nn.Module, method: str | None, batch_format: str, feature_name: str
) -> tuple[Callable[[Any], Any], bool]:
    """Returns what runs a model on a mini-batch, and whether it takes one graph for all layers.

    It is ``method``, or ``predict_step``, if that is the model's own, or ``forward``. Either takes a batch, or several
    arguments, which are looked up in it by their names. A method that the model lacks, or an argument that batches
    lack, raises InferenceError.
    """
    form, method = FORMATS[batch_format], _default_method(model) if method is None else method
    function = model if method == "forward" else getattr(model, method, None)
    if not callable(function):
        raise InferenceError(f"{type(model).__name__} has no method {method!r} to run. Give method= the name of one.")
    parameters = inspect.signature(model.forward if method == "forward" else function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = {parameter.name: parameter for parameter in parameters if parameter.kind in kinds}
    needed = [name for name, parameter in named.items() if parameter.default is inspect.Parameter.empty]
    if needed[1:2] == ["batch_idx"]:
        return lambda batch: function(batch, 0), form.is_one_graph(())
    if len(needed) <= 1:
        return function, form.is_one_graph(())

    def run(batch: Any) -> Any:
        arguments = {}
        for name in named:
            value = form.argument(batch, name, feature_name)
            if value is None and name in needed:
                raise InferenceError(
                    f"{type(model).__name__}.{method} needs {name!r}, which batches of batch_format="
                    f"{batch_format!r} do not have. Give the data a table of that name, or the model a method that "
                    "takes a batch: method=."
                )
            if value is not None:
                arguments[name] = value
        return function(**arguments)

    return run, form.is_one_graph(needed)


def _default_method(model: nn.Module) -> str:
    # A LightningModule always has a predict_step: Lightning's own only calls forward.
    predict_step = getattr(type(model), "predict_step", None)
    if predict_step is None or predict_step.__module__.startswith(_LIGHTNING):
        return "forward"
    return "predict_step"
