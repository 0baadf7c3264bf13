"""Classes that a configuration names: which ones fit a setting, and how they are written there."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import lightning_gnnload
from lightning_gnnload.plugin.compat import PACKAGES, REMEDY, pl

_EXAMPLES: dict[str, dict[str, Any]] = {
    "Debian": {},
    "NeighborSampler": {"fanouts": [15, 10]},
    "FeatureCache": {"ratio": 0.1},
    "ProximityOrder": {},
    "Negatives": {"mode": "binary"},
    "SAGE": {},
    "PipelineMonitor": {},
    "FactoredStrategy": {"samplers": 1},
    "CSVLogger": {"save_dir": "logs"},
    "Adam": {"lr": 0.001},
}
"""Settings that classes may have. Of those that serve in a place, the first one is shown."""
NO_SETTINGS = (lightning_gnnload.GraphData, lightning_gnnload.Partition, Path)
"""Made of arrays, which a file of settings cannot contain; or of text."""


def serving(kinds: tuple[type, ...]) -> dict[str, type]:
    """Returns the classes of these kinds that go by their bare name: ours, Lightning's and torch's."""
    optim = (torch.optim, torch.optim.lr_scheduler)
    ours = (lightning_gnnload, lightning_gnnload.models)
    serving: dict[str, type] = {}
    for package in (*ours, pl.callbacks, pl.strategies, pl.loggers, pl.profilers, *optim):
        classes = {name: cls for name in sorted(package.__all__) if inspect.isclass(cls := getattr(package, name))}
        for name, cls in classes.items():
            if not issubclass(cls, kinds) or cls in NO_SETTINGS:
                continue
            # Bases do nothing, though most are not abstract: Lightning's, and what models here extend.
            is_extended = package is lightning_gnnload.models and any(
                issubclass(model, cls) and model is not cls for model in classes.values()
            )
            if not (inspect.isabstract(cls) or is_extended or (cls in kinds and package is not lightning_gnnload)):
                serving.setdefault(name, cls)
    return serving


def suggestion(wrong: str, names: Iterable[str], allows_own: bool = False) -> str:
    """Says which name was probably meant, or else which there are."""
    names = list(dict.fromkeys(names))
    folded = {name.casefold(): name for name in names}
    if near := get_close_matches(wrong.casefold(), folded, 1):
        return f"; did you mean {folded[near[0]]}?"
    one_of_ones_own = "name your own with its module, as my_module.MyClass"
    if not names:
        return f"; {one_of_ones_own}." if allows_own else "."
    return f". There are: {', '.join(names)}{f'; {one_of_ones_own}' if allows_own else ''}."


def is_known(name: str, kinds: tuple[type, ...]) -> bool:
    """Whether it is a class's bare name, or near that of one that fits."""
    return name in serving((object,)) or "did you mean" in suggestion(name, serving(kinds or (object,)))


def import_class(path: str | None) -> Any:
    """Imports what a class path names; None where that fails."""
    module, _, name = (path or "").rpartition(".")
    with suppress(Exception):  # a user's module may raise anything
        return getattr(import_module(module), name)
    return None


def as_yaml(name: str, settings: Mapping[str, Any]) -> str:
    """Writes a class and its settings as YAML."""
    lines = [f"    {key}: {value}" for key, value in settings.items()]
    return "\n".join([f"  class_path: {name}", "  init_args:" if lines else "  init_args: {}", *lines])


def has_example(kinds: tuple[type, ...]) -> bool:
    """Whether one of the classes that fit can be shown."""
    return not _EXAMPLES.keys().isdisjoint(serving(kinds))


def example(kinds: tuple[type, ...]) -> str:
    """Shows how a class that fits is written."""
    names = {*serving(kinds)}
    name = next((name for name in _EXAMPLES if name in names), "my_module.MyClass")
    return as_yaml(name, _EXAMPLES.get(name, {}))


def misshapen(value: Any) -> str | None:
    """Says what is wrong in how a class and its settings are written, if anything is."""
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict) and (problem := _misshapen_entry(entry)):
            return problem
    return None


def _misshapen_entry(entry: dict[Any, Any]) -> str | None:
    if "class_path" not in entry:
        if len(entry) == 1 and (name := next(iter(entry))) in serving((object,)):
            return f"a class is written by its name and settings:\n{as_yaml(name, entry[name] or {})}"
        return None
    path, settings = entry["class_path"], entry.get("init_args") or {}
    if not isinstance(path, str):
        return f"class_path is the name of a class, which {path!r} is not."
    if not isinstance(settings, dict):
        return f"init_args are settings of {path} by their names, which {settings!r} is not."
    beside = {name: value for name, value in entry.items() if name not in ("class_path", "init_args", "dict_kwargs")}
    if beside:
        return f"the settings of {path} are written below init_args:\n{as_yaml(path, settings | beside)}"
    return None


def not_serving(name: str, kinds: tuple[type, ...]) -> str:
    """Says why something that exists does not fit."""
    cls = import_class(name)
    bases = [base for base in inspect.getmro(cls) if base.__name__ in names_of(kinds)] if inspect.isclass(cls) else []
    if any(base.__module__.startswith(tuple(PACKAGES.values())) for base in bases):
        return f"{name} is made for another Lightning than {pl.__name__}: {REMEDY}."
    return f"{name} is no {' or '.join(names_of(kinds))}{suggestion('', serving(kinds), allows_own=True)}"


def not_there(name: str, kinds: tuple[type, ...]) -> str:
    """Says that a name without a module is no class that fits, and which one was meant."""
    if name in serving((object,)):
        return not_serving(name, kinds)
    with suppress(ImportError, ValueError):  # it may be no name at all
        if not is_known(name, kinds) and find_spec(name) is not None:
            return f"{name} is a module: name the class, too, as {name}.MyClass."
    among = kinds if kinds or not is_known(name, kinds) else (object,)
    return f"there is no class {name}{suggestion(name, serving(among), allows_own=True)}"


def not_imported(path: str, cause: str) -> str:
    """Says why a class path cannot be imported."""
    module, _, name = path.rpartition(".")
    there = None
    with suppress(Exception):
        there = import_module(module)
    if there is not None:
        classes = [key for key, value in vars(there).items() if inspect.isclass(value)]
        return f"the module {module} has no class {name}{suggestion(name, classes)}"
    first = module.split(".")[0]
    if cause != f"No module named {first!r}":
        return f"importing {module} fails: {cause}."
    here = {entry.name.removesuffix(".py") for entry in os.scandir() if entry.is_dir() or entry.name.endswith(".py")}
    near = get_close_matches(first, here, 1)
    if near:
        return f"there is no module {first}; did you mean {near[0]}?"
    return f"there is no module {first}, neither in the current folder, {os.getcwd()}, nor among Python's packages."


def names_of(kinds: tuple[type, ...]) -> list[str]:
    """Names the kinds, without those that no configuration can contain."""
    return [cls.__name__ for cls in kinds if cls not in NO_SETTINGS]
