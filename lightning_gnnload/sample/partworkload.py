"""PartWorkload: what one rank samples of a graph in parts, as a workload of its part alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lightning_gnnload.data.partition import Part
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.seeds import Sequential
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.parts import held_ids
from lightning_gnnload.sample.workload import Workload


class PartWorkload(Workload):
    """The mini-batches of rank ``part.index``, by the part's own node ids, so that whoever looks at the graph of the
    workload, at its seeds, or at the nodes of its mini-batches sees the part and nothing else.

    Args:
        whole: of all ranks, by ids of the whole graph; rank ``p`` has seeds of part ``p``.
        sampler: what is drawn.
        part: the rank's.
        phase: that the seeds are of.
    """

    def __init__(self, whole: Workload, sampler: Sampler, part: Part, phase: str) -> None:
        self._whole = whole
        self._part = part
        seeds = held_ids(part, part.seeds[phase])
        own = {"graph": part.graph, "sampler": sampler, "seeds": seeds, "num_ranks": 1, "labels": None}
        super().__init__(**{**whole.settings(), **own, "order": Sequential()})

    def requests(self, epoch: int) -> Iterator[BatchRequest]:
        """The rank's, as the whole workload knows them."""
        return (request for request in self._whole.requests(epoch) if request.rank == self._part.index)

    def seeds_of(self, request: BatchRequest) -> np.ndarray:
        return held_ids(self._part, self._whole.seeds_of(request))
