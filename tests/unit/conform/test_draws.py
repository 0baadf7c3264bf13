"""The statistical checks: right samplers pass, and each kind of wrong draw is found by the check made for it.

Seeds are fixed. A right sampler fails a suite with probability below 1e-6 for other seeds; each wrong one here lies
so far off that it passes with probability below 1e-6.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from lightning_gnnload import NeighborSampler
from lightning_gnnload.conform import check_draws
from lightning_gnnload.conform.amid import COUNTED, NODE, amid_types, draw_amid
from lightning_gnnload.conform.checks import edges, ends, outcomes
from lightning_gnnload.conform.draw import positions, sampler_draw
from lightning_gnnload.conform.suites import LAWS, Check, run, suite
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.ops import DrawKey
from tests.runif import RunIf
from tests.unit.toy import toy_graph

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

    def draw(self, graph, nodes, fanout, hop, key):
        counts, picks = super().draw(graph, nodes, fanout, hop, key)
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
def test_dgl_is_read_right() -> None:
    from lightning_gnnload.conform.peers import DGLDraw

    def passes(draw, *settings, **options) -> bool:
        checks = [Check("edges", edges), Check("outcomes", partial(outcomes, settings=settings, **options))]
        return all(result.passed for result in run(draw, checks))

    uniform, graded = ([1.0] * 6, 3), ([1, 2, 3, 4], 2)
    assert passes(DGLDraw(False, False), uniform, num_trials=20_000)
    assert passes(DGLDraw(True, True), graded, num_trials=20_000, replace=True)
    assert passes(DGLDraw(False, True), graded, num_trials=20_000)
    assert not passes(DGLDraw(False, False), graded, num_trials=20_000)  # the weights must arrive
    assert passes(DGLDraw(False, True, amid=amid_types), graded, num_trials=20_000)


@RunIf(extras="pyg")
@pytest.mark.parametrize("fanouts", [[3], [3, 2], [2, 2, 2]])
def test_pygs_output_is_read_right(fanouts: list[int]) -> None:
    # What pyg-lib and torch-sparse return has the layout of our batches in PyG's form.
    from torch_geometric.sampler import SamplerOutput

    from lightning_gnnload.adapters.pyg import to_pyg
    from lightning_gnnload.conform.peers import PyGDraw

    graph, seeds, key = toy_graph(), np.array([17, 3, 250]), DrawKey(1, 2, 3)
    sampler = NeighborSampler(fanouts, expand="new")

    class Theirs:
        def sample_from_nodes(self, inputs):
            data = to_pyg(sampler.sample(graph, inputs.node, key.seed, key.epoch, key.step))
            return SamplerOutput(data.n_id, *data.edge_index, edge=None, batch=None)

    draw = PyGDraw(False, False)
    draw._held = graph, fanouts, Theirs()
    mine = sampler_draw(partial(NeighborSampler, expand="new"))(graph, seeds, fanouts, key)
    for hop, theirs in zip(mine, draw(graph, seeds, fanouts, key), strict=True):
        np.testing.assert_array_equal(theirs.dst, hop.dst)
        np.testing.assert_array_equal(theirs.src, hop.src)


@RunIf(extras="pyg")
def test_pygs_typed_and_timed_output_is_read_right() -> None:
    # Of ours, one hop of each type after the other, as pyg-lib gives it.
    from torch_geometric.sampler import HeteroSamplerOutput

    from lightning_gnnload.conform.peers import PyGDraw

    graph, seeds, key = toy_graph(), np.array([17, 3, 250]), DrawKey(1, 2, 3)
    mine = draw_amid(NeighborSampler, amid_types)(graph, seeds, [3, 2], key)

    class Theirs:
        is_temporal, is_hetero = False, True

        def sample_from_nodes(self, inputs):
            assert inputs.input_type == NODE
            nodes, ends = np.unique(
                np.concatenate([np.stack([hop.src, hop.dst]) for hop in mine], 1), return_inverse=True
            )
            src, dst = torch.from_numpy(ends.reshape(2, -1))
            return HeteroSamplerOutput(
                {NODE: torch.from_numpy(nodes)},
                {COUNTED: src},
                {COUNTED: dst},
                {COUNTED: None},
                num_sampled_edges={COUNTED: [len(hop.src) for hop in mine]},
            )

    draw = PyGDraw(False, False, amid_types)
    draw._held = graph, [3, 2], Theirs()
    for hop, theirs in zip(mine, draw(graph, seeds, [3, 2], key), strict=True):
        np.testing.assert_array_equal(theirs.dst, hop.dst)
        np.testing.assert_array_equal(theirs.src, hop.src)


def test_what_a_peer_raises_is_a_finding() -> None:
    from lightning_gnnload.conform.peers import _faults_told

    def raises(*arguments):
        raise RuntimeError("no such kernel")

    (result,) = run(_faults_told(raises), [Check("edges", edges)])
    assert not result.passed
    assert "no such kernel" in result.worst.worst


def test_positions_are_those_of_the_adjacency_list() -> None:
    drawn = positions(sampler_draw(NeighborSampler), np.ones(5), 5, 40_000, DrawKey(0, 0, 0))
    assert drawn.shape == (40_000, 5)
    assert (drawn == np.arange(5)).all()  # all neighbours are taken in their order
