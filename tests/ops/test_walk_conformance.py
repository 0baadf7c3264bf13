"""Statistical conformance of walks: what they do is as likely as an exact enumeration says.

Seeds are fixed, so each test passes always or never. Bounds are five sigma, as in test_conformance.py: with other
seeds a correct sampler would fail one comparison with probability 6e-7.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lightning_gnnload.ops import AliasTable, DrawKey, Walks, build_alias, random_walk

from .graphs import KEY, star_graph
from .walk_batches import sample_batch

HUBS = 20_000  # identical nodes, each an independent trial
SIGMAS = 5

# Node 0 has in-neighbours 1, 2, 2 and 3; node 1: 0 and 4; node 2: itself; node 3: none; node 4: 0.
INDPTR, INDICES = np.array([0, 4, 6, 7, 7, 8]), np.array([1, 2, 2, 3, 0, 4, 2, 0])


def assert_distributed(cells: np.ndarray, probability: np.ndarray) -> None:
    """Chi-square of cell numbers against probabilities, by Wilson and Hilferty's normal approximation."""
    expected = len(cells) * probability
    assert expected.sum() == pytest.approx(len(cells))
    assert expected.min() >= 5, "the chi-square needs more trials"
    chi2 = ((np.bincount(cells, minlength=len(expected)) - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    spread = 2 / (9 * freedom)
    assert chi2 < freedom * (1 - spread + SIGMAS * math.sqrt(spread)) ** 3


# By edge: node 0 goes to 1 in 3 of 10, to 2 by either of two edges in 7, to 3 never, and node 4 stays where it is.
WEIGHTS = np.array([3.0, 2.0, 5.0, 0.0, 1.0, 3.0, 2.0, 0.0])


def every_trace(start: int, walks: Walks, weights: np.ndarray | None = None) -> dict[tuple[int, ...], float]:
    """The probability of each trace, by following every choice."""
    found: dict[tuple[int, ...], float] = {}

    def follow(trace: tuple[int, ...], place: int, probability: float) -> None:
        neighbors = INDICES[INDPTR[place] : INDPTR[place + 1]].tolist()
        chances = np.ones(len(INDICES)) if weights is None else weights
        chances = chances[INDPTR[place] : INDPTR[place + 1]]
        if len(trace) > walks.length or not chances.any():
            found[trace] = found.get(trace, 0) + probability
            return
        for node, chance in zip(neighbors, chances / chances.sum(), strict=True):
            step = probability * chance
            if chance == 0:
                continue
            ended = (*trace, node)
            if len(ended) > walks.length:
                found[ended] = found.get(ended, 0) + step
                continue
            if walks.termination_prob:
                found[ended] = found.get(ended, 0) + step * walks.termination_prob
            going = step * (1 - walks.termination_prob)
            if walks.restart_prob:
                follow(ended, start, going * walks.restart_prob)
            if walks.restart_prob < 1:
                follow(ended, node, going * (1 - walks.restart_prob))

    follow((start,), start, 1.0)
    assert sum(found.values()) == pytest.approx(1)
    return found


def draw_traces(
    start: int, walks: Walks, num_traces: int = 40_000, table: AliasTable | None = None
) -> list[tuple[int, ...]]:
    """Half of them walks of one key, half under keys of their own."""
    many = Walks(walks.length, num_traces // 2, walks.termination_prob, walks.restart_prob)
    drawn = [random_walk(INDPTR, INDICES, np.array([start]), many, KEY, table=table)]
    few = Walks(walks.length, 20, walks.termination_prob, walks.restart_prob)
    for step in range(num_traces // 40):
        drawn.append(random_walk(INDPTR, INDICES, np.array([start]), few, DrawKey(1, 0, step), table=table))
    return [tuple(node for node in trace if node >= 0) for trace in np.concatenate(drawn).tolist()]


@pytest.mark.parametrize(("termination_prob", "restart_prob"), [(0, 0), (0.5, 0), (0, 0.3), (0.2, 0.5)])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_each_trace_is_as_likely_as_enumeration_says(start, termination_prob, restart_prob, weights):
    # A fate taken before the first step, drawn once a walk, or from the word that chose the neighbour, fails here.
    walks = Walks(3, 1, termination_prob, restart_prob)
    exact = every_trace(start, walks, weights)
    cell = {trace: i for i, trace in enumerate(exact)}
    drawn = draw_traces(start, walks, table=None if weights is None else build_alias(INDPTR, weights))
    assert set(drawn) <= set(cell)  # nothing impossible
    assert_distributed(np.array([cell[trace] for trace in drawn]), np.array(list(exact.values())))


@pytest.mark.parametrize("degree", [2, 3, 10, 100])
def test_each_neighbour_is_equally_likely_at_every_step(degree):
    # Each hub's in-neighbours lead on to a hub of the same degree.
    indptr = np.arange(0, degree * degree + 1, degree)
    indices = np.tile(np.arange(degree), degree)
    traces = random_walk(indptr, indices, np.arange(degree), Walks(7, HUBS // degree), KEY)
    for t in range(1, 8):
        assert_distributed(traces[:, t], np.full(degree, 1 / degree))
    if degree <= 10:
        # Steps of one Philox block, of two, and walks side by side: a word used twice fails here.
        for s, t in itertools.combinations(range(1, 8), 2):
            assert_distributed(traces[:, s] * degree + traces[:, t], np.full(degree**2, 1 / degree**2))
        assert_distributed(traces[:-1, 7] * degree + traces[1:, 1], np.full(degree**2, 1 / degree**2))


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_lengths_are_geometric(probability):
    indptr, indices = star_graph(HUBS, 3)
    indptr[HUBS:] = np.arange(indptr[HUBS], indptr[HUBS] + 4)
    indices = np.concatenate([indices, np.arange(HUBS, HUBS + 3)])  # leaves have loops: no walk ends for lack of edges
    traces = random_walk(indptr, indices, np.arange(HUBS), Walks(12, 1, probability), KEY)
    num_steps = (traces[:, 1:] >= 0).sum(axis=1)
    exact = probability * (1 - probability) ** np.arange(11)
    last = min(11, int(np.flatnonzero(HUBS * (1 - probability) ** np.arange(12) >= 20)[-1]))
    cells = np.concatenate([exact[:last], [(1 - probability) ** last]])
    assert num_steps.min() == 1
    assert_distributed(np.minimum(num_steps - 1, last), cells)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_excursions_between_restarts_are_geometric(probability):
    # A path 0 <- 1 <- 2 ...: a node is the number of steps since the walk left from its start.
    length = 40
    indptr, indices = np.minimum(np.arange(length + 2), length), np.arange(1, length + 1)
    traces = random_walk(indptr, indices, np.array([0]), Walks(length, 2000, 0, probability), KEY)[:, 1:]
    assert np.all((traces[:, 1:] == traces[:, :-1] + 1) | (traces[:, 1:] == 1))
    # Whether each step was the last before a restart: independent trials.
    restarts = (traces[:, 1:] == 1).ravel()
    p, n = probability, restarts.size
    assert abs(restarts.sum() - n * p) < SIGMAS * math.sqrt(n * p * (1 - p))
    pairs = 2 * (traces[:, 1:-1] == 1) + (traces[:, 2:] == 1)
    q = 1 - p
    assert_distributed(pairs[:, ::2].ravel(), np.array([q * q, q * p, p * q, p * p]))
    assert_distributed(pairs[:, 1::2].ravel(), np.array([q * q, q * p, p * q, p * p]))


@pytest.mark.parametrize("restart_prob", [0, 0.4])
@pytest.mark.parametrize("include_self", [False, True])
def test_weights_are_unbiased_estimates_of_expected_visits(restart_prob, include_self):
    walks = Walks(3, 5, 0.3, restart_prob)
    mean, square = np.zeros(5), np.zeros(5)
    for trace, probability in every_trace(0, walks).items():
        visits = np.bincount(trace[1:], minlength=5)
        mean += probability * visits
        square += probability * visits**2
    if not include_self:
        mean[0] = square[0] = 0
    num_steps = 4000
    total = np.zeros(5)
    for step in range(num_steps):
        batch = sample_batch(
            INDPTR, INDICES, [0], walks, DrawKey(5, 0, step), num_hops=1, num_neighbors=5, include_self=include_self
        )
        total[batch.nodes[batch.hops[0].indices]] += batch.weights[0]
    num_walks = 5 * num_steps
    five_sigma = SIGMAS * np.sqrt(num_walks * (square - mean**2))
    assert np.all(np.abs(total - num_walks * mean) <= five_sigma)
