"""Alias tables equal the oracle's, and hand out what the weights say."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError
from lightning_gnnload.ops import AliasTable, build_alias
from tests import oracle

SLOT_SHARES = 2**32
TINY, SMALLEST = np.finfo(np.float64).tiny, np.finfo(np.float64).smallest_subnormal

EXTREMES = {
    "ratio of a billion": [1.0, 1e9, 1.0, 5e8],
    "tiny beside one": [1e-30, 1.0, 1e-30, 0.0, 2.0],
    "tiny alone": [1e-30, 3e-30, 0.0, 2e-30],
    "subnormal": [SMALLEST, 3 * SMALLEST, 0.0, 1000 * SMALLEST],
    "subnormal beside normal": [SMALLEST, TINY, 3 * TINY, TINY / 3],
    "largest float32": [np.finfo(np.float32).max] * 3 + [1.0, 0.0],
    "largest float64": [np.finfo(np.float64).max] * 3 + [SMALLEST],  # the sum is beyond any float
    "whole range": [SMALLEST, np.finfo(np.float64).max, 1.0, 0.0],
    "negative zero": [-0.0, 1.0, -0.0, 2.0],
    "one neighbour": [0.3],
    "one of weight": [0.0, 0.0, 7.0],
    "a mask": [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0],
    "just above equal": [1.0, 1.0 + 2**-52, 1.0],
}


def one_node(weights: np.ndarray) -> AliasTable:
    return build_alias(np.array([0, len(weights)]), weights)


def shares_of(table: AliasTable, begin: int = 0, end: int | None = None) -> np.ndarray:
    """What the slots of one node hand out, uint64."""
    entries = table.entries[begin:end]
    threshold, alias = entries % SLOT_SHARES, entries >> np.uint64(32)
    shares = threshold.copy()
    np.add.at(shares, alias, np.uint64(SLOT_SHARES) - threshold)
    return shares


def assert_fits(shares: list[int], weights: list[float]) -> None:
    """The bounds that ``build_alias`` promises, in exact arithmetic."""
    degree, total = len(weights), sum(map(Fraction, weights))
    assert sum(shares) == degree * SLOT_SHARES
    bound = Fraction(1, 2**32) + Fraction(degree, 2**62)
    for share, weight in zip(shares, weights, strict=True):
        assert (share == 0) == (weight == 0)
        assert abs(Fraction(share, degree * SLOT_SHARES) - Fraction(weight) / total) <= bound


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_weights(name, dtype):
    # Sums in floating point overflow or lose the small ones here; fixed bit widths shift them out.
    with np.errstate(over="ignore", under="ignore"):
        weights = np.array(EXTREMES[name]).astype(dtype)
    weights[np.isinf(weights)] = np.finfo(dtype).max
    if not weights.any():
        weights[-1] = np.finfo(dtype).smallest_subnormal
    table = one_node(weights)
    np.testing.assert_array_equal(table.entries, oracle.build_alias(table.indptr, weights))
    assert_fits(shares_of(table).tolist(), weights.tolist())


@settings(max_examples=400)
@given(
    nodes=st.lists(
        st.lists(
            st.one_of(st.just(0.0), st.sampled_from([1.0, 0.1]), st.floats(0, allow_nan=False, allow_infinity=False)),
            max_size=12,
        ),
        max_size=5,
    ),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_equals_the_oracle(nodes, dtype):
    with np.errstate(over="ignore", under="ignore"):
        rounded = [np.minimum(np.array(node, np.float64).astype(dtype), np.finfo(dtype).max) for node in nodes]
    indptr = np.cumsum([0, *map(len, rounded)])
    weights = np.concatenate([np.empty(0, dtype), *rounded])
    table = build_alias(indptr, weights)
    np.testing.assert_array_equal(table.entries, oracle.build_alias(indptr, weights))
    for v, node in enumerate(rounded):
        if node.any():
            assert_fits(shares_of(table, indptr[v], indptr[v + 1]).tolist(), node.tolist())
    is_zero = [v for v, node in enumerate(rounded) if len(node) and not node.any()]
    assert table.zero_nodes.tolist() == is_zero


@pytest.mark.parametrize("degree", [50, 3000])
@pytest.mark.parametrize("spread", [0.5, 5])
def test_equals_the_oracle_on_long_lists(degree, spread):
    rng = np.random.default_rng(degree)
    weights = np.exp(spread * rng.standard_normal(degree)) * (rng.random(degree) < 0.8)
    table = one_node(weights)
    np.testing.assert_array_equal(table.entries, oracle.build_alias(table.indptr, weights))
    shares = shares_of(table).tolist()
    assert shares == oracle.alias_shares(weights.tolist())
    assert_fits(shares, weights.tolist())


@pytest.mark.parametrize("value", [1.0, 0.1, 1e-30, 1e30])
@pytest.mark.parametrize("degree", [1, 2, 3, 7, 1000, 1_000_000])
def test_equal_weights_are_exactly_uniform(degree, value):
    table = one_node(np.full(degree, value, np.float32))
    assert np.all(shares_of(table) == SLOT_SHARES)


@pytest.mark.parametrize("degree", [10, 1_000_000])
def test_equal_weights_among_zeros_differ_by_two_shares_at_most(degree):
    weights = np.random.default_rng(1).choice([0.0, 0.7], degree)
    shares = shares_of(one_node(weights))
    positive = shares[weights > 0]
    assert np.all(shares[weights == 0] == 0)
    assert int(positive.max()) - int(positive.min()) <= 2


def test_a_hub_of_a_million():
    # Whole weights, so that exact probabilities are whole numbers over one sum. A sum in float32 fails here.
    weights = np.random.default_rng(2).integers(0, 2**24, 1_000_000).astype(np.float64)
    weights[12345] = 2.0**50
    shares, total = shares_of(one_node(weights)).tolist(), int(weights.sum())
    scale = len(weights) * SLOT_SHARES
    assert sum(shares) == scale
    assert max(abs(s * total - int(w) * scale) for s, w in zip(shares, weights, strict=True)) <= total * len(weights)


def test_each_node_is_on_its_own():
    # A sum or a pointer carried from node to node fails here; so does a node without neighbours.
    rng = np.random.default_rng(3)
    indptr = np.cumsum([0, 3, 0, 5, 1, 40, 0])
    weights = rng.random(49, np.float32)
    table = build_alias(indptr, weights)
    for begin, end in pairwise(indptr):
        np.testing.assert_array_equal(table.entries[begin:end], one_node(weights[begin:end]).entries)


def test_a_read_only_memory_map(tmp_path):
    weights = np.random.default_rng(4).random(10)
    weights.tofile(tmp_path / "weights")
    mapped = np.memmap(tmp_path / "weights", np.float64, "r")
    np.testing.assert_array_equal(one_node(mapped).entries, one_node(weights).entries)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, -np.inf, -1e-30])
@pytest.mark.parametrize("place", [3, 6])
def test_bad_weights_are_named(bad, dtype, place):
    # Graph refuses them, but they may come by a change of its array.
    weights = np.ones(8, dtype)
    weights[place] = bad
    with pytest.raises(GraphFormatError, match=rf"edge_weight\[{place}\] is .*finite and not negative"):
        build_alias(np.array([0, 3, 7, 8]), weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3, np.float16), "edge_weight has dtype float16, but must be float32 or float64"),
        (np.ones(3, np.int64), "edge_weight has dtype int64"),
        (np.ones(4), "4 entries, but the graph has 3 edges"),
        (np.ones(6)[::2], "not contiguous"),
        ([1.0] * 3, "is a list"),
    ],
)
def test_wrong_arguments(weights, message):
    with pytest.raises(GraphFormatError, match=message):
        build_alias(np.array([0, 3]), weights)


def test_nothing_at_all():
    assert len(build_alias(np.array([0]), np.empty(0)).entries) == 0
    assert build_alias(np.array([0, 0, 0]), np.empty(0)).zero_nodes.tolist() == []
