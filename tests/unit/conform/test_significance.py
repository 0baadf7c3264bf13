"""Probabilities: bounds are bounds, by enumeration of every possible count; approximations are near."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lightning_gnnload.conform.significance import binomials, multinomial


def every_count(num_trials: int, num_cells: int):
    for cut in itertools.combinations(range(num_trials + num_cells - 1), num_cells - 1):
        bars = (-1, *cut, num_trials + num_cells - 1)
        yield np.diff(bars) - 1


def probability_of(counts: np.ndarray, law: np.ndarray) -> float:
    logs = [math.lgamma(count + 1) for count in counts]
    terms = [count * math.log(p) for count, p in zip(counts, law, strict=True) if count]
    return math.exp(math.lgamma(counts.sum() + 1) - sum(logs) + sum(terms))


@pytest.mark.parametrize("law", [[0.5, 0.5], [0.05, 0.95], [0.2, 0.3, 0.5], [0.1, 0.1, 0.1, 0.7]])
@pytest.mark.parametrize("num_trials", [1, 7, 30])
def test_multinomial_bound_holds_for_every_outcome(law, num_trials: int) -> None:
    # P(bound <= its own value at x) <= that value, for every x: what a p-value is. A bound that is too small in any
    # single outcome fails here.
    probabilities = np.array(law)
    outcomes = [
        (multinomial(counts, probabilities).bound, probability_of(counts, probabilities))
        for counts in every_count(num_trials, len(law))
    ]
    assert sum(mass for _, mass in outcomes) == pytest.approx(1)
    outcomes.sort()
    as_improbable = 0.0
    for bound, mass in outcomes:
        as_improbable += mass
        assert as_improbable <= bound + 1e-12


@pytest.mark.parametrize("p", [0.5, 0.03, 0.9])
@pytest.mark.parametrize("num_trials", [1, 10, 60])
def test_binomial_bound_holds_for_every_outcome(p: float, num_trials: int) -> None:
    outcomes = sorted(
        (
            binomials(np.array([count]), num_trials, p).bound,
            probability_of(np.array([count, num_trials - count]), np.array([p, 1 - p])),
        )
        for count in range(num_trials + 1)
    )
    as_improbable = 0.0
    for bound, mass in outcomes:
        as_improbable += mass
        assert as_improbable <= bound + 1e-12


def test_approximations_are_spread_evenly_where_the_hypothesis_holds() -> None:
    # 4,000 values of p; the largest gap to the diagonal is above 0.04 with probability below 1e-5 (Kolmogorov).
    rng = np.random.default_rng(0)
    law = np.array([0.1, 0.2, 0.3, 0.4])
    found = np.sort([multinomial(counts, law).p for counts in rng.multinomial(1000, law, 4000)])
    assert np.abs(found - np.arange(4000) / 4000).max() < 0.04
    single = np.sort([binomials(np.array([count]), 5000, 0.3).p for count in rng.binomial(5000, 0.3, 4000)])
    assert np.abs(single - np.arange(4000) / 4000).max() < 0.04


def test_known_values() -> None:
    # Tables of the chi-square: 5 % at 3.841 with one degree of freedom.
    g = multinomial(np.array([531, 469]), np.array([0.5, 0.5]))
    statistic = 2 * (531 * math.log(531 / 500) + 469 * math.log(469 / 500))
    assert g.p == pytest.approx(math.erfc(math.sqrt(statistic / 2)))
    assert binomials(np.array([531]), 1000, 0.5).p == pytest.approx(g.p)


def test_the_impossible_and_the_certain() -> None:
    assert multinomial(np.array([5, 1]), np.array([1.0, 0.0])) == (0.0, 0.0)
    assert multinomial(np.array([5, 0]), np.array([1.0, 0.0])) == (1.0, 1.0)
    assert binomials(np.array([0, 3]), 3, np.array([0.0, 1.0])) == (1.0, 1.0)
    assert binomials(np.array([1, 3]), 3, np.array([0.0, 1.0])) == (0.0, 0.0)
    assert binomials(np.array([0, 2]), 3, np.array([0.0, 1.0])) == (0.0, 0.0)


def test_many_counts_are_allowed_for() -> None:
    one, many = (binomials(np.array([560] + [500] * more), 1000, 0.5) for more in (0, 99))
    assert many.bound == pytest.approx(100 * one.bound)
    assert many.p == pytest.approx(100 * one.p)
