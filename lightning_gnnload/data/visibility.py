"""How many in-edges of seeds exist at the seeds' times, in a graph with times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.data.clock import Before, Clock
from lightning_gnnload.ops import TypedLists

MOST_ROWS = 1 << 16
"""Seeds that are counted: a second's worth on a cold disk."""
_OTHER_UNIT = 500  # spans of the graph's time: seeds that are later by more are in another unit, as ms for seconds


def spaced_rows(rows: np.ndarray) -> np.ndarray:
    """Returns all rows, or of many some at equal distances: MOST_ROWS at most."""
    # At equal distances, not the first ones: rows are often sorted by time, and early ones see little.
    return rows[:: max(-(-len(rows) // MOST_ROWS), 1)]


@dataclass(frozen=True)
class VisibleEdges:
    """Counts of the in-edges that have a time, and of those that exist at the seeds' times.

    ``times`` and ``graph_times`` are the earliest and the latest of the seeds and of the graph.
    """

    num_rows: int
    num_dated: int  # rows with in-edges that have a time
    num_blind: int  # of these, rows that see none of them
    num_edges: int  # in-edges of all rows that have a time
    num_visible: int
    use_node_times: bool  # the seeds' times are those of their nodes
    times: tuple[Any, Any]
    graph_times: tuple[Any, Any]

    @classmethod
    def of(
        cls,
        lists: TypedLists,
        clock: Clock,
        endpoints: np.ndarray,
        times: np.ndarray,
        *,
        use_node_times: bool,
        before: Before = "<=",
        window: Any = None,
    ) -> VisibleEdges:
        """Counts for seeds with nodes ``[n, 1]``, links ``[n, 2]``, and times ``[n]``."""
        until, since = clock.eligible(times, before, window)
        edges, visible = np.zeros(len(endpoints), np.int64), np.zeros(len(endpoints), np.int64)
        for nodes in endpoints.T:
            for part, run in lists.timed_runs(nodes):
                assert lists.edge_time is not None
                begin, end = (lists.run_ptr[at].astype(np.int64) for at in (run, run + 1))
                first = begin if since is None else _first_from(lists.edge_time, begin, end, since[part])
                last = _first_from(lists.edge_time, begin, end, until[part])
                edges[part] += end - begin
                visible[part] += np.maximum(last - first, 0)
        return cls(
            len(endpoints),
            int(np.count_nonzero(edges)),
            int(np.count_nonzero((edges > 0) & (visible == 0))),
            int(edges.sum()),
            int(visible.sum()),
            use_node_times,
            (times.min().item(), times.max().item()) if len(times) else (0, 0),
            clock.span,
        )

    @property
    def are_early(self) -> bool:
        """Whether all seeds are earlier than everything in the graph."""
        return self.num_rows > 0 and self.times[1] < self.graph_times[0]

    @property
    def are_late(self) -> bool:
        """Whether all seeds are so much later than the graph that their times may be in another unit."""
        first, last = self.graph_times
        return self.num_rows > 0 and last > first and self.times[0] - last > _OTHER_UNIT * (last - first)


def _first_from(codes: np.ndarray, low: np.ndarray, high: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Returns where the codes of ``bound`` or more begin in each ascending run ``[low, high)``: a binary search."""
    # For all runs at once: np.searchsorted searches a single array.
    low, high = low.copy(), high.copy()
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) // 2
        is_before = codes[middle] < bound[open_]
        low[open_[is_before]] = middle[is_before] + 1
        high[open_[~is_before]] = middle[~is_before]
    return low
