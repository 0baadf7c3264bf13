"""Tests of how improbable counts are under a null hypothesis, and the law of all outcomes by enumeration.

Each test gives two numbers. ``bound`` is proven to be at least the probability of so large a deviation, for any
number of trials: verdicts rest on it. ``p`` is the usual approximation for large samples, for people to read: it
is spread evenly over [0, 1] where the hypothesis holds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

# Positions in an adjacency list, ascending; a position stands twice where it was drawn twice.
Outcome = tuple[int, ...]


class Significance(NamedTuple):
    """The p-value of a deviation, which is approximate, and a proven upper bound of it."""

    p: float
    bound: float


def multinomial(counts: np.ndarray, probabilities: np.ndarray) -> Significance:
    """Tests ``counts`` ``[K]`` of independent trials, each of which falls into cell ``i`` with ``probabilities[i]``.

    The statistic is the likelihood ratio G = 2 n KL(counts / n || probabilities). Approximation: chi-square with
    K - 1 degrees of freedom. Bound: ``exp(-g) (e g / (K - 1)) ** (K - 1)`` for g = G / 2 > K - 1.

    Source: Agrawal, "Finite-sample concentration of the multinomial in relative entropy", IEEE Transactions on
    Information Theory 66(10), 2020 (g has the moments of a gamma variable of shape K - 1, at most).

    Example:
        >>> multinomial(np.array([10, 30]), np.array([0.5, 0.5])).p < 0.01
        True
    """
    counts, probabilities = np.asarray(counts), np.asarray(probabilities, float)
    if np.any(counts[probabilities == 0]):
        return Significance(0.0, 0.0)  # the impossible happened
    counts, probabilities = counts[probabilities > 0], probabilities[probabilities > 0]
    freedom = len(counts) - 1
    if freedom == 0:
        return Significance(1.0, 1.0)
    # Rounding may leave the entropy of a perfect fit a little below 0.
    g = max(_relative_entropy(counts, counts.sum() * probabilities), 0.0)
    bound = math.exp(freedom * (1 + math.log(g / freedom)) - g) if g > freedom else 1.0
    # By torch, as this package does not require SciPy.
    half_freedom, half_statistic = torch.tensor([freedom / 2, g], dtype=torch.float64)
    return Significance(float(torch.special.gammaincc(half_freedom, half_statistic)), bound)


def binomials(counts: np.ndarray, num_trials: int, probabilities: np.ndarray | float) -> Significance:
    """Tests the worst of K counts ``[K]``, each of ``num_trials`` independent trials with its own probability.

    The counts may depend on one another (Bonferroni). Each may also be a sum of draws without replacement, which
    deviates less (Hoeffding 1963, theorem 4). Approximation: the signed root of the deviance is normal. Bound:
    Chernoff's, on both sides.
    """
    counts = np.asarray(counts, float)
    expected = num_trials * np.broadcast_to(np.asarray(probabilities, float), counts.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        misses = num_trials - counts
        deviance = _terms(counts, expected) + _terms(misses, num_trials - expected)
    g = max(float(deviance.max(initial=0.0)), 0.0)
    # The deviance is 2 g, whose root is normal: P(|Z| > sqrt(2 g)) = erfc(sqrt(g)).
    return Significance(min(1.0, len(counts) * math.erfc(math.sqrt(g))), min(1.0, 2 * len(counts) * math.exp(-g)))


def _relative_entropy(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(_terms(counts, expected).sum())


def _terms(counts: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Computes ``counts log(counts / expected)``, where 0 log 0 is 0."""
    safe = np.where(counts > 0, counts, 1)
    return np.where(counts > 0, counts * np.log(safe / expected), 0.0)


def outcome_law(weights: Sequence[float], fanout: int, replace: bool) -> dict[Outcome, float]:
    """Computes the probability of each outcome of drawing ``fanout`` neighbours; all outcomes are enumerated.

    Without replacement, neighbours are drawn one after the other, each with a probability proportional to its weight
    among those that remain (successive sampling); equal weights make all subsets equally likely. With replacement, each
    draw is proportional to the weights.

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
            total = sum(weights) - (0 if replace else sum(weights[position] for position in outcome))
            for position, weight in enumerate(weights):
                if weight > 0 and (replace or position not in outcome):
                    one_more[tuple(sorted((*outcome, position)))] += probability * weight / total
        law = dict(sorted(one_more.items()))
    return law
