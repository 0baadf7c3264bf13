"""A feature store in front of another one, for those that fail, hang or are slow."""

from __future__ import annotations

import torch

from lightning_gnnload import FeatureStore


class StoreInFront(FeatureStore):
    """Has the shape and dtype of the store behind it; what it does with a gather is for its subclass to say."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype
