"""ProximityOrder: seeds that are near in the graph come in nearby mini-batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.orders.sequences import RingOrder, breadth_first_ring
from lightning_gnnload.data.orders.shuffling import CHOICE_SEED, are_classes, choose_sequences
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.settings import check_whole_number

_MANY_EDGES = 2**28  # searching them takes some seconds


class ProximityOrder(SeedOrder):
    """Keeps neighbours together: takes turns between sequences of a breadth-first search, which each epoch cuts anew.

    Nearby mini-batches then need the same rows again, which a cache that evicts (FIFO) has kept. The price is that
    the labels of a mini-batch are less mixed than a shuffle's, the less the fewer sequences there are.

    The breadth-first search is made once, at the first mini-batch, and takes 4 bytes a seed. The order is a pure
    function of (graph, labels, seeds, seed, epoch, global batch size). Where the number of sequences is chosen, it and
    the search are the same for any ``seed``, which then says where each epoch cuts. With ``sequences`` given, labels
    and batch size do not matter. So the seeds of a step are the same for any number of trainers at one global batch
    size.

    Args:
        sequences: how many; None takes the fewest that mix labels nearly as a shuffle does, or shuffles where that
            saves few reads (:func:`.choose_sequences`), and says so on stderr. It needs integer labels ``[N]``.
            ``gnnload order`` shows what each number would do.

    Raises:
        LoaderConfigError: a number that is not positive.

    Source: BGL (NSDI'23), section 3.2.2.

    Example:
        >>> from lightning_gnnload import Graph
        >>> ring = Graph.from_coo([*range(6), *range(1, 6), 0], [*range(1, 6), 0, *range(6)])
        >>> order = ProximityOrder(sequences=1).bind(ring, None, 2)
        >>> [order.order(np.arange(6), seed=0, epoch=epoch).tolist() for epoch in range(2)]
        [[3, 4, 1, 0, 2, 5], [5, 3, 4, 1, 0, 2]]
    """

    def __init__(self, sequences: int | None = None) -> None:
        if sequences is not None:
            check_whole_number("ProximityOrder: sequences", sequences, LoaderConfigError)
        self.sequences = sequences
        self._bound: _BoundProximityOrder | None = None

    @property
    def name(self) -> str:
        return f"ProximityOrder(sequences={self.sequences})"

    @property
    def reads_labels(self) -> bool:
        return self.sequences is None

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        """Returns the order over this graph; for the same graph the same object, with what it has searched.

        Raises:
            LoaderConfigError: ``sequences`` is None, and there are no integer labels ``[N]``.
        """
        bound = _BoundProximityOrder(self, graph, labels, global_batch_size)
        if self._bound is None or not self._bound.is_same(bound):
            self._bound = bound
        return self._bound

    def bind_rows(self, table: SeedTable, nodes: np.ndarray, graph: Graph, global_batch_size: int) -> SeedOrder:
        """Returns the order of rows by their nodes, of links by their targets; rows of a node follow each other.

        Raises:
            LoaderConfigError: ``sequences`` is None: it is chosen by the labels of nodes.
        """
        if self.sequences is None:
            raise LoaderConfigError(
                "order='proximity' chooses the number of sequences by the labels of nodes, but the seeds are rows of a "
                "table. Give the number: order=ProximityOrder(sequences=32); the more, the nearer to a shuffle."
            )
        return _RowProximityOrder(self.bind(graph, None, global_batch_size), nodes[:, -1])

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """Raises LoaderConfigError: only what :meth:`bind` returns knows the graph."""
        raise LoaderConfigError("ProximityOrder needs the graph: call bind(graph, labels, global_batch_size) first.")

    def __repr__(self) -> str:
        return self.name

    def __getstate__(self) -> dict[str, Any]:
        """Drops the bound order: another process gets the settings, and searches itself if it orders seeds."""
        return {**self.__dict__, "_bound": None}


@dataclass(frozen=True)
class _CachedOrder:
    """The order for some seeds and the random seed of their search."""

    seeds: np.ndarray
    seed: int
    order: SeedOrder

    def is_for(self, seeds: np.ndarray, seed: int) -> bool:
        # The same object in every epoch needs no comparison of all seeds.
        return self.seed == seed and (self.seeds is seeds or np.array_equal(self.seeds, seeds))


class _BoundProximityOrder(SeedOrder):
    """A ProximityOrder with its graph. Thread-safe: one thread searches, others wait."""

    def __init__(
        self, settings: ProximityOrder, graph: Graph, labels: torch.Tensor | None, global_batch_size: int
    ) -> None:
        if settings.sequences is None and not are_classes(labels):
            description = "none" if labels is None else f"{labels.dtype} {list(labels.shape)}"
            raise LoaderConfigError(
                f"order='proximity' chooses the number of sequences by integer labels [N], but the labels are "
                f"{description}. Give the number: order=ProximityOrder(sequences=32); the more, the nearer to a "
                f"shuffle."
            )
        self.settings = settings
        self.graph = graph
        self.labels = labels
        self.global_batch_size = global_batch_size
        self._cached: _CachedOrder | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.settings.name

    def is_same(self, candidate: _BoundProximityOrder) -> bool:
        return (
            self.graph is candidate.graph
            and self.labels is candidate.labels
            and (self.global_batch_size == candidate.global_batch_size or self.settings.sequences is not None)
        )

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        if not len(seeds):
            return seeds
        # A chosen number of sequences fits the search that it was chosen for, and no other.
        search_seed = CHOICE_SEED if self.settings.sequences is None else seed
        with self._lock:
            if self._cached is None or not self._cached.is_for(seeds, search_seed):
                self._cached = self._make(seeds, search_seed)
            cached = self._cached
        return cached.order.order(seeds, seed=seed, epoch=epoch)

    def _make(self, seeds: np.ndarray, seed: int) -> _CachedOrder:
        with progress("Ordering seeds by proximity", None, show=self.graph.num_edges > _MANY_EDGES):
            ring = breadth_first_ring(self.graph, seeds, seed)
            if (sequences := self.settings.sequences) is not None:
                return _CachedOrder(seeds, seed, RingOrder(ring, sequences))
            assert self.labels is not None
            choice = choose_sequences(self.graph, ring, seeds, self.labels, global_batch_size=self.global_batch_size)
        from rich.console import Console

        Console(stderr=True).print(f"ProximityOrder: {choice}", highlight=False, soft_wrap=True)
        return _CachedOrder(seeds, seed, Shuffled() if choice.worth is None else RingOrder(ring, choice.worth))


class _RowProximityOrder(SeedOrder):
    """Orders rows as a ProximityOrder orders their nodes, int64 ``[R]``."""

    def __init__(self, node_order: SeedOrder, nodes: np.ndarray) -> None:
        self.node_order = node_order
        self.nodes, self.node_of = np.unique(nodes, return_inverse=True)

    @property
    def name(self) -> str:
        return self.node_order.name

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        ordered = self.node_order.order(self.nodes, seed=seed, epoch=epoch)
        position = np.empty(len(ordered), np.int64)
        position[np.searchsorted(self.nodes, ordered)] = np.arange(len(ordered))
        return seeds[np.argsort(position[self.node_of[seeds]], kind="stable")]
