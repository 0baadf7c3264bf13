"""The statistical checks: right samplers pass, and each kind of wrong draw is found by the check made for it.

Seeds are fixed. A right sampler fails a suite with probability below 1e-6 for other seeds; each wrong one here lies
so far off that it passes with probability below 1e-6.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from lightning_gnnload import NeighborSampler
from lightning_gnnload.conform import check_draws
from lightning_gnnload.conform.checks import ends
from lightning_gnnload.conform.draw import positions, sampler_draw
from lightning_gnnload.conform.suites import LAWS, Check, run, suite
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.ops import DrawKey
from tests.runif import RunIf

from . import samplers


def failing(sampler_of, law, *names: str) -> list[str]:
    """Which of these checks fail (of all, without names), in quick runs."""
    checks = [check for check in suite(law, quick=True) if not names or check.name in names]
    assert len(checks) == len(names) or not names
    return [result.name for result in run(sampler_draw(sampler_of), checks) if not result.passed]


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replaced", [False, True])
def test_neighbor_sampler_draws_uniformly(expand, replaced: bool) -> None:
    law = "uniform, replaced" if replaced else "uniform"
    check_draws(partial(NeighborSampler, replace=replaced, expand=expand), law)


def test_neighbor_sampler_draws_uniformly_in_the_long_run() -> None:
    # Ten times the trials show a third of the deviation.
    names = ("pairs", "subsets", "hub of 10^6", "between nodes", "between hops", "over time")
    checks = [check for check in suite("uniform") if check.name in names]
    assert len(checks) == len(names)
    assert all(result.passed for result in run(sampler_draw(NeighborSampler), checks))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_weighted_sampler_in_python_follows_its_weights(replaced: bool) -> None:
    law = "weighted, replaced" if replaced else "weighted"
    names = ["edges exist", "counts", "outcomes", "proportions", "between nodes", "between hops", "between steps"]
    assert failing(partial(samplers.WeightedSampler, replace=replaced), law, *names) == []


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (samplers.ShortFloyd, "subsets"),
        (samplers.ShortFloyd, "first and last"),
        (samplers.ShortFloyd, "pairs"),
        (samplers.DropsLast, "counts"),
        (samplers.Duplicates, "counts"),
        (samplers.NoPrefix, "edges exist"),
        (samplers.NearlyUniform, "subsets"),
        (samplers.Paired, "pairs"),
        (samplers.Paired, "subsets"),
        (samplers.IgnoresHop, "between hops"),
        (samplers.IgnoresStep, "between steps"),
        (samplers.IgnoresStep, "over time"),
        (samplers.IgnoresEpoch, "between epochs"),
        (samplers.ShortSeed, "between seeds"),
        (samplers.IgnoresNode, "between nodes"),
    ],
)
def test_a_wrong_draw_is_found(broken, name: str) -> None:
    assert failing(broken, "uniform", name) == [name]


@pytest.mark.parametrize("name", ["counts", "inclusion", "subsets", "between nodes", "between hops"])
def test_the_same_draw_without_the_fault_passes(name: str) -> None:
    assert failing(samplers.FloydSampler, "uniform", name) == []


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (samplers.IgnoresWeights, "proportions"),
        (samplers.SteepWeights, "outcomes"),
        (samplers.DrawsZeros, "counts"),
    ],
)
def test_wrong_weights_are_found(broken, replaced: bool, name: str) -> None:
    law = "weighted, replaced" if replaced else "weighted"
    assert failing(partial(broken, replace=replaced), law, name) == [name]


class ReusesWords(samplers.WeightedSampler):
    """With replacement, draw 4 takes the word of draw 0."""

    def __init__(self, fanouts) -> None:
        super().__init__(fanouts, replace=True)

    def draw_hop(self, graph, nodes, fanout, hop, key):
        counts, picks = super().draw_hop(graph, nodes, fanout, hop, key)
        by_node = picks.reshape(-1, fanout)
        if fanout > 4:
            by_node[:, 4] = by_node[:, 0]
        return counts, by_node.ravel()


def test_a_word_used_twice_is_found() -> None:
    assert failing(ReusesWords, "uniform, replaced", "coincidences", "proportions") == ["coincidences"]


def test_the_error_names_hypothesis_setting_and_count() -> None:
    with pytest.raises(ConformanceError) as raised:
        check_draws(samplers.ShortFloyd)
    told = str(raised.value)
    assert "does not draw by the law 'uniform': 'inclusion' fails." in told
    assert "Each neighbour is drawn with probability fanout / degree. But with degree " in told
    assert "neighbour" in told
    assert "expected; the probability of this or worse is at most" in told


def test_every_check_states_its_hypothesis() -> None:
    for law in LAWS:
        for check in suite(law):
            assert check.hypothesis.endswith("."), check.name


def test_a_check_that_cannot_draw_fails() -> None:
    check = Check("ends", partial(ends, settings=[(3, 3), (4, 2)], num_trials=100))
    (result,) = run(sampler_draw(samplers.DropsLast), [check])
    assert not result.passed
    assert [each.worst for each in result.evidence] == ["node 0 drew 2 neighbours instead of 3"]


@RunIf(extras="dgl")
@RunIf(extras="pyg")
@RunIf(extras="pyg")
def test_positions_are_those_of_the_adjacency_list() -> None:
    drawn = positions(sampler_draw(NeighborSampler), np.ones(5), 5, 40_000, DrawKey(0, 0, 0))
    assert drawn.shape == (40_000, 5)
    assert (drawn == np.arange(5)).all()  # all neighbours are taken in their order
