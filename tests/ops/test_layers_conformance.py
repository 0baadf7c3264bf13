"""Statistical conformance of layer-wise sampling. Seeds are fixed, so each test passes always or never.

Bounds are five sigma, as in test_conformance.py: with other seeds a correct sampler would fail one comparison with
probability 6e-7, and any test here (at most 200 comparisons) with probability below 0.02 %.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey, Workspace, coo_to_csc

from .layers import METHODS, sample, uneven_star

TRIALS = 6000
SIGMAS = 5


def assert_frequencies(cells: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square of cell numbers against their probabilities, by Wilson and Hilferty's normal approximation."""
    expected = len(cells) * probabilities
    assert expected.min() >= 5, "the chi-square needs more trials"
    assert abs(probabilities.sum() - 1) < 1e-6
    chi2 = ((np.bincount(cells, minlength=len(expected)) - expected) ** 2 / expected).sum()
    spread = 2 / (9 * (len(expected) - 1))
    assert chi2 < (len(expected) - 1) * (1 - spread + SIGMAS * math.sqrt(spread)) ** 3


# Four seeds; leaves are in-neighbours of so many of them, from the first on.
DEGREES = [4, 2, 2, 4, 3, 2]
GRAPH = uneven_star(4, DEGREES)


def shares() -> np.ndarray:
    """The leaves' shares of all importance, to the seeds and so to the whole graph: squared norms of columns."""
    indptr, indices = GRAPH
    adjacency = np.zeros((4, len(DEGREES)))
    for seed in range(4):
        row = indices[indptr[seed] : indptr[seed + 1]] - 4
        adjacency[seed, row] = 1 / len(row)
    norms = (adjacency**2).sum(0)
    return norms / norms.sum()


def leaves_drawn(method: str, budget: int, replace: bool) -> list[tuple[int, ...]]:
    """Of each trial, the leaves that were drawn, in ascending order."""
    workspace = Workspace(len(GRAPH[0]) - 1)
    trials = []
    for step in range(TRIALS):
        batch = sample(*GRAPH, range(4), [budget], method, DrawKey(3, 0, step), workspace, replace=replace)
        trials.append(tuple(np.unique(batch.nodes[batch.hops[0].indices] - 4).tolist()))
    return trials


@pytest.mark.parametrize("method", ["ladies", "fastgcn"])
def test_nodes_are_drawn_by_importance(method):
    drawn = np.array(leaves_drawn(method, 1, replace=False))
    assert_frequencies(drawn[:, 0], shares())


@pytest.mark.parametrize("method", ["ladies", "fastgcn"])
@pytest.mark.parametrize("replace", [False, True])
def test_pairs_are_drawn_one_after_the_other(method, replace):
    p = shares()
    wanted = {}
    for a, b in itertools.combinations(range(len(p)), 2):
        wanted[a, b] = 2 * p[a] * p[b] if replace else p[a] * p[b] / (1 - p[a]) + p[a] * p[b] / (1 - p[b])
    if replace:
        wanted |= {(a,): p[a] ** 2 for a in range(len(p))}
    cell = {leaves: number for number, leaves in enumerate(wanted)}
    cells = np.array([cell[leaves] for leaves in leaves_drawn(method, 2, replace)])
    assert_frequencies(cells, np.array(list(wanted.values())))


def edges_drawn(budget: int, replace: bool) -> list[tuple[int, ...]]:
    workspace = Workspace(len(GRAPH[0]) - 1)
    options = {"replace": replace, "workspace": workspace}
    return [
        tuple(sample(*GRAPH, range(4), [budget], "dsp", DrawKey(3, 0, step), **options).hops[0].edge_ids.tolist())
        for step in range(TRIALS)
    ]


def test_every_subset_of_edges_is_equally_likely():
    # Single frequencies do not show it where repeats are replaced by the wrong edge.
    cell = {edges: number for number, edges in enumerate(itertools.combinations(range(sum(DEGREES)), 3))}
    cells = np.array([cell[edges] for edges in edges_drawn(3, replace=False)])
    assert_frequencies(cells, np.full(len(cell), 1 / len(cell)))


def test_edges_are_drawn_again_with_replacement():
    num_edges = sum(DEGREES)
    cell = {edges: number for number, edges in enumerate(itertools.combinations(range(num_edges), 2))}
    once = {(edge,): len(cell) + edge for edge in range(num_edges)}
    cells = np.array([(cell | once)[edges] for edges in edges_drawn(2, replace=True)])
    assert_frequencies(cells, np.repeat([2 / num_edges**2, 1 / num_edges**2], [len(cell), num_edges]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("keep_known", [False, True])
def test_weighted_sums_are_unbiased(method, replace, keep_known):
    # Each destination's weighted sum against the mean over all its in-neighbours. Weights of draws with replacement,
    # used without, fail here by tens of sigmas: the budget is half of the candidates, and their importances differ.
    if keep_known and method == "dsp":
        return
    rng = np.random.default_rng(1)
    indptr, indices, _ = coo_to_csc(rng.integers(0, 30, 160), np.r_[np.arange(30), rng.integers(0, 30, 130)], 30)
    seeds, values = np.arange(8), rng.normal(size=30) + 1
    exact = np.array([values[indices[indptr[v] : indptr[v + 1]]].mean() for v in seeds])
    workspace = Workspace(30)
    options = {"replace": replace, "keep_known": keep_known, "workspace": workspace}
    estimates = np.empty((TRIALS, len(seeds)))
    for step in range(TRIALS):
        batch = sample(indptr, indices, seeds, [10], method, DrawKey(1, 0, step), **options)
        [hop] = batch.hops
        rows = np.repeat(np.arange(len(seeds)), np.diff(hop.indptr))
        estimates[step] = np.bincount(rows, hop.edge_weights * values[batch.nodes[hop.indices]], len(seeds))
    error = estimates.std(axis=0) / math.sqrt(TRIALS)
    # Where a destination has known in-neighbours alone, there is no error.
    assert np.all(np.abs(estimates.mean(axis=0) - exact) < SIGMAS * error + 1e-6)
