"""EvenOrder: links of several edge types, of which every part of an epoch has the same share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import by_edge_type
from lightning_gnnload.errors import LoaderConfigError


class EvenOrder(SeedOrder):
    """Spreads the rows of each edge type evenly over an epoch, so that all steps have the same share of each type.

    Rows are shuffled within their type. Row ``i`` of ``n`` stands at ``(i + 0.5) / n`` of the epoch, so a mini-batch
    of ``B`` rows has ``B`` times a type's share of them, rounded up or down, and seldom one more or less.

    Args:
        weights: how often the rows of edge types come beside those of the types that it leaves out, whose weight is 1.
            An epoch has as many rows as the table: with weights, those of some types come several times, by further
            shuffles, and of others only a part comes, in each epoch another one.

    Raises:
        LoaderConfigError: no dict, or a weight that is no finite number of 0 or more; on binding, seeds that are not
            links of several types.
        SamplerConfigError: on binding, an edge type that the graph does not have, or one under two names.

    Example:
        >>> types = {("user", "buys", "item"): ([0, 1], [2, 0]), ("user", "views", "item"): ([0, 1], [1, 1])}
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, types)
        >>> tables = {name: SeedTable(src=src * 2, dst=dst * 2) for name, (src, dst) in types.items()}
        >>> order = EvenOrder({"buys": 3}).bind_rows(SeedTable.of_types(tables), np.zeros((8, 2)), graph, 4)
        >>> (order.order(np.arange(8), seed=0, epoch=0) < 4).reshape(2, 4).sum(1).tolist()  # of each step's four links
        [3, 3]
    """

    def __init__(self, weights: Mapping[Any, float] | None = None) -> None:
        if not isinstance(weights, Mapping | None):
            raise LoaderConfigError(f"EvenOrder: {weights!r:.200} is no dict of weights by edge type; give one.")
        self.weights = {edge_type: _weight(edge_type, weight) for edge_type, weight in (weights or {}).items()}
        self._rows = list[range]()  # of each type, and how many of them an epoch has: once bound
        self._counts = np.zeros(0, np.int64)

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        """Raises LoaderConfigError: nodes have no edge types."""
        raise LoaderConfigError(
            "order='even' needs links of several edge types: GraphData(..., train={edge type: SeedTable(...)})."
        )

    def bind_rows(self, table: SeedTable, nodes: np.ndarray, graph: Graph, global_batch_size: int) -> SeedOrder:
        if len(table.rows_by_type) < 2:
            return self.bind(graph, None, global_batch_size)
        by_number = by_edge_type("EvenOrder", self.weights, graph.edge_type_number)
        weights = [by_number.pop(graph.edge_type_number(edge_type), 1) for edge_type in table.rows_by_type]
        if by_number:
            raise LoaderConfigError(
                f"EvenOrder: weights are given for {', '.join(map(str, self.weights))}, but the links are of "
                f"{', '.join(map(str, table.rows_by_type))}."
            )
        bound, num_rows = copy(self), len(table)
        bound._rows = list(table.rows_by_type.values())
        # By the largest, so that no product is more than float64 holds.
        shares = np.array(weights, np.float64) / (max(weights) or 1) * [*map(len, bound._rows)]
        if not shares.any():
            raise LoaderConfigError("EvenOrder: no edge type that has rows has a weight above 0.")
        exact = num_rows * (shares / shares.sum())
        bound._counts = np.floor(exact).astype(np.int64)
        # Largest remainder: what rounding down leaves goes to the types that lost most by it.
        bound._counts[np.argsort(bound._counts - exact, kind="stable")[: num_rows - bound._counts.sum()]] += 1
        return bound

    @property
    def name(self) -> str:
        return f"EvenOrder({self.weights})" if self.weights else "EvenOrder"

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """Raises LoaderConfigError: only what :meth:`bind_rows` returns knows the types."""
        if not self._rows:
            raise LoaderConfigError("EvenOrder needs the rows' types: call bind_rows() first.")
        parts, positions = [], []
        for rows, count in zip(self._rows, self._counts.tolist(), strict=True):
            # Further shuffles by numbers that no row has; of the last one, its beginning.
            turn, row = np.divmod(np.arange(-(-count // max(len(rows), 1)) * len(rows)), max(len(rows), 1))
            keys = ops.random_keys(seed, epoch, rows.start + row + (turn << 40))
            parts.append(rows.start + row[np.lexsort((keys, turn))[:count]])
            positions.append((np.arange(count) + 0.5) / max(count, 1))
        return np.concatenate(parts)[np.argsort(np.concatenate(positions), kind="stable")]


def _weight(edge_type: Any, weight: Any) -> float:
    """Returns a plain number, as settings are compared by; raises LoaderConfigError: it is none of 0 or more."""
    single = isinstance(weight, np.ndarray | np.generic | torch.Tensor) and weight.ndim == 0
    number = weight.item() if single else weight
    if not isinstance(number, int | float) or not 0 <= number <= sys.float_info.max:
        raise LoaderConfigError(
            f"EvenOrder: the weight of {edge_type!r} is {weight!r:.200}; give a finite number of 0 or more."
        )
    return number
