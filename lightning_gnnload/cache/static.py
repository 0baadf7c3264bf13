"""StaticCache: rows that were chosen beforehand, in front of the store that has all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.front import Front
from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.datasets.stored import progress as progress_bar
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, Reads, TierReads, bytes_of

_CHUNK_BYTES = 16 << 20


class StaticCache(Front):
    """Hot rows in shards, and a table that says for every node which shard and slot has its row, if any.

    A row comes from a shard or from ``store``, and is the same. Who filled the shards does not matter: they lie in
    memory that this process can read, its own or another's. As nothing moves, ``gather`` takes no lock.

    Args:
        store: has all rows.
        location: int32 ``[N]``: ``shard << ops.SLOT_BITS | slot``; negative: not cached.
        shards: each uint8 ``[slots, row_bytes]``; at most ``ops.MAX_SHARDS``.
        tier: what :class:`TierReads` calls it.
        reading: entered while location and shards are read, where somebody changes them.

    Raises:
        CacheShareError: by ``gather``: the location table names a place that there is not.

    Source: GNNLab (EuroSys'22), section 6.1; shards over trainers: DSP (PPoPP'23), section 3.1.
    """

    def __init__(
        self,
        store: FeatureStore,
        location: np.ndarray,
        shards: Sequence[np.ndarray],
        *,
        tier: str = "cache",
        reading: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        super().__init__(store, tier)
        self.location = location
        self.shards = list(shards)
        self._reading = reading
        # What lies in memory is read in the same pass. A subclass may gather otherwise, and is asked.
        self._backing = bytes_of(store.rows) if type(store) is MemoryFeatureStore else None

    @property
    def num_rows(self) -> int:
        """Rows that there is room for."""
        return sum(len(shard) for shard in self.shards)

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        missed = self._missed(len(ids)) if self._backing is None else None
        missed_ids, missed_positions = (None, None) if missed is None else missed
        with self._reading():
            hits, num_missed = ops.gather_tiered(
                self.location,
                self.shards,
                self._backing,
                ids.numpy(),
                bytes_of(out),
                missed_ids,
                missed_positions,
                positions=None if positions is None else positions.numpy(),
            )
        ours = self._hits(sum(hits))
        if missed is None:
            return ours, TierReads("memory", num_missed, num_missed * self.row_bytes)
        # After the lock: a store that takes its time keeps nobody from renewing rows.
        return ours, *self._ask_behind(missed[:, :num_missed], out)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_rows} of {self.shape[0]} rows, {self.store!r})"


def deal(count: int, num_shards: int) -> np.ndarray:
    """Where the hottest rows go, hottest first, int32 ``[count]``: to the shards in turn, to and fro.

    So shards differ by one row at most, and in how often they are read by no more than the hottest row is.

    Source: the partitioned cache of DSP (PPoPP'23), section 3.1, whose shards follow the graph's patches instead.

    Example:
        >>> places = deal(6, num_shards=2)
        >>> (places >> ops.SLOT_BITS).tolist(), (places & (1 << ops.SLOT_BITS) - 1).tolist()
        ([0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2])
    """
    slot, turn = np.divmod(np.arange(count, dtype=np.int64), max(num_shards, 1))
    shard = np.where(slot % 2 == 0, turn, num_shards - 1 - turn)
    return (shard << ops.SLOT_BITS | slot).astype(np.int32)


def fill(store: FeatureStore, ids: np.ndarray, shard: np.ndarray, *, progress: bool = False) -> None:
    """Row ``ids[slot]`` of the store to ``shard[slot]``, in pieces.

    Args:
        store: has the rows.
        ids: int64 ``[slots]``.
        shard: uint8 ``[slots, row_bytes]``, writable.
        progress: show a bar on stderr.
    """
    step = max(_CHUNK_BYTES // max(store.row_bytes, 1), 1)
    with progress_bar("Filling the cache", shard.nbytes) if progress else nullcontext(lambda amount: None) as advance:
        for begin in range(0, len(ids), step):
            rows = shard[begin : begin + step]
            store.gather(tensor_view(ids[begin : begin + step]), as_rows_of(store, rows))
            advance(rows.nbytes)


def as_rows_of(store: FeatureStore, rows: np.ndarray) -> torch.Tensor:
    """uint8 ``[B, row_bytes]`` as ``[B, F]`` of the store's dtype."""
    if not rows.size:  # view() to another dtype refuses a width of zero
        return torch.empty(len(rows), store.shape[1], dtype=store.dtype)
    return torch.from_numpy(rows).view(store.dtype)
