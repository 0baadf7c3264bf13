"""RandomParts: nodes dealt out at random, to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.partitioner import Advance, Partitioner, SeedIds

# Random keys are drawn by (seed, epoch, node). No training reaches this epoch, so that no draw of it repeats these.
_EPOCH = 2**32 - 1


@dataclass(frozen=True)
class RandomParts(Partitioner):
    """Assigns shuffled nodes to parts round robin, training nodes first: parts differ by one training node and one node
    at most.

    Memory: 24 bytes a node.
    """

    name: ClassVar[str] = "random"

    def assign(
        self, graph: Graph, seeds: SeedIds, num_parts: int, *, hops: int, seed: int, advance: Advance
    ) -> np.ndarray:
        advance("Shuffling nodes", 0.0)
        keys = ops.random_keys(seed, _EPOCH, np.arange(graph.num_nodes))
        # The upper bit puts training nodes before the others, so that one sort and one round robin serve both.
        keys >>= np.uint64(1)
        is_other = np.ones(graph.num_nodes, np.bool_)
        is_other[seeds["train"]] = False
        keys[is_other] |= np.uint64(1 << 63)
        part_of = np.empty(graph.num_nodes, np.int32)
        part_of[np.argsort(keys, kind="stable")] = np.arange(graph.num_nodes, dtype=np.int64) % num_parts
        advance("Shuffling nodes", 1.0)
        return part_of
