"""Statistical conformance: what is chosen is uniform. Seeds are fixed, so each test passes always or never.

Bounds are five sigma: with other seeds a correct sampler would fail one comparison with probability
6e-7, and any test here (at most 3,000 comparisons) with probability below 0.2 %.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey, random_keys

from .graphs import KEY, sample, star_graph

HUBS = 20_000  # identical destination nodes, each an independent trial
SIGMAS = 5


def sample_positions(
    degree: int, fanout: int, hubs: int = HUBS, key: DrawKey = KEY, replace: bool = False
) -> np.ndarray:
    """``[hubs, fanout]`` positions in ``[0, degree)``, in the order of draws."""
    indptr, indices = star_graph(hubs, degree)
    batch = sample(indptr, indices, np.arange(hubs), [fanout], key, replace=replace, edge_ids=True)
    return batch.hops[0].edge_ids.reshape(hubs, fanout) - indptr[:hubs, None]


def assert_uniform(cells: np.ndarray, num_cells: int) -> None:
    """Chi-square of cell numbers against equal frequencies, by Wilson and Hilferty's normal approximation."""
    expected = len(cells) / num_cells
    assert expected >= 5, "the chi-square needs more trials"
    chi2 = ((np.bincount(cells, minlength=num_cells) - expected) ** 2 / expected).sum()
    spread = 2 / (9 * (num_cells - 1))
    assert chi2 < (num_cells - 1) * (1 - spread + SIGMAS * math.sqrt(spread)) ** 3


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (3, 2), (10, 5), (20, 15), (40, 33), (65, 64), (80, 70)])
def test_every_neighbour_is_drawn_equally_often(degree, fanout):
    drawn = np.bincount(sample_positions(degree, fanout).ravel(), minlength=degree)
    p = fanout / degree
    # A draw over [0, j) instead of [0, j] fails here: drawn[-1] == 0 at (2, 1).
    assert np.abs(drawn - HUBS * p).max() < SIGMAS * np.sqrt(HUBS * p * (1 - p))


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (5, 2), (6, 3), (8, 4), (9, 2), (12, 10)])
def test_every_subset_is_equally_likely(degree, fanout):
    # Single frequencies do not show it where repeats are replaced by the wrong position.
    subsets = [sum(1 << p for p in subset) for subset in itertools.combinations(range(degree), fanout)]
    masks = (1 << sample_positions(degree, fanout)).sum(axis=1)
    assert np.isin(masks, subsets).all()
    assert_uniform(np.searchsorted(np.sort(subsets), masks), len(subsets))


@pytest.mark.parametrize(("degree", "fanout"), [(30, 15), (70, 66)])
def test_every_pair_is_drawn_together_equally_often(degree, fanout):
    # The subsets are too many to count; pairs see dependence between neighbours. 70, 66 uses the large set.
    chosen = np.zeros((HUBS, degree), np.float32)
    np.put_along_axis(chosen, sample_positions(degree, fanout), 1, axis=1)
    together = (chosen.T @ chosen)[np.triu_indices(degree, 1)]
    p = fanout * (fanout - 1) / (degree * (degree - 1))
    assert np.abs(together - HUBS * p).max() < SIGMAS * np.sqrt(HUBS * p * (1 - p))


@pytest.mark.parametrize(("degree", "fanout"), [(1, 4), (3, 2), (7, 20), (100, 3)])
def test_with_replacement_each_draw_is_uniform_and_independent(degree, fanout):
    positions = sample_positions(degree, fanout, replace=True)
    if degree == 1:
        assert not positions.any()
        return
    for j in range(fanout):
        assert_uniform(positions[:, j], degree)
    if HUBS // degree**2 >= 5:
        # Neighbouring draws, and draws a Philox block apart: a word used twice fails here.
        for i, j in itertools.combinations(range(min(fanout, 6)), 2):
            assert_uniform(positions[:, i] * degree + positions[:, j], degree**2)


@pytest.mark.parametrize("apart", ["node", "step", "epoch", "seed", "high seed"])
def test_choices_are_independent(apart):
    # Of what one node draws and what the next node draws, or the same node under another key.
    other = {"node": (7, 1, 2), "step": (7, 1, 3), "epoch": (7, 2, 2), "seed": (8, 1, 2)}
    other["high seed"] = (7 + 2**32, 1, 2)
    mine = sample_positions(20, 1).ravel()
    theirs = sample_positions(20, 1, key=DrawKey(*other[apart])).ravel()
    if apart == "node":
        theirs = np.roll(theirs, 1)
    assert_uniform(mine * 20 + theirs, 400)


def test_steps_and_epochs_are_uniform_for_one_node():
    # Uniform over nodes says nothing of one node over time.
    indptr, indices = star_graph(3, 10)
    for keys in ([DrawKey(0, 0, t) for t in range(2000)], [DrawKey(0, t, 0) for t in range(2000)]):
        batches = [sample(indptr, indices, [2], [1], key, edge_ids=True) for key in keys]
        assert_uniform(np.array([batch.hops[0].edge_ids[0] for batch in batches]) - 20, 10)


def test_every_order_of_seeds_is_equally_likely():
    ids = np.array([3, 9, 2**40, 5])
    orders = np.array([np.argsort(random_keys(5, epoch, ids)) for epoch in range(5000)])
    _, cells = np.unique(orders @ [64, 16, 4, 1], return_inverse=True)
    assert_uniform(cells, 24)
