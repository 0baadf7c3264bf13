"""Layer-neighbour sampling: the kernel equals the oracle on every path, and refuses what it must."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import (
    ArenaTooSmall,
    DrawKey,
    SamplerInput,
    Workspace,
    instruction_sets,
    sample_labor,
    use_instruction_set,
)
from tests import oracle

from .graphs import KEY, Arena, in_every_size, random_graph, star_graph
from .names import any_key, any_names
from .sampled import Sampled, assert_equal_hops, graph_of, private_graph, read_sampled, sample_by

KINDS: list[dict[str, Any]] = [
    {},
    {"layer_dependency": True},
    {"estimate": "sum"},
    {"fixed_count": True},
    {"fixed_count": True, "estimate": "sum"},
    {"importance": 1},
    {"importance": 2, "layer_dependency": True},
    {"importance": -1},
    {"importance": 3, "estimate": "sum"},
]


@contextlib.contextmanager
def using(instruction_set: str) -> Iterator[None]:
    use_instruction_set(instruction_set)
    try:
        yield
    finally:
        use_instruction_set(instruction_sets()[-1])


def assert_equals_oracle(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    fanouts: list[int],
    key: DrawKey = KEY,
    table: Any = "auto",
    **options: Any,
) -> None:
    nodes, hops = oracle.sample_labor(indptr, indices, np.asarray(seeds), fanouts, key, **options)
    workspace = Workspace(len(indptr) - 1, table)  # what one instruction set leaves there must not matter to the next
    for instruction_set in instruction_sets():
        with using(instruction_set):
            got = sample_by(sample_labor, indptr, indices, seeds, fanouts, key, workspace, edge_ids=True, **options)
        assert_equal_hops(got, nodes, hops)
        weighted = bool(options.get("importance")) or options.get("estimate") == "sum"
        for mine, want in zip(got.weights, hops, strict=True):
            assert (mine is not None) == weighted
            if mine is not None:
                np.testing.assert_array_equal(mine, want.weights)


@settings(max_examples=200)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40) | st.just(120))
    num_edges, seed = data.draw(st.integers(0, 150) | st.just(1500)), data.draw(st.integers(0, 99))
    indptr, indices = random_graph(num_nodes, num_edges, seed, data.draw(st.sampled_from([np.int32, np.int64])))
    assert_equals_oracle(
        indptr,
        indices,
        seeds=data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes)),
        fanouts=data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 5, 8, 17]), max_size=3)),
        key=any_key(data),
        table=data.draw(st.sampled_from(["stamp", "hash"])),
        expand=data.draw(st.sampled_from(["all", "new"])),
        **data.draw(st.sampled_from(KINDS)),
        names=any_names(data, num_nodes),
    )


@pytest.mark.parametrize("degree", [*range(1, 20), 255, 256, 257, 511, 513, 1100])
def test_lists_of_any_length(degree):
    # Lanes, blocks and runs that are filled in part: what is read or forgotten beyond the last neighbour fails here.
    for options, fanout in itertools.product(({}, {"fixed_count": True}, {"importance": 1}), (1, 8)):
        for graph in (private_graph(hubs=3, degree=degree), star_graph(hubs=35, degree=degree)):
            assert_equals_oracle(*graph, np.arange(3), [fanout], **options)
        names = np.random.default_rng(degree).permutation(len(graph[0]) - 1)
        assert_equals_oracle(*graph, np.arange(3), [fanout], names=names, **options)


@pytest.mark.parametrize("options", KINDS)
def test_ids_beyond_32_bits(tmp_path, options):
    # Draws of ids that agree in their low 32 bits must differ. indptr is a file with a hole, mostly zero.
    num_nodes = 2**32 + 100
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=(num_nodes + 1,))
    low = np.arange(5, 25)
    indices = np.concatenate([low, low + 2**32, [2**32 + 99]])
    indptr[-1] = len(indices)
    assert_equals_oracle(indptr, indices, [num_nodes - 1, 6], [10, 3], table="hash", **options)
    assert len({oracle.source_draw(np.zeros(2, np.uint32), 0, 0, t) for t in indices.tolist()}) == 41


@pytest.mark.parametrize("options", KINDS)
def test_graphs_with_little_in_them(options):
    nothing = np.empty(0, np.int64)
    assert_equals_oracle(np.array([0]), nothing, nothing, [3, 2], **options)
    assert_equals_oracle(np.zeros(6, np.int64), nothing, [4, 0], [3, -1, 2], **options)
    assert_equals_oracle(np.array([0, 1]), np.array([0]), [0], [3, 3], **options)  # one loop


@pytest.mark.parametrize("options", KINDS)
def test_repeated_edges(options):
    # All copies of an edge have one draw, and its kth smallest draw may be that of several.
    indptr, indices = graph_of([5] * 20 + [6] * 3 + [7], [5, 5, 6], [8] * 300)
    for step in range(20):
        assert_equals_oracle(indptr, indices, [0, 1, 2], [2, 2], DrawKey(0, 0, step), **options)


def test_copies_of_an_edge_are_kept_together():
    indptr, indices = graph_of([5, 6, 5, 7, 5, 8, 6])
    for step in range(50):
        batch = sample_by(sample_labor, indptr, indices, [0], [2], DrawKey(0, 0, step))
        kept = batch.nodes[batch.hops[0].indices].tolist()
        assert kept.count(5) in (0, 3)
        assert kept.count(6) in (0, 2)


def test_weights_of_importance_average_to_one():
    indptr, indices = random_graph(100, 3000, seed=2)
    batch = sample_by(sample_labor, indptr, indices, np.arange(20), [5, 5], importance=1)
    for hop, weights in zip(batch.hops, batch.weights, strict=True):
        counts = np.diff(hop.indptr)
        sums = np.add.reduceat(np.append(weights, 0), hop.indptr[:-1]) * (counts > 0)
        np.testing.assert_allclose(sums, counts, rtol=1e-5)
        assert weights.max() > 1.2  # or nothing would have been weighted


@pytest.mark.parametrize("options", [{}, {"estimate": "sum"}, {"fixed_count": True}, {"importance": 1}])
@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_arenas_of_every_size(options, table):
    indptr, indices = random_graph(300, 3000, seed=4)
    seeds, fanouts = np.array([5, 1, 200]), [4, -1, 2]
    want = sample_by(sample_labor, indptr, indices, seeds, fanouts, **options)
    workspace = Workspace(300, table)

    def sample_into(arena):
        return sample_labor(SamplerInput(workspace, indptr, indices, seeds, KEY, arena), fanouts, **options)

    for got in in_every_size(sample_into, read_sampled):
        assert_equal_hops(got, want.nodes, want.hops, edge_ids=False)
        for mine, other in zip(got.weights, want.weights, strict=True):
            np.testing.assert_array_equal(mine, other)


# Purity


def picks_by_node(batch: Sampled, hop: int) -> dict[int, list[int]]:
    layer = batch.hops[hop]
    cuts = np.split(layer.edge_ids, layer.indptr[1:-1])
    return {int(node): cut.tolist() for node, cut in zip(batch.nodes, cuts, strict=False)}


@pytest.mark.parametrize("fixed_count", [False, True])
def test_a_node_takes_the_same_in_any_company(fixed_count):
    indptr, indices = random_graph(400, 8000, seed=1)
    order = np.random.default_rng(0).permutation(400)
    options = {"fixed_count": fixed_count, "edge_ids": True}
    everyone = sample_by(sample_labor, indptr, indices, order, [6, 4], **options)
    for seeds in ([17], [300, 17, 5], order[-50:]):
        some = sample_by(sample_labor, indptr, indices, seeds, [6, 4], **options)
        for hop in range(2):
            want = picks_by_node(everyone, hop)
            assert all(want[node] == picks for node, picks in picks_by_node(some, hop).items())


@pytest.mark.parametrize("layer_dependency", [False, True])
@pytest.mark.parametrize("importance", [0, 1])
def test_hops_draw_alike_only_if_told_to(layer_dependency, importance):
    # With "all" and importance 0, the second hop asks the seeds again; with importance, at other probabilities.
    indptr, indices = private_graph(hubs=200, degree=30)
    options = {"layer_dependency": layer_dependency, "importance": importance, "edge_ids": True}
    batch = sample_by(sample_labor, indptr, indices, np.arange(200), [5, 5], **options)
    first, second = picks_by_node(batch, 0), picks_by_node(batch, 1)
    num_equal = sum(first[node] == second[node] for node in range(200))
    # Equal by chance: far below C(30, 5) ** -1 for each node, but both may be empty (0.004 ** 2).
    assert (num_equal == 200) if layer_dependency else (num_equal < 5)


@pytest.mark.parametrize("importance", [0, -1])
def test_threads_at_once_make_the_batches_of_one_thread(importance):
    indptr, indices = random_graph(3000, 60_000, seed=1)
    shuffled = np.random.default_rng(0).permutation(3000)
    jobs = [(shuffled[64 * step : 64 * (step + 1)], DrawKey(0, 0, step)) for step in range(32)]

    def run(jobs_of_thread: list[tuple[np.ndarray, DrawKey]]) -> list[Sampled]:
        workspace = Workspace(3000)
        return [
            sample_by(sample_labor, indptr, indices, seeds, [5, 5], key, workspace, importance=importance)
            for seeds, key in jobs_of_thread
        ]

    alone = [run([job])[0] for job in jobs]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(run, [jobs[t::8] for t in range(8)]))
    finally:
        sys.setswitchinterval(interval)
    for t, batches in enumerate(together):
        for want, got in zip(alone[t::8], batches, strict=True):
            assert_equal_hops(got, want.nodes, want.hops, edge_ids=False)


# Wrong input


@pytest.mark.parametrize("options", [{}, {"importance": 1}])
@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_a_failure_leaves_the_workspace_clean(table, options):
    indptr, indices = random_graph(100, 1000, seed=2)
    workspace = Workspace(100, table)
    with pytest.raises(SeedError, match=r"seeds\[1\] is 100"):
        sample_by(sample_labor, indptr, indices, [4, 100], [3], workspace=workspace, **options)
    inputs = SamplerInput(workspace, indptr, indices, np.array([7, 4]), KEY, Arena.of(256).bytes)
    with pytest.raises(ArenaTooSmall):
        sample_labor(inputs, [9, 9], **options)
    after = sample_by(sample_labor, indptr, indices, [7, 4, 8], [3, 3], workspace=workspace, **options)
    fresh = sample_by(sample_labor, indptr, indices, [7, 4, 8], [3, 3], **options)
    assert_equal_hops(after, fresh.nodes, fresh.hops, edge_ids=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"importance": -2}, "importance is -2"),
        ({"importance": 0.5}, "importance is 0.5"),
        ({"importance": 1, "fixed_count": True}, "exclude each other"),
        ({"estimate": "median"}, "estimate is 'median'"),
        ({"expand": "both"}, "expand is 'both'"),
        ({"fanouts": [0]}, r"fanouts\[0\] is 0"),
    ],
)
def test_wrong_settings(options, message):
    indptr, indices = random_graph(10, 20, seed=0)
    with pytest.raises(SamplerConfigError, match=message):
        sample_by(sample_labor, indptr, indices, [1], **({"fanouts": [2]} | options))


@pytest.mark.parametrize("importance", [0, 1])
def test_batches_beyond_int32_are_refused(importance):
    # The limit is lowered, since a real case would take 8 GiB.
    indptr, indices = star_graph(hubs=10, degree=8)
    arena = Arena.of(1 << 14)
    workspace = Workspace(18)

    def sample_up_to(max_local: int, fanout: int = 8) -> Any:
        inputs = SamplerInput(workspace, indptr, indices, np.arange(10), DrawKey(0, 0, 0), arena.bytes)
        inputs.native.max_local = max_local
        return sample_labor(inputs, [fanout], importance=importance)

    assert sample_up_to(80).num_nodes == 18
    with pytest.raises(SamplerConfigError, match="more than 79 edges"):
        sample_up_to(79)
    with pytest.raises(SamplerConfigError, match="more than 17 edges"):
        sample_up_to(17, fanout=7)
    if importance:
        indptr, indices = private_graph(hubs=10, degree=3)
        workspace = Workspace(40)
        with pytest.raises(SamplerConfigError, match="importance=1 numbers the in-neighbours of 10 nodes"):
            sample_up_to(15)
