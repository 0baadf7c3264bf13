"""Partition: which part owns each node, and the parts as graphs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.data.remote_graph import RemoteGraph
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import PartitionMismatchError


@dataclass(frozen=True, eq=False)
class Part:
    """Holds one part of a partitioned graph.

    Attributes:
        index: which.
        graph: n nodes, with ``graph.origin``. The nodes that the part owns come first, then mirrors of others', each by
            ascending id in the whole graph.
        num_own: how many of them it owns.
        seeds: by phase (``"train"``, ``"val"``, ``"test"``), the nodes that are this part's to train on or to evaluate:
            int64, ids in the whole graph, ascending. It reaches ``hops`` hops from them.
        x: features of the part's n nodes, or None; those of its own nodes are one stretch of the partition's table.
        y: labels likewise.
        stores: the rows that the part owns, by the name of the array that holds them: of its own nodes in their order
            (of a type's table, those of the type), and of the edges of its own lists, likewise. Of a quantised table,
            its codes. Empty in parts that hold hops of their seeds.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, NeighborSampler, partition_graph
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> partition = partition_graph(ring, "parts", 2, hops=1, progress=False)
        >>> [part.num_own for part in partition.parts]
        [4, 4]
    """

    index: int
    graph: Graph
    num_own: int
    seeds: Mapping[str, np.ndarray]
    x: FeatureStore | None = None
    y: torch.Tensor | None = None
    stores: Mapping[str, FeatureStore] = field(default_factory=dict)

    @property
    def num_mirrors(self) -> int:
        return self.graph.num_nodes - self.num_own


@dataclass(frozen=True, eq=False)
class Partition:
    """Holds a graph that was divided into parts, and how its nodes are numbered.

    Nodes are renumbered so that those of a part are consecutive: part ``p`` owns the new ids ``starts[p]`` to
    ``starts[p + 1] - 1``, by ascending id in the whole graph. So the owner of a new id is found by comparing.

    Attributes:
        starts: int64 ``[K + 1]``.
        node_ids: int64 ``[N]``, the id in the whole graph of each new id.
        new_ids: int64 ``[N]``, the reverse.
        parts: the K parts.
        hops: how many hops of in-neighbours a part holds of its seeds (PaGraph's self-reliance), so that it samples
            them by itself. 0: each list lies with its owner alone, and ranks sample together (DSP).
        method: how it was made, ``"self-reliant"`` for example.
        fingerprint: of the whole graph, as :meth:`.Graph.fingerprint` has it.
        settings: what it was made with, JSON values.
        report: its quality, JSON values, as :mod:`.partition.quality` has them.
        x: features of all nodes, by id in the whole graph, or None; they lie in the order of new ids, or with parts.
        tables: further features of all nodes likewise, by name.
        parted: the tables whose rows lie with parts, by the name of the array that holds them: those of
            :attr:`Part.stores`, ``"x"``, ``"table.<name>"``, ``"edge_x"`` and ``"edge.<name>"``.
        types: names of node and edge types; None for a graph with one type of nodes.
        clock: what turns times into codes; None for a graph without times.
        node_time: from when on each node is there, int64 or float64 ``[N]``, by id in the whole graph; None where no
            time was given.
        folder_fingerprint: of the folder that it was loaded from: hexadecimal digits that are alike in two processes
            exactly where both loaded the same content. None of one that was made in memory.

    Shapes: N nodes of the whole graph, K parts.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, NeighborSampler, partition_graph
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> partition = partition_graph(ring, "halves", 2, hops=1, progress=False)
        >>> sorted(partition.node_ids.tolist()) == list(range(8))
        True

    Source: DSP (PPoPP'23), section 3.1, for the numbering; PaGraph (TPDS'21), section 3.2, for self-reliance.
    """

    starts: np.ndarray
    node_ids: np.ndarray
    new_ids: np.ndarray
    parts: Sequence[Part]
    hops: int
    method: str
    fingerprint: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    x: FeatureStore | None = None
    tables: Mapping[str, FeatureStore] = field(default_factory=dict)
    parted: Mapping[str, PartedTable] = field(default_factory=dict)
    types: GraphTypes | None = None
    clock: Clock | None = None
    node_time: np.ndarray | None = None
    folder_fingerprint: str | None = None

    @property
    def num_parts(self) -> int:
        return len(self.starts) - 1

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the whole graph."""
        return len(self.node_ids)

    @cached_property
    def outline(self) -> RemoteGraph:
        """What is known of the whole graph without its lists. Seeds can be looked up in it; made on first use and
        kept."""
        num_edges = int(self.fingerprint.split("-")[1])
        return RemoteGraph(
            self.num_nodes,
            num_edges,
            self.fingerprint,
            ("indices", "indptr"),
            types=self.types,
            clock=self.clock,
            node_time=self.node_time,
        )

    @property
    def is_self_reliant(self) -> bool:
        return self.hops > 0

    def check(self, graph: Graph) -> None:
        """Checks that the parts are of this graph.

        Raises:
            PartitionMismatchError: they were made of another.
        """
        if graph.fingerprint != self.fingerprint:
            raise PartitionMismatchError(
                f"{self!r} was made of a graph with fingerprint {self.fingerprint} (nodes-edges-checksum), but this "
                f"graph has {graph.fingerprint}. Give the graph that was partitioned, or partition this one with "
                f"partition_graph."
            )

    def seeds_of(self, phase: str) -> list[np.ndarray] | None:
        """Returns each part's seeds, int64 ids in the whole graph; None where the parts were made for other phases."""
        by_part = [part.seeds[phase] for part in self.parts if phase in part.seeds]
        return by_part if len(by_part) == self.num_parts else None

    def owner_of(self, new_ids: np.ndarray) -> np.ndarray:
        """Returns the part that owns each node, int64; ``new_ids`` in ``[0, N)``."""
        return np.searchsorted(self.starts, new_ids, side="right") - 1

    def part_of(self, ids: np.ndarray) -> np.ndarray:
        """Returns the part that owns each node, int64, by its id in the whole graph.

        Raises:
            GraphDataError: no integers in one dimension, or an id that is no node.
        """
        return self.owner_of(self.new_ids[as_ids(ids, name="part_of", num_nodes=self.num_nodes)])

    def __repr__(self) -> str:
        return f"Partition({self.method}, num_parts={self.num_parts}, num_nodes={self.num_nodes}, " + (
            f"hops={self.hops})" if self.is_self_reliant else "each list with its owner)"
        )
