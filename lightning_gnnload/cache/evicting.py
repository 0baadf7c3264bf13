"""Caches whose rows come and go while they serve, by the names that settings give them."""

from __future__ import annotations

from lightning_gnnload import ops
from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.levels import CacheLevels
from lightning_gnnload.data.features import FeatureStore

SLOT_BYTES = ops.SLOT_BYTES
"""At most what a cached row takes beside itself, by policy."""


def open_evicting(policy: str, store: FeatureStore, num_rows: int, tier: str) -> FeatureStore:
    """A cache of one rank's own, empty.

    Args:
        policy: one of :data:`.EVICTION_RULES`.
        store: has all rows.
        num_rows: that there is room for; 0: no cache.
        tier: what reads from it are counted as.
    """
    if num_rows == 0:
        return CacheLevels(store, ())
    return DynamicCache(store, num_rows, policy, tier)
