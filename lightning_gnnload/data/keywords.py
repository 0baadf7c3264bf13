"""Keyword arguments that a class does not have: which one was meant, or what says the same here."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from lightning_gnnload.errors import UnknownSettingError


def keywords_of(function: object) -> list[str]:
    """Lists the arguments that a method takes by name; ``**others`` are not among them."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return [name for name in named if name != "self"]


def takes_any(function: object) -> bool:
    """Returns whether a method takes keyword arguments of any name, as ``**others``."""
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())  # type: ignore[arg-type]


def refuse_unknown(
    taker: str, given: Collection[str], known: Collection[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuses keyword arguments that a class does not have.

    Args:
        taker: the class's name.
        given: names of the keyword arguments.
        known: those that it has.
        elsewhere: names that it might have had, and what says the same.

    Raises:
        UnknownSettingError: one is not known.

    Example:
        >>> refuse_unknown("NeighborSampler", ["fanout"], ["fanouts", "replace"])
        Traceback (most recent call last):
        lightning_gnnload.errors.UnknownSettingError: NeighborSampler has no fanout=. Did you mean fanouts=?
    """
    for name in given:
        if name in known:
            continue
        if elsewhere is not None and name in elsewhere:
            advice = f"What says the same here: {elsewhere[name]}."
        elif near := get_close_matches(name, known, 1):
            advice = f"Did you mean {near[0]}=?"
        else:
            advice = f"It has: {', '.join(known)}."
        raise UnknownSettingError(f"{taker} has no {name}=. {advice}")
