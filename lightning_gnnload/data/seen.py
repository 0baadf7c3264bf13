"""What seeds see of a graph with times: how many of their in-edges are there by then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.data.clock import Before, Clock
from lightning_gnnload.ops import TypedLists

MOST_ROWS = 1 << 16
"""Of seeds looked at, a second's worth on a cold disk; of more, rows at equal distances."""
_OTHER_UNIT = 500
"""Lengths of the graph's own time that seeds are later by in another unit: milliseconds for seconds."""


def looked_at(rows: np.ndarray) -> np.ndarray:
    """Returns these rows, or of many as many at equal distances as are looked at."""
    return rows[:: max(-(-len(rows) // MOST_ROWS), 1)]


@dataclass(frozen=True)
class SeenEdges:
    """Counts the in-edges of seeds that have a time, and those that are there at the seeds' times.

    Attributes:
        num_rows: rows that were looked at.
        num_dated: those of them with in-edges that have a time.
        num_blind: those of these that see none of them.
        num_edges: in-edges of the rows that have a time.
        num_seen: those that count.
        are_own: whether the times of seeds are those of their nodes.
        times: the earliest and the latest of the seeds.
        of_graph: those of the graph.
    """

    num_rows: int
    num_dated: int
    num_blind: int
    num_edges: int
    num_seen: int
    are_own: bool
    times: tuple[Any, Any]
    of_graph: tuple[Any, Any]

    @classmethod
    def of(
        cls,
        lists: TypedLists,
        clock: Clock,
        ends: np.ndarray,
        times: np.ndarray,
        *,
        are_own: bool,
        before: Before = "<=",
        window: Any = None,
    ) -> SeenEdges:
        """Counts for seeds of these nodes ``[n, 1]``, or of links ``[n, 2]``, of these times ``[n]``."""
        until, since = clock.eligible(times, before, window)
        edges, seen = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64)
        for nodes in ends.T:
            for part, run in lists.timed_runs(nodes):
                assert lists.edge_time is not None
                begin, end = (lists.run_ptr[at].astype(np.int64) for at in (run, run + 1))
                first = begin if since is None else _first_from(lists.edge_time, begin, end, since[part])
                last = _first_from(lists.edge_time, begin, end, until[part])
                edges[part] += end - begin
                seen[part] += np.maximum(last - first, 0)
        return cls(
            len(ends),
            int(np.count_nonzero(edges)),
            int(np.count_nonzero((edges > 0) & (seen == 0))),
            int(edges.sum()),
            int(seen.sum()),
            are_own,
            (times.min().item(), times.max().item()) if len(times) else (0, 0),
            clock.ends,
        )

    @property
    def are_early(self) -> bool:
        """Whether all seeds come before everything in the graph."""
        return self.num_rows > 0 and self.times[1] < self.of_graph[0]

    @property
    def are_late(self) -> bool:
        """Whether all come so long after everything that their times may be in another unit."""
        first, last = self.of_graph
        return self.num_rows > 0 and last > first and self.times[0] - last > _OTHER_UNIT * (last - first)


def _first_from(codes: np.ndarray, low: np.ndarray, high: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Returns for each stretch of ascending codes, from ``low`` up to ``high``, where those of ``bound`` or more
    begin."""
    low, high = low.copy(), high.copy()
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) // 2
        is_before = codes[middle] < bound[open_]
        low[open_[is_before]] = middle[is_before] + 1
        high[open_[~is_before]] = middle[~is_before]
    return low
