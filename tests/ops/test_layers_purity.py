"""A layer-wise batch depends on its arguments alone: not on the arena, on threads, or on what happened before."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey, SamplerInput, Workspace, importance_tree, sample_layers

from .graphs import KEY, Arena, Batch, in_every_size, random_graph
from .layers import METHODS, assert_same, sample


@pytest.mark.matrix
@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_every_size_of_arena(table, expand, edge_ids, method):
    indptr, indices = random_graph(300, 3000, seed=4)
    seeds, budgets = np.array([5, 1, 200]), [9, -1, 30]
    options = {"expand": expand, "edge_ids": edge_ids, "importance_tree": importance_tree(indptr, indices)}
    want = sample(indptr, indices, seeds, budgets, method, **options)
    workspace = Workspace(300, table)

    def sample_into(arena):
        inputs = SamplerInput(workspace, indptr, indices, seeds, KEY, arena)
        return sample_layers(inputs, budgets, method, **options)

    for got in in_every_size(sample_into):
        assert_same(got, want)


def test_layout_is_aligned_and_does_not_overlap():
    indptr, indices = random_graph(300, 3000, seed=4)
    arena = Arena.of(64 * 1001 + 17)  # an end that is no multiple of 64
    inputs = SamplerInput(Workspace(300), indptr, indices, np.array([5, 1]), KEY, arena.bytes)
    layout = sample_layers(inputs, [40, 30], "ladies", edge_ids=True)
    parts = [(0, 8 * layout.num_nodes), (layout.free_begin, layout.free_end - layout.free_begin)]
    for hop in layout.hops:
        parts += [
            (hop.indptr_offset, 4 * (hop.num_dst + 1)),
            (hop.indices_offset, 4 * hop.num_edges),
            (hop.edge_ids_offset, 8 * hop.num_edges),
            (hop.edge_weights_offset, 4 * hop.num_edges),
        ]
    parts.sort()
    assert all(begin % 64 == 0 for begin, _ in parts)
    assert all(begin + size <= after for (begin, size), (after, _) in itertools.pairwise(parts))


def drawn(seeds: list[int], key: DrawKey = KEY, method: str = "ladies", hop: int = 0) -> np.ndarray:
    """Edge ids of one hop, of 2,000 edges from as many leaves into each of ten hubs."""
    indptr = np.concatenate([np.arange(11) * 2000, np.full(2000, 20_000)])
    indices = np.tile(np.arange(10, 2010), 10)
    batch = sample(indptr, indices, seeds, [20, 20], method, key)
    return batch.hops[hop].edge_ids % 2000


# Of 2,000 equal leaves 20 are drawn, by "dsp" with edges of two hubs: two such draws that are independent share more
# than 6 with a probability below 1e-6.
FEW = 6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "key", [DrawKey(8, 1, 2), DrawKey(7 + 2**32, 1, 2), DrawKey(7, 0, 2), DrawKey(7, 1, 3), DrawKey(7, 2, 1)]
)
def test_every_part_of_the_key_matters(method, key):
    assert len(np.intersect1d(drawn([3, 4], method=method), drawn([3, 4], key, method))) < FEW


@pytest.mark.parametrize("method", METHODS)
def test_hops_draw_differently(method):
    assert len(np.intersect1d(drawn([3, 4], method=method), drawn([3, 4], method=method, hop=1))) < FEW


@pytest.mark.parametrize("method", METHODS)
def test_batches_of_one_step_draw_differently(method):
    # Trainers share a step, not seeds. Under one name for all layers they would all draw the same.
    assert len(np.intersect1d(drawn([3, 4], method=method), drawn([5, 6], method=method))) < FEW
    np.testing.assert_array_equal(drawn([3, 4], method=method), drawn([3, 4], method=method))


def test_threads_at_once_make_the_batches_of_one_thread():
    graph = random_graph(5000, 100_000, seed=1)
    tree = importance_tree(*graph)
    shuffled = np.random.default_rng(0).permutation(5000)
    jobs = [(shuffled[64 * step : 64 * (step + 1)], DrawKey(0, 0, step), METHODS[step % 3]) for step in range(48)]

    def run(jobs_of_thread: list[tuple[np.ndarray, DrawKey, str]]) -> list[Batch]:
        workspace = Workspace(5000)
        return [
            sample(*graph, seeds, [300, 500], method, key, workspace, importance_tree=tree)
            for seeds, key, method in jobs_of_thread
        ]

    alone = run(jobs)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(run, [jobs[t::8] for t in range(8)]))
    for t, batches in enumerate(together):
        for want, got in zip(alone[t::8], batches, strict=True):
            assert_same(got, want)
