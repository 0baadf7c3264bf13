"""SeedOrder: how an epoch orders its seeds, and the simple orders."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.checksums import describe_settings
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
        """Returns the order for this graph and its labels, ``[N]`` or ``[N, C]``: itself, if these do not matter.

        It is called before every epoch, by one thread at a time, and must return an equal order each time.
        """
        return self

    def bind_rows(self, table: SeedTable, nodes: np.ndarray, graph: Graph, global_batch_size: int) -> SeedOrder:
        """Returns the order for the R rows of a table; its :meth:`order` then gets row numbers.

        ``nodes`` are the rows' ids in the graph, int64 ``[R, 1]``, of links ``[R, 2]``.
        """
        return self

    def owners(self, plan: StepPlan, num_owners: int) -> np.ndarray | None:
        """Returns which owner of parts has the seeds of each slice of a plan: int64 ``[L, T]``, for all epochs.

        Each of ``num_owners`` has equally many parts, in order. None where seeds come from the whole graph.
        """
        return None

    @property
    def name(self) -> str:
        """Goes into checkpoints: a run resumes in mid-epoch only with an order of the same name. Here the class, with
        those arguments of its constructor that the order keeps under their names."""
        return describe_settings(self)

    @property
    def reads_labels(self) -> bool:
        """Whether :meth:`bind` looks at labels, which then are the same in a run that resumes in mid-epoch."""
        return False


class Sequential(SeedOrder):
    """Keeps the order of the user's seeds."""

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        return seeds


class Shuffled(SeedOrder):
    """Sorts seeds by 64-bit keys drawn from (seed, epoch, node); the order of the user's seeds does not matter."""

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        keys = ops.random_keys(seed, epoch, seeds)
        # Equal keys (2^-64 a pair) fall back to the node id.
        return seeds[np.lexsort((seeds, keys))]


class TimeOrder(SeedOrder):
    """Puts rows of equal time into one step, which gives the smallest batches with ``sharing="time"``.

    Rows are shuffled within their time and cut into steps. The rest of each time, less than a step, is cut into steps
    in the order of times, so that these mix few times. Then full steps are shuffled. RelBench calls this
    ``share_same_time``.

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
    """A TimeOrder with the rows' times, ``[R]``, and the number of rows of a step."""

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
        # The rows of a time beyond its full steps are its rest, and stay sorted by time.
        in_full_step = position < np.repeat(counts // self.size * self.size, counts)
        rows = np.concatenate([by_time[in_full_step], by_time[~in_full_step]])
        num_steps = len(rows) // self.size
        steps = rows[: num_steps * self.size].reshape(num_steps, self.size)
        # By keys of negative numbers, which no row has: a step's first row has the smallest key of its time.
        shuffled = np.argsort(ops.random_keys(seed, epoch, -1 - np.arange(num_steps)))
        return np.concatenate([steps[shuffled].ravel(), rows[num_steps * self.size :]])
