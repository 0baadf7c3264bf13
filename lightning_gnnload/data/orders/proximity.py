"""ProximityOrder: seeds that are near in the graph come in nearby mini-batches."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.orders.sequences import breadth_first_sequences, epoch_order
from lightning_gnnload.data.orders.shuffling import choose_sequences
from lightning_gnnload.data.progress import progress
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError

_LONG = 2**32  # edges to follow, some seconds


class ProximityOrder(SeedOrder):
    """Keeps neighbours together: the order interleaves breadth-first sequences, rotated anew in each epoch.

    Nearby mini-batches then need the same rows again, which a cache that evicts (FIFO) has kept. The price is that
    the labels of a mini-batch are less mixed than a shuffle's, the less the fewer sequences there are.

    The sequences are made once, at the first mini-batch, and take 4 bytes for each seed and sequence. The order is a
    pure function of (graph, labels, seeds, seed, epoch, global batch size); with ``sequences`` given, labels and
    batch size do not matter. So the seeds of a step are the same for any number of trainers at one global batch size.

    Args:
        sequences: how many; None takes the smallest number whose shuffling error is within BGL's bound
            ``sqrt(b M) / n`` (:func:`.shuffling_bound`), which needs integer labels ``[N]``, and says so on stderr.
        max_sequences: where ``sequences`` is None, the most to take. If these are not enough, they are taken
            nevertheless, and the line says so.

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

    def __init__(self, sequences: int | None = None, *, max_sequences: int = 512) -> None:
        for name, number in (("sequences", sequences), ("max_sequences", max_sequences)):
            is_number = isinstance(number, int) and not isinstance(number, bool) and number >= 1
            if not is_number and not (name == "sequences" and number is None):
                raise LoaderConfigError(f"ProximityOrder: {name}={number!r}: a whole number of at least 1 is needed.")
        self.sequences = sequences
        self.max_sequences = max_sequences
        self._bound: _BoundProximityOrder | None = None

    @property
    def name(self) -> str:
        most = "" if self.sequences is not None else f", max_sequences={self.max_sequences}"
        return f"ProximityOrder(sequences={self.sequences}{most})"

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        """Returns the order over this graph; for the same graph the same object, with the sequences that it has made.

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
        """Drops the bound order: other processes get the settings, and make sequences themselves if they need them."""
        return {**self.__dict__, "_bound": None}


@dataclass(frozen=True)
class _Made:
    """Holds the sequences that were made, and the seeds and the random seed that they are for."""

    seeds: np.ndarray
    seed: int
    sequences: list[np.ndarray]

    def is_for(self, seeds: np.ndarray, seed: int) -> bool:
        # The identity spares comparing all seeds in every epoch.
        return self.seed == seed and (self.seeds is seeds or np.array_equal(self.seeds, seeds))


class _BoundProximityOrder(SeedOrder):
    """A ProximityOrder that knows the graph. Thread-safe: one thread makes the sequences, others wait."""

    def __init__(
        self, settings: ProximityOrder, graph: Graph, labels: torch.Tensor | None, global_batch_size: int
    ) -> None:
        if settings.sequences is None and not _are_classes(labels):
            given = "none" if labels is None else f"{labels.dtype} {list(labels.shape)}"
            raise LoaderConfigError(
                f"order='proximity' chooses the number of sequences by integer labels [N], but the labels are "
                f"{given}. Give the number: order=ProximityOrder(sequences=32); the more, the nearer to a shuffle."
            )
        self.settings = settings
        self.graph = graph
        self.labels = labels
        self.global_batch_size = global_batch_size
        self._made: _Made | None = None
        self._making = threading.Lock()

    @property
    def name(self) -> str:
        return self.settings.name

    def is_same(self, other: _BoundProximityOrder) -> bool:
        return (
            self.graph is other.graph
            and self.labels is other.labels
            and (self.global_batch_size == other.global_batch_size or self.settings.sequences is not None)
        )

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        if not len(seeds):
            return seeds
        with self._making:
            if self._made is None or not self._made.is_for(seeds, seed):
                self._made = _Made(seeds, seed, self._make(seeds, seed))
            sequences = self._made.sequences
        return seeds[epoch_order(sequences, seed, epoch)]

    def _make(self, seeds: np.ndarray, seed: int) -> list[np.ndarray]:
        given = self.settings.sequences
        most = given or self.settings.max_sequences
        endless = breadth_first_sequences(self.graph, seeds, seed)
        if most * self.graph.num_edges > _LONG:
            endless = _watched(endless, most)
        with closing(endless):  # what it holds (a reversed copy of the graph, a bar) goes now, not at collection
            if given is not None:
                return list(islice(endless, given))
            assert self.labels is not None
            _, classes = np.unique(self.labels[tensor_view(seeds)].numpy(), return_inverse=True)
            made, choice = choose_sequences(
                endless, seeds, classes, seed=seed, global_batch_size=self.global_batch_size, most=most
            )
        from rich.console import Console

        advice = "" if choice.is_within_bound else " Accuracy may suffer: compare it with order='shuffle'."
        Console(stderr=True).print(f"ProximityOrder: {choice}{advice}", highlight=False, soft_wrap=True)
        return made


class _RowProximityOrder(SeedOrder):
    """Orders rows as a ProximityOrder orders their nodes, int64 ``[R]``."""

    def __init__(self, of_nodes: SeedOrder, nodes: np.ndarray) -> None:
        self.of_nodes = of_nodes
        self.nodes, self.node_of = np.unique(nodes, return_inverse=True)

    @property
    def name(self) -> str:
        return self.of_nodes.name

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        ordered = self.of_nodes.order(self.nodes, seed=seed, epoch=epoch)
        place = np.empty(len(ordered), np.int64)
        place[np.searchsorted(self.nodes, ordered)] = np.arange(len(ordered))
        return seeds[np.argsort(place[self.node_of[seeds]], kind="stable")]


def _watched(sequences: Iterator[np.ndarray], most: int) -> Generator[np.ndarray]:
    with progress("Breadth-first sequences", most) as advance:
        for sequence in sequences:
            advance(1)
            yield sequence


def _are_classes(labels: torch.Tensor | None) -> bool:
    return labels is not None and labels.ndim == 1 and not (labels.is_floating_point() or labels.is_complex())
