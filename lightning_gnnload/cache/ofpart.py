"""OfPart: the ranking of a cache that serves one rank, which trains on one part."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.cache.policy import CachePolicy, checked_hotness
from lightning_gnnload.data.partition import Part, Partition
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.parts import PartWorkload
from lightning_gnnload.sample.workload import Workload


class OfPart(CachePolicy):
    """Another policy's ranking of a part's nodes, by the part's edges and by the mini-batches of its rank alone. Nodes
    that the part does not hold count nothing: the rank gathers none of them.

    Args:
        policy: ranks nodes.
        sampler: what is drawn.
        partition: whose parts they are.
        part: the rank's.
        phase: that the cache is filled for.

    Source: PaGraph (TPDS'21), section 3.2: each GPU caches features for its own partition.
    """

    is_own = True

    def __init__(self, policy: CachePolicy, sampler: Sampler, partition: Partition, part: Part, phase: str) -> None:
        self.policy = policy
        self.sampler = sampler
        self.partition = partition
        self.part = part
        self.phase = phase
        self.window = policy.window

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        local = PartWorkload(workload, self.sampler, self.part, self.phase)
        ranked = checked_hotness(self.policy.hotness(local, epoch), self.part.graph.num_nodes)
        hotness = np.zeros(self.partition.num_nodes, ranked.dtype)
        hotness[self.part.graph.names_of(np.arange(len(ranked)))] = ranked
        return hotness

    def quietly(self) -> OfPart:
        return OfPart(self.policy.quietly(), self.sampler, self.partition, self.part, self.phase)

    def __repr__(self) -> str:
        return f"{self.policy!r} of part {self.part.index}"
