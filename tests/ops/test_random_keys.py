"""Ordering keys of seeds; that orders are equally likely is in test_conformance.py."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import random_keys, reference


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**32 - 1)])
def test_equals_the_oracle(seed, epoch):
    ids = np.array([0, 1, 2, 2**32 - 1, 2**32, 2**48 - 1, 5, 5])
    keys = random_keys(seed, epoch, ids)
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(keys, reference.random_keys(seed, epoch, ids))


def test_an_id_has_its_key_in_any_company():
    ids = np.random.default_rng(0).permutation(1000)
    keys = random_keys(3, 4, ids)
    np.testing.assert_array_equal(random_keys(3, 4, ids[10:20]), keys[10:20])
    assert len(np.unique(keys)) == 1000
    assert not np.isin(random_keys(3, 5, ids), keys).any()


def test_wrong_arguments():
    assert random_keys(0, 0, np.empty(0, np.int64)).size == 0
    with pytest.raises(SamplerConfigError, match="epoch"):
        random_keys(0, -1, np.array([1]))
    with pytest.raises(SeedError, match="dtype"):
        random_keys(0, 0, np.array([1], np.int32))
