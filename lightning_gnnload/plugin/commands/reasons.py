"""Why a setting does not fit, in a few lines: the parser's own message lists all that every value might have been."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import torch

import lightning_gnnload
from lightning_gnnload.plugin.compat import pl

_KEY = re.compile(r'Parser key "(?P<key>[^"]+)":')
_CLASS = re.compile(r"Problem with given class_path '(?P<path>[^']+)':")
_VALUE = re.compile(r"(?:.*\. Got value|Given value): (?P<value>.*)")
_TOP = re.compile(r"Subcommand '\w+' does not accept option '(?P<name>[\w.]+)'")
_PROBLEMS = {
    # What a line says of what was meant, from the most telling to the least.
    "setting": re.compile(r"Option '(?P<it>[\w.]+)' is not accepted"),
    "missing": re.compile(r"[Tt]he following arguments are required: (?P<it>.+)"),
    "name": re.compile(r"Expected a dot import path string: (?P<it>.+)"),
    "import": re.compile(r"(?P<it>.*(?:No module named|has no attribute|cannot import|Error).*)"),
    "class": re.compile(r"Not a valid subclass of (?P<it>\w+)(?:\. Got value: .*)?|Expected an instantiatable class.*"),
    "type": re.compile(r"Expected an? (?P<it>.+?)(?:\. Got value: .*)?"),
}
_WORDS = {
    "<class 'int'>": "a whole number",
    "<class 'float'>": "a number",
    "<class 'str'>": "text",
    "<class 'bool'>": "true or false",
    "<class 'list'>": "a list",
    "<class 'collections.abc.Sequence'>": "a list",
    "<class 'dict'>": "a mapping",
    "<class 'collections.abc.Mapping'>": "a mapping",
    "<class 'NoneType'>": "null",
}
_PARTS = {"data": lightning_gnnload.GraphDataModule, "trainer": pl.Trainer}
"""What the settings of a part of a configuration are arguments of."""
_TOPS = ("seed_everything", "trainer", "model", "data", "optimizer", "lr_scheduler", "ckpt_path", "test_after_fit")


@dataclass(frozen=True)
class _Complaint:
    """One of the things that the parser says may be wrong.

    Attributes:
        around: the keys and classes that it lies within, from the outermost on, each with its kind.
        kind: a name in ``_PROBLEMS``.
        it: what the line names: a setting, a class, a cause, a type.
    """

    around: tuple[tuple[str, str], ...]
    kind: str
    it: str

    @property
    def class_path(self) -> str | None:
        return next((name for kind, name in reversed(self.around) if kind == "class"), None)

    @property
    def key(self) -> str:
        return next((name for kind, name in reversed(self.around) if kind == "key"), "")

    @property
    def weight(self) -> tuple[int, int]:
        """What lies deepest comes of the alternative that was meant: the others fail at their first look."""
        return len(self.around), -[*_PROBLEMS].index(self.kind)


def reason(message: str) -> str | None:
    """Returns what a user needs to know of a message of jsonargparse's; None where it is none of a setting.

    Example:
        >>> reason('Parser key "data.sampler":\\n  Expected a dot import path string: NeighbourSampler')
        'data.sampler: there is no class NeighbourSampler; did you mean NeighborSampler?'
    """
    if top := _TOP.match(message):
        part, _, name = top["name"].partition(".")
        if part not in _TOPS:
            return f"there is no setting {part}{_nearest(part, _TOPS)}"
        settings = _settings(_PARTS.get(part))
        return f"{part} has no setting {name}{_nearest(name, settings)}" if settings else None
    complaints, values = _read(message)
    if not complaints:
        key = _KEY.match(message)
        return f"{key['key']}: {' '.join(message[key.end() :].split())}" if key else None
    said = max(complaints, key=lambda each: each.weight)
    place = said.around[0][1]
    owner = None if said.class_path is None else said.class_path.rsplit(".", 1)[-1]
    value = values.get(said.around, "")
    match said.kind:
        case "setting":
            return f"{place}: {owner} has no setting {said.it}{_nearest(said.it, _settings(_found(said.class_path)))}"
        case "missing":
            return f"{place}: {owner or 'it'} needs {said.it}, which is not given."
        case "name":
            return f"{place}: there is no class {said.it}{_nearest(said.it, _classes(place), own=True)}"
        case "import":
            return f"{place}: {_not_imported(str(said.class_path), said.it)}"
        case "class":
            return f"{place}: {_no_class(place, value)}"
    taker = _found(said.class_path) if owner else _PARTS.get(place.split(".")[0])
    needed = dict.fromkeys(_in_words(each.it) for each in complaints if each.around == said.around)
    each = " for each" if value.startswith("[") and "a list" not in needed else ""
    what = f"{place}: {said.key} of {owner}" if owner else place
    told = f"{what} cannot be {value}; needed{each}: {' or '.join(needed)}."
    if "a list" in needed and re.fullmatch(r"-?\d+(, *-?\d+)*", value):
        told += f" Write it as a list: [{value}]."
    about = _described(taker, said.key.rsplit(".", 1)[-1])
    return f"{told}\n{about}" if about else told


def _read(message: str) -> tuple[list[_Complaint], dict[tuple[tuple[str, str], ...], str]]:
    """Reads the lines, whose indentation says what lies within what: complaints, and the values given."""
    complaints: list[_Complaint] = []
    values: dict[tuple[tuple[str, str], ...], str] = {}
    open_: list[tuple[int, tuple[str, str]]] = []
    for line in filter(None, message.splitlines()):
        text = line.lstrip(" -")
        indent = len(line) - len(text)
        open_ = [each for each in open_ if each[0] < indent]
        around = tuple(each for _, each in open_)
        if value := _VALUE.match(text):
            values[around] = value["value"]  # the last one is the whole of it
        if key := _KEY.match(text):
            open_.append((indent, ("key", key["key"])))
        elif path := _CLASS.match(text):
            open_.append((indent, ("class", path["path"])))
        elif around and (found := _problem(text)):
            kind, it = found
            if kind == "setting" and it in ("class_path", "init_args"):  # of the class that a mapping might describe
                kind, around = "class", around[:-1]
            if kind != "import" or around[-1][0] == "class":
                complaints.append(_Complaint(around, kind, it))
    return complaints, values


def _problem(text: str) -> tuple[str, str] | None:
    for kind, pattern in _PROBLEMS.items():
        if found := pattern.fullmatch(text):
            return kind, found["it"] or ""
    return None


def _nearest(given: str, known: Iterable[str], own: bool = False) -> str:
    """Says which name was probably meant, or else which there are."""
    known = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in known}
    if near := get_close_matches(given.casefold(), folded, 1):
        return f"; did you mean {folded[near[0]]}?"
    one_of_ones_own = "name your own with its module, as my_module.MyClass"
    if not known:
        return f"; {one_of_ones_own}." if own else "."
    return f". There are: {', '.join(known)}{f'; {one_of_ones_own}' if own else ''}."


def _found(path: str | None) -> Any:
    """Imports what a class path names; None where it cannot be."""
    module, _, name = (path or "").rpartition(".")
    with suppress(Exception):  # a user's module may raise anything
        return getattr(import_module(module), name)
    return None


def _settings(taker: Any) -> list[str]:
    """Lists the arguments that a class takes, of its bases too where it hands further ones on."""
    names: dict[str, None] = {}
    for each in inspect.getmro(taker) if inspect.isclass(taker) else ():
        if "__init__" in vars(each) and each is not object:
            parameters = list(inspect.signature(vars(each)["__init__"]).parameters.values())[1:]
            names |= dict.fromkeys(
                one.name for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
            )
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
    return [*names]


def _classes(place: str) -> Iterator[str]:
    """Lists the classes that go by their bare name: ours and Lightning's, where it is known which ones serve there."""
    kinds = {
        "data.data": lightning_gnnload.Dataset,
        "data.sampler": lightning_gnnload.Sampler,
        "data.eval_sampler": lightning_gnnload.Sampler,
        "data.cache": lightning_gnnload.FeatureCache,
        "trainer.callbacks": pl.Callback,
        "trainer.strategy": pl.strategies.Strategy,
        "trainer.logger": pl.loggers.Logger,
    }
    kind = kinds.get(place.removeprefix("fit."), object if place != "model" else pl.LightningModule)
    for package in (lightning_gnnload, pl.callbacks, pl.strategies, pl.loggers):
        for name in package.__all__:
            each = getattr(package, name)
            if inspect.isclass(each) and issubclass(each, kind) and not inspect.isabstract(each) and each is not kind:
                yield name


def _not_imported(path: str, cause: str) -> str:
    module, _, name = path.rpartition(".")
    found = None
    with suppress(Exception):
        found = import_module(module)
    if found is not None:
        there = [each for each, value in vars(found).items() if inspect.isclass(value)]
        return f"the module {module} has no class {name}{_nearest(name, there)}"
    first = module.split(".")[0]
    if cause != f"No module named {first!r}":
        return f"importing {module} fails: {cause}."
    here = {each.name.removesuffix(".py") for each in os.scandir() if each.is_dir() or each.name.endswith(".py")}
    near = get_close_matches(first, here, 1)
    if near:
        return f"there is no module {first}; did you mean {near[0]}?"
    return f"there is no module {first}, neither in the current folder, {os.getcwd()}, nor among Python's packages."


def _no_class(place: str, value: str) -> str:
    name = next((name for name in ("Debian", "NeighborSampler", *_classes(place)) if name in {*_classes(place)}), None)
    settings = "\n    fanouts: [15, 10]" if name == "NeighborSampler" else " {}"
    return (
        f"a class and its settings are needed, not {value or 'this'}; for example\n"
        f"  class_path: {name or 'my_module.MyClass'}\n  init_args:{settings}"
    )


def _in_words(kind: str) -> str:
    if literal := re.fullmatch(r"typing\.Literal\[(.*)\]", kind):
        return literal[1].replace(", ", " or ")
    return _WORDS.get(kind) or kind.removeprefix("<class '").removesuffix("'>").rsplit(".", 1)[-1]


def _described(taker: Any, name: str) -> str:
    """Quotes what a class's docstring says of an argument, up to its first full stop."""
    described = re.search(rf"^ *{re.escape(name)}: (.+?)(?:\.\s|^ *\w+: |\Z)", inspect.getdoc(taker) or "", re.M | re.S)
    return f"{name}: {' '.join(described[1].split())}." if described else ""


def refusal(error: Exception, settings: Any) -> str:
    """Says why Lightning's Trainer does not take its settings, and what this machine has where that is the reason.

    Args:
        error: the Trainer's.
        settings: those that it was given.
    """
    strategy = settings.get("strategy")
    if "invalid strategy name" in str(error):
        known = (*pl.strategies.StrategyRegistry, *_classes("trainer.strategy"))
        return f"trainer.strategy: there is no strategy {strategy}{_nearest(strategy, known)}"
    said = f"the Trainer does not take its settings: {' '.join(str(error).split())}"
    if settings.get("accelerator") in ("gpu", "cuda") or "device" in said:
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        said += (
            f"\nThis machine has {len(os.sched_getaffinity(0))} cores and "
            f"{', '.join(gpus) or 'no GPU that torch can use'} (torch {torch.__version__}); gnnload doctor says more. "
            f"With trainer.accelerator: cpu, trainer.devices is a number of processes."
        )
    return said
