"""Arguments of a model that the command line takes from the data, where they are missing."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from pydoc import locate
from typing import Any

from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.plugin.module.sources import ModuleData

FROM_DATA = {
    "in_features": "num_features",
    "num_features": "num_features",
    "in_channels": "num_features",
    "num_classes": "num_classes",
    "out_channels": "num_classes",
    "node_types": "node_types",
    "edge_types": "edge_types",
}
"""What a model's argument of this name is, of :class:`.ModuleData`."""


def allow_missing(parser: argparse.ArgumentParser, allowed: bool = True) -> None:
    """Lets a parser take models without these arguments, though their classes require them; or no longer."""
    for action in parser._actions:
        # Where jsonargparse keeps the names of arguments that are filled later.
        settings = getattr(action, "sub_add_kwargs", None)
        if action.dest == "model" and settings is not None:
            settings["linked_targets"] = {*FROM_DATA} if allowed else set()


def missing_arguments(model: Mapping[str, Any]) -> list[str]:
    """The arguments that a model's class requires and its settings lack. ``model`` has ``class_path`` and
    ``init_args``."""
    made_by: Any = locate(model["class_path"])  # the parser has imported it before
    # A class may hand arguments on to the one that it is derived from; a function may make a model, too.
    kinds = made_by.__mro__[:-1] if isinstance(made_by, type) else [made_by]
    signatures = [inspect.signature(constructor).parameters for constructor in kinds]
    defaults = {
        name: parameter.default for parameters in reversed(signatures) for name, parameter in parameters.items()
    }
    settings = model.get("init_args") or {}
    unset = [name for name in FROM_DATA if name in settings and settings[name] is None]
    return [name for name in unset if defaults.get(name, inspect.Parameter.empty) is inspect.Parameter.empty]


def read_from_data(data: ModuleData, names: list[str]) -> dict[str, Any]:
    """Reads these arguments from the data. Raises LoaderConfigError: the data do not determine one."""
    values = {}
    for name in names:
        reason: object = "the graph has no types"
        try:
            values[name] = getattr(data, FROM_DATA[name])
        except GraphDataError as error:
            reason = error
        if not values.get(name):
            reason = "they have no features x" if FROM_DATA[name] == "num_features" else reason
            raise LoaderConfigError(
                f"the model needs {name}, which the data do not tell: {reason}. Give --model.{name}."
            )
    return values
