"""Caches whose rows come and go while they serve, by the names that settings give them."""

from __future__ import annotations

from lightning_gnnload import ops
from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.levels import CacheLevels
from lightning_gnnload.cache.nextuse import NextUseCache
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.sample.workload import Workload

SLOT_BYTES = {**ops.SLOT_BYTES, "belady": 16}
"""At most what a cached row takes beside itself, by policy. What ``"belady"`` knows of the steps ahead comes on top:
their node ids."""


def open_evicting(policy: str, store: FeatureStore, workload: Workload, num_rows: int, tier: str) -> FeatureStore:
    """A cache of one rank's own, empty.

    Args:
        policy: one of :data:`.EVICTION_RULES`.
        store: has all rows.
        workload: the mini-batches to come.
        num_rows: that there is room for; 0: no cache.
        tier: what reads from it are counted as.
    """
    if num_rows == 0:
        return CacheLevels(store, ())
    if policy == "belady":
        return NextUseCache(store, num_rows, workload, tier=tier)
    return DynamicCache(store, num_rows, policy, tier)
