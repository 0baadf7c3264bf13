"""Classes that a configuration names: which ones serve in a place, and how they are written there."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
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
"""Made of arrays, which no file of settings holds; or of text."""


def serving(kinds: tuple[type, ...]) -> Iterator[str]:
    """Lists the classes that go by their bare name: ours, Lightning's and torch's, of these kinds."""
    optim = (torch.optim, torch.optim.lr_scheduler)
    for package in (lightning_gnnload, pl.callbacks, pl.strategies, pl.loggers, pl.profilers, *optim):
        for name in package.__all__:
            each = getattr(package, name)
            if not inspect.isclass(each) or not issubclass(each, kinds) or each in NO_SETTINGS:
                continue
            # Lightning's bases do nothing, but are not abstract.
            is_base = inspect.isabstract(each) or (each in kinds and package is not lightning_gnnload)
            if not is_base:
                yield name


def nearest(given: str, known: Iterable[str], own: bool = False) -> str:
    """Says which name was probably meant, or else which there are."""
    known = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in known}
    if near := get_close_matches(given.casefold(), folded, 1):
        return f"; did you mean {folded[near[0]]}?"
    one_of_ones_own = "name your own with its module, as my_module.MyClass"
    if not known:
        return f"; {one_of_ones_own}." if own else "."
    return f". There are: {', '.join(known)}{f'; {one_of_ones_own}' if own else ''}."


def is_known(name: str, kinds: tuple[type, ...]) -> bool:
    """Whether it is a class's bare name, or near that of one that serves."""
    return name in serving((object,)) or "did you mean" in nearest(name, serving(kinds or (object,)))


def found(path: str | None) -> Any:
    """Imports what a class path names; None where it cannot be."""
    module, _, name = (path or "").rpartition(".")
    with suppress(Exception):  # a user's module may raise anything
        return getattr(import_module(module), name)
    return None


def written(name: str, settings: Mapping[str, Any]) -> str:
    """Writes a class and its settings as YAML has them."""
    lines = [f"    {each}: {value}" for each, value in settings.items()]
    return "\n".join([f"  class_path: {name}", "  init_args:" if lines else "  init_args: {}", *lines])


def has_example(kinds: tuple[type, ...]) -> bool:
    """Whether one of the classes that serve can be shown."""
    return not _EXAMPLES.keys().isdisjoint(serving(kinds))


def example(kinds: tuple[type, ...]) -> str:
    """Shows how a class that serves is written."""
    names = {*serving(kinds)}
    name = next((name for name in _EXAMPLES if name in names), "my_module.MyClass")
    return written(name, _EXAMPLES.get(name, {}))


def misshapen(value: Any) -> str | None:
    """Says what is wrong in how a class and its settings are written, if anything is."""
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            continue
        if "class_path" in each:
            path, settings = each["class_path"], each.get("init_args") or {}
            if not isinstance(path, str):
                return f"class_path is the name of a class, which {path!r} is not."
            if not isinstance(settings, dict):
                return f"init_args are settings of {path} by their names, which {settings!r} is not."
            beside = {name: it for name, it in each.items() if name not in ("class_path", "init_args", "dict_kwargs")}
            if beside:
                return f"the settings of {path} are written below init_args:\n{written(path, settings | beside)}"
        elif len(each) == 1 and (name := next(iter(each))) in serving((object,)):
            return f"a class is written by its name and settings:\n{written(name, each[name] or {})}"
    return None


def not_serving(name: str, kinds: tuple[type, ...]) -> str:
    """Says of something that is there why it does not serve."""
    each = found(name)
    bases = [base for base in inspect.getmro(each) if base.__name__ in names_of(kinds)] if inspect.isclass(each) else []
    if any(base.__module__.startswith(tuple(PACKAGES.values())) for base in bases):
        return f"{name} is made for another Lightning than {pl.__name__}: {REMEDY}."
    return f"{name} is no {' or '.join(names_of(kinds))}{nearest('', serving(kinds), own=True)}"


def not_there(name: str, kinds: tuple[type, ...]) -> str:
    """Says of a name without a module that it is no class that serves, and which one was meant."""
    if name in serving((object,)):
        return not_serving(name, kinds)
    with suppress(ImportError, ValueError):  # it may be no name at all
        if not is_known(name, kinds) and find_spec(name) is not None:
            return f"{name} is a module: name the class, too, as {name}.MyClass."
    among = kinds if kinds or not is_known(name, kinds) else (object,)
    return f"there is no class {name}{nearest(name, serving(among), own=True)}"


def not_imported(path: str, cause: str) -> str:
    """Says why a class path cannot be imported."""
    module, _, name = path.rpartition(".")
    there = None
    with suppress(Exception):
        there = import_module(module)
    if there is not None:
        classes = [each for each, value in vars(there).items() if inspect.isclass(value)]
        return f"the module {module} has no class {name}{nearest(name, classes)}"
    first = module.split(".")[0]
    if cause != f"No module named {first!r}":
        return f"importing {module} fails: {cause}."
    here = {each.name.removesuffix(".py") for each in os.scandir() if each.is_dir() or each.name.endswith(".py")}
    near = get_close_matches(first, here, 1)
    if near:
        return f"there is no module {first}; did you mean {near[0]}?"
    return f"there is no module {first}, neither in the current folder, {os.getcwd()}, nor among Python's packages."


def names_of(kinds: tuple[type, ...]) -> list[str]:
    """Names the kinds, without those that no configuration can hold."""
    return [kind.__name__ for kind in kinds if kind not in NO_SETTINGS]
