"""Partitioner: settings of a way to assign a graph's nodes to parts; and those of this package, by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import ClassVar

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import PartitionError

SeedIds = Mapping[str, np.ndarray]
"""Int64 node ids by phase, ``"train"`` first."""
Advance = Callable[[str, float], None]
"""Takes the name of the work at hand, and which share of it is done, in [0, 1]; may raise KeyboardInterrupt."""
OPEN = -1
"""The part of a node that a method leaves open; it goes to a part that holds a copy of it anyway."""

_CLASSES = {
    "self-reliant": ("selfreliant", "SelfReliant"),
    "metis": ("metis", "Metis"),
    "bgl": ("bgl", "Bgl"),
    "ldg": ("ldg", "Ldg"),
    "random": ("random", "RandomParts"),
}
METHODS = tuple(_CLASSES)


class Partitioner(ABC):
    """Assigns nodes to parts, as a pure function of the graph, the seeds and the settings. It has no state.

    A method decides between parts. What follows is the same for all: seeds are balanced within 1, each part is closed
    over as many hops as were asked for, and nodes are renumbered.
    """

    name: ClassVar[str]

    @abstractmethod
    def assign(
        self, graph: Graph, seeds: SeedIds, num_parts: int, *, hops: int, seed: int, advance: Advance
    ) -> np.ndarray:
        """Returns the part of each node, int32 ``[N]`` in ``[0, num_parts)``, or :data:`OPEN`, which no seed may be.

        The graph's arrays may be mapped files larger than memory: read them in turn where possible. ``seeds`` are what
        has to be balanced; ``num_parts`` is at least 2; ``hops`` is 0 where a part holds no neighbours of its nodes. A
        graph or settings that cannot be partitioned raise PartitionError.
        """


def partitioner(method: str | Partitioner) -> Partitioner:
    """Makes the partitioner of one of the :data:`METHODS` with its defaults; returns a user's own as it is."""
    if isinstance(method, Partitioner):
        return method
    if not isinstance(method, str) or method not in _CLASSES:
        raise PartitionError(
            f"method={method!r} is not known; give one of {', '.join(map(repr, METHODS))} or a Partitioner."
        )
    # Imported when asked for: the modules of the methods import this one.
    module, class_name = _CLASSES[method]
    default: Partitioner = getattr(import_module(f"lightning_gnnload.partition.{module}"), class_name)()
    return default
