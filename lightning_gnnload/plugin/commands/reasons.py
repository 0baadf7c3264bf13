"""Why a setting does not fit, in a few lines: the parser's own message lists all that every value might have been."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

import lightning_gnnload
from lightning_gnnload.plugin.commands.classes import (
    NO_SETTINGS,
    example,
    found,
    has_example,
    is_known,
    misshapen,
    names_of,
    nearest,
    not_imported,
    not_serving,
    not_there,
    serving,
    written,
)
from lightning_gnnload.plugin.compat import pl

_KEY = re.compile(r'Parser key "(?P<key>[^"]+)":')
_CLASS = re.compile(r"Problem with given class_path '(?P<path>[^']+)':")
_VALUE = re.compile(r"(?:.*\. Got value|Given value): (?P<value>.*)")
_SUBTYPE = re.compile(r"(?:<class '|[\[ ])(?P<path>\w+(?:\.\w+)+)")
_TOP = re.compile(r"Subcommand '\w+' does not accept option '(?P<name>[\w.]+)'")
_MISSING = re.compile(r"the following arguments are required: (?:\w+\.)?(?P<name>data\.data|model)")
_NOTHING = re.compile(r"the following arguments are required: (?:\w+\.)?data\.data, (?:\w+\.)?model")
_BEFORE = re.compile(r"Option '[\w.]+' is not accepted before subcommand '(?P<command>\w+)'")
_NO_FILE = re.compile(r"""Parser key "(?P<part>\w+)":\s+Unable to load config '(?P<given>.*)'""")
_PROBLEMS = {
    # What a line says of what was meant, from the most telling to the least.
    "setting": re.compile(r"Option '(?P<it>[\w.]+)' is not accepted"),
    "missing": re.compile(r"[Tt]he following arguments are required: (?P<it>.+)"),
    "name": re.compile(r"Expected a dot import path string: (?P<it>.+)"),
    "other": re.compile(r"Import path (?P<it>[\w.]*) ?does not correspond to a subclass of \w+"),
    "import": re.compile(r"(?P<it>.*(?:No module named|has no attribute|cannot import|Error).*)"),
    "class": re.compile(r"Not a valid subclass of (?P<it>\w+)(?:\. Got value: .*)?|Expected an instantiatable class.*"),
    "type": re.compile(r"Expected an? (?!path but)(?P<it>.+?)(?:\. Got value: .*)?"),
}
_WORDS = {
    "<class 'int'>": "a whole number",
    "<class 'float'>": "a number",
    "<class 'str'>": "text",
    "<class 'bool'>": "true or false",
    "<class 'list'>": "a list",
    "<class 'collections.abc.Sequence'>": "a list",
    "<class 'collections.abc.Iterable'>": "a list",
    "<class 'dict'>": "a mapping",
    "<class 'collections.abc.Mapping'>": "a mapping",
    "<class 'NoneType'>": "null",
}
_GENERAL = ("collections.abc", "typing")
_PARTS = {"data": lightning_gnnload.GraphDataModule, "trainer": pl.Trainer}
"""What the settings of a part of a configuration are arguments of."""
_TOPS = ("seed_everything", "trainer", "model", "data", "optimizer", "lr_scheduler", "ckpt_path", "test_after_fit")

_Around = tuple[tuple[str, str], ...]
"""The keys and classes that something lies within, from the outermost on, each with its kind."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Complaint:
    """One of the things that the parser says may be wrong.

    Attributes:
        around: where it lies.
        kind: a name in ``_PROBLEMS``.
        it: what the line names: a setting, a class, a cause, a type.
    """

    around: _Around
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
            return f"there is no setting {part}{nearest(part, _TOPS)}"
        settings = _settings(_PARTS.get(part))
        return f"{part} has no setting {name}{nearest(name, settings)}" if settings else None
    if missing := _MISSING.fullmatch(message):
        kind = lightning_gnnload.Dataset if missing["name"] == "data.data" else pl.LightningModule
        return f"{missing['name']} is not given; for example\n{example((kind,))}"
    if _NOTHING.fullmatch(message):
        return "neither data.data nor model is given: give a configuration, --config FILE, or --data.data and --model."
    if before := _BEFORE.match(message):
        return f"settings stand behind the command: gnnload {before['command']} --config FILE"
    if unread := _NO_FILE.match(message):
        return f"{unread['part']}: {unread['given']} is neither a file of settings nor settings by their names."
    read = _read(message)
    if not read.complaints:
        key = _KEY.match(message)
        return f"{key['key']}: {' '.join(message[key.end() :].split())}" if key else None
    said = max(read.complaints, key=lambda each: each.weight)
    place = said.around[0][1]
    for value in _outward(read.values, said.around):
        with suppress(ValueError, SyntaxError):
            if wrong := misshapen(ast.literal_eval(value)):
                return f"{place}: {wrong}"
    owner = None if said.class_path is None else said.class_path.rsplit(".", 1)[-1]
    kinds = next(_outward(read.kinds, said.around), ())
    match said.kind:
        case "setting":
            return f"{place}: {owner} has no setting {said.it}{nearest(said.it, _settings(found(said.class_path)))}"
        case "missing":
            return f"{place}: {owner or 'it'} needs {said.it}, which is not given."
        # Else it may be no name of a class at all.
        case "name" if is_known(said.it, kinds) or not read.types(said.around).keys() - {"null"}:
            return f"{place}: {not_there(said.it, kinds)}"
        case "other":
            return f"{place}: {not_serving(said.it or read.values.get(said.around, ''), kinds)}"
        case "import":
            return f"{place}: {not_imported(str(said.class_path), said.it)}"
    return _misfit(read, said, place if owner is None else f"{place}: {said.key} of {owner}", kinds)


def _misfit(read: _Reading, said: _Complaint, what: str, kinds: tuple[type, ...]) -> str:
    """Says what a value is, and what is needed."""
    value, needed, shown = read.values.get(said.around, ""), [*read.types(said.around)], "."
    is_class = any(each.kind != "type" for each in read.complaints if each.around == said.around)
    if is_class and (names := names_of(kinds)):
        needed = [each for each in needed if each != "null"] + [f"a class and its settings ({', '.join(names)})"]
        shown = f"; for example\n{example(kinds)}" if len(needed) == 1 or has_example(kinds) else "."
    elif "a list" in needed and re.fullmatch(r"-?\d+(, *-?\d+)*", value):
        shown = f". Write it as a list: [{value}]."
    value = re.sub(r"NestedArg\(key='(.*?)', val='?(.*?)'?\)", r"\1=\2", value)  # --trainer.strategy.samplers=2
    each = " for each" if said.around in read.parts and "a list" not in needed else ""
    told = f"{what} cannot be {value}; needed{each}: {' or '.join(needed)}{shown}"
    part, _, name = said.key.rpartition(".")
    about = _described(found(said.class_path) or _PARTS.get(part), name)
    return f"{told}\n{about}" if about else told


@dataclass(frozen=True)
class _Reading:
    """What a message says, each by where it lies.

    Attributes:
        complaints: what may be wrong.
        values: those that were given.
        parts: where a value fails by a part of it.
        kinds: the classes of which one might be given.
    """

    complaints: list[_Complaint]
    values: dict[_Around, str]
    parts: set[_Around]
    kinds: dict[_Around, tuple[type, ...]]

    def types(self, around: _Around) -> dict[str, None]:
        """What is needed at a place, other than a class, in words."""
        there = [each for each in self.complaints if each.around == around and each.kind == "type"]
        return dict.fromkeys(_in_words(each.it) for each in there)


def _read(message: str) -> _Reading:
    """Reads the lines, whose indentation says what lies within what."""
    read = _Reading([], {}, set(), {})
    open_: list[tuple[int, tuple[str, str]]] = []
    for line in filter(None, message.splitlines()):
        text = line.lstrip(" -")
        indent = len(line) - len(text)
        open_ = [each for each in open_ if each[0] < indent]
        around = tuple(each for _, each in open_)
        if value := _VALUE.match(text):
            if read.values.get(around, value["value"]) != value["value"]:
                read.parts.add(around)
            read.values[around] = value["value"]  # the last one is the whole of it
        if key := _KEY.match(text):
            open_.append((indent, ("key", key["key"])))
        elif path := _CLASS.match(text):
            open_.append((indent, ("class", path["path"])))
        elif text.startswith("Subtypes: "):
            named = [found(each["path"]) for each in _SUBTYPE.finditer(text)]
            # What serves for a collection, or for all, is told by the type that is expected.
            kinds = [each for each in named if inspect.isclass(each) and each.__module__ not in _GENERAL]
            read.kinds.setdefault(around, tuple(dict.fromkeys(kinds)))
        elif around and (problem := _problem(text)):
            kind, it = problem
            if kind != "import" or around[-1][0] == "class":
                read.complaints.append(_Complaint(around, kind, it))
    read.complaints[:] = [_of_no_class(each, read) for each in read.complaints]
    return read


def _of_no_class(complaint: _Complaint, read: _Reading) -> _Complaint:
    """Where a mapping names no class, the parser takes it for settings of the base class, which may have none."""
    base = found(complaint.class_path)
    is_guess = "class_path" not in next(_outward(read.values, complaint.around), "class_path")
    is_guess &= base in NO_SETTINGS or not _settings(base)
    if complaint.kind == "setting" and (is_guess or complaint.it in ("class_path", "init_args")):
        return _Complaint(complaint.around[:-1], "class", "")
    return complaint


def _outward(found_at: Mapping[_Around, _T], around: _Around) -> Iterator[_T]:
    """Lists what was found at a place and around it, from the innermost on."""
    return (found_at[around[:end]] for end in range(len(around), 0, -1) if around[:end] in found_at)


def _problem(text: str) -> tuple[str, str] | None:
    for kind, pattern in _PROBLEMS.items():
        if fits := pattern.fullmatch(text):
            return kind, fits["it"] or ""
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


def _in_words(kind: str) -> str:
    if literal := re.fullmatch(r"typing\.Literal\[(.*)\]", kind):
        return literal[1].replace(", ", " or ")
    return _WORDS.get(kind) or kind.removeprefix("<class '").removesuffix("'>").rsplit(".", 1)[-1]


def _described(taker: Any, name: str) -> str:
    """Quotes what a class's docstring says of an argument, up to its first full stop."""
    described = re.search(rf"^ *{re.escape(name)}: (.+?)(?:\.\s|^ *\w+: |\Z)", inspect.getdoc(taker) or "", re.M | re.S)
    # Without the marks by which a page of documentation is made of it.
    plain = re.sub(r":\w+:`\.?([^`]*)`|``([^`]*)``", r"\1\2", " ".join(described[1].split())) if described else ""
    return f"{name}: {plain}." if plain else ""


def unfit_part(config: Any) -> str | None:
    """Says what the parser takes, and what can be made of it all the same; None where nothing is wrong.

    Args:
        config: a command's, as it was parsed.
    """
    for part in _PARTS:
        if not hasattr(config[part], "as_dict"):
            return f"{part}: settings by their names are needed, not {config[part]}."
    seed = config.get("seed_everything")
    if not isinstance(seed, bool) and isinstance(seed, int) and not 0 <= seed < 2**32:
        return f"seed_everything cannot be {seed}; needed: a whole number from 0 to 2**32 - 1, true or false."
    callbacks = config["trainer"].get("callbacks") or []
    for each in callbacks if isinstance(callbacks, list) else [callbacks]:
        # A mapping without a class is read as settings of the base class, which has none.
        if found(each["class_path"]) is pl.Callback and (given := each["init_args"].as_dict()):
            return f"trainer.callbacks: {misshapen(given) or f'a class is needed with the settings {given}.'}"
    return None


def refusal(error: Exception, settings: Any) -> str:
    """Says why Lightning's Trainer does not take its settings, and what this machine has where that is the reason.

    Args:
        error: the Trainer's.
        settings: those that it was given.
    """
    if "invalid strategy name" in str(error):
        return f"trainer.strategy: {_no_strategy(settings.get('strategy'))}"
    said = f"the Trainer does not take its settings: {' '.join(str(error).split())}"
    if settings.get("accelerator") in ("gpu", "cuda") or "device" in said:
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        said += (
            f"\nThis machine has {len(os.sched_getaffinity(0))} cores and "
            f"{', '.join(gpus) or 'no GPU that torch can use'} (torch {torch.__version__}); gnnload doctor says more. "
            f"With trainer.accelerator: cpu, trainer.devices is a number of processes."
        )
    return said


def _no_strategy(given: Any) -> str:
    """A strategy goes by a name of the registry, or is written as a class with its settings."""
    registry = pl.strategies.StrategyRegistry
    classes = [*serving((pl.strategies.Strategy,))]
    name = str(given).rpartition(".")[2]
    if name in classes:
        short = next((each for each in registry if registry[each]["strategy"].__name__ == name), None)
        return (
            f"{name} is a class, which is written with its settings:\n{written(name, {})}"
            f"{f'{chr(10)}Without settings, strategy: {short} will do.' if short else ''}"
        )
    return f"there is no strategy {'null' if given is None else given}{nearest(str(given), (*registry, *classes))}"
