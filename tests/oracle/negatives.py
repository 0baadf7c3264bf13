"""Oracle of negatives: edges are tuples in a list, of which nothing is sorted.

An edge of the type that is asked about is ``(source, destination, code)``, ids of the graph.
"""

from __future__ import annotations

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey
from lightning_gnnload.ops.philox import philox, uint32

from .draws import NodeDraws
from .weighted import alias_entries

Edge = tuple[int, int, int]
ALWAYS = -1
"""The code of an edge of a type without times, and the time of a node of one."""


def is_known(edges: list[Edge], src: int, dst: int, until: int | None) -> bool:
    return any(u == src and v == dst and (until is None or code < until) for u, v, code in edges)


def choose(draws: NodeDraws, j: int, count: int, weights: list[float] | None, by_twos: bool) -> int:
    """Draw j of ``[0, count)``; by weight, it takes a coin, too, and then every draw is the first of two."""
    number = 2 * j if by_twos else j
    slot = draws.below([count] * (number + 1))[number]
    if weights is None:
        return slot
    threshold, alias = alias_entries(weights)[slot]
    return slot if int(draws.words(number + 2)[number + 1]) < threshold else alias


def draw_negatives(
    edges: list[Edge],
    type_field: int,
    sources: range,
    destinations: range,
    rows: list[int],
    key: DrawKey,
    num: int,
    *,
    ends: list[tuple[int, int]] | None = None,
    until: list[int] | None = None,
    times: dict[int, int] | None = None,
    num_dst: int,
    tries: int,
    weights: tuple[list[float] | None, list[float] | None] = (None, None),
) -> np.ndarray:
    """int64 ``[P, num]``; see :func:`.negatives.draw_negatives`. ``type_field`` is the edge type's number plus one; 0
    in a graph without types."""
    words = philox(uint32(key.epoch, 0, 0, int.from_bytes(b"nega", "big")), uint32(key.seed, key.seed >> 32))
    drawn = np.full((len(rows), num), -1, np.int64)
    for i, row in enumerate(rows):
        bound = None if until is None else until[i]
        for j in range(num):
            among = destinations if j < num_dst else sources
            for attempt in range(tries):
                draws = NodeDraws(words[:2], attempt, type_field << 4, row)
                node = among[choose(draws, j, len(among), weights[1 if j < num_dst else 0], weights != (None, None))]
                if ends is None:
                    drawn[i, j] = node
                    break
                src, dst = (ends[i][0], node) if j < num_dst else (node, ends[i][1])
                is_late = bound is not None and times is not None and times[node] >= bound
                if (src, dst) != ends[i] and not is_late and not is_known(edges, src, dst, bound):
                    drawn[i, j] = node
                    break
    return drawn
