"""Statistical conformance of layer-wise sampling. Seeds are fixed, so each test passes always or never.

Bounds are five sigma, as in test_conformance.py: with other seeds a correct sampler would fail one comparison with
probability 6e-7, and any test here (at most 200 comparisons) with probability below 0.02 %.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lightning_gnnload.conform.significance import outcome_law
from lightning_gnnload.ops import DrawKey, Workspace, coo_to_csc, importance_tree

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


WEIGHTS = np.random.default_rng(2).uniform(1, 1.5, sum(DEGREES))


def shares(weights: np.ndarray | None) -> np.ndarray:
    """The leaves' shares of all importance, to the seeds and so to the whole graph: squared norms of columns."""
    indptr, indices = GRAPH
    adjacency = np.zeros((4, len(DEGREES)))
    for seed in range(4):
        edges = slice(indptr[seed], indptr[seed + 1])
        count = np.ones(len(indices))[edges] if weights is None else weights[edges]
        adjacency[seed, indices[edges] - 4] = count / count.sum()
    norms = (adjacency**2).sum(0)
    return norms / norms.sum()


def leaves_drawn(method: str, budget: int, replace: bool, weights: np.ndarray | None) -> list[tuple[int, ...]]:
    """Of each trial, the leaves that were drawn, in ascending order."""
    options = {"workspace": Workspace(len(GRAPH[0]) - 1), "replace": replace, "weights": weights}
    if method == "fastgcn":
        options["importance_tree"] = importance_tree(*GRAPH, weights)
    trials = []
    for step in range(TRIALS):
        batch = sample(*GRAPH, range(4), [budget], method, DrawKey(3, 0, step), **options)
        trials.append(tuple(np.unique(batch.nodes[batch.hops[0].indices] - 4).tolist()))
    return trials


@pytest.mark.parametrize("method", ["ladies", "fastgcn"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_nodes_are_drawn_by_importance(method, weights):
    drawn = np.array(leaves_drawn(method, 1, False, weights))
    assert_frequencies(drawn[:, 0], shares(weights))


@pytest.mark.parametrize("method", ["ladies", "fastgcn"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_pairs_are_drawn_one_after_the_other(method, replace, weights):
    p = shares(weights)
    wanted = {}
    for a, b in itertools.combinations(range(len(p)), 2):
        wanted[a, b] = 2 * p[a] * p[b] if replace else p[a] * p[b] / (1 - p[a]) + p[a] * p[b] / (1 - p[b])
    if replace:
        wanted |= {(a,): p[a] ** 2 for a in range(len(p))}
    cell = {leaves: number for number, leaves in enumerate(wanted)}
    cells = np.array([cell[leaves] for leaves in leaves_drawn(method, 2, replace, weights)])
    assert_frequencies(cells, np.array(list(wanted.values())))


def edges_drawn(budget: int, replace: bool, weights: np.ndarray | None = None) -> list[tuple[int, ...]]:
    workspace = Workspace(len(GRAPH[0]) - 1)
    options = {"replace": replace, "workspace": workspace, "weights": weights}
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


@pytest.mark.parametrize("replace", [False, True])
def test_edges_of_a_layer_are_drawn_by_weight(replace):
    # One after the other, of all destinations' edges; edge 0 weighs nothing. Draws by each node's parts of its own
    # weight fail here, for all weights of one node are thrice those of the others.
    weights = np.where(np.arange(sum(DEGREES)) < GRAPH[0][1], 3.0, 1.0) * WEIGHTS
    weights[0] = 0
    cells = [tuple(sorted(set(edges))) for edges in outcome_law(weights, 2, replace)]
    probabilities = np.bincount([cells.index(cell) for cell in cells], list(outcome_law(weights, 2, replace).values()))
    drawn = np.array([cells.index(edges) for edges in edges_drawn(2, replace, weights)])
    common = TRIALS * probabilities >= 10  # all others together are a cell
    cell = np.where(common, np.cumsum(common) - 1, common.sum())
    assert_frequencies(cell[drawn], np.bincount(cell, probabilities))


@pytest.mark.matrix
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("keep_known", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_weighted_sums_are_unbiased(method, replace, keep_known, weighted):
    # Each destination's weighted sum against the mean over all its in-neighbours, by weight if there are weights: then
    # some are zero, and one destination's are a thousandth of the others'. Weights of draws with replacement,
    # used without, fail here by tens of sigmas: the budget is half of the candidates, and their importances differ.
    if keep_known and method == "dsp":
        return
    rng = np.random.default_rng(1)
    indptr, indices, _ = coo_to_csc(rng.integers(0, 30, 160), np.r_[np.arange(30), rng.integers(0, 30, 130)], 30)
    seeds, values = np.arange(8), rng.normal(size=30) + 1
    options = {"replace": replace, "keep_known": keep_known, "workspace": Workspace(30)}
    weights = np.ones(len(indices))
    if weighted:
        weights = rng.choice([0.0, 1.0, 2.0, 6.0], len(indices)) + (np.arange(len(indices)) == indptr[:-1, None]).any(0)
        weights[: indptr[1]] /= 1000
        options["weights"] = weights
    lists = [slice(indptr[v], indptr[v + 1]) for v in seeds]
    exact = np.array([np.average(values[indices[edges]], weights=weights[edges]) for edges in lists])
    if method == "fastgcn":
        options["importance_tree"] = importance_tree(indptr, indices, options.get("weights"))
    estimates = np.empty((TRIALS, len(seeds)))
    for step in range(TRIALS):
        batch = sample(indptr, indices, seeds, [10], method, DrawKey(1, 0, step), **options)
        [hop] = batch.hops
        rows = np.repeat(np.arange(len(seeds)), np.diff(hop.indptr))
        estimates[step] = np.bincount(rows, hop.edge_weights * values[batch.nodes[hop.indices]], len(seeds))
    error = estimates.std(axis=0) / math.sqrt(TRIALS)
    # Where a destination has known in-neighbours alone, there is no error.
    assert np.all(np.abs(estimates.mean(axis=0) - exact) < SIGMAS * error + 1e-6)
