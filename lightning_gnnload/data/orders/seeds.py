"""SeedOrder: how an epoch orders its seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.data.seedtable import SeedTable


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
