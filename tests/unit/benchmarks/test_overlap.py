"""Orders of a window's mini-batches, against all orders there are."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from lightning_gnnload.cache.reuse import num_reused
from tests.benchmarks.overlap import best_order, in_windows, nearest_next, shared_nodes

RANDOM = np.random.default_rng(0)
LISTS = [np.flatnonzero(RANDOM.random(60) < share) for share in RANDOM.random(17)]


def _shared(order: list[int], shared: np.ndarray) -> int:
    return sum(int(shared[before, after]) for before, after in pairwise([0, *order]))


def test_shared_nodes_are_those_of_both_lists() -> None:
    shared = shared_nodes(LISTS, 60)
    for row, column in np.ndindex(shared.shape):
        assert shared[row, column] == len(np.intersect1d(LISTS[row], LISTS[column]))


@pytest.mark.parametrize("num_lists", [1, 2, 6])
def test_the_best_order_is_the_best_of_all(num_lists: int) -> None:
    shared = shared_nodes(LISTS[: num_lists + 1], 60)
    most = max(_shared(list(order), shared) for order in permutations(range(1, num_lists + 1)))
    order = best_order(shared)
    assert sorted(order) == list(range(1, num_lists + 1))
    assert _shared(order, shared) == most >= _shared(nearest_next(shared), shared)


@pytest.mark.parametrize("choose", [nearest_next, best_order])
@pytest.mark.parametrize("window", [1, 4, 5])
def test_mini_batches_move_within_their_window_only(choose, window: int) -> None:
    order = in_windows(LISTS, 60, window, choose)
    for begin in range(0, len(LISTS), window):
        assert sorted(order[begin : begin + window]) == list(range(begin, min(begin + window, len(LISTS))))
    if window == 1:
        assert order == list(range(len(LISTS)))
    else:
        assert num_reused([LISTS[number] for number in order], 60) > num_reused(LISTS, 60)
