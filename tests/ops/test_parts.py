"""One hop of the closure of all parts."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, GraphFormatError, PartitionError
from lightning_gnnload.ops import spread_parts
from tests import oracle
from tests.ops.graphs import random_graph


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("num_edges", [0, 40, 400, 4000])
def test_hops_equal_the_oracle_until_nothing_is_new(dtype, num_edges):
    rng = np.random.default_rng(num_edges)
    indptr, indices = random_graph(200, num_edges, seed=1, dtype=dtype)
    # One bit at most a node at first, the highest among them: a part's number is all of 0 to 63.
    held = np.where(rng.random(200) < 0.1, np.uint64(1) << rng.integers(0, 64, 200, np.uint64), np.uint64(0))
    held[0] = 1 << 63
    expected, fresh = held.copy(), held.copy()
    for _ in range(20):
        before = held.copy()
        wanted, num_wanted = oracle.spread_parts(indptr, indices, fresh, expected)
        fresh, num_reached = spread_parts(indptr, indices, fresh, held)
        np.testing.assert_array_equal(fresh, wanted)
        np.testing.assert_array_equal(held, expected)
        assert fresh.dtype == np.uint64
        assert num_reached == num_wanted
        assert not (fresh & before).any()
        if not num_reached:
            break
    assert not num_reached  # a hop that tells old ones as new never ends


def test_what_is_not_fresh_does_not_spread():
    indptr, indices = np.array([0, 1, 2, 2]), np.array([1, 2])
    held = np.array([1, 2, 0], np.uint64)
    fresh, num_reached = spread_parts(indptr, indices, np.array([1, 0, 0], np.uint64), held)
    assert (fresh.tolist(), num_reached, held.tolist()) == ([0, 1, 0], 1, [1, 3, 0])


def test_wrong_arguments():
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    masks = np.ones(2, np.uint64)
    with pytest.raises(PartitionError, match="3 fresh masks and 2 masks, but 2 nodes"):
        spread_parts(indptr, indices, np.ones(3, np.uint64), masks)
    with pytest.raises(PartitionError, match="masks has dtype int64, but must be uint64"):
        spread_parts(indptr, indices, masks, np.ones(2, np.int64))
    with pytest.raises(GnnLoadError, match="share memory"):
        spread_parts(indptr, indices, masks, masks)
    with pytest.raises(GraphFormatError, match="indptr"):
        spread_parts(np.array([0, 1, 3]), indices, masks, masks.copy())
