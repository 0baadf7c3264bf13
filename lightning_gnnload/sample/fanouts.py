"""Fanouts as users give them: from Python, or from a configuration file.

Raises, all of them:
    SamplerConfigError: what was given is no such thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from lightning_gnnload.errors import SamplerConfigError


def typed_fanouts(fanouts: Any) -> list[int | dict[int, int]]:
    """Checks fanouts of one number a hop, or of one for each edge type."""
    return [_hop(hop, given=fanouts) for hop in _as_list(fanouts)]


def plain_fanouts(fanouts: Any) -> list[int]:
    """Checks fanouts of one number a hop."""
    return [_fanout(hop, given=fanouts) for hop in _as_list(fanouts)]


def check_expand(expand: Literal["all", "new"]) -> Literal["all", "new"]:
    """Checks the setting that says which nodes a hop expands."""
    if not isinstance(expand, str) or expand not in ("all", "new"):
        raise SamplerConfigError(
            f"expand={expand!r} is not known; give 'all' (every node seen) or 'new' (new nodes only)."
        )
    return expand


def _as_list(fanouts: Any) -> list[Any]:
    if isinstance(fanouts, str | Mapping):
        raise _no_fanouts(fanouts)
    try:
        return list(fanouts)
    except TypeError:  # NumPy's arrays of no dimension look iterable
        raise _no_fanouts(fanouts) from None


def _hop(hop: Any, given: Any) -> int | dict[int, int]:
    if isinstance(hop, Mapping):
        return {_whole(kind, given): _fanout(fanout, given) for kind, fanout in hop.items()}
    return _fanout(hop, given)


def _fanout(fanout: Any, given: Any) -> int:
    fanout = _whole(fanout, given)
    if fanout == 0 or fanout < -1:
        raise SamplerConfigError(f"fanouts={given}: each must be positive, or -1 to take all neighbours.")
    return fanout


def _whole(number: Any, given: Any) -> int:
    if not isinstance(number, int | np.integer) or isinstance(number, bool):
        raise _no_fanouts(given)
    return int(number)


def _no_fanouts(given: Any) -> SamplerConfigError:
    return SamplerConfigError(
        f"fanouts={given!r}: a list of whole numbers is needed, one a hop, for example [15, 10, 5]; or, for "
        "NeighborSampler, of {edge type: fanout}, for example [{0: 10, 1: 5}]."
    )
