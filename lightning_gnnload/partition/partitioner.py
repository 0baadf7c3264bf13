"""Partitioner: settings of a way to deal a graph's nodes out to parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from lightning_gnnload.data.graph import Graph

OPEN = -1
"""The part of a node that a method leaves open; it goes to one that holds it anyway."""


class Partitioner(ABC):
    """Assigns nodes to parts, as a pure function of the graph, the seeds and the settings. It holds no state.

    A method is what decides between parts. What follows is the same for all: seeds are balanced within 1, parts
    are closed over as many hops as are asked for, and nodes are renumbered.
    """

    name: ClassVar[str]

    @abstractmethod
    def assign(
        self,
        graph: Graph,
        seeds: Mapping[str, np.ndarray],
        num_parts: int,
        *,
        hops: int,
        seed: int,
        advance: Callable[[str, float], None],
    ) -> np.ndarray:
        """Assigns each node to a part.

        Args:
            graph: N nodes; its arrays may be mapped files larger than memory, and are read in turn where possible.
            seeds: by phase, ``"train"`` first, int64 node ids: what has to be balanced.
            num_parts: at least 2.
            hops: that the parts will hold of their seeds; 0 where each list will lie with its owner alone.
            seed: of what is random.
            advance: is told what is being done, and which share of it in [0, 1]; it may raise KeyboardInterrupt.

        Returns:
            int32 ``[N]``, in ``[0, num_parts)``, or :data:`OPEN`; never open for a seed.

        Raises:
            PartitionError: the graph or the settings do not allow it.
            MissingExtraError: a package that it needs is not installed.
        """
