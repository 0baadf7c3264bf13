"""SelectedFeatureStore: some rows of another store, or all of them in another order."""

from __future__ import annotations

from typing import Any

import torch

from lightning_gnnload.data.arrays import as_ids, tensor_view
from lightning_gnnload.data.features import FeatureStore, Reads, gather
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.host.pages import scratch_rows


class SelectedFeatureStore(FeatureStore):
    """A view of another store ``[M, F]``: row ``i`` is row ``rows[i]`` there, int64 ``[N]`` in ``[0, M)``.

    Raises:
        GraphDataError: rows that the other store does not have.

    Example:
        >>> from lightning_gnnload import MemoryFeatureStore
        >>> store = SelectedFeatureStore(MemoryFeatureStore([[0.0], [1.0], [2.0]]), [2, 0])
        >>> out = torch.empty(2, 1, dtype=store.dtype)
        >>> store.gather(torch.tensor([1, 0]), out)
        (TierReads(tier='memory', rows=2, num_bytes=16),)
        >>> out.tolist()
        [[0.0], [2.0]]
    """

    def __init__(self, store: FeatureStore, rows: Any) -> None:
        self.store = store
        self._rows = tensor_view(as_ids(rows, name="rows of a SelectedFeatureStore", num_nodes=store.shape[0]))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._rows), self.store.shape[1]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.store.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads | None:
        with scratch_rows(len(ids), 1, torch.int64) as rows:
            gather(self._rows, ids, rows)
            return self.store.gather(rows[:, 0], out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads | None:
        with scratch_rows(len(ids), 1, torch.int64) as rows:
            gather(self._rows, ids, rows)
            return self.store.gather_at(rows[:, 0], positions, out)

    def open(self) -> None:
        self.store.open()

    def announce(self, request: BatchRequest) -> None:
        self.store.announce(request)

    def close(self) -> None:
        self.store.close()

    def __repr__(self) -> str:
        return f"SelectedFeatureStore({len(self._rows)} rows of {self.store!r})"


def select_rows(store: FeatureStore, rows: Any) -> FeatureStore:
    """Returns a store whose row ``i`` is row ``rows[i]`` of ``store``."""
    # Bytes of a quantised store, so that a cache in front of it still caches bytes.
    if isinstance(store, QuantizedFeatureStore):
        return store.over(SelectedFeatureStore(store.codes, rows))
    return SelectedFeatureStore(store, rows)
