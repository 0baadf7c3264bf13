"""ShaDow sampling: the scope of neighbour sampling, and exactly the edges within it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import (
    DrawKey,
    SamplerInput,
    Workspace,
    sample_neighbors,
    sample_shadow,
)
from tests import oracle

from .graphs import KEY, Arena, in_every_size, random_graph, star_graph
from .names import any_key, any_names
from .sampled import assert_equal_hops, graph_of, read_sampled, sample_by


def assert_equals_oracle(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: Any,
    fanouts: list[int],
    key: DrawKey = KEY,
    table: Any = "auto",
    num_layers: int = 2,
    names: np.ndarray | None = None,
) -> None:
    options = {"num_layers": num_layers, "names": names}
    workspace = Workspace(len(indptr) - 1, table)
    got = sample_by(sample_shadow, indptr, indices, seeds, fanouts, key, workspace, edge_ids=True, **options)
    nodes, hops = oracle.sample_shadow(indptr, indices, np.asarray(seeds), fanouts, key, **options)
    assert_equal_hops(got, nodes, hops)
    assert len({(hop.indptr_offset, hop.indices_offset, hop.edge_ids_offset) for hop in got.layout.hops}) == 1


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
        fanouts=data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 5]), max_size=3)),
        key=any_key(data),
        table=data.draw(st.sampled_from(["stamp", "hash"])),
        num_layers=data.draw(st.integers(1, 5)),
        names=any_names(data, num_nodes),
    )


@pytest.mark.parametrize("degree", [1, 16, 511, 512, 513, 1024, 1025])
@pytest.mark.parametrize("hubs", [1, 31, 32, 33])
def test_lists_of_any_length(degree, hubs):
    # Runs and parts that end with a list, or amid one, and lists without neighbours between them.
    assert_equals_oracle(*star_graph(hubs, degree), np.arange(hubs), [3])
    assert_equals_oracle(*graph_of([], [3] * degree, [], [1, 2, 3], []), [3, 1, 4, 0], [2])


@pytest.mark.parametrize("fanouts", [[4, 3], [-1, -1]])
def test_edges_are_exactly_those_within_the_scope(fanouts):
    indptr, indices = random_graph(200, 3000, seed=1)
    batch = sample_by(sample_shadow, indptr, indices, [7, 100], fanouts, num_layers=2, edge_ids=True)
    scope = sample_by(sample_neighbors, indptr, indices, [7, 100], fanouts, expand="new")
    np.testing.assert_array_equal(batch.nodes, scope.nodes)
    dst = np.repeat(np.arange(200), np.diff(indptr))
    within = np.isin(indices, batch.nodes) & np.isin(dst, batch.nodes)
    hop = batch.hops[1]
    assert sorted(hop.edge_ids) == np.flatnonzero(within).tolist()
    np.testing.assert_array_equal(batch.nodes[hop.indices], indices[hop.edge_ids])
    owners = np.repeat(np.arange(len(batch.nodes)), np.diff(hop.indptr))
    np.testing.assert_array_equal(batch.nodes[owners], dst[hop.edge_ids])


def test_ids_beyond_32_bits(tmp_path):
    # A look-up by the low 32 bits would find nodes that are not there. indptr is a file with a hole, mostly zero.
    num_nodes = 2**32 + 100
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=(num_nodes + 1,))
    indices = np.array([5, 2**32 + 6, 5, 2**32 + 5, 2**32 + 99, 7])
    indptr[-1] = len(indices)
    for fanout in (-1, 2):
        assert_equals_oracle(indptr, indices, [num_nodes - 1], [fanout], table="hash")


def test_graphs_with_little_in_them():
    nothing = np.empty(0, np.int64)
    assert_equals_oracle(np.array([0]), nothing, nothing, [3, 2])
    assert_equals_oracle(np.zeros(6, np.int64), nothing, [4, 0], [3, -1])
    assert_equals_oracle(np.array([0, 2]), np.array([0, 0]), [0], [])  # two loops


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("edge_ids", [False, True])
def test_arenas_of_every_size(table, edge_ids):
    indptr, indices = random_graph(300, 3000, seed=4)
    seeds, fanouts = np.array([5, 1, 200]), [4, -1]
    options = {"num_layers": 3, "edge_ids": edge_ids}
    want = sample_by(sample_shadow, indptr, indices, seeds, fanouts, **options)
    workspace = Workspace(300, table)

    def sample_into(arena):
        return sample_shadow(SamplerInput(workspace, indptr, indices, seeds, KEY, arena), fanouts, **options)

    for got in in_every_size(sample_into, read_sampled):
        assert_equal_hops(got, want.nodes, want.hops, edge_ids)


@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_a_failure_leaves_the_workspace_clean(table):
    indptr, indices = random_graph(100, 1000, seed=2)
    workspace = Workspace(100, table)
    with pytest.raises(SeedError, match=r"seeds\[2\] is 7, the same node as seeds\[0\]"):
        sample_by(sample_shadow, indptr, indices, [7, 8, 7], [3], workspace=workspace, num_layers=2)
    after = sample_by(sample_shadow, indptr, indices, [7, 4], [3], workspace=workspace, num_layers=2)
    fresh = sample_by(sample_shadow, indptr, indices, [7, 4], [3], num_layers=2)
    assert_equal_hops(after, fresh.nodes, fresh.hops, edge_ids=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers is 0"),
        ({"num_layers": 2**16 + 1}, "num_layers is 65537"),
        ({"num_layers": 1.5}, "num_layers is 1.5"),
        ({"fanouts": [0]}, r"fanouts\[0\] is 0"),
    ],
)
def test_wrong_settings(options, message):
    indptr, indices = random_graph(10, 20, seed=0)
    with pytest.raises(SamplerConfigError, match=message):
        sample_by(sample_shadow, indptr, indices, [1], **({"fanouts": [2], "num_layers": 2} | options))


def test_batches_beyond_int32_are_refused():
    # The limit is lowered, since a real case would take 8 GiB. The scope takes 8 edges to find, and has 64.
    indptr, indices = np.arange(9) * 8, np.tile(np.arange(8), 8)
    arena = Arena.of(1 << 14)

    def sample_up_to(max_local: int) -> Any:
        inputs = SamplerInput(Workspace(8), indptr, indices, np.arange(1), KEY, arena.bytes)
        inputs.native.max_local = max_local
        return sample_shadow(inputs, [-1], num_layers=2)

    assert sample_up_to(64).num_nodes == 8
    with pytest.raises(SamplerConfigError, match="more than 63 edges"):
        sample_up_to(63)
