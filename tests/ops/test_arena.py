"""Arenas of every size: a kernel fits its batch in, or says what it needs, and never writes beyond."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import ArenaTooSmall, SamplerInput, Workspace, sample_neighbors

from .graphs import KEY, Arena, in_every_size, random_graph, sample


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("edge_ids", [False, True])
def test_every_size(table, expand, edge_ids):
    indptr, indices = random_graph(300, 3000, seed=4)
    seeds, fanouts = np.array([5, 1, 200]), [4, -1, 2]
    options = {"expand": expand, "edge_ids": edge_ids}
    want = sample(indptr, indices, seeds, fanouts, **options)
    workspace = Workspace(300, table)

    def sample_into(arena):
        return sample_neighbors(SamplerInput(workspace, indptr, indices, seeds, KEY, arena), fanouts, **options)

    for got in in_every_size(sample_into):
        np.testing.assert_array_equal(got.nodes, want.nodes)
        for a, b in zip(got.hops, want.hops, strict=True):
            np.testing.assert_array_equal(a.indptr, b.indptr)
            np.testing.assert_array_equal(a.indices, b.indices)
            np.testing.assert_array_equal(a.edge_ids, b.edge_ids)


@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_every_size_where_all_nodes_are_known(table):
    # The branch-free insert writes one entry beyond the known nodes. 64 nodes end at a multiple of 64 bytes: so
    # an arena without room for that entry shows it in the guard.
    indptr, indices = np.arange(65) * 64, np.tile(np.arange(64), 64)
    for num_bytes in range(0, 64 * 40, 64):
        arena = Arena.of(num_bytes)
        with contextlib.suppress(ArenaTooSmall):
            inputs = SamplerInput(Workspace(64, table), indptr, indices, np.arange(64), KEY, arena.bytes)
            sample_neighbors(inputs, [3, -1])
        assert arena.guards_hold()


def test_layout_is_aligned_and_does_not_overlap():
    indptr, indices = random_graph(300, 3000, seed=4)
    arena = Arena.of(64 * 1001 + 17)  # an end that is no multiple of 64
    inputs = SamplerInput(Workspace(300), indptr, indices, np.array([5, 1]), KEY, arena.bytes)
    layout = sample_neighbors(inputs, [4, 3], edge_ids=True)
    parts = [(0, 8 * layout.num_nodes), (layout.free_begin, layout.free_end - layout.free_begin)]
    for hop in layout.hops:
        parts += [
            (hop.indptr_offset, 4 * (hop.num_dst + 1)),
            (hop.indices_offset, 4 * hop.num_edges),
            (hop.edge_ids_offset, 8 * hop.num_edges),
        ]
    parts.sort()
    assert all(begin % 64 == 0 for begin, _ in parts)
    assert all(begin + size <= after for (begin, size), (after, _) in itertools.pairwise(parts))
    assert parts[-1][0] + parts[-1][1] <= arena.num_bytes


@pytest.mark.parametrize("shift", [1, 8, 32])
def test_arena_must_be_aligned(shift):
    indptr, indices = random_graph(10, 20, seed=0)
    arena = Arena.of(4096).bytes[shift:]
    with pytest.raises(SamplerConfigError, match="multiple of 64"):
        SamplerInput(Workspace(10), indptr, indices, np.array([1]), KEY, arena)


def test_arena_must_be_writable_bytes():
    indptr, indices = random_graph(10, 20, seed=0)
    arena = Arena.of(4096).bytes
    with pytest.raises(SamplerConfigError, match="dtype"):
        SamplerInput(Workspace(10), indptr, indices, np.array([1]), KEY, arena.view(np.int8))
    arena.flags.writeable = False
    with pytest.raises(SamplerConfigError, match="read-only"):
        SamplerInput(Workspace(10), indptr, indices, np.array([1]), KEY, arena)
