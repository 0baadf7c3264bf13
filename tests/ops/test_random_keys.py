"""Ordering keys of seeds."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.conform.significance import multinomial
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import random_keys
from tests import oracle


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**32 - 1)])
def test_equals_the_oracle(seed, epoch):
    ids = np.array([0, 1, 2, 2**32 - 1, 2**32, 2**48 - 1, 5, 5])
    keys = random_keys(seed, epoch, ids)
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(keys, oracle.random_keys(seed, epoch, ids))


def test_an_id_has_its_key_in_any_company():
    ids = np.random.default_rng(0).permutation(1000)
    keys = random_keys(3, 4, ids)
    np.testing.assert_array_equal(random_keys(3, 4, ids[10:20]), keys[10:20])
    assert len(np.unique(keys)) == 1000
    assert not np.isin(random_keys(3, 5, ids), keys).any()


def test_every_order_of_seeds_is_equally_likely():
    ids = np.array([3, 9, 2**40, 5])
    orders = np.array([np.argsort(random_keys(5, epoch, ids)) for epoch in range(5000)])
    _, times = np.unique(orders @ [64, 16, 4, 1], return_counts=True)
    # With other seeds, right keys would fail with probability below 1e-6.
    assert len(times) == 24
    assert multinomial(times, np.full(24, 1 / 24)).bound > 1e-6


def test_wrong_arguments():
    assert random_keys(0, 0, np.empty(0, np.int64)).size == 0
    with pytest.raises(SamplerConfigError, match="epoch"):
        random_keys(0, -1, np.array([1]))
    with pytest.raises(SeedError, match="dtype"):
        random_keys(0, 0, np.array([1], np.int32))
