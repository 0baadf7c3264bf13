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
    as_yaml,
    example,
    has_example,
    import_class,
    is_known,
    misshapen,
    names_of,
    not_imported,
    not_serving,
    not_there,
    serving,
    suggestion,
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
_TOPS = (
    "seed_everything",
    "trainer",
    "model",
    "data",
    "optimizer",
    "lr_scheduler",
    "ckpt_path",
    "test_after_fit",
    "accelerate",
)

_Around = tuple[tuple[str, str], ...]
"""The keys and classes that something lies within, from the outermost on, each with its category."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Complaint:
    """One of the things that the parser says may be wrong. ``category`` is a name in ``_PROBLEMS``, ``it`` what the
    line names: a setting, a class, a cause, a type."""

    around: _Around
    category: str
    it: str

    @property
    def class_path(self) -> str | None:
        return next((name for layer, name in reversed(self.around) if layer == "class"), None)

    @property
    def key(self) -> str:
        return next((name for layer, name in reversed(self.around) if layer == "key"), "")

    @property
    def weight(self) -> tuple[int, int]:
        """The deepest complaint is of the alternative that was meant: the others fail at their first look."""
        return len(self.around), -[*_PROBLEMS].index(self.category)


def reason(message: str) -> str | None:
    """Returns what a user needs to know of a message of jsonargparse's; None where it is none of a setting.

    Example:
        >>> reason('Parser key "data.sampler":\\n  Expected a dot import path string: NeighbourSampler')
        'data.sampler: there is no class NeighbourSampler; did you mean NeighborSampler?'
    """
    if top := _TOP.match(message):
        part, _, name = top["name"].partition(".")
        if part not in _TOPS:
            return f"there is no setting {part}{suggestion(part, _TOPS)}"
        settings = _settings(_PARTS.get(part))
        return f"{part} has no setting {name}{suggestion(name, settings)}" if settings else None
    if (text := _of_one_line(message)) is not None:
        return text
    read = _read(message)
    if read.complaints:
        return _of_complaint(read, max(read.complaints, key=lambda complaint: complaint.weight))
    key = _KEY.match(message)
    return f"{key['key']}: {' '.join(message[key.end() :].split())}" if key else None


def _of_one_line(message: str) -> str | None:
    if missing := _MISSING.fullmatch(message):
        base = lightning_gnnload.Dataset if missing["name"] == "data.data" else pl.LightningModule
        return f"{missing['name']} is not given; for example\n{example((base,))}"
    if _NOTHING.fullmatch(message):
        return "neither data.data nor model is given: give a configuration, --config FILE, or --data.data and --model."
    if before := _BEFORE.match(message):
        return f"settings stand behind the command: gnnload {before['command']} --config FILE"
    if unread := _NO_FILE.match(message):
        return f"{unread['part']}: {unread['given']} is neither a file of settings nor settings by their names."
    return None


def _of_complaint(read: _Reading, complaint: _Complaint) -> str:
    top_key = complaint.around[0][1]
    if wrong := _misshapen_around(read, complaint):
        return f"{top_key}: {wrong}"
    path, it = complaint.class_path, complaint.it
    owner = None if path is None else path.rsplit(".", 1)[-1]
    kinds = next(_outward(read.kinds, complaint.around), ())
    match complaint.category:
        case "setting":
            return f"{top_key}: {owner} has no setting {it}{suggestion(it, _settings(import_class(path)))}"
        case "missing":
            return f"{top_key}: {owner or 'it'} needs {it}, which is not given."
        # Else it may be no name of a class at all.
        case "name" if is_known(it, kinds) or not read.types(complaint.around).keys() - {"null"}:
            return f"{top_key}: {not_there(it, kinds)}"
        case "other":
            return f"{top_key}: {not_serving(it or read.values.get(complaint.around, ''), kinds)}"
        case "import":
            return f"{top_key}: {not_imported(str(path), it)}"
    return _misfit(read, complaint, top_key if owner is None else f"{top_key}: {complaint.key} of {owner}", kinds)


def _misshapen_around(read: _Reading, complaint: _Complaint) -> str | None:
    for value in _outward(read.values, complaint.around):
        with suppress(ValueError, SyntaxError):
            if wrong := misshapen(ast.literal_eval(value)):
                return wrong
    return None


def _misfit(read: _Reading, complaint: _Complaint, subject: str, kinds: tuple[type, ...]) -> str:
    """Says what a value is, and what is needed."""
    value, needed, ending = read.values.get(complaint.around, ""), [*read.types(complaint.around)], "."
    if read.needs_class(complaint.around) and (names := names_of(kinds)):
        needed = [name for name in needed if name != "null"] + [f"a class and its settings ({', '.join(names)})"]
        ending = f"; for example\n{example(kinds)}" if len(needed) == 1 or has_example(kinds) else "."
    elif "a list" in needed and re.fullmatch(r"-?\d+(, *-?\d+)*", value):
        ending = f". Write it as a list: [{value}]."
    value = re.sub(r"NestedArg\(key='(.*?)', val='?(.*?)'?\)", r"\1=\2", value)  # --trainer.strategy.samplers=2
    for_each = " for each" if complaint.around in read.parts and "a list" not in needed else ""
    text = f"{subject} cannot be {value}; needed{for_each}: {' or '.join(needed)}{ending}"
    part, _, name = complaint.key.rpartition(".")
    about = _described(import_class(complaint.class_path) or _PARTS.get(part), name)
    return f"{text}\n{about}" if about else text


@dataclass(frozen=True)
class _Reading:
    """The contents of a message, by the keys and classes around them."""

    complaints: list[_Complaint]
    values: dict[_Around, str]
    parts: set[_Around]  # where a value fails by a part of it
    kinds: dict[_Around, tuple[type, ...]]  # the classes of which one might be given

    def types(self, around: _Around) -> dict[str, None]:
        """The needed types there, other than a class, in words."""
        there = [
            complaint for complaint in self.complaints if complaint.around == around and complaint.category == "type"
        ]
        return dict.fromkeys(_in_words(complaint.it) for complaint in there)

    def needs_class(self, around: _Around) -> bool:
        return any(complaint.category != "type" for complaint in self.complaints if complaint.around == around)

    def add_value(self, around: _Around, value: str) -> None:
        if self.values.get(around, value) != value:
            self.parts.add(around)
        self.values[around] = value  # the last one is the whole of it

    def add_kinds(self, around: _Around, subtypes: str) -> None:
        named = [import_class(subtype["path"]) for subtype in _SUBTYPE.finditer(subtypes)]
        # A collection, or the base of all, is reported by the expected type.
        kinds = [cls for cls in named if inspect.isclass(cls) and cls.__module__ not in _GENERAL]
        self.kinds.setdefault(around, tuple(dict.fromkeys(kinds)))


def _read(message: str) -> _Reading:
    """Reads the lines, whose indentation says what lies within what."""
    read = _Reading([], {}, set(), {})
    open_: list[tuple[int, tuple[str, str]]] = []
    for line in filter(None, message.splitlines()):
        text = line.lstrip(" -")
        indent = len(line) - len(text)
        open_ = [item for item in open_ if item[0] < indent]
        around = tuple(item for _, item in open_)
        if value := _VALUE.match(text):
            read.add_value(around, value["value"])
        if key := _KEY.match(text):
            open_.append((indent, ("key", key["key"])))
        elif path := _CLASS.match(text):
            open_.append((indent, ("class", path["path"])))
        elif text.startswith("Subtypes: "):
            read.add_kinds(around, text)
        elif around and (problem := _problem(text)) and (problem[0] != "import" or around[-1][0] == "class"):
            read.complaints.append(_Complaint(around, *problem))
    read.complaints[:] = [_of_no_class(complaint, read) for complaint in read.complaints]
    return read


def _of_no_class(complaint: _Complaint, read: _Reading) -> _Complaint:
    """Where a mapping names no class, the parser takes it for settings of the base class, which may have none."""
    base = import_class(complaint.class_path)
    is_guess = "class_path" not in next(_outward(read.values, complaint.around), "class_path")
    is_guess &= base in NO_SETTINGS or not _settings(base)
    if complaint.category == "setting" and (is_guess or complaint.it in ("class_path", "init_args")):
        return _Complaint(complaint.around[:-1], "class", "")
    return complaint


def _outward(found_at: Mapping[_Around, _T], around: _Around) -> Iterator[_T]:
    """Lists the values there and around, from the innermost on."""
    return (found_at[around[:end]] for end in range(len(around), 0, -1) if around[:end] in found_at)


def _problem(text: str) -> tuple[str, str] | None:
    for category, pattern in _PROBLEMS.items():
        if fits := pattern.fullmatch(text):
            return category, fits["it"] or ""
    return None


def _settings(taker: Any) -> list[str]:
    """Lists the arguments that a class takes, of its bases too where it passes further ones on."""
    names: dict[str, None] = {}
    for cls in inspect.getmro(taker) if inspect.isclass(taker) else ():
        if "__init__" in vars(cls) and cls is not object:
            parameters = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
            names |= dict.fromkeys(
                one.name for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
            )
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
    return [*names]


def _in_words(type_name: str) -> str:
    if literal := re.fullmatch(r"typing\.Literal\[(.*)\]", type_name):
        return literal[1].replace(", ", " or ")
    return _WORDS.get(type_name) or type_name.removeprefix("<class '").removesuffix("'>").rsplit(".", 1)[-1]


def _described(taker: Any, name: str) -> str:
    """Quotes a class's docstring on an argument, up to its first full stop."""
    described = re.search(rf"^ *{re.escape(name)}: (.+?)(?:\.\s|^ *\w+: |\Z)", inspect.getdoc(taker) or "", re.M | re.S)
    # Without the marks by which a page of documentation is made of it.
    plain = re.sub(r":\w+:`\.?([^`]*)`|``([^`]*)``", r"\1\2", " ".join(described[1].split())) if described else ""
    return f"{name}: {plain}." if plain else ""


def unfit_part(config: Any) -> str | None:
    """Says what the parser accepts, but nothing can be made of; None where nothing is wrong. ``config`` is a
    command's."""
    for part in _PARTS:
        if not hasattr(config[part], "as_dict"):
            return f"{part}: settings by their names are needed, not {config[part]}."
    seed = config.get("seed_everything")
    if not isinstance(seed, bool) and isinstance(seed, int) and not 0 <= seed < 2**32:
        return f"seed_everything cannot be {seed}; needed: a whole number from 0 to 2**32 - 1, true or false."
    callbacks = config["trainer"].get("callbacks") or []
    for callback in callbacks if isinstance(callbacks, list) else [callbacks]:
        # A mapping without a class is read as settings of the base class, which has none.
        if import_class(callback["class_path"]) is pl.Callback and (settings := callback["init_args"].as_dict()):
            return f"trainer.callbacks: {misshapen(settings) or f'a class is needed with the settings {settings}.'}"
    return None


def refusal(error: Exception, settings: Any) -> str:
    """Says why Lightning's Trainer does not take its settings, and what this machine has where that is the reason."""
    if "invalid strategy name" in str(error):
        return f"trainer.strategy: {_no_strategy(settings.get('strategy'))}"
    text = f"the Trainer does not take its settings: {' '.join(str(error).split())}"
    if settings.get("accelerator") in ("gpu", "cuda") or "device" in text:
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        text += (
            f"\nThis machine has {len(os.sched_getaffinity(0))} cores and "
            f"{', '.join(gpus) or 'no GPU that torch can use'} (torch {torch.__version__}); gnnload doctor says more. "
            f"With trainer.accelerator: cpu, trainer.devices is a number of processes."
        )
    return text


def _no_strategy(strategy: Any) -> str:
    """Says that a strategy is a name of the registry, or a class with its settings."""
    registry = pl.strategies.StrategyRegistry
    classes = [*serving((pl.strategies.Strategy,))]
    name = str(strategy).rpartition(".")[2]
    if name in classes:
        short = next((registered for registered in registry if registry[registered]["strategy"].__name__ == name), None)
        return (
            f"{name} is a class, which is written with its settings:\n{as_yaml(name, {})}"
            f"{f'{chr(10)}Without settings, strategy: {short} will do.' if short else ''}"
        )
    near = suggestion(str(strategy), (*registry, *classes))
    return f"there is no strategy {'null' if strategy is None else strategy}{near}"
