"""The laws of drawing: the probability of every possible outcome, by enumeration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Outcome = tuple[int, ...]
"""Positions in an adjacency list, ascending; a position stands twice where it was drawn twice."""


def outcome_law(weights: Sequence[float], fanout: int, replace: bool) -> dict[Outcome, float]:
    """Computes the probability of each outcome of drawing ``fanout`` neighbours.

    Without replacement, neighbours are drawn one after the other, each with a probability proportional to its
    weight among those that are left (successive sampling); equal weights make all subsets equally likely. With
    replacement, each draw is proportional to the weights.

    Args:
        weights: one a neighbour, not negative; few, as all outcomes are enumerated.
        fanout: neighbours drawn; without replacement, no more than those of positive weight.
        replace: draw with replacement.

    Example:
        >>> outcome_law([3, 1], 1, replace=False)
        {(0,): 0.75, (1,): 0.25}
        >>> outcome_law([2, 1, 1], 2, replace=False)[0, 1]  # 2/4 * 1/2 + 1/4 * 2/3
        0.41666666666666663
    """
    law: dict[Outcome, float] = {(): 1.0}
    for _ in range(fanout):
        one_more: dict[Outcome, float] = defaultdict(float)
        for outcome, probability in law.items():
            left = sum(weights) - (0 if replace else sum(weights[position] for position in outcome))
            for position, weight in enumerate(weights):
                if weight > 0 and (replace or position not in outcome):
                    one_more[tuple(sorted((*outcome, position)))] += probability * weight / left
        law = dict(sorted(one_more.items()))
    return law
