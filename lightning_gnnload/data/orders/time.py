"""TimeOrder: seeds whose steps are of one time each."""

from __future__ import annotations

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError


class TimeOrder(SeedOrder):
    """Puts rows of equal time together: each step has rows of one time, but for what is left over of each time.

    Rows are shuffled within their time and cut into steps. Of each time less than a step is left; these rows follow
    each other in the order of their times, and are cut into steps as well, which therefore mix few times. Then steps
    are shuffled; only one that is not full stays at the end. As batches of ``sharing="time"`` share what rows of one
    time find, such batches are the smallest; RelBench calls them ``share_same_time``.

    Raises:
        LoaderConfigError: on binding, seeds without times: a :class:`SeedTable` with ``time`` is needed.

    Example:
        >>> table = SeedTable([0, 1, 2, 3, 4, 5], time=[7, 9, 7, 9, 7, 9])
        >>> nodes, graph = table.ends, Graph.from_coo([0], [5])
        >>> order = TimeOrder().bind_rows(table, nodes, graph, global_batch_size=2)
        >>> rows = order.order(np.arange(6), seed=0, epoch=0)
        >>> table.time[rows].reshape(3, 2).tolist()
        [[7, 7], [7, 9], [9, 9]]
    """

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        """Raises LoaderConfigError: node ids have no times."""
        raise LoaderConfigError("order='time' needs rows with times: GraphData(..., train=SeedTable(ids, time=times)).")

    def bind_rows(self, table: SeedTable, nodes: np.ndarray, graph: Graph, global_batch_size: int) -> SeedOrder:
        if table.time is None:
            return self.bind(graph, None, global_batch_size)
        return _BoundTimeOrder(table.time, global_batch_size)

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """Raises LoaderConfigError: only what :meth:`bind_rows` returns knows the times."""
        raise LoaderConfigError("TimeOrder needs the rows' times: call bind_rows() first.")


class _BoundTimeOrder(SeedOrder):
    """A TimeOrder that knows the rows' times, ``[R]``, and how many rows a step has."""

    def __init__(self, times: np.ndarray, size: int) -> None:
        self.times = times
        self.size = size

    @property
    def name(self) -> str:
        return TimeOrder.__name__

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        keys = ops.random_keys(seed, epoch, seeds)
        by_time = seeds[np.lexsort((seeds, keys, self.times[seeds]))]
        _, begins, counts = np.unique(self.times[by_time], return_index=True, return_counts=True)
        place = np.arange(len(seeds)) - np.repeat(begins, counts)
        in_full_step = place < np.repeat(counts // self.size * self.size, counts)
        rows = np.concatenate([by_time[in_full_step], by_time[~in_full_step]])
        num_steps = len(rows) // self.size
        steps = rows[: num_steps * self.size].reshape(num_steps, self.size)
        # By numbers that no row has: a step's first row has the smallest key of its time.
        shuffled = np.argsort(ops.random_keys(seed, epoch, -1 - np.arange(num_steps)))
        return np.concatenate([steps[shuffled].ravel(), rows[num_steps * self.size :]])
