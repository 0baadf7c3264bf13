"""add_hop: neighbours that somebody else chose, in the order in which they first occur."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import ArenaTooSmall, SampleLayout, Workspace, add_hop
from tests import oracle

from .graphs import Arena, read_batch

NUM_NODES = 400


def begun(known: np.ndarray, num_bytes: int = 1 << 18) -> Arena:
    arena = Arena.of(num_bytes)
    arena.bytes[: 8 * len(known)].view(np.int64)[:] = known
    return arena


def random_hop(num_known: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts and neighbours, some of them known, some repeated."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, num_known)
    return counts, rng.integers(0, NUM_NODES, counts.sum())


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("num_known", [0, 1, 7, 150])
def test_hops_equal_the_oracle(table, num_known: int) -> None:
    known = np.random.default_rng(num_known).permutation(NUM_NODES)[:num_known]
    arena, workspace = begun(known), Workspace(NUM_NODES, table)
    end = None
    for hop in range(3):
        counts, neighbors = random_hop(len(known), seed=hop)
        columns = {
            "edge_ids": np.arange(len(neighbors)) + 2**40,
            "edge_weights": np.arange(len(neighbors), dtype=np.float32),
            "edge_types": np.arange(len(neighbors), dtype=np.int32) % 3,
        }
        layout = add_hop(workspace, NUM_NODES, len(known), counts, neighbors, arena.bytes, hops_begin=end, **columns)
        nodes, indptr, indices = oracle.add_hop(known, counts, neighbors)
        got = read_batch(layout, arena.bytes)
        np.testing.assert_array_equal(got.nodes, nodes)
        np.testing.assert_array_equal(got.hops[0].indptr, indptr)
        np.testing.assert_array_equal(got.hops[0].indices, indices)
        for name, values in columns.items():
            np.testing.assert_array_equal(getattr(got.hops[0], name), values)
        assert layout.free_begin >= 8 * len(nodes)
        assert layout.free_end < (end or arena.num_bytes)
        known, end = nodes, layout.free_end
    assert arena.guards_hold()


def test_every_size_of_arena() -> None:
    known = np.arange(20)
    counts, neighbors = random_hop(20, seed=1)
    num_fits = 0
    for num_bytes in range(192, 4096, 8):
        arena, workspace = begun(known, num_bytes), Workspace(NUM_NODES)
        try:
            layout = add_hop(workspace, NUM_NODES, 20, counts, neighbors, arena.bytes)
            add_hop(workspace, NUM_NODES, layout.num_nodes, np.zeros(layout.num_nodes, int), neighbors[:0],
                    arena.bytes, hops_begin=layout.free_end)  # fmt: skip
        except ArenaTooSmall as small:
            needed_bytes = small.needed_bytes
        else:
            needed_bytes = 0
            num_fits += 1
        if needed_bytes:
            assert needed_bytes > num_bytes  # so that a caller who grows to it gets on
            assert num_fits == 0  # what fits an arena fits any larger one
        assert arena.guards_hold()
    assert num_fits


def one_hop(**changed: object) -> SampleLayout:
    arguments: dict = {
        "workspace": Workspace(10),
        "num_nodes": 10,
        "num_known": 2,
        "counts": np.array([1, 2]),
        "neighbors": np.array([3, 9, 4]),
        "arena": begun(np.array([4, 2])).bytes,
    }
    return add_hop(**(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"neighbors": np.array([3, 10, 4])}, SamplerConfigError, r"neighbors\[1\] is 10"),
        ({"neighbors": np.array([3, 9, -1])}, SamplerConfigError, r"neighbors\[2\] is -1"),
        ({"counts": np.array([4, -1])}, SamplerConfigError, r"counts\[0\] is 4"),
        ({"counts": np.array([2**63 - 1, 4])}, SamplerConfigError, r"counts\[0\]"),
        ({"counts": np.array([1, 1])}, SamplerConfigError, "leaves 1 of 3"),
        ({"counts": np.array([3])}, SamplerConfigError, "counts has 1 entries"),
        ({"edge_types": np.zeros(2, np.int32)}, SamplerConfigError, "edge_types has 2 entries"),
        ({"num_known": 2**40}, SamplerConfigError, "8 for each node"),
        ({"hops_begin": 2**20}, SamplerConfigError, "hops_begin"),
        ({"num_nodes": 11}, SamplerConfigError, "Workspace"),
        ({"arena": begun(np.array([4, 4])).bytes}, SeedError, "same node"),
        ({"arena": begun(np.array([4, 10])).bytes}, SeedError, "10 nodes"),
    ],
)
def test_what_does_not_fit(changed, error, message: str) -> None:
    assert one_hop().num_nodes == 4
    with pytest.raises(error, match=message):
        one_hop(**changed)


def test_a_failed_call_leaves_the_workspace_clean() -> None:
    workspace = Workspace(10)
    with pytest.raises(SamplerConfigError):
        one_hop(workspace=workspace, neighbors=np.array([3, 9, 10]))
    assert one_hop(workspace=workspace).num_nodes == 4
