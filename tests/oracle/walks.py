"""Oracle of random walks and of the neighbourhoods that they visit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey
from lightning_gnnload.ops.walks import Walks

from .draws import BatchDraws, NodeDraws, name_of
from .weighted import NOBODY, alias_entries

Lists = Callable[[int], range]
"""Where in ``indices`` the in-neighbours lie that a walk may step to from a node."""


def random_walk(
    indptr: np.ndarray,
    indices: np.ndarray,
    starts: np.ndarray,
    walks: Walks,
    key: DrawKey,
    *,
    weights: np.ndarray | None = None,
    names: np.ndarray | None = None,
    lists: Sequence[Lists] | None = None,
) -> np.ndarray:
    """int64 ``[S * W, T + 1]``; see :func:`.walks.random_walk`. ``lists`` has one entry for each step of a round."""
    lists = lists or [lambda node: range(indptr[node], indptr[node + 1])]
    batch_draws = BatchDraws(key, names)
    end_below = _threshold(Fraction(walks.termination_prob), 2**32)
    restart_below = end_below + _threshold(Fraction(walks.restart_prob), 2**32 - end_below)
    words_per_walk = 4 * blocks_per_walk(walks, weights)
    traces = []
    for start in starts.tolist():
        draws = batch_draws.of(start, 0)
        words = draws.words(walks.num_walks * words_per_walk).tolist()
        for number in range(walks.num_walks):
            trace, place = [start], start
            for t in range(walks.length):
                draw = number * words_per_walk + (2 if weights is None else 4) * t
                edge = edge_taken(lists[t % len(lists)](place), weights, draws, draw, words)
                if edge is None:
                    break
                place = int(indices[edge])
                trace.append(place)
                fate = words[draw + 1]
                if (t + 1) % len(lists):
                    continue
                if fate < end_below:
                    break
                if fate < restart_below:
                    place = start
            traces.append(trace + [-1] * (walks.length + 1 - len(trace)))
    return np.array(traces, np.int64).reshape(-1, walks.length + 1)


def blocks_per_walk(walks: Walks, weights: np.ndarray | None) -> int:
    """The number of Philox blocks of a walk, of four words each: one for two steps without weights, or for one with
    them."""
    return (walks.length + 1) // 2 if weights is None else walks.length


def edge_taken(
    edges: range, weights: np.ndarray | None, draws: NodeDraws, draw: int, words: Sequence[int]
) -> int | None:
    """Which of a node's edges a step takes, whose first word is ``words[draw]``; None where there is none to take."""
    if not edges:
        return None
    slot = _below(len(edges), draws, draw, words[draw])
    if weights is None:
        return edges[slot]
    threshold, alias = alias_entries(weights[edges.start : edges.stop].astype(np.float64).tolist())[slot]
    position = slot if words[draw + 2] < threshold else alias
    return None if position == NOBODY else edges[position]


@dataclass(frozen=True)
class WalkHop:
    """One hop: ``indptr`` ``[num_dst + 1]``, ``indices`` (local ids) and ``weights`` float32 ``[num_edges]``."""

    num_src: int
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray


def sample_walks(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    walks: Walks,
    key: DrawKey,
    *,
    num_hops: int,
    num_neighbors: int,
    include_self: bool = True,
    normalize: bool = False,
    expand: Literal["all", "new"] = "all",
    weights: np.ndarray | None = None,
    names: np.ndarray | None = None,
    lists: Sequence[Lists] | None = None,
) -> tuple[np.ndarray, list[WalkHop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.walks.sample_walks`."""
    local = {int(seed): i for i, seed in enumerate(seeds)}  # a dict keeps the order of insertion
    hop_indptr, hop_indices, counted = [0], list[int](), list[np.float32]()
    hops = []
    num_expanded = 0
    for hop in range(num_hops):
        if expand == "all":
            hop_indptr, hop_indices, counted = [0], [], []
            num_expanded = 0
        hop_key = replace(key, hop=key.hop + hop)
        for node in list(local)[num_expanded:]:
            start = np.array([node])
            traces = random_walk(indptr, indices, start, walks, hop_key, weights=weights, names=names, lists=lists)
            visited = traces[:, 1:] if lists is None else traces[:, len(lists) :: len(lists)]
            visits = Counter(visited[visited >= 0].tolist())
            if not include_self:
                del visits[node]
            top = sorted(visits.items(), key=lambda item: (-item[1], name_of(item[0], names)))[:num_neighbors]
            total = np.float32(sum(count for _, count in top) if normalize else 1)
            for neighbor, count in top:
                hop_indices.append(local.setdefault(neighbor, len(local)))
                counted.append(np.float32(count) / total)
            hop_indptr.append(len(hop_indices))
        num_expanded = len(hop_indptr) - 1
        hops.append(
            WalkHop(len(local), np.array(hop_indptr), np.array(hop_indices, np.int64), np.array(counted, np.float32))
        )
    return np.array(list(local), np.int64), hops


def _threshold(probability: Fraction, whole: int) -> int:
    """The number out of ``whole`` that a ``probability`` stands for."""
    return round(probability * whole)


def _below(bound: int, draws: NodeDraws, draw: int, word: int) -> int:
    """Draw ``draw``, whose first attempt is ``word``, exactly uniform in ``[0, bound)``."""
    attempt = 0
    while word * bound % 2**32 < 2**32 % bound:
        attempt += 1
        word = int(draws.words(draw + 1, attempt)[draw])
    return word * bound >> 32
