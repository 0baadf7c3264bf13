"""A batch is a function of its arguments: of nothing that happened before, beside or around it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey, SamplerInput, Workspace, sample_neighbors

from .graphs import KEY, Arena, Batch, random_graph, sample, star_graph


def picks_by_node(batch: Batch, hop: int) -> dict[int, list[int]]:
    """The edge ids that each destination of a hop drew, in order."""
    layer = batch.hops[hop]
    cuts = np.split(layer.edge_ids, layer.indptr[1:-1])
    return {int(node): cut.tolist() for node, cut in zip(batch.nodes, cuts, strict=False)}


def test_a_node_draws_the_same_in_any_company():
    # State carried from node to node, or a counter made of local ids, fails here.
    indptr, indices = random_graph(400, 8000, seed=1)
    order = np.random.default_rng(0).permutation(400)
    everyone = sample(indptr, indices, order, [6, 4], edge_ids=True)
    for seeds in ([17], [300, 17, 5], order[-50:]):
        some = sample(indptr, indices, seeds, [6, 4], edge_ids=True)
        for hop in range(2):
            want = picks_by_node(everyone, hop)
            assert all(want[node] == picks for node, picks in picks_by_node(some, hop).items())


def test_both_modes_of_expansion_make_the_same_draws():
    indptr, indices = random_graph(400, 8000, seed=1)
    every, new = (sample(indptr, indices, [3, 9], [6, 4], expand=e, edge_ids=True) for e in ("all", "new"))
    found = picks_by_node(new, 1)
    known_before = set(every.nodes[:2].tolist())
    assert all(found[node] == picks for node, picks in picks_by_node(every, 1).items() if node not in known_before)


@pytest.mark.parametrize(
    "key",
    [
        DrawKey(8, 1, 2),
        DrawKey(7 + 2**32, 1, 2),
        DrawKey(7, 0, 2),
        DrawKey(7, 1, 3),
        DrawKey(7, 2, 1),
    ],
)
def test_every_part_of_the_key_matters(key):
    # Of 200 nodes with C(30, 3) subsets each, about 0.05 agree by chance; 5 do with probability below 1e-8.
    indptr, indices = star_graph(200, 30)
    mine, other = (sample(indptr, indices, np.arange(200), [3], k, edge_ids=True) for k in (KEY, key))
    equal = (mine.hops[0].edge_ids == other.hops[0].edge_ids).reshape(200, 3).all(axis=1)
    assert equal.sum() < 5


def test_hops_draw_differently():
    # Twice the same fanout: with the hop left out of the counter, every seed repeats its picks.
    indptr, indices = star_graph(200, 30)
    batch = sample(indptr, indices, np.arange(200), [3, 3], edge_ids=True)
    first, second = picks_by_node(batch, 0), picks_by_node(batch, 1)
    assert sum(first[node] == second[node] for node in range(200)) < 5


def test_threads_at_once_make_the_batches_of_one_thread():
    indptr, indices = random_graph(5000, 100_000, seed=1)
    shuffled = np.random.default_rng(0).permutation(5000)
    jobs = [(shuffled[64 * step : 64 * (step + 1)], DrawKey(0, 0, step)) for step in range(64)]
    alone = [sample(indptr, indices, seeds, [5, 5], key) for seeds, key in jobs]

    def run(jobs_of_thread: list[tuple[np.ndarray, DrawKey]]) -> list[Batch]:
        workspace = Workspace(5000)
        return [sample(indptr, indices, seeds, [5, 5], key, workspace) for seeds, key in jobs_of_thread]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(run, [jobs[t::8] for t in range(8)]))
    finally:
        sys.setswitchinterval(interval)
    for t, batches in enumerate(together):
        for want, got in zip(alone[t::8], batches, strict=True):
            np.testing.assert_array_equal(got.nodes, want.nodes)
            for a, b in zip(got.hops, want.hops, strict=True):
                np.testing.assert_array_equal(a.indices, b.indices)


def test_a_workspace_serves_one_thread_at_a_time():
    # Two threads in one table would corrupt it: the second is refused, and the first goes on unharmed.
    num_nodes = 300_000
    indptr, indices = random_graph(num_nodes, 3_000_000, seed=1)
    workspace = Workspace(num_nodes)
    seeds = np.arange(num_nodes)

    def run(_: int) -> str:
        try:
            sample_neighbors(SamplerInput(workspace, indptr, indices, seeds, KEY, Arena.of(40 << 20).bytes), [10])
        except SamplerConfigError as error:
            return str(error)
        return "served"

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(run, range(16)))
    assert "served" in answers
    assert all(answer == "served" or "another thread" in answer for answer in answers)
    want, got = sample(indptr, indices, [3], [5]), sample(indptr, indices, [3], [5], workspace=workspace)
    np.testing.assert_array_equal(got.nodes, want.nodes)
