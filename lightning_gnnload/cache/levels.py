"""CacheLevels: caches in front of each other, as one store."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gnnload.data.features import FeatureStore, Reads
from lightning_gnnload.data.plan import BatchRequest


class CacheLevels(FeatureStore):
    """The nearest of several stores, each in front of the next one; closes those that are caches.

    Args:
        store: the last, which has all rows; it stays open.
        caches: nearest first; none: ``store`` alone.
    """

    def __init__(self, store: FeatureStore, caches: Sequence[FeatureStore]) -> None:
        self.caches = tuple(caches)
        self.nearest = self.caches[0] if caches else store

    @property
    def shape(self) -> tuple[int, int]:
        return self.nearest.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.nearest.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads | None:
        return self.nearest.gather(ids, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads | None:
        return self.nearest.gather_at(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        self.nearest.announce(request)

    def close(self) -> None:
        for cache in self.caches:
            cache.close()

    def __repr__(self) -> str:
        return repr(self.nearest)
