"""PartedFeatureStore: the rows of a table that lies in parts, each with its owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore, Reads, summed_reads
from lightning_gnnload.data.row_places import PartRows, Places
from lightning_gnnload.errors import SeedError


@dataclass(frozen=True, eq=False)
class PartedTable:
    """Describes a table whose rows lie in parts: ``num_rows`` of the whole table, the shape and dtype of a row, and
    where each lies. Of a quantised table, rows are its codes."""

    num_rows: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    row_places: Places

    def by_part(self, rows: np.ndarray) -> list[PartRows]:
        """Returns the rows that each part has, of parts that have any; ``rows`` int64 ``[B]`` are of the whole table.

        Raises:
            SeedError: a row is none of the table's.
        """
        if len(rows) and not (rows.min() >= 0 and rows.max() < self.num_rows):
            bad = int(np.flatnonzero((rows < 0) | (rows >= self.num_rows))[0])
            raise SeedError(f"ids[{bad}] is {rows[bad]}, but the table has rows 0 to {self.num_rows - 1}.")
        return self.row_places.by_part(rows)


class PartedFeatureStore(FeatureStore):
    """Gathers the rows of a table from its parts' own stores.

    Args:
        table: what it is, and where its rows lie.
        store_of: returns a part's store ``[n, F]`` of own rows; asked for the parts alone that have rows of a gather.

    Example:
        >>> from lightning_gnnload import MemoryFeatureStore
        >>> from lightning_gnnload.data.row_places import RowPlaces
        >>> places = RowPlaces.over(np.array([0, 1, 3]), np.array([1, 0, 2]), np.array([1, 0, 2]), range(3))
        >>> halves = [MemoryFeatureStore(torch.tensor(rows)) for rows in ([[1.0]], [[0.0], [2.0]])]
        >>> store = PartedFeatureStore(PartedTable(3, (1,), torch.float32, places), halves.__getitem__)
        >>> out = torch.empty(2, 1)
        >>> store.gather(torch.tensor([2, 1]), out)
        (TierReads(tier='memory', rows=2, num_bytes=8),)
        >>> out.tolist()
        [[2.0], [1.0]]
    """

    def __init__(self, table: PartedTable, store_of: Callable[[int], FeatureStore]) -> None:
        self.table = table
        self._store_of = store_of

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.num_rows, int(np.prod(self.table.row_shape, dtype=np.int64))

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.table.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self.gather_at(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        reads = []
        for part, numbers, at in self.table.by_part(ids.numpy()):
            targets = tensor_view(at) if positions is None else positions[tensor_view(at)]
            reads.append(self._store_of(part).gather_at(tensor_view(numbers), targets, out) or ())
        return summed_reads(reads)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"
