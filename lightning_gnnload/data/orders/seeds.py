"""SeedOrder: how an epoch orders its seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError


class SeedOrder(ABC):
    """Orders the seeds of an epoch, as a pure function of (seeds, seed, epoch)."""

    @abstractmethod
    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """Returns the same seeds, int64 ``[S]``, in this epoch's order."""

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        """Returns the order for this graph, whose :meth:`order` is called: itself, unless more than seeds decides.

        Called before every epoch, by one thread at a time, and must come to the same order each time.

        Args:
            graph: the topology, N nodes.
            labels: ``[N]`` or ``[N, C]``, or None for a graph without.
            global_batch_size: seeds of a step.
        """
        return self

    def bind_rows(self, table: SeedTable, nodes: np.ndarray, graph: Graph, global_batch_size: int) -> SeedOrder:
        """Returns the order for rows of a table, as :meth:`bind` does for nodes; :meth:`order` then gets their numbers.

        Args:
            table: R rows.
            nodes: of each row, ids in the graph, int64 ``[R, 1]``, of links ``[R, 2]``.
            graph: the topology.
            global_batch_size: rows of a step.
        """
        return self

    def homes(self, plan: StepPlan, num_holders: int) -> np.ndarray | None:
        """Returns, for each slice of an epoch, who holds the part of the graph that its seeds lie in: int64
        ``[L, T]``, in ``[0, num_holders)``; None where seeds come from everywhere. The same in all epochs.

        Args:
            plan: of the epoch: L steps, T ranks.
            num_holders: they hold equally many parts each, one holder's behind the other's.
        """
        return None

    @property
    def name(self) -> str:
        """What a checkpoint knows it by: a run goes on in mid-epoch only with the order of the same name."""
        return type(self).__name__


class Sequential(SeedOrder):
    """Keeps the seeds in the order in which they are given."""

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        return seeds


class Shuffled(SeedOrder):
    """Orders seeds at random: each draws a 64-bit key from (seed, epoch, node), and the keys are sorted.

    So the order does not depend on how the seeds were given, and needs no generator with state.
    """

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        keys = ops.random_keys(seed, epoch, seeds)
        # Equal keys (2^-64 a pair) fall back to the node id.
        return seeds[np.lexsort((seeds, keys))]


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
        position = np.arange(len(seeds)) - np.repeat(begins, counts)
        in_full_step = position < np.repeat(counts // self.size * self.size, counts)
        rows = np.concatenate([by_time[in_full_step], by_time[~in_full_step]])
        num_steps = len(rows) // self.size
        steps = rows[: num_steps * self.size].reshape(num_steps, self.size)
        # By numbers that no row has: a step's first row has the smallest key of its time.
        shuffled = np.argsort(ops.random_keys(seed, epoch, -1 - np.arange(num_steps)))
        return np.concatenate([steps[shuffled].ravel(), rows[num_steps * self.size :]])
