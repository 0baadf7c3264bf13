"""Peers: what DGL and PyG return is read right, and what they raise is a finding."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from lightning_gnnload import NeighborSampler
from lightning_gnnload.conform.checks import existing_edges, outcomes
from lightning_gnnload.conform.draw import sampler_draw
from lightning_gnnload.conform.suites import Check, run
from lightning_gnnload.ops import DrawKey
from tests.laws.amid import COUNTED, NODE, amid_types, draw_amid
from tests.laws.peers import DGLDraw, PyGDraw, _faults_told
from tests.unit.toy import toy_graph


def test_dgl_is_read_right() -> None:
    def passes(draw, *settings, **options) -> bool:
        checks = [Check("edges", existing_edges), Check("outcomes", partial(outcomes, settings=settings, **options))]
        return all(result.passed for result in run(draw, checks))

    uniform, graded = ([1.0] * 6, 3), ([1, 2, 3, 4], 2)
    assert passes(DGLDraw(False, False), uniform, num_trials=20_000)
    assert passes(DGLDraw(True, True), graded, num_trials=20_000, replace=True)
    assert passes(DGLDraw(False, True), graded, num_trials=20_000)
    assert not passes(DGLDraw(False, False), graded, num_trials=20_000)  # the weights must arrive
    assert passes(DGLDraw(False, True, amid=amid_types), graded, num_trials=20_000)


@pytest.mark.parametrize("fanouts", [[3], [3, 2], [2, 2, 2]])
def test_pygs_output_is_read_right(fanouts: list[int]) -> None:
    # What pyg-lib and torch-sparse return has the layout of our batches in PyG's form.
    from torch_geometric.sampler import SamplerOutput

    from lightning_gnnload.adapters.pyg.write import to_pyg

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


def test_pygs_typed_and_timed_output_is_read_right() -> None:
    # Of ours, one hop of each type after the other, as pyg-lib gives it.
    from torch_geometric.sampler import HeteroSamplerOutput

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
    def raises(*arguments):
        raise RuntimeError("no such kernel")

    (result,) = run(_faults_told(raises), [Check("edges", existing_edges)])
    assert not result.passed
    assert "no such kernel" in result.worst.worst
