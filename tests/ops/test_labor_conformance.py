"""What layer-neighbour sampling promises: probabilities, correlation, variance, and estimates without bias.

Seeds are fixed, so each test passes always or never. Bounds are five sigma: with other seeds a correct sampler
would fail one comparison with probability 6e-7, and any test here (at most 100 comparisons) with probability
below 0.01 %.
"""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey, sample_labor, sample_neighbors
from tests.oracle.labor import solve_scale

from .graphs import KEY, random_graph, star_graph
from .sampled import Sampled, graph_of, private_graph, sample_by

HUBS = 20_000  # destinations that share no neighbour, each an independent trial
SIGMAS = 5
STEPS = 4_000


def kept_of_private(degree: int, fanout: int, key: DrawKey = KEY, hubs: int = HUBS, **options) -> np.ndarray:
    """Bool ``[hubs, degree]``: which of its own neighbours each hub keeps."""
    indptr, indices = private_graph(hubs, degree)
    batch = sample_by(sample_labor, indptr, indices, np.arange(hubs), [fanout], key, edge_ids=True, **options)
    kept = np.zeros(hubs * degree, bool)
    kept[batch.hops[0].edge_ids] = True
    return kept.reshape(hubs, degree)


def estimates(batch: Sampled, values: np.ndarray, num_seeds: int) -> np.ndarray:
    """Of each seed, the weighted sum over the in-neighbours kept."""
    hop, weights = batch.hops[0], batch.weights[0]
    terms = values[batch.nodes[hop.indices]] * (1.0 if weights is None else weights)
    return np.array([terms[hop.indptr[i] : hop.indptr[i + 1]].sum() for i in range(num_seeds)])


@pytest.mark.parametrize("options", [{}, {"importance": 1}, {"fixed_count": True}])
@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (3, 2), (10, 5), (20, 15), (300, 10)])
def test_every_neighbour_is_kept_with_probability_fanout_by_degree(degree, fanout, options):
    # Where none is shared, importance changes nothing.
    hubs = HUBS if degree < 100 else HUBS // 10
    kept = kept_of_private(degree, fanout, hubs=hubs, **options)
    p = fanout / degree
    assert np.abs(kept.sum(axis=0) - hubs * p).max() < SIGMAS * np.sqrt(hubs * p * (1 - p))


@pytest.mark.parametrize(("degree", "fanout"), [(10, 5), (20, 3)])
def test_neighbours_are_kept_independently(degree, fanout):
    kept = kept_of_private(degree, fanout).astype(np.float64)
    together = (kept.T @ kept)[np.triu_indices(degree, 1)]
    p = (fanout / degree) ** 2
    assert np.abs(together - HUBS * p).max() < SIGMAS * np.sqrt(HUBS * p * (1 - p))
    # So their number is binomial.
    counts, q = kept.sum(axis=1), fanout / degree
    variance = degree * q * (1 - q)
    assert abs(counts.mean() - fanout) < SIGMAS * np.sqrt(variance / HUBS)
    assert abs(counts.var() - variance) < SIGMAS * variance * np.sqrt(3 / HUBS)


@pytest.mark.parametrize(("degree", "fanout"), [(6, 3), (9, 2)])
def test_a_fixed_count_keeps_every_subset_equally_often(degree, fanout):
    kept = kept_of_private(degree, fanout, fixed_count=True)
    assert (kept.sum(axis=1) == fanout).all()
    subsets, counts = np.unique(kept @ (1 << np.arange(degree)), return_counts=True)
    num_subsets = {(6, 3): 20, (9, 2): 36}[degree, fanout]
    assert len(subsets) == num_subsets
    p = 1 / num_subsets
    assert np.abs(counts - HUBS * p).max() < SIGMAS * np.sqrt(HUBS * p * (1 - p))


@pytest.mark.parametrize("options", [{}, {"fixed_count": True}, {"importance": 1}])
def test_destinations_with_equal_neighbourhoods_take_the_same(options):
    indptr, indices = star_graph(hubs=50, degree=30)
    batch = sample_by(sample_labor, indptr, indices, np.arange(50), [7], **options)
    rows = np.split(batch.hops[0].indices, batch.hops[0].indptr[1:-1])
    assert all(np.array_equal(row, rows[0]) for row in rows)


def test_a_shared_neighbour_is_kept_by_the_destination_of_lower_degree_first():
    # Perfect correlation: the one with the lower probability never takes what the other leaves.
    shared, joint = np.arange(2, 12), 0
    few, many = shared.tolist(), [*range(2, 42)]
    indptr, indices = graph_of(few, many)
    for step in range(STEPS):
        hop = (batch := sample_by(sample_labor, indptr, indices, [0, 1], [5], DrawKey(0, 0, step))).hops[0]
        by_few, by_many = np.split(batch.nodes[hop.indices], hop.indptr[1:-1])
        both = np.intersect1d(by_many, shared)
        assert np.isin(both, by_few).all()
        joint += len(both)
    p = 5 / 40  # not 5 / 10 * 5 / 40, as independent draws would have it
    assert abs(joint - STEPS * 10 * p) < SIGMAS * np.sqrt(STEPS * 10 * p * (1 - p))


@pytest.mark.parametrize("apart", ["node", "hop", "step", "epoch", "seed", "high seed"])
def test_draws_are_independent(apart):
    # Of what one node draws and what the next one draws, or the same node under another key.
    other = {"step": (7, 1, 3), "epoch": (7, 2, 2), "seed": (8, 1, 2), "high seed": (7 + 2**32, 1, 2)}
    mine = kept_of_private(4, 1)
    if apart == "node":
        theirs = np.roll(mine, 1, axis=1)
    elif apart == "hop":
        indptr, indices = private_graph(HUBS, 4)
        hop = sample_by(sample_labor, indptr, indices, np.arange(HUBS), [1, 1], edge_ids=True).hops[1]
        theirs = np.zeros(4 * HUBS, bool)
        theirs[hop.edge_ids] = True
        theirs = theirs.reshape(HUBS, 4)
    else:
        theirs = kept_of_private(4, 1, DrawKey(*other[apart]))
    num_both, trials, p = (mine & theirs).sum(), 4 * HUBS, 1 / 16
    assert abs(num_both - trials * p) < SIGMAS * np.sqrt(trials * p * (1 - p))


def test_draws_are_not_those_of_neighbour_sampling():
    # A word used twice would correlate who is kept with who is drawn.
    indptr, indices = star_graph(HUBS, 2)
    drawn = sample_by(sample_neighbors, indptr, indices, np.arange(HUBS), [1], edge_ids=True).hops[0].edge_ids % 2
    back_indptr, back = np.concatenate([[0, 2 * HUBS], np.full(2 * HUBS, 2 * HUBS)]), np.arange(1, 2 * HUBS + 1)
    hop = sample_by(sample_labor, back_indptr, back - 1, [0], [HUBS], edge_ids=True).hops[0]
    kept = np.isin(np.arange(HUBS), hop.edge_ids)
    assert abs(kept.sum() - HUBS / 2) < SIGMAS * np.sqrt(HUBS / 4)
    assert abs((kept & (drawn == 1)).sum() - HUBS / 4) < SIGMAS * np.sqrt(HUBS * 3 / 16)


@pytest.mark.parametrize(
    "options", [{}, {"fixed_count": True}, {"importance": 1}, {"importance": -1}, {"layer_dependency": True}]
)
def test_sums_are_estimated_without_bias(options):
    # Lists of several lengths, in part shared; no repeated edges.
    rng = np.random.default_rng(0)
    lists = [rng.choice(np.arange(5, 45), size, replace=False).tolist() for size in (3, 8, 12, 20, 30)]
    indptr, indices = graph_of(*lists)
    values = rng.random(45)
    got = np.array(
        [
            estimates(
                sample_by(sample_labor, indptr, indices, range(5), [4], DrawKey(3, 0, t), estimate="sum", **options),
                values,
                num_seeds=5,
            )
            for t in range(STEPS)
        ]
    )
    error = got.mean(axis=0) - [values[each].sum() for each in lists]
    assert np.all(np.abs(error) <= SIGMAS * got.std(axis=0) / np.sqrt(STEPS) + 1e-4)  # weights are float32
    assert got.std(axis=0)[0] < 1e-6  # all of three
    assert got.std(axis=0)[1:].min() > 0.3  # the others are chosen indeed


@pytest.mark.parametrize("importance", [0, 1, -1])
def test_means_are_estimated_with_the_variance_of_uniform_draws(importance):
    # 0 counts all alike, importance by weight; both hold close to the mean, and constants are met exactly.
    rng = np.random.default_rng(1)
    lists = [rng.choice(np.arange(6, 106), 50, replace=False).tolist() for _ in range(3)]
    lists += [rng.choice(np.arange(6, 56), 40, replace=False).tolist() for _ in range(3)]
    indptr, indices = graph_of(*lists)
    values = rng.normal(size=106)
    sums, counts = [], []
    for t in range(STEPS):
        batch = sample_by(sample_labor, indptr, indices, range(6), [10], DrawKey(3, 0, t), importance=importance)
        counts.append(np.diff(batch.hops[0].indptr))
        sums.append(estimates(batch, values, num_seeds=6))
        np.testing.assert_allclose(estimates(batch, np.ones(106), num_seeds=6), counts[-1], rtol=1e-5)
    means = np.array(sums) / np.maximum(counts, 1)
    truth = np.array([values[each].mean() for each in lists])
    uniform_variance = np.array([values[each].var() * (1 / 10 - 1 / len(each)) for each in lists])
    assert np.abs(means.mean(axis=0) - truth).max() < 0.02  # Hajek's estimator has a bias of order 1 / fanout
    # Poisson counts vary where uniform draws have a fixed count: up to a quarter more at a fanout of 10.
    ratio = means.var(axis=0) / uniform_variance
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4


@pytest.mark.parametrize("importance", [1, 2, -1])
def test_neighbours_are_kept_as_often_as_their_weights_say(importance):
    # A sum's weight is 1 / p, so p is known wherever an edge was kept; kept frequencies must be these.
    rng = np.random.default_rng(2)
    lists = [rng.choice(np.arange(4, 34), size, replace=False).tolist() for size in (10, 15, 20, 25)]
    indptr, indices = graph_of(*lists)
    options = {"importance": importance, "estimate": "sum", "edge_ids": True}
    num_kept, weight = np.zeros(len(indices)), np.zeros(len(indices))
    for t in range(STEPS):
        batch = sample_by(sample_labor, indptr, indices, range(4), [4], DrawKey(0, 9, t), **options)
        ids = batch.hops[0].edge_ids
        num_kept[ids] += 1
        assert np.all((weight[ids] == 0) | (weight[ids] == batch.weights[0]))  # probabilities do not depend on draws
        weight[ids] = batch.weights[0]
    assert weight.all()  # none is out of reach
    p = 1 / weight
    assert np.all(np.abs(num_kept - STEPS * p) <= SIGMAS * np.sqrt(STEPS * p * (1 - p)) + 1e-3)
    # The paper's condition on each destination: the variance of `fanout` uniform draws.
    sums = [weight[indptr[i] : indptr[i + 1]].sum() for i in range(4)]
    np.testing.assert_allclose(sums, [len(each) ** 2 / 4 for each in lists], rtol=1e-6)
    assert p.max() > 1.5 * p.min()  # shared ones are preferred


@pytest.mark.parametrize("fanout", [1, 4, 63])
def test_scales_solve_their_equation(fanout):
    rng = np.random.default_rng(fanout)
    for spread in (0.0, 1.0, 30.0):
        inverse = np.exp(spread * rng.normal(size=64)).tolist()
        c = solve_scale(inverse, fanout)
        assert sum(max(1.0, value / c) for value in inverse) == pytest.approx(64**2 / fanout, rel=1e-9)


def test_fewer_nodes_than_neighbour_sampling_and_fewer_still_with_importance():
    # The figure the method is for. Each step is the expectation of thousands of nodes: no chance involved.
    indptr, indices = random_graph(20_000, 400_000, seed=1)
    seeds = np.random.default_rng(0).permutation(20_000)[:500]

    def num_nodes(op=sample_labor, **options) -> int:
        return len(sample_by(op, indptr, indices, seeds, [5, 5], **options).nodes)

    uniform = num_nodes(sample_neighbors)
    plain, fixed, dependent = num_nodes(), num_nodes(fixed_count=True), num_nodes(layer_dependency=True)
    once, converged = num_nodes(importance=1), num_nodes(importance=-1)
    assert plain < 0.85 * uniform
    assert fixed < 0.85 * uniform
    assert dependent < plain
    assert converged <= once < plain
