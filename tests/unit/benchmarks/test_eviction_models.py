"""What dynamic caches are compared with is what its name says."""

from __future__ import annotations

import itertools
import shutil
from collections import OrderedDict

import numpy as np
import pytest

from tests.benchmarks.eviction_models import Lru, belady_hits

pytestmark = pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="needs a C++ compiler")


def random_batches(seed: int, num_nodes: int, num_batches: int, most: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.permutation(num_nodes)[: rng.integers(1, most + 1)] for _ in range(num_batches)]


@pytest.mark.parametrize("num_slots", [1, 3, 10])
def test_lru(num_slots):
    lru, model = Lru(30, num_slots), OrderedDict[int, None]()
    for batch in random_batches(0, 30, 200, 6):
        hits = [node for node in batch.tolist() if node in model]
        for node in hits:
            model.move_to_end(node)
        for node in batch.tolist():
            if node not in hits:
                model[node] = None
                if len(model) > num_slots:
                    model.popitem(last=False)
        assert lru.visit(batch) == len(hits)


@pytest.mark.parametrize("seed", range(6))
def test_belady_is_the_most_of_all_choices(seed):
    """Against every set of nodes that could be kept after every batch."""
    num_slots, batches = 2, random_batches(seed, 5, 6, 3)
    most = {frozenset[int](): 0}  # by what is cached
    for batch in batches:
        came = set(batch.tolist())
        after: dict[frozenset[int], int] = {}
        for cached, hits in most.items():
            for kept in itertools.combinations(sorted(cached | came), min(num_slots, len(cached | came))):
                key = frozenset(kept)
                after[key] = max(after.get(key, 0), hits + len(cached & came))
        most = after
    assert belady_hits(5, num_slots, batches).sum() == max(most.values())
