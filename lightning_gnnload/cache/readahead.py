"""ReadAhead: rows of one coming mini-batch are read while nobody waits for them."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads, byte_rows
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.threads import Threads


class Staged:
    """Rows that were read ahead, or are being read, for one mini-batch.

    Args:
        ids: int64 ``[M]``, ascending.
        reading: gives their rows uint8 ``[M, row_bytes]``, and the reads that it took.
    """

    def __init__(self, ids: np.ndarray, reading: Future[tuple[np.ndarray, Reads]]) -> None:
        self.ids = ids
        self.reading = reading

    def move(self, ids: np.ndarray, places: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, Reads]:
        """Writes what it has of these rows to their places in ``rows``.

        Returns:
            A mask of the ``ids`` that it lacks; and the reads that the others took, whose bytes include those of rows
            that nobody wanted after all.

        Raises:
            FeatureFileError: as the store that was read.
        """
        if len(self.ids) == 0 or self.reading.cancel():  # not begun: who waits for rows reads them better
            return np.ones(len(ids), bool), ()
        staged, reads = self.reading.result()
        found = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        has = self.ids[found] == ids
        ops.gather_rows(staged, found[has], rows, places[has])
        # Whichever tier they came from, those that were left over count for none.
        left_over = len(self.ids) - int(has.sum())
        counted = []
        for tier, num_rows, num_bytes in reads:
            less = min(left_over, num_rows)
            left_over -= less
            counted.append(TierReads(tier, num_rows - less, num_bytes))
        return ~has, tuple(counted)


class ReadAhead:
    """A thread that reads rows from disk for the next mini-batch that nobody has begun to make.

    One thread at a time may call :meth:`begin` or :meth:`take`.

    Args:
        store: that is read.

    Source: Ginex (VLDB'22), section 4.3: the rows that the cache will lack are read while others are computed with.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._thread = Threads(1, "gnnload-read-ahead")
        self._staged: tuple[BatchRequest, Staged] | None = None

    def begin(self, request: BatchRequest, ids: np.ndarray) -> None:
        """Begins to read rows ``ids`` for a mini-batch to come; what was read for another is dropped."""
        if self._staged is not None:
            if self._staged[0] == request:
                return
            # Without effect on a read that is under way, whose rows nobody takes.
            self._staged[1].reading.cancel()
        ids = np.sort(ids).astype(np.int64, copy=False)
        self._staged = request, Staged(ids, self._thread.submit(self._read, ids))

    def take(self, request: BatchRequest) -> Staged | None:
        """Hands out what was begun for this mini-batch; None where nothing was."""
        if self._staged is None or self._staged[0] != request:
            return None
        self._thread.check()  # a fork would wait for ever
        staged, self._staged = self._staged[1], None
        return staged

    def close(self) -> None:
        """Waits for the read that is under way."""
        self._thread.shutdown(cancel_futures=True)

    def _read(self, ids: np.ndarray) -> tuple[np.ndarray, Reads]:
        rows = torch.empty(len(ids), self.store.shape[1], dtype=self.store.dtype)
        reads = self.store.gather(torch.from_numpy(ids), rows)
        return byte_rows(rows), reads or (TierReads("store", len(ids), rows.nbytes),)
