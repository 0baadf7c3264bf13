"""Oracle of alias tables and of sampling by edge weight."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from lightning_gnnload.ops.dispatch import ALL_NEIGHBORS, DrawKey

from .draws import BatchDraws, NodeDraws
from .neighbors import Hop, expand_hops, lists_of

SLOT_SHARES = 2**32
NOBODY = 2**32 - 1
MAX_TRIALS = 2**24

Entry = tuple[int, int]
"""Threshold and alias of one slot."""


def alias_shares(weights: Sequence[float]) -> list[int]:
    """The whole shares of one node's edges: in sum ``len(weights) * SLOT_SHARES``; not all weights are zero."""
    _, exponent = math.frexp(max(weights))
    whole = [int(Fraction(weight) * Fraction(2) ** (64 - exponent)) for weight in weights]  # the greatest has 64 bits
    cut = max(sum(whole).bit_length() - 64, 0)
    total = sum(whole) >> cut
    is_positive = [int(weight > 0) for weight in weights]
    to_give = len(weights) * SLOT_SHARES - sum(is_positive)
    due = [((running >> cut) * to_give + total // 2) // total for running in accumulate(whole, initial=0)]
    return [ahead + after - before for ahead, (before, after) in zip(is_positive, pairwise(due), strict=True)]


def alias_entries(weights: Sequence[float]) -> list[Entry]:
    """The alias slots of one node."""
    if not any(weights):
        return [(0, NOBODY)] * len(weights)
    shares = alias_shares(weights)
    light = deque(i for i, share in enumerate(shares) if share < SLOT_SHARES)
    heavy = deque(i for i, share in enumerate(shares) if share >= SLOT_SHARES)
    entries = [(0, 0)] * len(shares)
    left = shares[heavy[0]]
    while heavy:
        if left > SLOT_SHARES:
            closed = light.popleft()
            kept = shares[closed]
            entries[closed] = (kept, heavy[0])
            left -= SLOT_SHARES - kept
        else:
            closed = heavy.popleft()
            entries[closed] = (left, heavy[0]) if left < SLOT_SHARES else (SLOT_SHARES - 1, closed)
            left = shares[heavy[0]] - (SLOT_SHARES - left) if heavy else 0
    return entries


def build_alias(indptr: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The entries of all nodes, uint64 ``[E]``."""
    of_nodes = (alias_entries(part.astype(np.float64).tolist()) for part in np.split(weights, indptr[1:-1]))
    return np.array([threshold | alias << 32 for entries in of_nodes for threshold, alias in entries], np.uint64)


def shares_of_entries(entries: Sequence[Entry]) -> list[int]:
    """What the slots hand out to each edge."""
    shares = [threshold for threshold, _ in entries]
    for threshold, alias in entries:
        shares[alias] += SLOT_SHARES - threshold
    return shares


def sample_weighted_positions(entries: Sequence[Entry], fanout: int, replace: bool, draws: NodeDraws) -> list[int]:
    """Which in-neighbours one node takes, as positions in its adjacency list."""
    degree = len(entries)
    positive = [i for i, (threshold, _) in enumerate(entries) if threshold > 0]
    if not positive or fanout == ALL_NEIGHBORS or (not replace and degree <= fanout):
        return positive
    num_trials = fanout if replace else min(2 * (fanout + degree // 16), MAX_TRIALS)
    drawn = draws.below([degree, SLOT_SHARES] * num_trials)
    trials = [
        slot if coin < entries[slot][0] else entries[slot][1]
        for slot, coin in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    if replace:
        return trials
    picks = list(dict.fromkeys(trials))[:fanout]
    left = {i: share for i, share in enumerate(shares_of_entries(entries)) if share and i not in picks}
    while len(picks) < fanout and left:
        drawn_share = draws.below64(num_trials + len(picks), sum(left.values()))
        reached = accumulate(left.values())
        pick = next(i for i, end in zip(left, reached, strict=True) if drawn_share < end)
        picks.append(pick)
        del left[pick]
    return picks


def sample_weighted(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int] | Sequence[Mapping[int, int]],
    key: DrawKey,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    names: np.ndarray | None = None,
    edge_type: np.ndarray | None = None,
) -> tuple[np.ndarray, list[Hop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.weighted.sample_weighted`. With
    ``edge_type`` ``[E]``, by which lists are sorted, each hop has a fanout for some types."""
    batch_draws = BatchDraws(key, names)

    def pick(hop: int, node: int) -> list[int]:
        picks = []
        for edges, fanout, draw_hop in lists_of(indptr, node, hop, fanouts[hop], edge_type):
            entries = alias_entries(weights[edges.start : edges.stop].astype(np.float64).tolist())
            draws = batch_draws.of(node, draw_hop)
            picks += [edges[i] for i in sample_weighted_positions(entries, fanout, replace, draws)]
        return picks

    return expand_hops(indices, seeds, len(fanouts), pick, expand)
