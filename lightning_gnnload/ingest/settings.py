"""Settings of YAML as checked dataclasses: what each value may be, and what is said where it is not.

A check takes what was given and where it stands, as ``edges.buys.src``, and returns it, or raises GraphSpecError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from lightning_gnnload.data.datasets.described import short
from lightning_gnnload.errors import GraphSpecError

Check = Callable[[Any, str], Any]
S = TypeVar("S")
_MOST_THREADS = 1024
_MOST_BYTES = 1 << 60


def setting(check: Check, name: str | None = None) -> dict[str, Any]:
    """Returns what a dataclass's field says of its key: what it may be, and its name where Python has no such."""
    return {"check": check, "name": name}


def read_settings(kind: type[S], given: Any, where: str) -> S:
    """Raises GraphSpecError: an unknown key, a missing one, or a value that is none; each by its place."""
    if not isinstance(given, Mapping):
        raise wrong(where, given, "a mapping is needed, KEY: VALUE")
    keys = sorted(fields(kind), key=lambda each: not _is_required(each))  # type: ignore[arg-type]
    known = {each.metadata["name"] or each.name: each for each in keys}
    for key in given:
        if key not in known:
            raise GraphSpecError(
                f"{where or 'graph.yaml'}: there is no key {key!r}{nearest(key, known)} There are: {', '.join(known)}."
            )
    values = {}
    for key, each in known.items():
        if key in given:
            values[each.name] = each.metadata["check"](given[key], f"{where}.{key}" if where else key)
        elif _is_required(each):
            needed = ", ".join(key for key, each in known.items() if _is_required(each))
            raise GraphSpecError(f"{where or 'graph.yaml'}: the key {key!r} is missing. Needed are: {needed}.")
    return kind(**values)


def _is_required(key: Field[Any]) -> bool:
    return key.default is MISSING and key.default_factory is MISSING


def wrong(where: str, given: Any, needed: str) -> GraphSpecError:
    """Makes the error about a value."""
    return GraphSpecError(f"{where or 'the description'}: {short(given):.200} was given, but {needed}.")


def a_text(given: Any, where: str) -> str:
    """A text that is not empty."""
    if not isinstance(given, str) or not given:
        quote = " YAML reads some words, as no, on and 2026, as other things: put it in quotes" if given else ""
        raise wrong(where, given, f"a text is needed.{quote}" if quote else "a text is needed")
    return given


def a_flag(given: Any, where: str) -> bool:
    """True or false."""
    if not isinstance(given, bool):
        raise wrong(where, given, "true or false is needed")
    return given


def a_count(given: Any, where: str) -> int:
    """A whole number of 1 or more."""
    if type(given) is not int or given < 1:
        raise wrong(where, given, "a whole number of 1 or more is needed")
    return given


def a_seed(given: Any, where: str) -> int:
    """A whole number of 0 or more, of 63 bits."""
    if type(given) is not int or not 0 <= given < 2**63:
        raise wrong(where, given, "a whole number of 0 or more is needed")
    return given


def one_of(*words: Any) -> Check:
    """Makes the check of words, one of which is needed."""

    def check(given: Any, where: str) -> Any:
        if isinstance(given, (str, bool)) and given in words:
            return given
        told = " or ".join(str(word).lower() if isinstance(word, bool) else word for word in words)
        raise wrong(where, given, f"{told} is needed")

    return check


def or_none(check: Check) -> Check:
    """Makes the check that lets None pass."""
    return lambda given, where: None if given is None else check(given, where)


def nearest(given: Any, known: Iterable[Any]) -> str:
    """Returns the end of a sentence about a name that is not there: which that is known is like it."""
    near = get_close_matches(str(given), [str(each) for each in known], 1)
    return f"; did you mean {near[0]!r}?" if near else "."


def a_table(given: Any, where: str) -> Any:
    """A path, a glob, a list of paths, a "select ...", or a table in memory, which :class:`.Source` opens."""
    is_text = isinstance(given, (str, Path)) and str(given).strip()
    is_list = isinstance(given, (list, tuple)) and given and all(isinstance(each, (str, Path)) for each in given)
    in_memory = hasattr(given, "__arrow_c_stream__") or hasattr(given, "__dataframe__")
    if is_text or is_list or in_memory:
        return given
    raise wrong(where, given, 'a path, a list of paths, a "select ..." or, in Python, a table is needed')


def an_amount(given: Any, where: str) -> str:
    """An amount of memory with its unit, as ``4GB``."""
    number, unit = amount_of(given) if isinstance(given, str) else (0.0, 1)
    if 0 < number * unit < _MOST_BYTES:
        return str(given)
    raise wrong(where, given, "an amount of memory with its unit is needed, as 4GB")


def amount_of(text: str) -> tuple[float, int]:
    """Returns a number and how many bytes its unit has; 0 of what is no amount."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT])(i?)B", text, re.IGNORECASE)
    if not found:
        return 0.0, 1
    return float(found[1]), (1024 if found[3] else 1000) ** (1 + "KMGT".index(found[2].upper()))


def some_threads(given: Any, where: str) -> int | None:
    """How many threads; None for ``"all"``."""
    if given == "all":
        return None
    if type(given) is int and 1 <= given <= _MOST_THREADS:
        return given
    raise wrong(where, given, f'a number of threads is needed, up to {_MOST_THREADS}, or "all"')


def a_reverse(given: Any, where: str) -> bool | str:
    """Whether there are reverse edges, or the name of their type."""
    return given if isinstance(given, bool) else a_name(a_text(given, where), where)


def three_shares(given: Any, where: str) -> tuple[float, ...]:
    """The shares of train, val and test, the last of which may be left out."""
    is_list = isinstance(given, (list, tuple)) and len(given) in (2, 3)
    if is_list and all(type(each) in (int, float) and each >= 0 for each in given) and abs(sum(given) - 1) < 1e-6:
        return tuple(map(float, given)) + (0.0,) * (3 - len(given))
    raise wrong(where, given, "the shares of train, val and test are needed, which sum to 1, as [0.8, 0.1, 0.1]")


def a_moment(given: Any, where: str) -> str:
    """A date, or the beginning of one, as text."""
    if isinstance(given, (str, date)) and re.match(r"\d{4}-\d\d", str(given)):
        return str(given)
    raise wrong(where, given, "a date is needed, as 2026-03-01 or 2026-03-01 12:00:00")


def a_name(given: Any, where: str) -> str:
    """What types and tasks may be called: names of arrays and files are made of it."""
    if not isinstance(given, str) or not re.fullmatch(r"[^\W\d](?:(?!__)[\w-])*", given):
        raise wrong(where, given, "a name is needed: letters, digits, - and single _, with a letter or _ first")
    return given
