"""Objects of parsed settings, and this package's error among the causes of a parser's."""

from __future__ import annotations

import traceback
from typing import Any

from lightning_gnnload.errors import GnnLoadError

_UNION = "raise_union_unexpected_value"  # of jsonargparse


def instantiate(parser: Any, settings: Any) -> Any:
    """Makes all objects whose settings a parser of jsonargparse's has read."""
    # Older releases have the longer name only, newer ones warn of it.
    return (getattr(parser, "instantiate", None) or parser.instantiate_classes)(settings)


def known_cause(error: BaseException | None) -> GnnLoadError | None:
    """Finds this package's error among the causes of another one; None where there is none."""
    waiting = [error]
    while waiting:
        candidate = waiting.pop(0)
        if isinstance(candidate, GnnLoadError):
            return candidate
        if candidate is not None:
            waiting += [candidate.__cause__, *_of_alternatives(candidate)]
    return None


def _of_alternatives(error: BaseException) -> list[BaseException]:
    """Why each type of a setting did not take its value: the parser makes the first its cause, the others only
    words."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    lists = [frame.f_locals.get("exceptions") for frame in frames if frame.f_code.co_name == _UNION]
    return [cause for errors in lists if isinstance(errors, list) for cause in errors]
