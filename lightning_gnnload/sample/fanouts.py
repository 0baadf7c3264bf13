"""Fanouts as users give them: from Python, or from a configuration file.

Raises, all of them:
    SamplerConfigError: what was given is no such thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import TypedLists

HopFanouts = int | dict[Any, int]
"""The fanout of a hop, or one for each of some edge types, which are numbers or names."""


def typed_fanouts(fanouts: Any) -> list[HopFanouts]:
    """Checks fanouts of one number a hop, or of one for each edge type, by hop or as PyG has it: ``{edge type: [fanout
    by hop]}``, where 0 draws nothing."""
    if isinstance(fanouts, Mapping):
        return _turned(fanouts)
    return [_hop(hop, fanouts=fanouts) for hop in _as_list(fanouts)]


def numbered_fanouts(fanouts: Sequence[HopFanouts], types: GraphTypes | None) -> list[int | dict[int, int]]:
    """Returns the same fanouts with edge types by number, which are named only where the graph has names for them."""
    if types is None:
        return list(fanouts)
    return [
        {types.edge_type_number(name): fanout for name, fanout in hop.items()} if isinstance(hop, dict) else hop
        for hop in fanouts
    ]


def fanouts_by_type(
    fanouts: Sequence[HopFanouts], types: GraphTypes | None, num_types: int, *, is_part: bool = False
) -> np.ndarray:
    """Returns the fanouts by hop and edge type, int64 ``[L, K]``, of a graph with lists by type; those of unknown types
    are a mistake in a whole graph, but a part may have no edge of a type by chance."""
    hops = tuple([tuple(hop.items()) if isinstance(hop, dict) else hop for hop in fanouts])
    return _table_of(hops, types, num_types, is_part)


@lru_cache(maxsize=64)
def _table_of(
    hops: tuple[int | tuple[tuple[Any, int], ...], ...], types: GraphTypes | None, num_types: int, is_part: bool
) -> np.ndarray:
    """Makes a table of fanouts, which each mini-batch asks for."""
    by_hop = numbered_fanouts([dict(hop) if isinstance(hop, tuple) else hop for hop in hops], types)
    for number, hop in enumerate(by_hop):
        if is_part and types is None and isinstance(hop, dict):
            by_hop[number] = {edge_type: fanout for edge_type, fanout in hop.items() if edge_type < num_types}
    table = ops.fanout_table(by_hop, num_types)
    table.flags.writeable = False
    return table


def hop_to_json(hop: HopFanouts, *, by_type: bool) -> Any:
    """Returns the fanout of a hop as JSON values, which name by strings alone: the number, or, ``by_type``, pairs of a
    type and its fanout, of None for every type."""
    if not by_type:
        return hop
    return [*map(list, hop.items())] if isinstance(hop, dict) else [[None, hop]]


def hop_from_json(hop: Any, lists: TypedLists | None) -> HopFanouts:
    """Reads what :func:`hop_to_json` wrote, for a part of the graph with ``lists``; None where these have no types."""
    if not isinstance(hop, list):
        return _fanout(hop, hop)
    by_type: dict[Any, Any] = {}
    for name, fanout in hop:
        if name is None:
            by_type |= dict.fromkeys(range(0 if lists is None else lists.num_edge_types), fanout)
        else:
            by_type[tuple(name) if isinstance(name, list) else name] = fanout
    return by_type


def plain_fanouts(fanouts: Any) -> list[int]:
    """Checks fanouts of one number a hop."""
    return [_fanout(hop, fanouts=fanouts) for hop in _as_list(fanouts)]


def check_expand(expand: Literal["all", "new"] | None) -> Literal["all", "new"]:
    """Checks the setting that says which nodes a hop expands; None is ``"all"``."""
    if expand is None:
        return "all"
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


def _hop(hop: Any, fanouts: Any) -> HopFanouts:
    if isinstance(hop, Mapping):
        return {_edge_type(edge_type, fanouts): _fanout(fanout, fanouts) for edge_type, fanout in hop.items()}
    return _fanout(hop, fanouts)


def _turned(by_type: Mapping[Any, Any]) -> list[HopFanouts]:
    """Turns fanouts by type and hop into those by hop and type."""
    if any(not isinstance(hops, Sequence | np.ndarray) for hops in by_type.values()):
        raise _no_fanouts(by_type)
    lists = {_edge_type(edge_type, by_type): _as_list(hops) for edge_type, hops in by_type.items()}
    if len({len(hops) for hops in lists.values()}) != 1:
        raise SamplerConfigError(
            f"fanouts={by_type!r}: as many hops are needed for each edge type; 0 draws nothing at a hop."
        )
    [num_hops] = {len(hops) for hops in lists.values()}
    return [
        {edge_type: _fanout(hops[hop], by_type) for edge_type, hops in lists.items() if hops[hop] != 0}
        for hop in range(num_hops)
    ]


def _edge_type(edge_type: Any, fanouts: Any) -> Any:
    """Checks the name of an edge type: ``(source, relation, target)``, one string, or a number."""
    if isinstance(edge_type, str) or (
        isinstance(edge_type, tuple) and all(isinstance(name, str) for name in edge_type)
    ):
        return edge_type
    return _whole(edge_type, fanouts)


def _fanout(fanout: Any, fanouts: Any) -> int:
    fanout = _whole(fanout, fanouts)
    if fanout == 0 or fanout < -1:
        raise SamplerConfigError(f"fanouts={fanouts}: each must be positive, or -1 to take all neighbours.")
    return fanout


def _whole(number: Any, fanouts: Any) -> int:
    if not isinstance(number, int | np.integer) or isinstance(number, bool):
        raise _no_fanouts(fanouts)
    return int(number)


def _no_fanouts(fanouts: Any) -> SamplerConfigError:
    return SamplerConfigError(
        f"fanouts={fanouts!r}: a list of whole numbers is needed, one a hop, for example [15, 10, 5]; or, for "
        "NeighborSampler, of {edge type: fanout}, for example [{0: 10, 1: 5}] or [{'rates': 10}]."
    )
