"""DynamicCache: rows of the nodes that were asked for last, in front of the store that has all."""

from __future__ import annotations

import threading

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads, bytes_of
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError


class DynamicCache(FeatureStore):
    """Admits every row that it misses, and evicts another for it. Threads gather at once.

    It needs no look ahead and no ranking, and follows a workload that changes. What is worth it shows where batches
    that are near in time ask for the same rows (:class:`.ProximityOrder`): under a shuffled order, FIFO hits less than
    a static cache of the same size (BGL, figure 5b).

    Which rows are cached depends on how threads take turns; values never do. Hits are copied while nobody admits;
    misses are asked of ``store`` while everybody may read; then all wait while they are copied to their slots, since
    a slot must not change while it is read. So two caches, one in front of the other, make two levels.

    Args:
        store: has all rows.
        num_slots: rows that there is room for, 1 to N.
        eviction: who goes: ``"fifo"``: who came first; ``"clock"``: likewise, but who was visited since is spared
            once; ``"s3fifo"``: who is new waits in a small queue, so that nodes visited once push out none that are
            visited often.
        tier: what :class:`.TierReads` calls it.

    Raises:
        CacheTooSmallError: no slot.
        CacheConfigError: an unknown eviction, more slots than rows, or more memory than the machine gives.

    Source: BGL (NSDI'23), section 3.2; CLOCK and S3-FIFO as :class:`.ops.DynamicCache` says.

    Example:
        >>> from lightning_gnnload import MemoryFeatureStore
        >>> cache = DynamicCache(MemoryFeatureStore(torch.arange(6.0).view(3, 2)), num_slots=2)
        >>> out = torch.empty(2, 2)
        >>> for ids in ([2, 0], [2, 1]):
        ...     print([(tier, rows) for tier, rows, _ in cache.gather(torch.tensor(ids), out)], out.tolist())
        [('cache', 0), ('memory', 2)] [[4.0, 5.0], [0.0, 1.0]]
        [('cache', 1), ('memory', 1)] [[4.0, 5.0], [2.0, 3.0]]
    """

    def __init__(self, store: FeatureStore, num_slots: int, eviction: str = "fifo", tier: str = "cache") -> None:
        num_nodes = store.shape[0]
        if num_slots < 1:
            raise CacheTooSmallError(f"num_slots is {num_slots}, but a cache needs room for one row at least.")
        if num_slots > num_nodes:
            raise CacheConfigError(f"num_slots is {num_slots}, but the store behind has {num_nodes} rows only.")
        self.store = store
        self.tier = tier
        self._cache = ops.DynamicCache(num_nodes, num_slots, store.row_bytes, eviction)
        self._scratch = threading.local()

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    @property
    def num_bytes(self) -> int:
        """Memory of rows and tables, once all slots are filled."""
        return self._cache.num_bytes

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self._gather(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads:
        return self._gather(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        self.store.announce(request)

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        rows, (missed_ids, missed_positions) = bytes_of(out), self._missed(len(ids))
        places = None if positions is None else positions.numpy()
        num_hits = self._cache.read(ids.numpy(), rows, missed_ids, missed_positions, places)
        ours = TierReads(self.tier, num_hits, num_hits * self.row_bytes)
        num_missed = len(ids) - num_hits
        if num_missed == 0:
            return (ours,)
        missed_ids, missed_positions = missed_ids[:num_missed], missed_positions[:num_missed]
        behind = self.store.gather_at(torch.from_numpy(missed_ids), torch.from_numpy(missed_positions), out)
        self._cache.admit(missed_ids, rows, missed_positions)
        return (ours, *(behind or (TierReads("store", num_missed, num_missed * self.row_bytes),)))

    def _missed(self, count: int) -> np.ndarray:
        """This thread's ids and positions, int64 ``[2, count]``, kept from one batch to the next."""
        kept: np.ndarray | None = getattr(self._scratch, "missed", None)
        if kept is None or kept.shape[1] < count:
            kept = self._scratch.missed = np.empty((2, count * 5 // 4), np.int64)
        return kept[:, :count]

    def __repr__(self) -> str:
        cache = self._cache
        return f"DynamicCache({cache.eviction}, {cache.num_slots} of {cache.num_nodes} rows, {self.store!r})"
