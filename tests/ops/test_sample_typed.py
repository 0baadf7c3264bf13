"""Sampling with a fanout for each edge type equals the oracle."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError
from lightning_gnnload.ops import (
    ArenaTooSmall,
    DrawKey,
    SamplerInput,
    Workspace,
    index_edge_types,
    instruction_sets,
    reference,
    sample_typed_neighbors,
)

from .graphs import KEY, Arena, Batch, instruction_set, random_graph, read_batch, sampled
from .names import any_key, any_names


def typed_graph(num_nodes: int, num_edges: int, num_types: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indptr, indices = random_graph(num_nodes, num_edges, seed)
    return indptr, indices, np.random.default_rng(seed).integers(0, num_types, num_edges)


def sample(graph: Any, seeds: Any, fanouts: Any, table: Any = "auto", key: Any = KEY, **options: Any) -> Batch:
    indptr, indices, edge_type = graph
    types, workspace = index_edge_types(indptr, edge_type), Workspace(len(indptr) - 1, table)
    inputs, names = (workspace, indptr, indices, np.asarray(seeds, np.int64), key), options.pop("names", None)
    return sampled(
        lambda arena: sample_typed_neighbors(
            SamplerInput(*inputs, arena, names), types, fanouts, edge_ids=True, **options
        )
    )


def assert_equals_oracle(
    graph: Any, seeds: Any, fanouts: Any, table: Any = "auto", key: DrawKey = KEY, **options: Any
) -> None:
    indptr, indices, edge_type = graph
    kinds = range(int(edge_type.max()) + 1) if len(edge_type) else range(1)
    by_type = [dict.fromkeys(kinds, hop) if isinstance(hop, int) else hop for hop in fanouts]
    nodes, hops = reference.sample_typed_neighbors(
        indptr, indices, edge_type, np.asarray(seeds, np.int64), by_type, key, **options
    )
    for name in instruction_sets():
        with instruction_set(name):
            batch = sample(graph, seeds, fanouts, table, key, **options)
        np.testing.assert_array_equal(batch.nodes, nodes)
        for got, want in zip(batch.hops, hops, strict=True):
            np.testing.assert_array_equal(got.indptr, want.indptr)
            np.testing.assert_array_equal(got.indices, want.indices)
            np.testing.assert_array_equal(got.edge_ids, want.edge_ids)
            np.testing.assert_array_equal(got.edge_types, edge_type[want.edge_ids])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_types = data.draw(st.integers(1, 5))
    graph = typed_graph(
        data.draw(st.integers(1, 30)), data.draw(st.integers(0, 200)), num_types, data.draw(st.integers(0, 99))
    )
    present = int(graph[2].max()) + 1 if len(graph[2]) else 1
    fanout = st.sampled_from([-1, 1, 2, 3, 5, 20])
    hop = st.one_of(fanout, st.dictionaries(st.integers(0, present - 1), fanout))
    num_nodes = len(graph[0]) - 1
    assert_equals_oracle(
        graph,
        data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes)),
        data.draw(st.lists(hop, max_size=3)),
        data.draw(st.sampled_from(["stamp", "hash"])),
        any_key(data, most_hop=13),
        names=any_names(data, num_nodes),
        replace=data.draw(st.booleans()),
        expand=data.draw(st.sampled_from(["all", "new"])),
    )


@pytest.mark.parametrize("stored_by_type", [False, True])
def test_many_destinations(stored_by_type):
    # Runs of one fanout are drawn from sixteen at a time: here thousands of runs, of two fanouts in turn.
    indptr, indices, edge_type = typed_graph(500, 30_000, 4, seed=3)
    if stored_by_type:
        edge_type = np.concatenate([np.sort(part) for part in np.split(edge_type, indptr[1:-1])])
    assert (index_edge_types(indptr, edge_type).order is None) == stored_by_type
    assert_equals_oracle((indptr, indices, edge_type), np.arange(0, 500, 3), [{0: 5, 1: 17, 2: 5, 3: -1}])


def test_types_draw_independently():
    # The same counter for two types would pick the same positions in runs of one length.
    indptr, indices = np.array([0, 2_000]), np.zeros(2_000, np.int64)
    edge_type = np.repeat([0, 1], 1_000)
    [hop] = sample((indptr, indices, edge_type), [0], [{0: 100, 1: 100}]).hops
    first, second = hop.edge_ids[:100], hop.edge_ids[100:] - 1_000
    assert len(np.intersect1d(first, second)) < 40  # 10 are expected; 40 or more have a probability below 1e-12


def test_every_arena_size():
    graph = typed_graph(60, 900, 3, seed=1)
    indptr, indices, edge_type = graph
    want = sample(graph, [3, 7], [{0: 2, 2: 3}, 1])
    types, workspace = index_edge_types(indptr, edge_type), Workspace(60)
    num_fits = 0
    for num_bytes in range(0, 64 * 60, 64):
        arena = Arena.of(num_bytes)
        with contextlib.suppress(ArenaTooSmall):
            inputs = SamplerInput(workspace, indptr, indices, np.array([3, 7]), KEY, arena.bytes)
            layout = sample_typed_neighbors(inputs, types, [{0: 2, 2: 3}, 1], edge_ids=True)
            num_fits += 1
            got = read_batch(layout, arena.bytes)
            np.testing.assert_array_equal(got.hops[1].edge_types, want.hops[1].edge_types)
            np.testing.assert_array_equal(got.hops[1].edge_ids, want.hops[1].edge_ids)
        assert arena.guards_hold()
    assert 10 < num_fits < 60


def test_wrong_arguments():
    graph = typed_graph(10, 30, 3, seed=0)
    with pytest.raises(SamplerConfigError, match=r"edge type 3, but the graph's edge types lie in \[0, 3\)"):
        sample(graph, [1], [{3: 2}])
    with pytest.raises(SamplerConfigError, match="at most 16"):
        sample(graph, [1], [{0: 1}] * 17)
    with pytest.raises(SamplerConfigError, match=r"fanouts\[0\] is 0"):
        sample(graph, [1], [{0: 0}])
    with pytest.raises(GraphFormatError, match=r"lie in \[-1, 2\]"):
        index_edge_types(graph[0], graph[2] * 3 // 2 - 1)
    with pytest.raises(GraphFormatError, match="29 entries"):
        index_edge_types(graph[0], graph[2][:-1])
    types = index_edge_types(np.zeros(5, np.int64), np.empty(0, np.int64))
    inputs = SamplerInput(Workspace(10), *graph[:2], np.array([1]), KEY, Arena.of(4096).bytes)
    with pytest.raises(SamplerConfigError, match="index 4 nodes, but the graph has 10"):
        sample_typed_neighbors(inputs, types, [{0: 1}])
