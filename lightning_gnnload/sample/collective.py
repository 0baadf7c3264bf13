"""CollectiveSampler: the mini-batches of a graph whose parts lie with several ranks, made by all of them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample import collective_layers, collective_shadow, collective_walks, nodewise
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.build import ArenaBuilder, check_seeds
from lightning_gnnload.sample.collective_shadow import Laying
from lightning_gnnload.sample.group.exchange import Exchange
from lightning_gnnload.sample.group.group import Operation, SamplingGroup
from lightning_gnnload.sample.hops import HopEdges
from lightning_gnnload.sample.labor import LaborSampler
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.nodewise import HopDrawer, Paradigm
from lightning_gnnload.sample.shadow import ShadowSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler

OPERATIONS: dict[str, Operation] = {
    **nodewise.OPERATIONS,
    **collective_walks.OPERATIONS,
    **collective_layers.OPERATIONS,
    **collective_shadow.OPERATIONS,
}
"""What ranks can ask each other for; alike on all of them."""

_DRAWERS: dict[type[Sampler], Callable[[Any, SamplingGroup, Paradigm], HopDrawer]] = {
    NeighborSampler: nodewise.node_wise,
    WeightedNeighborSampler: nodewise.node_wise,
    LaborSampler: nodewise.node_wise,
    LayerSampler: collective_layers.layer_wise,
    RandomWalkSampler: collective_walks.walk_wise,
}


def open_colleagues(partition: Partition, exchange: Exchange) -> SamplingGroup:
    """Meets the other ranks, all of which call this. To be closed on all of them.

    Raises:
        PartitionError, PartitionMismatchError, ExchangeError: as :class:`.SamplingGroup` has them.
    """
    return SamplingGroup(partition, exchange, OPERATIONS)


class CollectiveSampler(Sampler):
    """Samples over parts that lie with several ranks, id for id as one rank would over the whole graph.

    Hop by hop, the nodes whose neighbours are to be drawn go to the ranks that own their lists (shuffle), which draw
    (sample) and send back what they drew (reshuffle). Seeds and nodes are ids of the whole graph.

    Args:
        sampler: how neighbourhoods are drawn; one of the package's own.
        colleagues: the ranks, by :func:`open_colleagues`; several samplers may share them.
        paradigm: ``"push"`` sends the tasks to the lists; ``"pull"`` fetches the lists, which moves more, and serves
            to compare. Samplers that read all lists of a hop pull in any case.

    Raises:
        SamplerConfigError: a sampler of another kind, or a graph without what it draws by.
        ExchangeError: on sampling, another rank cannot answer.

    An example is in docs/guides/collective.md.

    Source: DSP (PPoPP'23), section 4.
    """

    def __init__(self, sampler: Sampler, colleagues: SamplingGroup, paradigm: Paradigm = "push") -> None:
        kinds: list[type[Sampler]] = [*_DRAWERS, ShadowSampler]
        if type(sampler) not in kinds:
            known = ", ".join(kind.__name__ for kind in kinds)
            raise SamplerConfigError(
                f"{sampler} cannot be sampled collectively: only {known} can, since ranks describe to each other what "
                "they draw. Partition with hops=..., where each rank samples its own part by any sampler."
            )
        if paradigm not in ("push", "pull"):
            raise SamplerConfigError(f"paradigm={paradigm!r} is not known; give 'push' or 'pull'.")
        self.sampler = sampler
        self.colleagues = colleagues
        self.paradigm = paradigm
        self._lay: Laying
        if isinstance(sampler, ShadowSampler):
            self._lay = collective_shadow.scope_wise(sampler, colleagues, paradigm)
        else:
            self._draw = _DRAWERS[type(sampler)](sampler, colleagues, paradigm)
            self._lay = self._lay_hops

    @property
    def num_layers(self) -> int:
        return self.sampler.num_layers

    @property
    def reach(self) -> int | None:
        return self.sampler.reach

    def __getattr__(self, name: str) -> Any:
        """A setting of the sampler's."""
        if name == "sampler":  # not there yet, while a copy is made
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def sample(self, graph: Graph | None, seeds: Any, seed: int = 0, epoch: int = 0, step: int = 0) -> MiniBatch:
        """As :meth:`.Sampler.sample`; ``graph`` is not read, and may be None."""
        ids = as_ids(seeds, what="seeds")
        arena, layout = self.sample_here(graph, ids, DrawKey(seed, epoch, step))  # type: ignore[arg-type]
        return MiniBatch.view(arena, layout, len(ids), epoch=epoch, step=step).clone()

    def sample_into(self, graph: Graph | None, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        """As :meth:`.Sampler.sample_into`; ``graph`` is not read, since the ranks hold its parts."""
        partition = self.colleagues.partition
        check_seeds(seeds, partition.num_nodes)
        layout = self._lay(np.asarray(partition.new_ids)[seeds], key, arena)
        nodes = arena[: 8 * layout.num_nodes].view(np.int64)
        nodes[:] = np.asarray(partition.node_ids)[nodes]
        return layout

    def _lay_hops(self, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        build = ArenaBuilder(self.colleagues.partition, seeds, arena)
        first, before = 0, None
        for hop in range(self.num_layers):
            nodes = build.nodes
            edges: HopEdges = self._draw(hop, nodes, first, replace(key, hop=key.hop + hop))
            if self.expand == "new":
                edges, first = edges.after(before), len(nodes)
                before = edges
            build.add_hop(**edges.arrays())
        return build.layout()

    def __repr__(self) -> str:
        return f"CollectiveSampler({self.sampler}, rank {self.colleagues.rank} of {self.colleagues.num_ranks})"
