"""ScannedGroups: the rows of as many coming mini-batches as memory has room for, read by one pass over each table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.packed.pack import PackedTable, RowsOf
from lightning_gnnload.cache.packed.scan import TableScan
from lightning_gnnload.cache.packed.store import ColdRows
from lightning_gnnload.cache.packed.window import Timeline
from lightning_gnnload.cache.trace import sampled_ahead
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.host.locks import ReadWriteLock

_STRAGGLERS = 64
"""Steps by which a thread is never behind another one: a mini-batch farther back begins the steps anew."""


@dataclass
class _Group:
    steps: range
    ids: list[np.ndarray]  # of each table, ascending
    rows: list[np.ndarray]  # uint8 [len(ids), row_bytes]


class ScannedGroups(ColdRows):
    """The cold rows of a group of coming mini-batches, in memory, for all threads of a rank. Where a mini-batch comes
    that is behind the group, the next one takes its place.

    It takes no room on the disk, but reads the table far more often than windows do, and not while others train.

    Args:
        tables: in the order in which mini-batches gather from them.
        rows_of: samples a mini-batch.
        timeline: the order of mini-batches.
        ranks: those whose mini-batches this process gathers.
        num_bytes: memory of a group's rows.
        chunk_bytes: memory of one of two chunks of a table.

    Source: AGNES (VLDB'25): hyperbatches, whose rows are read block by block.
    """

    def __init__(
        self,
        tables: tuple[PackedTable, ...],
        rows_of: RowsOf,
        timeline: Timeline,
        ranks: Sequence[int],
        *,
        num_bytes: int,
        chunk_bytes: int,
    ) -> None:
        self.tables = tables
        self.rows_of = rows_of
        self.timeline = timeline
        self.ranks = tuple(ranks)
        self.num_bytes = num_bytes
        self.chunk_bytes = chunk_bytes
        self._changing = ReadWriteLock()
        self._group = _Group(range(0), [], [])
        self.num_scans = 0

    def announce(self, request: BatchRequest) -> None:
        """Reads the group that begins with this mini-batch, where it is behind the last one."""
        step = self.timeline.step_of(request)
        if request.rank not in self.ranks or step is None or not self._is_due(step):
            return
        with self._changing.writing():
            if self._is_due(step):  # else another thread was faster
                self._group = _Group(range(0), [], [])  # its memory goes before the next one takes as much
                self._group = self._read_group(step)

    def read(
        self, table: int, request: BatchRequest, ids: np.ndarray, positions: np.ndarray, out: np.ndarray
    ) -> TierReads | None:
        with self._changing.reading():
            group = self._group
            if self.timeline.step_of(request) not in group.steps:
                return None  # a thread that was overtaken
            there, rows = group.ids[table], group.rows[table]
            slots = np.searchsorted(there, ids)
            if len(ids) and not (len(there) and np.array_equal(there.take(slots, mode="clip"), ids)):
                return None
            ops.gather_rows(rows, slots, out, positions)
        return TierReads("scanned", len(ids), len(ids) * self.tables[table].store.row_bytes)

    def close(self) -> None:
        with self._changing.writing():
            self._group = _Group(range(0), [], [])

    def _is_due(self, step: int) -> bool:
        steps, end = self._group.steps, self.timeline.end
        if not steps or step in steps:
            return not steps
        ahead, behind = step - steps.stop, steps.start - step
        if not self.timeline.comes_again or end is None:
            return ahead >= 0 or behind > _STRAGGLERS
        # In a cycle it is ahead as well as behind: the shorter way is the likelier one.
        return ahead % end < behind % end or behind % end > _STRAGGLERS

    def _read_group(self, first: int) -> _Group:
        """Samples from step ``first`` on until the rows would take more than there is room for, and reads them. The
        group has one step at least."""
        masks = [np.zeros(table.store.shape[0], bool) for table in self.tables]
        needed, stop = 0, first
        end = self.timeline.end
        last = first + (1 << 20) if end is None else end
        requests = (
            BatchRequest(*divmod(step, self.timeline.num_steps), rank, self.timeline.num_ranks)
            for step in range(first, last)
            for rank in self.ranks
        )
        sampled = sampled_ahead(self.rows_of, requests)
        try:
            for number, (_, rows) in enumerate(sampled):
                cold = [table.cold(rows[table.name]) for table in self.tables]
                new = [ids[~mask[ids]] for ids, mask in zip(cold, masks, strict=True)]
                needed += sum(len(ids) * table.store.row_bytes for ids, table in zip(new, self.tables, strict=True))
                # Steps come whole: rows of a step that does not fit are read with the next group.
                if needed > self.num_bytes and stop > first:
                    break
                for ids, mask in zip(new, masks, strict=True):
                    mask[ids] = True
                if (number + 1) % len(self.ranks) == 0:
                    stop += 1
        finally:
            sampled.close()  # type: ignore[attr-defined]
        lists = [np.flatnonzero(mask) for mask in masks]
        del masks
        return _Group(range(first, stop), lists, [self._scan(*pair) for pair in zip(self.tables, lists, strict=True)])

    def _scan(self, table: PackedTable, ids: np.ndarray) -> np.ndarray:
        rows, at = np.empty((len(ids), table.store.row_bytes), np.uint8), 0
        with TableScan(table.store, self.chunk_bytes) as scan:
            for first, chunk in scan.chunks([ids]):
                end = at + int(np.searchsorted(ids[at:], first + len(chunk)))
                ops.gather_rows(chunk, ids[at:end] - first, rows[at:end])
                table.round(rows[at:end])
                at = end
        self.num_scans += 1
        return rows
