"""Neighbourhoods by random walks: threads, reused scratch memory, arenas of every size, wrong input."""

from __future__ import annotations

import contextlib
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import ArenaTooSmall, DrawKey, SamplerInput, Walks, Workspace, sample_walks

from .graphs import KEY, Arena, in_every_size, random_graph, sample_with, star_graph
from .walk_batches import GNNLAB, WALKS, Batch, assert_equal, read, sample_batch


def test_threads_at_once_make_the_batches_of_one_thread():
    indptr, indices = random_graph(5000, 50_000, seed=1)
    shuffled = np.random.default_rng(0).permutation(5000)
    jobs = [(shuffled[64 * step : 64 * (step + 1)], DrawKey(0, 0, step)) for step in range(32)]
    alone = [sample_batch(indptr, indices, seeds, key=key) for seeds, key in jobs]

    def run(jobs_of_thread: list[tuple[np.ndarray, DrawKey]]) -> list[Batch]:
        workspace = Workspace(5000)
        return [sample_batch(indptr, indices, seeds, key=key, workspace=workspace) for seeds, key in jobs_of_thread]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(run, [jobs[t::4] for t in range(4)]))
    finally:
        sys.setswitchinterval(interval)
    for t, batches in enumerate(together):
        for want, got in zip(alone[t::4], batches, strict=True):
            assert_equal(got, want)


def test_a_workspace_serves_different_settings_in_turn():
    # Scratch memory of the larger setting, left unclean, would show in the smaller one.
    indptr, indices = random_graph(300, 9000, seed=1)
    workspace = Workspace(300)
    for walks in (WALKS, Walks(7, 300), WALKS, Walks(1), Walks(3, 90, 0.1), WALKS):
        got = sample_batch(indptr, indices, [5, 9], walks, workspace=workspace)
        assert_equal(got, sample_batch(indptr, indices, [5, 9], walks))


# Arenas


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_arenas_of_every_size(table, expand):
    indptr, indices = random_graph(300, 1500, seed=4)
    seeds, workspace = np.array([5, 1, 200]), Workspace(300, table)
    want = sample_batch(indptr, indices, seeds, expand=expand)

    def sample_into(arena):
        inputs = SamplerInput(workspace, indptr, indices, seeds, KEY, arena)
        return sample_walks(inputs, WALKS, expand=expand, **GNNLAB)

    for got in in_every_size(sample_into, read):
        assert_equal(got, want)


def test_layout_is_aligned_and_does_not_overlap():
    indptr, indices = random_graph(300, 3000, seed=4)
    arena = Arena.of(64 * 1001 + 17)  # an end that is no multiple of 64
    inputs = SamplerInput(Workspace(300), indptr, indices, np.array([5, 1]), KEY, arena.bytes)
    layout = sample_walks(inputs, WALKS, **GNNLAB)
    parts = [(0, 8 * layout.num_nodes), (layout.free_begin, layout.free_end - layout.free_begin)]
    for hop in layout.hops:
        assert hop.edge_ids_offset == hop.edge_types_offset == -1
        parts += [
            (hop.indptr_offset, 4 * (hop.num_dst + 1)),
            (hop.indices_offset, 4 * hop.num_edges),
            (hop.edge_weights_offset, 4 * hop.num_edges),
        ]
    parts.sort()
    assert all(begin % 64 == 0 for begin, _ in parts)
    assert all(begin + size <= after for (begin, size), (after, _) in itertools.pairwise(parts))
    assert parts[-1][0] + parts[-1][1] <= arena.num_bytes


# Wrong input


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize(
    ("seeds", "message"),
    [([4, 100], r"seeds\[1\] is 100"), ([-1], r"seeds\[0\] is -1"), ([7, 8, 7], r"seeds\[2\] is 7, the same node")],
)
def test_bad_seeds_are_named_and_leave_the_workspace_clean(table, seeds, message):
    indptr, indices = random_graph(100, 1000, seed=2)
    workspace = Workspace(100, table)
    with pytest.raises(SeedError, match=message):
        sample_batch(indptr, indices, seeds, workspace=workspace)
    with contextlib.suppress(ArenaTooSmall):
        inputs = SamplerInput(workspace, indptr, indices, np.arange(9), KEY, Arena.of(640).bytes)
        sample_walks(inputs, WALKS, **GNNLAB)
    assert_equal(
        sample_batch(indptr, indices, [7, 4, 8], workspace=workspace),
        sample_batch(indptr, indices, [7, 4, 8]),
    )


def test_batches_beyond_int32_are_refused():
    # The limit is lowered, since a real case would take 8 GiB.
    # 200 walks of one step find all 8 neighbours of each hub.
    indptr, indices = star_graph(hubs=10, degree=8)
    arena = Arena.of(1 << 14)

    def sample_up_to(max_local: int) -> Any:
        inputs = SamplerInput(Workspace(18), indptr, indices, np.arange(10), DrawKey(0, 0, 0), arena.bytes)
        inputs.native.max_local = max_local
        return sample_walks(inputs, Walks(1, 200), num_hops=1, num_neighbors=8)

    assert sample_up_to(80).num_nodes == 18
    with pytest.raises(SamplerConfigError, match="more than 79 edges"):
        sample_up_to(79)
    with pytest.raises(SamplerConfigError, match="more than 9 nodes"):
        sample_up_to(9)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"indptr": np.zeros(11, np.int32)}, GraphFormatError, "indptr has dtype int32, but must be int64"),
        ({"indices": np.zeros(19, np.int64)}, GraphFormatError, r"indptr\[-1\] is 20 but indices has 19"),
        ({"seeds": [1]}, SeedError, "seeds is a list"),
        ({"num_hops": -1}, SamplerConfigError, "num_hops is -1"),
        ({"num_hops": 2**16 + 1}, SamplerConfigError, "num_hops is 65537"),
        ({"num_neighbors": 0}, SamplerConfigError, "num_neighbors is 0"),
        ({"num_neighbors": 2**40}, SamplerConfigError, "num_neighbors is"),
        ({"num_neighbors": 1.5}, SamplerConfigError, "num_neighbors is 1.5, but must be an integer"),
        ({"walks": Walks(2**8, 2**8)}, SamplerConfigError, "visit up to 65536 nodes"),
        ({"expand": "both"}, SamplerConfigError, "expand is 'both'"),
        ({"workspace": Workspace(9)}, SamplerConfigError, "9 nodes, but this graph has 10"),
        ({"arena": Arena.of(4096).bytes[8:]}, SamplerConfigError, "multiple of 64"),
    ],
)
def test_wrong_arguments(change, error, message):
    indptr, indices = random_graph(10, 20, seed=0)
    arguments = {
        "workspace": Workspace(10),
        "indptr": indptr,
        "indices": indices,
        "seeds": np.array([1]),
        "walks": WALKS,
        "key": KEY,
        "arena": Arena.of(4096).bytes,
        **GNNLAB,
    }
    with pytest.raises(error, match=message):
        sample_with(sample_walks, **(arguments | change))
