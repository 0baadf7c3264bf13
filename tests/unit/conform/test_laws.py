"""Laws of outcomes, compared with sums over every order of draws."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest

from lightning_gnnload.conform.significance import outcome_law


def over_all_orders(weights: list[float], fanout: int, replace: bool) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for order in itertools.product(range(len(weights)), repeat=fanout):
        probability, left = 1.0, dict(enumerate(weights))
        for position in order:
            probability *= left.get(position, 0) / sum(left.values())
            if not replace:
                left.pop(position, None)
                if not any(left.values()):
                    break
        if probability and (replace or len(set(order)) == fanout):
            law[tuple(sorted(order))] += probability
    return law


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("weights", "fanout"), [([1, 2, 3, 4], 2), ([5, 0, 1, 2], 2), ([1, 1, 10], 1), ([3, 1, 1], 2)])
def test_equals_the_sum_over_orders(weights, fanout: int, replace: bool) -> None:
    assert outcome_law(weights, fanout, replace) == pytest.approx(over_all_orders(weights, fanout, replace))


def test_equal_weights_make_subsets_equally_likely() -> None:
    law = outcome_law([1.0] * 9, 4, replace=False)
    assert list(law) == list(itertools.combinations(range(9), 4))
    assert list(law.values()) == pytest.approx([1 / math.comb(9, 4)] * len(law))


def test_sums_to_one_without_the_weightless() -> None:
    law = outcome_law([5, 0, 1, 0, 2], 3, replace=False)
    assert law == {(0, 2, 4): pytest.approx(1)}
