"""Front: what every cache has in common: it stands in front of another store, and asks that for what it lacks."""

from __future__ import annotations

import threading
from abc import abstractmethod

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, Reads, TierReads
from lightning_gnnload.data.plan import BatchRequest


class Front(FeatureStore):
    """A store in front of another, with the same rows. A subclass has :meth:`_gather`.

    Args:
        store: has all rows.
        tier: what :class:`.TierReads` calls this one.
    """

    def __init__(self, store: FeatureStore, tier: str) -> None:
        self.store = store
        self.tier = tier
        self._scratch = threading.local()

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self._gather(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads:
        return self._gather(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        self.store.announce(request)

    @abstractmethod
    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        """:meth:`gather`; with positions, :meth:`gather_at`."""

    def _missed(self, count: int) -> np.ndarray:
        """Room for ids and positions of this thread, int64 ``[2, count]``, kept from one batch to the next."""
        kept: np.ndarray | None = getattr(self._scratch, "missed", None)
        if kept is None or kept.shape[1] < count:
            kept = self._scratch.missed = np.empty((2, count * 5 // 4), np.int64)
        return kept[:, :count]

    def _hits(self, count: int) -> TierReads:
        return TierReads(self.tier, count, count * self.row_bytes)

    def _ask_behind(self, missed: np.ndarray, out: torch.Tensor) -> Reads:
        """Gathers the ids of ``missed[0]`` to the rows ``missed[1]`` of ``out``."""
        ids, positions = torch.from_numpy(missed)
        count = len(ids)
        if count == 0:
            return ()
        return self.store.gather_at(ids, positions, out) or (TierReads("store", count, count * self.row_bytes),)
