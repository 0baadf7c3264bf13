"""DynamicCache: caches the rows that were gathered last, in front of the store that has all."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.store import StoreWrapper, check_slots
from lightning_gnnload.data.features import FeatureStore, Reads, byte_rows
from lightning_gnnload.host.locks import SharedLock


class SharedSlots(NamedTuple):
    """Memory of a cache that several processes share: uint8 of :meth:`.ops.EvictingSlots.block_bytes`, zero at first,
    and a lock between all who map it, which is closed with the cache."""

    memory: np.ndarray
    lock: SharedLock


class DynamicCache(StoreWrapper):
    """A cache that admits every row it misses, and evicts another row for it. Threads gather at once, and so do
    processes that share its slots.

    It needs no look ahead and no ranking, and follows a workload that changes. It pays where batches that are near in
    time ask for the same rows (:class:`.ProximityOrder`): under a shuffled order, FIFO hits less than a static cache of
    the same size (BGL, figure 5b).

    Which rows are cached depends on how threads take turns; values never do. Hits are copied while nobody admits;
    misses are asked of ``store`` while everybody may read; then all wait while they are copied to their slots, since
    a slot must not change while it is read. So two caches, one in front of the other, make two levels.

    Args:
        store: has all rows.
        num_slots: rows that there is room for, 1 to N.
        eviction: which row goes, one of :data:`.ops.EVICTIONS`: ``"fifo"``: the one that came first;
            ``kernels/dynamic_cache/evictor.h`` has the others.
        tier: what :class:`.TierReads` calls it.
        slots: that all ranks of a machine fill and read; None: its own. Wherever a rank is killed, the others go on:
            if it was admitting, with an empty cache.

    Raises:
        CacheTooSmallError: no slot.
        CacheConfigError: an unknown eviction, more slots than rows, or more memory than the machine gives.

    Source: BGL (NSDI'23), section 3.2, where each row is cached once for all devices of a machine, too, in the shard
        that its node's id names; CLOCK and S3-FIFO as :class:`.ops.EvictingSlots` says.

    Example:
        >>> from lightning_gnnload import MemoryFeatureStore
        >>> cache = DynamicCache(MemoryFeatureStore(torch.arange(6.0).view(3, 2)), num_slots=2)
        >>> out = torch.empty(2, 2)
        >>> for ids in ([2, 0], [2, 1]):
        ...     print([(tier, rows) for tier, rows, _ in cache.gather(torch.tensor(ids), out)], out.tolist())
        [('cache', 0), ('memory', 2)] [[4.0, 5.0], [0.0, 1.0]]
        [('cache', 1), ('memory', 1)] [[4.0, 5.0], [2.0, 3.0]]
    """

    def __init__(
        self,
        store: FeatureStore,
        num_slots: int,
        eviction: str = "fifo",
        tier: str = "cache",
        slots: SharedSlots | None = None,
    ) -> None:
        num_nodes = store.shape[0]
        check_slots(num_slots, store)
        super().__init__(store, tier)
        memory = None if slots is None else slots.memory
        self._lock = None if slots is None else slots.lock
        self._cache = ops.EvictingSlots(num_nodes, num_slots, store.row_bytes, eviction, memory)

    @property
    def num_bytes(self) -> int:
        """Memory of rows and tables, once all slots are filled."""
        return self._cache.num_bytes

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        rows, missed = byte_rows(out), self._missed(len(ids))
        out_positions = None if positions is None else positions.numpy()
        # The native cache has its own lock between threads; this one is between processes.
        with nullcontext() if self._lock is None else self._lock.reading():
            num_hits = self._cache.read(ids.numpy(), rows, missed[0], missed[1], out_positions)
        missed = missed[:, : len(ids) - num_hits]
        # Without a lock: a slow store behind must not keep others from their hits.
        behind = self._ask_behind(missed, out)
        if num_hits < len(ids):
            with nullcontext() if self._lock is None else self._lock.writing():
                self._cache.admit(missed[0], rows, missed[1])
        return self._hits(num_hits), *behind

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def __repr__(self) -> str:
        cache = self._cache
        return f"DynamicCache({cache.eviction}, {cache.num_slots} of {cache.num_nodes} rows, {self.store!r})"
