"""Checks of settings that callers pass: whole numbers, choices among names, and keyword arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from lightning_gnnload.errors import GnnLoadError, UnknownSettingError

_MOST_BYTES = 1 << 60


def check_whole_number(
    name: str, value: Any, error: type[GnnLoadError], *, least: int = 1, most: int | None = None
) -> None:
    """Raises ``error`` unless ``value`` is an int from ``least`` to ``most``.

    Example:
        >>> from lightning_gnnload.errors import LoaderConfigError
        >>> check_whole_number("batch_size", 0, LoaderConfigError)
        Traceback (most recent call last):
        lightning_gnnload.errors.LoaderConfigError: batch_size=0: a whole number of at least 1 is needed.
    """
    # True is an int, but nobody who writes it means the number 1.
    if type(value) is bool or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise error(f"{name}={value!r}: a whole number {bounds} is needed.")


def check_one_of(
    name: str, value: Any, choices: Iterable[str], error: type[GnnLoadError], *, alternative: str = ""
) -> None:
    """Raises ``error`` unless ``value`` is one of ``choices``; ``alternative`` ends the list, as ``" or a SeedOrder"``.

    Example:
        >>> from lightning_gnnload.errors import LoaderConfigError
        >>> check_one_of("features", "disc", ["mapped", "disk"], LoaderConfigError)
        Traceback (most recent call last):
        lightning_gnnload.errors.LoaderConfigError: features='disc' is not known; give one of 'mapped', 'disk'.
    """
    choices = list(choices)  # not a set: a value that cannot be hashed is an error of ours, too
    if not isinstance(value, str) or value not in choices:
        raise error(f"{name}={value!r} is not known; give one of {', '.join(map(repr, choices))}{alternative}.")


def amount_of(text: str) -> tuple[float, int]:
    """Returns a number and how many bytes its unit has; 0 of what is no amount.

    Example:
        >>> amount_of("4GB"), amount_of("1.5 MiB"), amount_of("plenty")
        ((4.0, 1000000000), (1.5, 1048576), (0.0, 1))
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT])(i?)B", text, re.IGNORECASE)
    if not match:
        return 0.0, 1
    return float(match[1]), (1024 if match[3] else 1000) ** (1 + "KMGT".index(match[2].upper()))


def num_bytes_of(name: str, value: Any, error: type[GnnLoadError]) -> int:
    """Returns an amount of memory in bytes: a whole number of them, or text with a unit. Raises ``error``: it is none.

    Example:
        >>> from lightning_gnnload.errors import LoaderConfigError
        >>> num_bytes_of("memory", "2 GiB", LoaderConfigError)
        2147483648
    """
    if isinstance(value, str):
        number, unit = amount_of(value)
        value = int(number * unit) or value
    if type(value) is not int or not 0 < value < _MOST_BYTES:
        raise error(f"{name}={value!r}: an amount of memory with its unit is needed, as '4GB', or a number of bytes.")
    return value


def keywords_of(function: object) -> list[str]:
    """Lists the arguments that a method takes by name, without those that ``**arguments`` collects."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return [name for name in named if name != "self"]


def takes_any(function: object) -> bool:
    """Returns whether a method takes keyword arguments of any name, as ``**arguments``."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())  # type: ignore[arg-type]


def refuse_unknown(
    taker: str, names: Collection[str], allowed: Collection[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raises UnknownSettingError for the first of ``names`` that the class ``taker`` does not take as a keyword.

    ``elsewhere`` says, for names that another library's class has, what to write here instead.

    Example:
        >>> refuse_unknown("NeighborSampler", ["fanout"], ["fanouts", "replace"])
        Traceback (most recent call last):
        lightning_gnnload.errors.UnknownSettingError: NeighborSampler has no fanout=. Did you mean fanouts=?
    """
    for name in names:
        if name in allowed:
            continue
        if elsewhere is not None and name in elsewhere:
            advice = f"What says the same here: {elsewhere[name]}."
        elif near := get_close_matches(name, allowed, 1):
            advice = f"Did you mean {near[0]}=?"
        else:
            advice = f"It has: {', '.join(allowed)}."
        raise UnknownSettingError(f"{taker} has no {name}=. {advice}")
