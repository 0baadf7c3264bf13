"""CollectiveSampler: the mini-batches of a graph whose parts lie with several ranks, made by all of them together."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import Draw, SampleLayout
from lightning_gnnload.sample.base import Paradigm, Relayed, Sampler
from lightning_gnnload.sample.build import check_seeds
from lightning_gnnload.sample.group.exchange import Exchange
from lightning_gnnload.sample.group.group import RankGroup, SamplingGroup
from lightning_gnnload.sample.parts import layer_nodes, lists  # noqa: F401  what ranks do for each other
from lightning_gnnload.sample.parts.links import PartLookup


def open_colleagues(partition: Partition, exchange: Exchange) -> RankGroup:
    """Meets the other ranks, all of which call this and, in the end, close what it returns.

    Raises:
        PartitionError, PartitionMismatchError, ExchangeError: as :class:`.SamplingGroup` has them.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, NeighborSampler, open_colleagues, partition_graph
        >>> from lightning_gnnload.sample.group.exchange import ThreadExchange
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> partition = partition_graph(ring, "parts", 1, hops=0, progress=False)
        >>> [exchange] = ThreadExchange.connect(1)  # of two ranks, each has its own
        >>> with open_colleagues(partition, exchange) as colleagues:
        ...     colleagues.num_ranks
        1
    """
    return RankGroup(partition, exchange)


class SampledApart(Relayed):
    """Draws what a sampler draws on the whole graph, over parts that others hold: as :class:`CollectiveSampler` and
    :class:`.OwnedSampler` do."""

    @property
    def colleagues(self) -> SamplingGroup:
        """Those who hold the parts."""
        raise NotImplementedError

    @property
    def lookup(self) -> PartLookup:
        """By which links find edges and their negatives, where nobody has the whole graph."""
        return PartLookup(self.colleagues)

    @property
    def heeds(self) -> frozenset[str]:
        return self.sampler.heeds

    @property
    def description(self) -> str:
        """The same in all ranks, unlike its ``repr``."""
        return self.sampler.description

    def fingerprint_of(self, graph: Graph) -> str:
        """Returns what the partition knows, so that no list of the whole graph is read."""
        return self.colleagues.partition.fingerprint


class CollectiveSampler(SampledApart):
    """Samples a graph whose parts lie with several ranks, with the same result as one rank over the whole graph.

    Hop by hop, the nodes whose neighbours are to be drawn go to the ranks that own their lists (shuffle), which draw
    (sample) and send back what they drew (reshuffle). Seeds and nodes are ids of the whole graph.

    Args:
        sampler: how neighbourhoods are drawn; one of the package's own, or of yours that has ``collective``.
        colleagues: the ranks, by :func:`open_colleagues`, or :class:`.Owners`; several samplers may share them.
        paradigm: ``"push"`` sends the tasks to the lists; ``"pull"`` fetches the lists, which moves more, and serves
            to compare. Samplers that read all lists of a hop pull in any case.

    Raises:
        SamplerConfigError: a sampler of another kind, or a graph without what it draws by.
        ExchangeError: on sampling, another rank cannot answer.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, NeighborSampler, open_colleagues, partition_graph
        >>> from lightning_gnnload.sample.group.exchange import ThreadExchange
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> partition = partition_graph(ring, "whole", 1, hops=0, progress=False)
        >>> [exchange] = ThreadExchange.connect(1)  # of two ranks, each has its own
        >>> with open_colleagues(partition, exchange) as colleagues:
        ...     batch = CollectiveSampler(NeighborSampler([-1]), colleagues).sample(ring.graph, [0])
        >>> batch.nodes.tolist()
        [0, 7]

    Source: DSP (PPoPP'23), section 4.
    """

    def __init__(self, sampler: Sampler, colleagues: SamplingGroup, paradigm: Paradigm = "push") -> None:
        if not sampler.declares("collective"):
            raise SamplerConfigError(
                f"{sampler} cannot be sampled collectively, because {type(sampler).__name__} does not define "
                f"Sampler.collective. Define it, or partition with hops=..., where each rank samples its own part by "
                f"any sampler."
            )
        if paradigm not in ("push", "pull"):
            raise SamplerConfigError(f"paradigm={paradigm!r} is not known; give 'push' or 'pull'.")
        super().__init__(sampler)
        self._colleagues = colleagues
        self.paradigm = paradigm
        self._lay = sampler.collective(colleagues, paradigm)

    def sample(
        self,
        graph: Graph | None,
        seeds: Any,
        seed: int = 0,
        epoch: int = 0,
        step: int = 0,
        *,
        times: Any = None,
        rows: Any = None,
    ) -> MiniBatch:
        """Samples as :meth:`.Sampler.sample` does; ``graph`` is not read, and may be None."""
        return super().sample(self.colleagues.partition.outline, seeds, seed, epoch, step, times=times, rows=rows)

    def draw(self, graph: Graph | None, draw: Draw, memory: np.ndarray) -> SampleLayout:
        """Samples as :meth:`.Sampler.draw` does; ``graph`` is not read, since the ranks hold its parts."""
        partition, queries = self.colleagues.partition, draw.queries
        # Before new_ids is indexed, where NumPy takes a negative seed for a node counted from the end.
        check_seeds(draw.seeds, partition.num_nodes, None if queries is None else queries.of_seed)
        seeds = np.asarray(partition.new_ids)[draw.seeds]
        layout = self._lay(seeds, draw.key, memory, *([] if queries is None else [queries]))
        nodes = memory[: 8 * layout.num_nodes].view(np.int64)
        nodes[:] = np.asarray(partition.node_ids)[nodes]
        return layout

    @property
    def colleagues(self) -> SamplingGroup:
        return self._colleagues

    def __repr__(self) -> str:
        return f"CollectiveSampler({self.sampler}, rank {self.colleagues.rank} of {self.colleagues.num_ranks})"
