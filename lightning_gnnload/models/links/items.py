"""Rows of all items, as of some moments; and the right answers of the rows that a phase asks about.

Shapes: R rows of a table, I items, D numbers in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.inference.known_links import TargetLists
from lightning_gnnload.plugin.module.datamodule import GraphDataModule

_ITEMS_AT_ONCE = 1024  # the same for all batch sizes and ranks, whose item rows are then equal


class ItemRows:
    """The rows of all nodes of one type, float32 ``[I, D]``, sampled in mini-batches of 1024 by the sampler of
    evaluation; each rank computes them for itself.

    In a graph with times there are such rows for some moments, at most ``most_moments``: a row of the seed table takes
    those of the latest moment that is not later than its own time. So no item knows what comes after, but it may miss
    the newest where rows have more times than that.

    Args:
        encode: a mini-batch whose seeds are items to their rows.
        module: the data.
        node_type: of the items; None in a graph without types.
        times: of all rows that will be asked about, int64 or float64 ``[R]``; None where times do not count.
        most_moments: of the rows in memory.
        strictly: items see what came before a moment, and not what comes at it: for rows that are themselves edges.
    """

    def __init__(
        self,
        encode: Callable[[Any], Tensor],
        module: GraphDataModule,
        node_type: str | None,
        times: np.ndarray | None,
        most_moments: int,
        strictly: bool = False,
    ) -> None:
        self._encode, self._module, self._node_type, self._strictly = encode, module, node_type, strictly
        self.moments: np.ndarray | None = None
        if times is not None:
            self.moments = np.unique(times)
            if len(self.moments) > most_moments:
                ordered = np.sort(times)
                self.moments = np.unique(ordered[np.arange(most_moments) * len(ordered) // most_moments])
        graph = module.graph_data.graph
        self.nodes = range(graph.num_nodes) if node_type is None else graph.types.range_of(node_type)  # type: ignore[union-attr]
        self._rows: dict[int, Tensor] = {}

    def moments_of(self, times: np.ndarray | None, count: int) -> np.ndarray:
        """Returns which moment's rows each row of a mini-batch takes, int64 ``[count]``."""
        if self.moments is None or times is None:
            return np.zeros(count, np.int64)
        return np.maximum(np.searchsorted(self.moments, times, side="right") - 1, 0)

    def at(self, moment: int) -> Tensor:
        """Returns the rows as of a moment, ``[I, D]``, computed when they are first asked for."""
        if moment not in self._rows:
            columns: dict[str, Any] = {} if self._node_type is None else {"node_type": self._node_type}
            if self.moments is not None:
                time = self.moments[moment]
                if self._strictly:
                    time = time - 1 if time.dtype == np.int64 else np.nextafter(time, -np.inf)
                columns["time"] = np.full(len(self.nodes), time)
            loader = self._module.loader_of(SeedTable(np.arange(len(self.nodes)), **columns), _ITEMS_AT_ONCE)
            self._rows[moment] = torch.cat([self._encode(batch) for batch in loader])
        return self._rows[moment]


class Answers:
    """What each row of a table of links asks, and all right answers to it: rows of one source, edge type and time ask
    the same.

    Args:
        table: of links.
        graph: whose nodes they join.
        timed: whether times tell rows apart.
    """

    def __init__(self, table: SeedTable, graph: Graph, timed: bool) -> None:
        self.table = table
        keys = [table.types_of(np.arange(len(table))), table.ends[:, 0]]
        if timed and table.time is not None:
            keys.append(np.unique(table.time, return_inverse=True)[1])
        _, self.query = np.unique(np.stack(keys), axis=1, return_inverse=True)
        self.query = self.query.reshape(-1)  # int64 [R], the number of what each row asks
        assert table.targets is not None
        counts = np.ones(len(table), np.int64) if table.dst_ptr is None else np.diff(table.dst_ptr)
        row = np.repeat(np.arange(len(table)), counts)
        self._by_row = TargetLists(row, table.targets, len(table))
        self._by_query = TargetLists(self.query[row], table.targets, int(self.query.max(initial=-1)) + 1)

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns all targets of some rows: which of these each belongs to, and the targets within their type."""
        return self._by_row.of(rows)

    def all_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Likewise, the targets of all rows that ask the same."""
        return self._by_query.of(self.query[rows])


def check_answers_are_hidden(table: SeedTable, timed: bool, phase: str) -> None:
    """Raises GraphDataError: rows of items would show the very edges that are asked about."""
    if table.edge_ids is not None and not timed:
        raise GraphDataError(
            f"the links to {phase} on are edges of the graph, and rows of all items are sampled from it, so that the "
            "items would know who is asked about. Take these edges out of the graph (LinkSplit, or a table of edges "
            "without them); give the graph times and a sampler that heeds them; or rank='negatives', which leaves each "
            "link out of its own mini-batch."
        )
