"""PackedStore: hot rows from memory, the others from what was packed for the mini-batch, or from the table."""

from __future__ import annotations

import threading
import zlib

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.packed.pack import PackedTable
from lightning_gnnload.cache.packed.stretch import Stretch
from lightning_gnnload.cache.static import StaticCache
from lightning_gnnload.data.features import Reads, TierReads, byte_rows
from lightning_gnnload.data.plan import BatchRequest


class ColdRows:
    """What has the rows that memory does not keep: windows of packed mini-batches, or groups that are scanned. By
    itself it has none, so that all are read from the table."""

    def announce(self, request: BatchRequest) -> None:
        """Hears which mini-batch this thread gathers next."""

    def read(
        self, table: int, request: BatchRequest, ids: np.ndarray, positions: np.ndarray, out: np.ndarray
    ) -> TierReads | None:
        """Writes row ``ids[m]`` to ``out[positions[m]]``. Called once for each table of an announced mini-batch.

        Returns None, with ``out`` as it was or written in part, where it has not just these rows."""
        return None

    def close(self) -> None:
        """Ends what works in the background."""


class PackedStore(StaticCache):
    """A store of the same rows as a table on disk, of which hot rows lie in memory, and the others of announced
    mini-batches in :class:`ColdRows`; what these lack is read from the table.

    ``number`` is the table's among those of the mini-batches.
    """

    def __init__(self, table: PackedTable, number: int, cold: ColdRows) -> None:
        super().__init__(table.store, table.location, table.shards)
        self._backing = None  # what is packed is read from there, also where the table is in memory
        self._table = table
        self._number = number
        self._cold = cold
        self._here = threading.local()  # a thread gathers the mini-batch that it announced last

    def announce(self, request: BatchRequest) -> None:
        self._here.request = request
        self._cold.announce(request)
        self.store.announce(request)

    def close(self) -> None:
        """Ends what works in the background; the table stays open."""
        self._cold.close()

    def _ask_behind(self, missed: np.ndarray, out: torch.Tensor) -> Reads:
        # Once: a second gather without an announcement, as in validation, asks the table.
        request, self._here.request = getattr(self._here, "request", None), None
        if request is not None:
            read = self._cold.read(self._number, request, missed[0], missed[1], byte_rows(out))
            if read is not None:
                return (read,) if read.rows else ()
        reads = super()._ask_behind(missed, out)
        if self._table.halves:
            rows = torch.from_numpy(missed[1])
            rounded = out[rows]
            self._table.round(byte_rows(rounded))
            out[rows] = rounded
        return reads


def rows_from(
    stretch: Stretch, table: int, halves_of: torch.dtype | None, ids: np.ndarray, positions: np.ndarray, out: np.ndarray
) -> TierReads | None:
    """Gathers the rows of a mini-batch from its stretch: row ``ids[m]`` to ``out[positions[m]]``. ``halves_of`` is the
    dtype of ``out`` where rows were packed in half precision. None: other rows were packed."""
    order, ranks = ranked(ids)
    distinct = ids[order][np.diff(ranks, prepend=-1) > 0]
    extent = stretch.extent(table)
    if len(distinct) != extent.num_rows or zlib.crc32(distinct.data) != extent.ids_checksum:
        return None
    to = positions[order]
    for first, rows in stretch.rows(table):
        begin, end = np.searchsorted(ranks, (first, first + len(rows)))
        if halves_of is not None:
            rows = torch.from_numpy(rows).view(torch.half).to(halves_of).view(torch.uint8).numpy()
        ops.gather_rows(rows, ranks[begin:end] - first, out, to[begin:end])
    return TierReads("packed", len(ids), extent.size)


def ranked(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts ids, which may repeat: returns their order, and by it the rank of each among the distinct ones, int64.

    Example:
        >>> ranked(np.array([7, 3, 7, 5]))
        (array([1, 3, 0, 2]), array([0, 1, 2, 2]))
    """
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    ranks = np.zeros(len(ids), np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=ranks[1:])
    return order, ranks
