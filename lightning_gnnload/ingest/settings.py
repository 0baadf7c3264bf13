"""Settings of YAML as checked dataclasses: what a value may be, and the error where it is not.

A check takes a value and its path, as ``edges.buys.src``, and returns it, or raises GraphSpecError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from lightning_gnnload.datasets.description import YamlLines, short
from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.settings import amount_of

SettingCheck = Callable[[Any, str], Any]
S = TypeVar("S")
_MOST_THREADS = 1024
_MOST_BYTES = 1 << 60


SCHEMAS: dict[SettingCheck, Any] = {}
"""What JSON Schema says of the values that a check lets pass; a dataclass where it reads one, :class:`.ByName` of one
where it reads them by their names. Checks that are not there let anything pass, as far as editors are concerned."""


@dataclass(frozen=True)
class ByName:
    """A mapping from names to what ``cls`` reads."""

    cls: type


def fits(schema: Any) -> Callable[[SettingCheck], SettingCheck]:
    """Registers what JSON Schema says of a check."""

    def register(check: SettingCheck) -> SettingCheck:
        SCHEMAS[check] = schema
        return check

    return register


def section(cls: type) -> SettingCheck:
    """Makes the check of a mapping that a dataclass reads."""
    return fits(cls)(lambda value, where: read_settings(cls, value, where))


def setting(check: SettingCheck, name: str | None = None) -> dict[str, Any]:
    """Returns the metadata of a dataclass's field: its check, and its key in YAML where that is no name in Python, as
    ``from``."""
    return {"check": check, "name": name}


class Faults:
    """Gathers the faults of a description, so that one reading tells them all."""

    def __init__(self) -> None:
        self._errors: list[GraphSpecError] = []

    def take(self, check: Callable[..., Any], *arguments: Any, instead: Any = None) -> Any:
        """Returns what a check returns; of what has faults, which are gathered, what could be read, or ``instead``."""
        try:
            return check(*arguments)
        except GraphSpecError as error:
            self._errors += error.faults or (error,)
            return instead if error.readable is None else error.readable

    def add(self, where: str, sentence: str) -> None:
        """Gathers one that is at ``where``."""
        error = GraphSpecError(sentence)
        error.where = where
        self._errors.append(error)

    def result(self, readable: S) -> S:
        """Returns what was read; raises GraphSpecError for all faults that were gathered, which has it likewise."""
        if not self._errors:
            return readable
        error = spec_error(self._errors, "\n".join(map(str, self._errors)))
        error.readable = readable
        raise error


def spec_error(faults: Iterable[GraphSpecError], message: str) -> GraphSpecError:
    """Returns the error of several faults."""
    error = GraphSpecError(message)
    error.faults = tuple(faults)
    return error


def fault_lines(error: GraphSpecError, text: str) -> list[tuple[int, str]]:
    """Returns the faults of a YAML text, each with its line, ascending."""
    lines = YamlLines(text)
    # Where nothing else was said, a sentence begins with its place.
    by_line = [
        (lines.of(fault.where or str(fault).partition(": ")[0]), str(fault)) for fault in error.faults or (error,)
    ]
    return sorted(by_line, key=lambda line: line[0])


def read_settings(cls: type[S], values: Any, where: str) -> S:
    """Makes a dataclass of what YAML says; raises GraphSpecError for all unknown or missing keys and wrong values.
    What could be read then has None for a required key without a value, and else the default."""
    if not isinstance(values, Mapping):
        raise wrong(where, values, "a mapping is needed, KEY: VALUE")
    by_key, faults = fields_by_key(cls), Faults()
    title, required = where or "graph.yaml", [key for key, field in fields_by_key(cls).items() if is_required(field)]
    absent = [key for key in by_key if key not in values]
    for key in values:
        if key not in by_key:
            # What was meant is rather a key that is not there yet; then it does not count as missing, too.
            meant = get_close_matches(str(key), absent, 1)
            absent = [name for name in absent if name not in meant]
            faults.add(
                f"{where}.{key}" if where else str(key),
                f"{title}: there is no key {key!r}{did_you_mean(key, meant or by_key)} There are: {', '.join(by_key)}.",
            )
    for key in required:
        if key in absent:
            faults.add(where, f"{title}: the key {key!r} is missing. Needed are: {', '.join(required)}.")
    readable = {}
    for key, field in by_key.items():
        if key in values:
            path, check = f"{where}.{key}" if where else key, field.metadata["check"]
            readable[field.name] = faults.take(check, values[key], path, instead=_default(field))
        elif is_required(field):
            readable[field.name] = None
    return faults.result(cls(**readable))


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def fields_by_key(cls: type) -> dict[str, Field[Any]]:
    """Returns a dataclass's fields by their keys in YAML, required ones first, as messages list them."""
    keys = sorted(fields(cls), key=lambda field: not is_required(field))
    return {field.metadata["name"] or field.name: field for field in keys}


def is_required(field: Field[Any]) -> bool:
    """Returns whether a description must name a setting, as it has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def wrong(where: str, value: Any, needed: str) -> GraphSpecError:
    """Returns the error for a value of a description that is not what was needed."""
    error = GraphSpecError(f"{where or 'the description'}: {short(value):.200} was given, but {needed}.")
    error.where = where
    return error


@fits({"type": "string", "minLength": 1})
def a_text(value: Any, where: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        quote = " YAML reads some words, as no, on and 2026, as other things: put it in quotes" if value else ""
        raise wrong(where, value, f"a text is needed.{quote}" if quote else "a text is needed")
    return value


@fits({"type": "boolean"})
def a_flag(value: Any, where: str) -> bool:
    """Returns true or false; GraphSpecError for anything else."""
    if not isinstance(value, bool):
        raise wrong(where, value, "true or false is needed")
    return value


@fits({"type": "integer", "minimum": 1})
def a_count(value: Any, where: str) -> int:
    """Returns a whole number; GraphSpecError for anything else."""
    if type(value) is not int or value < 1:
        raise wrong(where, value, "a whole number of 1 or more is needed")
    return value


@fits({"type": "integer", "minimum": 0})
def a_seed(value: Any, where: str) -> int:
    """A whole number of 0 or more, of 63 bits."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise wrong(where, value, "a whole number of 0 or more is needed")
    return value


def one_of(*words: Any) -> SettingCheck:
    """Makes the check of words, one of which is needed."""

    @fits({"enum": list(words)})
    def check(value: Any, where: str) -> Any:
        if isinstance(value, (str, bool)) and value in words:
            return value
        choices = " or ".join(str(word).lower() if isinstance(word, bool) else word for word in words)
        raise wrong(where, value, f"{choices} is needed")

    return check


def or_none(check: SettingCheck) -> SettingCheck:
    """Makes the check that lets None pass."""
    schema = SCHEMAS.get(check, {})
    passes_none = fits({"anyOf": [schema, {"type": "null"}]} if schema else {})
    return passes_none(lambda value, where: None if value is None else check(value, where))


def did_you_mean(name: Any, names: Iterable[Any]) -> str:
    """Returns the end of a sentence about a name that is not there: the nearest of ``names``, if one is near."""
    near = get_close_matches(str(name), list(map(str, names)), 1)
    return f"; did you mean {near[0]!r}?" if near else "."


@fits({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
def a_table(value: Any, where: str) -> Any:
    """A path, a glob, a list of paths, a "select ...", or a table in memory, which :class:`.Source` opens."""
    is_text = isinstance(value, (str, Path)) and str(value).strip()
    is_list = isinstance(value, (list, tuple)) and value and all(isinstance(path, (str, Path)) for path in value)
    in_memory = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__dataframe__")
    if is_text or is_list or in_memory:
        return value
    raise wrong(where, value, 'a path, a list of paths, a "select ..." or, in Python, a table is needed')


@fits({"type": "string", "pattern": "^[0-9.]+ *[A-Za-z]+$"})
def an_amount(value: Any, where: str) -> str:
    """An amount of memory with its unit, as ``4GB``."""
    number, unit = amount_of(value) if isinstance(value, str) else (0.0, 1)
    if 0 < number * unit < _MOST_BYTES:
        return str(value)
    raise wrong(where, value, "an amount of memory with its unit is needed, as 4GB")


@fits({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MOST_THREADS}, {"const": "all"}]})
def some_threads(value: Any, where: str) -> int | None:
    """How many threads; None for ``"all"``."""
    if value == "all":
        return None
    if type(value) is int and 1 <= value <= _MOST_THREADS:
        return value
    raise wrong(where, value, f'a number of threads is needed, up to {_MOST_THREADS}, or "all"')


@fits({"type": ["boolean", "string"]})
def a_reverse(value: Any, where: str) -> bool | str:
    """Whether there are reverse edges, or the name of their type."""
    return value if isinstance(value, bool) else a_name(a_text(value, where), where)


@fits({"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 3})
def three_shares(value: Any, where: str) -> tuple[float, ...]:
    """The shares of train, val and test, the last of which may be left out."""
    is_list = isinstance(value, (list, tuple)) and len(value) in (2, 3)
    if is_list and all(type(share) in (int, float) and share >= 0 for share in value) and abs(sum(value) - 1) < 1e-6:
        return tuple(map(float, value)) + (0.0,) * (3 - len(value))
    raise wrong(where, value, "the shares of train, val and test are needed, which sum to 1, as [0.8, 0.1, 0.1]")


@fits({"type": "string", "pattern": r"^\d{4}-\d\d"})
def a_moment(value: Any, where: str) -> str:
    """A date, or the beginning of one, as text."""
    if isinstance(value, (str, date)) and re.match(r"\d{4}-\d\d", str(value)):
        return str(value)
    raise wrong(where, value, "a date is needed, as 2026-03-01 or 2026-03-01 12:00:00")


def a_name(value: Any, where: str) -> str:
    """What types and tasks may be called: names of arrays and files are made of it."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\W\d](?:(?!__)[\w-])*", value):
        raise wrong(where, value, "a name is needed: letters, digits, - and single _, with a letter or _ first")
    return value
