"""Ldg: nodes dealt out in one stream, each to where its in-neighbours are (linear deterministic greedy)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition.partitioner import OPEN, Advance, Partitioner, SeedIds


@dataclass(frozen=True)
class Ldg(Partitioner):
    """Runs linear deterministic greedy: assigns nodes in the order of their ids, each to the part that maximizes

        ``in-neighbours in the part * (1 - nodes / C)``, for a training node ``* (1 - training nodes / C_T)``

    where C and C_T are a part's exact share of all nodes and of training nodes. So no part gets more than its share of
    training nodes, rounded up. Takes 5 bytes a node, and a visit to each edge and stream; the graph is read in turn.

    Args:
        streams: passes over the graph; from the second on, in-neighbours that are still to come count for the part that
            the last pass gave them.
        slack: what a part may have above its share of nodes, as a fraction of it. Training nodes have none.

    Source: Stanton & Kliot, "Streaming graph partitioning for large distributed graphs", KDD'12. The second capacity
    is BGL's (NSDI'23, section 3.3.2); further streams: Nishimura & Ugander, KDD'13.
    """

    name: ClassVar[str] = "ldg"

    streams: int = 1
    slack: float = 0.0

    def __post_init__(self) -> None:
        if ops.as_integer("Ldg: streams", self.streams, PartitionError) < 1:
            raise PartitionError(f"Ldg: streams is {self.streams}, but must be 1 or more.")
        if not 0 <= self.slack < math.inf:
            raise PartitionError(f"Ldg: slack is {self.slack}, but must be 0 or more: a fraction of a part's nodes.")

    def assign(
        self, graph: Graph, seeds: SeedIds, num_parts: int, *, hops: int, seed: int, advance: Advance
    ) -> np.ndarray:
        part_of = np.full(graph.num_nodes, OPEN, np.int32)
        stream_nodes(graph, seeds["train"], part_of, num_parts, self.streams, self.slack, advance)
        return part_of


def stream_nodes(
    graph: Graph,
    train: np.ndarray,
    part_of: np.ndarray,
    num_parts: int,
    streams: int,
    slack: float,
    advance: Advance,
) -> None:
    """Assigns all nodes in place, int32 ``part_of`` ``[N]``, by at most ``streams`` passes; stops after one that
    changes nothing. ``train`` is int64 node ids; nodes that have a part already count there until their turn comes."""
    is_seed = np.zeros(graph.num_nodes, np.uint8)
    is_seed[train] = 1
    node_capacity = max(1, math.ceil(graph.num_nodes / num_parts * (1 + slack)))
    # Exact shares, rounded up: what is later moved to balance seeds is little then.
    seed_capacity = -(-len(train) // num_parts)
    for turn in range(streams):
        advance("Streaming nodes", turn / streams)
        # A pass that moves nothing would be followed by others like it.
        if not ops.deal_nodes(graph.indptr, graph.indices, is_seed, part_of, num_parts, node_capacity, seed_capacity):
            break
    advance("Streaming nodes", 1.0)
