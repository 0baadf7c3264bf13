"""RemoteFeatureStore: a table whose rows are gathered from the owners of its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from lightning_gnnload.data.features import Reads, TierReads, byte_rows
from lightning_gnnload.data.parted import PartedFeatureStore, PartedTable


class GathersRows(Protocol):
    """The interface of who gathers rows from owners: :class:`.Owners`."""

    def gather(
        self,
        table: str,
        rows: np.ndarray,
        out: np.ndarray,
        positions: np.ndarray | None = None,
        meanwhile: Callable[[], object] = ...,
    ) -> int:
        """Writes rows of a table, int64 ``[B]``, to ``out`` uint8 ``[*, row_bytes]``: in their order, or at
        ``positions`` int64 ``[B]``; calls ``meanwhile`` once. Returns the bytes on the wire."""


class RemoteFeatureStore(PartedFeatureStore):
    """Gathers the rows of a table from owners, who have them in their parts' folders. Thread-safe.

    Values are those of the table, bit for bit, or rounded as the owners' ``wire`` says. A cache in front of it saves
    what has been asked for before.

    Args:
        name: of the array that holds the rows, as in :attr:`.Partition.parted`.
        table: what it is, and where its rows lie.
        owners: returns who is asked, when rows are first needed.

    Raises:
        SeedError: on gathering, an id that is no row of the table; nobody is asked then.
        OwnerLostError: likewise, no owner of a part is left that answers.

    Example:
        >>> from lightning_gnnload.data.row_places import RowPlaces
        >>> places = RowPlaces.over(np.array([0, 2]), np.array([0, 1]), np.array([0, 1]), range(2))
        >>> class Owner:
        ...     def gather(self, table, rows, out, positions=None):
        ...         out[:] = rows[:, None]
        ...         return out.nbytes
        >>> store = RemoteFeatureStore("x", PartedTable(2, (4,), torch.uint8, places), Owner)
        >>> store.gather(torch.tensor([1]), torch.empty(1, 4, dtype=torch.uint8))
        (TierReads(tier='remote', rows=1, num_bytes=4),)
    """

    def __init__(self, name: str, table: PartedTable, owners: Callable[[], GathersRows]) -> None:
        self.name, self.table, self._owners = name, table, owners

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        rows, num_bytes = ids.numpy(), 0
        if len(rows) and self.row_bytes:
            at = None if positions is None else positions.numpy()
            num_bytes = self._owners().gather(self.name, rows, byte_rows(out), at)
        return (TierReads("remote", len(rows), num_bytes),)

    def __repr__(self) -> str:
        return f"RemoteFeatureStore({self.name!r}, shape={self.shape}, dtype={self.dtype})"
