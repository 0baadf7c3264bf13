"""The edges that groups of nodes induce: exactly those of the graph between two nodes of one group."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, SeedError
from lightning_gnnload.ops import Workspace, coo_to_csc, induced_edges
from lightning_gnnload.ops.dispatch import kernels
from tests import oracle

from .graphs import random_graph
from .sampled import graph_of

HUB = 64  # a list more than so many times as long as its group is searched, where it ascends


def assert_equals_oracle(indptr: np.ndarray, indices: np.ndarray, groups: list[Any], **options: Any) -> None:
    nodes = np.array([node for group in groups for node in group], np.int64)
    ptr = np.cumsum([0, *map(len, groups)])
    found = induced_edges(indptr, indices, nodes, ptr, **options)
    assert [each.dtype for each in found] == [np.int32, np.int32, np.int64]
    for name, got, wanted in zip(found._fields, found, oracle.induced_edges(indptr, indices, nodes, ptr), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def ascending(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same graph, each list sorted."""
    lists = [np.sort(indices[begin:end]) for begin, end in itertools.pairwise(indptr)]
    return indptr, np.concatenate([np.empty(0, indices.dtype), *lists])


def test_a_graph_by_hand():
    # 0 <- 1, 2, 1 (repeated); 1 <- 1 (a loop), 3; 2 <- nothing; 3 <- 0, 2
    indptr, indices = graph_of([1, 2, 1], [1, 3], [], [0, 2])
    edges = induced_edges(indptr, indices, np.array([3, 0, 1]))
    assert edges.indptr.tolist() == [0, 1, 3, 5]
    assert edges.indices.tolist() == [1, 2, 2, 2, 0]  # 3 <- 0; 0 <- 1, 1; 1 <- 1, 3
    assert edges.edge_ids.tolist() == [5, 0, 2, 3, 4]
    # Of two groups, edges between them are left out, and places go on counting.
    edges = induced_edges(indptr, indices, np.array([3, 0, 0, 1]), np.array([0, 2, 2, 4]))
    assert edges.indptr.tolist() == [0, 1, 1, 3, 4]
    assert edges.indices.tolist() == [1, 3, 3, 3]
    assert edges.edge_ids.tolist() == [5, 0, 2, 3]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("num_groups", [1, 7])
def test_equals_the_oracle(dtype, table, num_groups):
    indptr, indices = random_graph(120, 3000, seed=3, dtype=dtype)
    random = np.random.default_rng(5)
    groups = [random.permutation(120)[: random.integers(0, 60)] for _ in range(num_groups)]
    workspace = Workspace(120, table)
    for _ in range(2):  # a workspace that was used is as good as a new one
        assert_equals_oracle(indptr, indices, groups, workspace=workspace)


@settings(max_examples=200)
@given(data=st.data())
def test_equals_the_oracle_on_any_graph(data):
    num_nodes = data.draw(st.integers(1, 40))
    graph = random_graph(num_nodes, data.draw(st.integers(0, 400)), seed=data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        graph = ascending(*graph)
    group = st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=num_nodes)
    workspace = data.draw(st.sampled_from([None, Workspace(num_nodes, "stamp"), Workspace(num_nodes + 3, "hash")]))
    assert_equals_oracle(*graph, data.draw(st.lists(group, max_size=5)), workspace=workspace)


@pytest.mark.parametrize("is_ascending", [True, False])
@pytest.mark.parametrize("degree", [3 * HUB, 3 * HUB + 1, 511, 512, 513, 1024, 1537, 5000])
def test_hubs_of_ascending_lists_and_of_others(degree, is_ascending):
    # Groups of three nodes: the first degree is looked up, all others are searched, or looked up in parts. Nodes of
    # the group repeat in the list, are its first and its last, or are not in it; the hub has a loop.
    sources = np.sort(np.r_[0, 0, np.random.default_rng(1).integers(0, 200, degree - 4), 199, 199])
    if not is_ascending:
        sources[[-1, 5]] = sources[[5, -1]]
    indptr, indices, _ = coo_to_csc(
        np.r_[sources, sources, 7, 0], np.repeat([7, 300, 199, 12], [degree, degree, 1, 1]), 301
    )
    groups = [[7, 0, 199], [0, 300, 7], [250, 7, 251], [300, 199, 0], [7, 300, 12]]
    assert_equals_oracle(indptr, indices, groups)
    for group in groups:
        assert_equals_oracle(indptr, indices, [group], workspace=Workspace(301, "stamp"))


def test_many_hubs_are_told_apart():
    # More than are remembered, ascending and not in turn: one taken for another would lose edges.
    hubs = [[5, 600 + hub % 2] * 80 if hub % 3 else sorted([3, 600] * 80) for hub in range(600)]
    indptr, indices = graph_of(*hubs, *[[]] * 10)
    assert_equals_oracle(indptr, indices, [[hub, node] for hub in range(600) for node in (600, 601)])


def test_nothing():
    nothing = np.empty(0, np.int64)
    assert_equals_oracle(np.array([0]), nothing, [])
    assert_equals_oracle(np.array([0]), nothing, [[], []])
    assert_equals_oracle(np.zeros(6, np.int64), nothing, [[], [4, 0], [], [4]])
    assert_equals_oracle(np.array([0, 2]), np.array([0, 0]), [[0], [0]])
    assert [each.tolist() for each in induced_edges(np.array([0, 1]), np.array([0]), nothing)] == [[0], [], []]


def test_ids_beyond_32_bits(tmp_path):
    # A look-up or a search by the low 32 bits would find nodes that are not there. indptr is a file with a hole.
    num_nodes = 2**32 + 100
    indptr = np.memmap(tmp_path / "indptr", np.int64, "w+", shape=(num_nodes + 1,))
    for dtype in (np.int64, np.int32):
        sources = [5, 5, 6, 7] if dtype == np.int32 else [5, 6, 2**32 + 5, 2**32 + 99]
        indices = np.sort(np.array(sources * 50, dtype))
        indptr[-1] = len(indices)
        groups = [[num_nodes - 1, 2**32 + 5], [num_nodes - 1, 5], [2**32 + 6, num_nodes - 1, 2**32 + 7]]
        assert_equals_oracle(indptr, indices, groups)


def test_the_result_owns_its_memory():
    indptr, indices = random_graph(50, 500, seed=1)
    workspace = Workspace(50)
    first = induced_edges(indptr, indices, np.arange(50), workspace=workspace)
    kept = [each.copy() for each in first]
    induced_edges(indptr, indices[::-1].copy(), np.arange(25), workspace=workspace)
    for one, other in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_threads_find_the_same(num_threads):
    indptr, indices = random_graph(500, 20000, seed=2)
    random = np.random.default_rng(0)
    lists = [random.permutation(500)[:200] for _ in range(24)]
    wanted = [induced_edges(indptr, indices, nodes) for nodes in lists]
    with ThreadPoolExecutor(num_threads) as pool:
        got = list(pool.map(lambda nodes: induced_edges(indptr, indices, nodes), lists))
    for one, other in zip(got, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("nodes", "ptr", "message"),
    [
        ([2, 10], None, r"nodes\[1\] is 10, but the graph has 10 nodes"),
        ([2, -1], [0, 1, 2], r"nodes\[1\] is -1"),
        ([2, 3, 2], None, r"nodes\[2\] is 2, the same node as nodes\[0\]"),
        ([1, 2, 3, 2], [0, 1, 4], r"nodes\[3\] is 2, the same node as nodes\[1\]"),
        ([1, 2], [0, 1], "ends with 1, but must"),
        ([1, 2], [1, 2], "begins with 1"),
        ([1, 2], [0, 3, 1, 2], r"ptr\[2\] is 1, less than ptr\[1\] = 3"),
        ([1, 2], [0, -1, 2], r"ptr\[1\] is -1"),
        ([1, 2], [], "ptr is empty"),
        ([], [0, 0, 1], "ends with 1"),
    ],
)
@pytest.mark.parametrize("table", ["stamp", "hash"])
def test_bad_groups(nodes, ptr, message, table):
    indptr, indices = random_graph(10, 50, seed=0)
    workspace = Workspace(10, table)
    given = None if ptr is None else np.array(ptr, np.int64)
    with pytest.raises(SeedError, match=message):
        induced_edges(indptr, indices, np.array(nodes, np.int64), given, workspace=workspace)
    assert_equals_oracle(indptr, indices, [[2, 3, 1]], workspace=workspace)  # it is clean again


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"nodes": np.array([1], np.int32)}, SeedError),
        ({"nodes": [1]}, SeedError),
        ({"nodes": np.array([[1]])}, SeedError),
        ({"ptr": np.array([0.0, 1.0])}, SeedError),
        ({"indices": np.arange(2.0)}, GraphFormatError),
        ({"indptr": np.array([], np.int64)}, GraphFormatError),
        ({"indptr": np.array([0, 1, 1])}, GraphFormatError),
        ({"workspace": 3}, SamplerConfigError),
        ({"workspace": Workspace(1)}, SamplerConfigError),
    ],
)
def test_wrong_arguments(changed, error):
    sound = {"indptr": np.array([0, 1, 2]), "indices": np.array([1, 0]), "nodes": np.array([1])}
    induced_edges(**sound)
    with pytest.raises(error):
        induced_edges(**(sound | changed))


@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("num_copies", [1, 3, 300])
def test_edges_beyond_int32_are_refused(num_groups, num_copies):
    # The limit is lowered, since a real case would take 32 GiB. Looked up, and searched.
    indptr, indices = graph_of(np.repeat([0, 1], num_copies), np.repeat([0, 1], num_copies))
    nodes, ptr = np.tile([0, 1], num_groups), np.arange(num_groups + 1) * 2
    num_edges = 4 * num_copies * num_groups

    def induce_up_to(max_local: int) -> Any:
        return kernels.induced_edges(Workspace(2).native, indptr, indices, nodes, ptr, max_local)

    assert len(induce_up_to(num_edges)[1]) == num_edges
    with pytest.raises(SamplerConfigError, match=f"more than {num_edges - 1} edges"):
        induce_up_to(num_edges - 1)
    with pytest.raises(SamplerConfigError, match=f"there are {len(nodes)} nodes, more than 1"):
        induce_up_to(1)
