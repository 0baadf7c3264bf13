"""Statistics of sampling by weight, beyond those of ``lightning_gnnload.conform``, which see no order and no extremes.

Seeds are fixed, so each test passes always or never. Bounds are five sigma: with other seeds a correct sampler would
fail a chi-square or a comparison with probability 6e-7, and any test here (at most 60 comparisons) with probability
below 0.004 %.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey, Workspace

from .graphs import Batch
from .weighted_graphs import WeightedGraph

HUBS = 20_000  # identical destination nodes, each an independent trial
SIGMAS = 5

SHAPES = {
    "equal": [1.0] * 5,
    "rising": [1.0, 2.0, 3.0, 4.0],
    "with zeros": [0.0, 3.0, 0.0, 1.0, 1.0, 0.0],
    "one heavy": [1.0, 300.0, 2.0, 1.0],  # trials mostly bring it again: the fallback decides
    "two heavy": [50.0, 1.0, 1.0, 70.0, 3.0],
}


def sample_positions(weights: list[float], fanout: int) -> np.ndarray:
    """``[HUBS, picks]`` positions in the order of draws."""
    graph = WeightedGraph.star(HUBS, weights)
    batch = graph.sample(np.arange(HUBS), [fanout])
    return batch.hops[0].edge_ids.reshape(HUBS, -1) % len(weights)


def assert_distributed(cells: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square by Wilson and Hilferty's normal approximation; cells expected less than 5 times are one cell."""
    counts, expected = np.bincount(cells, minlength=len(probabilities)), probabilities * len(cells)
    assert len(counts) == len(probabilities)
    assert not counts[expected == 0].any()
    rare = expected < 5
    if expected[rare].sum() >= 5:
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    else:
        assert counts[rare].sum() <= 30  # of fewer than 5: the chance is below 1e-13
        counts, expected = counts[~rare], expected[~rare]
    if len(counts) == 1:
        return
    chi2, free = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    spread = 2 / (9 * free)
    assert chi2 < free * (1 - spread + SIGMAS * math.sqrt(spread)) ** 3


def successive_probabilities(weights: list[float], fanout: int) -> dict[tuple[int, ...], float]:
    """Of each sequence of picks: draw by weight, remove, draw again."""
    positive = [i for i, weight in enumerate(weights) if weight]
    found = {}
    for picks in itertools.permutations(positive, min(fanout, len(positive))):
        left, probability = math.fsum(weights), 1.0
        for pick in picks:
            probability *= weights[pick] / left
            left -= weights[pick]
        found[picks] = probability
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fanout", [1, 2, 3])
def test_every_sequence_of_picks_is_as_likely_as_in_successive_sampling(shape, fanout):
    # Picks in the wrong order, or a fallback that forgets a share of what is left, fail here.
    weights = SHAPES[shape]
    wanted = successive_probabilities(weights, fanout)
    codes = [sum(pick * 8**k for k, pick in enumerate(picks)) for picks in wanted]
    positions = sample_positions(weights, fanout)
    drawn = positions @ 8 ** np.arange(positions.shape[1])
    assert np.isin(drawn, codes).all()
    order = np.argsort(codes)
    assert_distributed(np.searchsorted(np.array(codes)[order], drawn), np.array(list(wanted.values()))[order])


@pytest.mark.parametrize("fanout", [10, 45])
def test_long_lists_are_drawn_as_by_numpy(fanout):
    # NumPy's choice without replacement is successive sampling too. Frequencies of two samples are compared.
    rng = np.random.default_rng(0)
    weights = np.exp(2 * rng.standard_normal(60))
    own_subjects = np.bincount(sample_positions(weights.tolist(), fanout).ravel(), minlength=60)
    p, trials = weights / weights.sum(), 4000
    theirs = np.bincount(np.concatenate([rng.choice(60, fanout, False, p) for _ in range(trials)]), minlength=60)
    share = (own_subjects + theirs) / (HUBS + trials)
    five_sigma = SIGMAS * np.sqrt(share * (1 - share) * (1 / HUBS + 1 / trials)) + 1e-12
    assert np.all(np.abs(own_subjects / HUBS - theirs / trials) < five_sigma)


def test_a_ratio_of_a_billion():
    # The light one is expected in 2e-5 of the first draws, and always is the second.
    positions = sample_positions([1.0, 1e9], 1)
    assert np.count_nonzero(positions == 0) <= 1  # twice has a probability of 2e-10
    both = sample_positions([1.0, 1e9, 0.0], 2)
    assert np.all(np.sort(both, axis=1) == [0, 1])


def test_a_hub_of_a_million():
    # Ten classes of weights, 100,000 neighbours each: a table that loses shares on long lists fails here.
    weights = np.repeat(np.arange(10.0), 100_000)
    graph = WeightedGraph.of(np.array([0, 1_000_000, *[1_000_000] * 5]), np.zeros(1_000_000, np.int32), weights)
    ids = graph.sample([0], [50_000], replace=True).hops[0].edge_ids
    assert_distributed(ids // 100_000, np.arange(10) / 45)
    few = np.concatenate([graph.sample([0], [1000], DrawKey(1, 0, t)).hops[0].edge_ids for t in range(30)])
    assert_distributed(few // 100_000, np.arange(10) / 45)  # of a million, removing 1,000 hardly matters


def picks_by_node(batch: Batch, hop: int) -> dict[int, list[int]]:
    layer = batch.hops[hop]
    cuts = np.split(layer.edge_ids, layer.indptr[1:-1])
    return {int(node): cut.tolist() for node, cut in zip(batch.nodes, cuts, strict=False)}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[6, 4], [1, 60]])
def test_a_node_draws_the_same_in_any_company(fanouts, replace):
    # Trials made ahead for the wrong node, or left over from another batch, fail here.
    graph = WeightedGraph.random(400, 12_000, seed=1)
    everyone = graph.sample(np.random.default_rng(0).permutation(400), fanouts, replace=replace)
    workspace = Workspace(400)
    for seeds in ([17], [300, 17, 5], np.arange(50)):
        some = graph.sample(seeds, fanouts, workspace=workspace, replace=replace)
        for hop in range(2):
            want = picks_by_node(everyone, hop)
            assert all(want[node] == picks for node, picks in picks_by_node(some, hop).items())
