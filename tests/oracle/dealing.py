"""Oracle of dealing nodes out to parts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def deal_seeds(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    quotas: np.ndarray,
    parts: list[tuple[set[int], set[int]]],
    *,
    hops: int,
    overlap: str = "seeds",
    overlap_weight: int = 1,
    smoothing: int = 0,
) -> list[int]:
    """The part of each seed; ``parts`` has, for each, all its seeds (TV) and nodes (PV), and is added to.

    See :func:`.dealing.deal_seeds`.
    """
    num_seeds = [0] * len(parts)
    total, chosen = int(quotas.sum()), []
    for seed in seeds.tolist():
        near = {seed}
        for _ in range(hops):
            near |= {int(u) for v in near for u in indices[indptr[v] : indptr[v + 1]]}
        scores = []
        for index, (own, nodes) in enumerate(parts):
            likeness = overlap_weight * len(near & (own if overlap == "seeds" else nodes)) + smoothing
            room = Fraction(total, len(parts)) - num_seeds[index]
            score = likeness * room / max(len(nodes), 1)
            if num_seeds[index] < quotas[index]:
                scores.append((-score, len(nodes), index))
        best = min(scores)[-1]
        num_seeds[best] += 1
        parts[best][0].add(seed)
        parts[best][1].update(near)
        chosen.append(best)
    return chosen


def vote_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    part: np.ndarray,
    is_open: np.ndarray,
    held: np.ndarray | None,
    num_parts: int,
    *,
    capacity: int,
) -> np.ndarray:
    """int32 ``[N]``, where :func:`.dealing.vote_nodes` writes to ``part``."""
    owner = part.tolist()
    for node in np.flatnonzero(is_open).tolist():
        before, owner[node] = owner[node], -1
        votes = [owner[u] for u in indices[indptr[node] : indptr[node + 1]].tolist() if owner[u] >= 0]
        candidates = [
            (-votes.count(p), owner.count(p), p)
            for p in _holders(held, node, num_parts)
            if p in votes and owner.count(p) < capacity
        ]
        owner[node] = min(candidates)[-1] if candidates else before
    return np.array(owner, np.int32)


def settle_nodes(part: np.ndarray, held: np.ndarray | None, num_parts: int) -> np.ndarray:
    """int32 ``[N]``; see :func:`.dealing.settle_nodes`."""
    settled = part.tolist()
    num_own = [settled.count(p) for p in range(num_parts)]
    for node, chosen in enumerate(settled):
        if chosen >= 0:
            continue
        settled[node] = min(_holders(held, node, num_parts), key=lambda p: (num_own[p], p))
        num_own[settled[node]] += 1
    return np.array(settled, np.int32)


def _holders(held: np.ndarray | None, node: int, num_parts: int) -> list[int]:
    """Parts that may own a node."""
    mask = 0 if held is None else int(held[node])
    return [p for p in range(num_parts) if mask >> p & 1] or list(range(num_parts))
