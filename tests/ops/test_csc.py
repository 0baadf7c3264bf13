"""Building and checking graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError
from lightning_gnnload.ops import check_csc, coo_to_csc
from tests import oracle

from .graphs import random_graph


@pytest.mark.parametrize("src_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dst_dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (1, 5), (50, 20), (50, 3000), (3000, 50)])
def test_coo_to_csc_equals_a_stable_sort(src_dtype, dst_dtype, num_nodes, num_edges):
    rng = np.random.default_rng(num_edges)
    src = rng.integers(0, num_nodes, num_edges).astype(src_dtype)
    dst = rng.integers(0, num_nodes, num_edges).astype(dst_dtype)
    indptr, indices, order = coo_to_csc(src, dst, num_nodes, keep_order=True)
    want = oracle.coo_to_csc(src, dst, num_nodes)
    for got, expected in zip((indptr, indices, order), want, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert indptr.dtype == order.dtype == np.int64
    assert indices.dtype == src_dtype
    check_csc(indptr, indices)
    assert coo_to_csc(src, dst, num_nodes)[2] is None


def test_no_nodes():
    nothing = np.empty(0, np.int64)
    indptr, indices, _ = coo_to_csc(nothing, nothing, 0)
    assert indptr.tolist() == [0]
    assert indices.size == 0
    check_csc(indptr, indices)


@pytest.mark.parametrize("bad", [-1, 7, 2**31 - 1])
@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_edges_out_of_range_are_named(bad, name, dtype):
    edges = {"src": np.zeros(9, dtype), "dst": np.zeros(9, dtype)}
    edges[name][5] = bad
    end = {"src": "source", "dst": "target"}[name]
    with pytest.raises(GraphFormatError, match=rf"edge 5 has the {end} {bad}, but there are 7 such nodes"):
        coo_to_csc(**edges, num_nodes=7)


def test_coo_that_does_not_fit():
    with pytest.raises(GraphFormatError, match="2 sources, but 3 targets"):
        coo_to_csc(np.zeros(2, np.int64), np.zeros(3, np.int64), 1)
    with pytest.raises(GraphFormatError, match="num_nodes is -1"):
        coo_to_csc(np.zeros(2, np.int64), np.zeros(2, np.int64), -1)


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([1, 2], [0, 0], r"indptr\[0\] is 1, but must be 0"),
        ([0, 2, 1], [0], r"indptr\[2\] is 1, less than indptr\[1\] = 2"),
        ([0, -(2**63), 1], [0], r"indptr\[1\] is -9223372036854775808, less than"),
        ([0, 1], [0, 0], r"indptr\[1\] is 1, but indices has 2 edges"),
        ([0, 3], [0, 0], r"indptr\[1\] is 3, but indices has 2 edges"),
        ([0, 2**32], [0], "Node 0 has 4294967296 in-neighbours"),
        ([0, 2**63 - 1], [0], "Node 0 has 9223372036854775807 in-neighbours"),
        ([0, 1, 2], [0, 2], r"indices\[1\] is 2, but indptr describes 2 nodes"),
        ([0, 1, 2], [-1, 5], r"indices\[0\] is -1"),
        ([0], [0], "indptr"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_check_csc_names_what_is_wrong(indptr, indices, message, dtype):
    with pytest.raises(GraphFormatError, match=message):
        check_csc(np.array(indptr), np.array(indices, dtype))


@pytest.mark.parametrize("position", [0, 1023, 1024, 2500, 2999])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_check_csc_looks_at_every_index(position, dtype):
    indptr, indices = random_graph(40, 3000, seed=1, dtype=dtype)
    check_csc(indptr, indices)
    for bad in (40, -1, np.iinfo(dtype).max, np.iinfo(dtype).min):
        broken = indices.copy()
        broken[position] = bad
        with pytest.raises(GraphFormatError, match=rf"indices\[{position}\] is {bad}"):
            check_csc(indptr, broken)


@settings(max_examples=300)
@given(st.lists(st.integers(-1, 5), min_size=1, max_size=5), st.lists(st.integers(-1, 4), max_size=5))
def test_check_csc_agrees_with_the_oracle(indptr, indices):
    arrays = np.array([0, *np.sort(indptr)]), np.array(indices, np.int64)
    if oracle.is_csc(*arrays):
        check_csc(*arrays)
    else:
        with pytest.raises(GraphFormatError):
            check_csc(*arrays)
