"""Oracle of layer-neighbour sampling. Floats are Python's, added in the order that the kernel states."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lightning_gnnload.ops.dispatch import ALL_NEIGHBORS, DrawKey
from lightning_gnnload.ops.philox import philox, stream_keys, uint32

from .draws import name_of
from .neighbors import lists_of

SOURCE_BLOCK = 0x6C61626F
CONVERGED = 0.9999


@dataclass(frozen=True)
class WeightedHop:
    """One hop: as :class:`.Hop`, with the weight of each edge, float32 ``[num_edges]``."""

    num_src: int
    indptr: np.ndarray
    indices: np.ndarray
    edge_ids: np.ndarray
    weights: np.ndarray


def source_draw(draw_key: np.ndarray, step: int, hop: int, node: int) -> int:
    """The draw of a source, in ``[0, 2**64)``; see kernels/common/draw.h."""
    high = ((node >> 32) & 0xFFFF) | hop << 16
    word0, word1, *_ = philox(uint32(node, high, step, SOURCE_BLOCK), draw_key).tolist()
    return word0 << 32 | word1


def sample_labor(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int] | Sequence[Mapping[int, int]],
    key: DrawKey,
    *,
    importance: int = 0,
    layer_dependency: bool = False,
    fixed_count: bool = False,
    estimate: Literal["mean", "sum"] = "mean",
    expand: Literal["all", "new"] = "all",
    names: np.ndarray | None = None,
    edge_type: np.ndarray | None = None,
) -> tuple[np.ndarray, list[WeightedHop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.labor.sample_labor`. With ``edge_type``
    ``[E]``, by which lists are sorted, each hop has a fanout for some types."""
    local = {int(seed): i for i, seed in enumerate(seeds)}
    draw_key, _ = stream_keys(key.seed, key.epoch)
    draw_of = functools.cache(functools.partial(source_draw, draw_key, key.step))
    hop_indptr, hop_indices, edge_ids, weights = [0], list[int](), list[int](), list[float]()
    hops = []
    num_expanded = 0
    for hop in range(len(fanouts)):
        if expand == "all":
            hop_indptr, hop_indices, edge_ids, weights = [0], [], [], []
            num_expanded = 0
        nodes = list(local)[num_expanded:]
        first_hop = 0 if layer_dependency else hop
        lists = [list(lists_of(indptr, node, first_hop, fanouts[hop], edge_type)) for node in nodes]
        if importance and fanouts[hop] != ALL_NEIGHBORS:  # without types: each node has one list
            sources = [[int(indices[edge]) for edge in edges] for [(edges, *_)] in lists]
            inverse, scales = solve_importance(sources, fanouts[hop], importance)
        for dst, of_node in enumerate(lists):
            for edges, fanout, draw_hop in of_node:
                ts = [int(indices[edge]) for edge in edges]
                named = draw_hop if layer_dependency else key.hop + draw_hop
                draws = [draw_of(named, name_of(t, names)) for t in ts]
                degree = len(ts)
                if fanout == ALL_NEIGHBORS or degree <= fanout:
                    kept = [(j, 1.0) for j in range(degree)]
                elif fixed_count:
                    smallest = sorted(range(degree), key=lambda j: (draws[j], j))[:fanout]
                    kept = [(j, degree / fanout) for j in sorted(smallest)]
                elif importance:
                    pi = [1 / inverse[t] for t in ts]
                    kept = [
                        (j, 1 / min(1.0, scales[dst] * pi[j]))
                        for j, draw in enumerate(draws)
                        if float(draw >> 11) < scales[dst] * 2.0**53 * pi[j]
                    ]
                else:
                    kept = [(j, degree / fanout) for j in range(degree) if draws[j] * degree < fanout << 64]
                total = 0.0
                for _, inverse_p in kept:
                    total += inverse_p
                for j, inverse_p in kept:
                    edge_ids.append(edges[j])
                    hop_indices.append(local.setdefault(ts[j], len(local)))
                    weights.append(inverse_p * (len(kept) / total) if estimate == "mean" else inverse_p)
            hop_indptr.append(len(hop_indices))
        num_expanded = len(hop_indptr) - 1
        hops.append(
            WeightedHop(
                len(local),
                np.array(hop_indptr),
                np.array(hop_indices, np.int64),
                np.array(edge_ids, np.int64),
                np.array(weights, np.float32),
            )
        )
    return np.array(list(local), np.int64), hops


def solve_importance(
    sources: Sequence[Sequence[int]], fanout: int, importance: int
) -> tuple[dict[int, float], list[float]]:
    """Solves one hop for 1 / pi of each source and the scale c of each destination; ``sources`` has one list for
    each."""
    inverse = dict.fromkeys(itertools.chain(*sources), 1.0)
    scales = [1.0 if len(ts) <= fanout else fanout / len(ts) for ts in sources]
    before = math.inf
    for i in itertools.count():
        if i == importance:
            break
        largest = dict.fromkeys(inverse, 0.0)
        for ts, scale in zip(sources, scales, strict=True):
            largest |= {t: max(largest[t], scale) for t in ts}
        inverse = {t: value / largest[t] for t, value in inverse.items()}
        scales = [solve_scale([inverse[t] for t in ts], fanout) for ts in sources]
        expected = lane_sum(1.0 if value <= 1 else 1 / value for value in inverse.values())
        if importance < 0 and expected >= CONVERGED * before:
            break
        before = expected
    return inverse, scales


def solve_scale(inverse: Sequence[float], fanout: int) -> float:
    """The c at which ``sum(max(1, v / c) for v in inverse)`` is degree**2 / fanout.

    Those at or below c are certain and count 1, the others v / c. Which are certain is found from a guess by
    Newton's method, as in the kernel, so that the same sum is divided in the end.
    """
    degree = len(inverse)
    if degree <= fanout:
        return max(inverse, default=0.0)
    target = float(degree) * float(degree) / float(fanout)
    c, before = 1.0, -1
    for step in itertools.count():
        certain = sum(value <= c for value in inverse)
        if certain == before or (step > 1 and certain < before):
            break
        before = certain
        c = lane_sum(value if value > c else 0.0 for value in inverse) / (target - certain)
    return c


def lane_sum(terms: Iterable[float]) -> float:
    """Eight lanes add every eighth term each; then their sums are added in pairs."""
    lanes = [0.0] * 8
    for i, term in enumerate(terms):
        lanes[i % 8] += term
    while len(lanes) > 1:
        lanes = [a + b for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
    return lanes[0]
