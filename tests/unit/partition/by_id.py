"""A trivial way to deal nodes out."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.partition.partitioner import OPEN, Partitioner


class ById(Partitioner):
    """Node ``v`` goes to part ``v mod K``; with ``leave_open``, all but seeds are left open."""

    name = "by-id"

    def __init__(self, leave_open: bool = False) -> None:
        self.leave_open = leave_open

    def assign(self, graph, seeds, num_parts, *, hops, seed, advance):
        advance("Dealing nodes out", 1.0)
        owner = (np.arange(graph.num_nodes) % num_parts).astype(np.int32)
        if self.leave_open:
            closed = np.full_like(owner, OPEN)
            for ids in seeds.values():
                closed[ids] = owner[ids]
            return closed
        return owner


class Given(Partitioner):
    """Whatever is given."""

    name = "given"

    def __init__(self, owner) -> None:
        self.owner = owner

    def assign(self, graph, seeds, num_parts, *, hops, seed, advance):
        return self.owner
