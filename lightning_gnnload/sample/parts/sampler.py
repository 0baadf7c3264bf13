"""PartSampler and PartWorkload: mini-batches of a graph that are sampled in its parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.partition import Part, Partition
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import PartitionError, PartitionMismatchError, PartReachError, SeedError
from lightning_gnnload.ops import Draw, SampleLayout
from lightning_gnnload.sample.base import Relayed, Sampler
from lightning_gnnload.sample.naming import name_batch
from lightning_gnnload.sample.workload import Workload


class PartSampler(Relayed):
    """Samples each part's seeds in that part alone, with the same result as on the whole graph.

    Seeds, nodes and edge ids are those of the whole graph, so that features, labels and caches need not know of parts.
    All other settings (``fanouts``, ``expand``, ``edge_ids``...) are the sampler's.

    Args:
        sampler: what is drawn.
        partition: self-reliant, as deep as the sampler looks.

    Raises:
        PartReachError: the parts are not as deep, or the sampler looks at the whole graph.

    Source: PaGraph (TPDS'21), section 3.2, self-reliant partitions.
    """

    def __init__(self, sampler: Sampler, partition: Partition) -> None:
        check_reach(sampler, partition)
        super().__init__(sampler)
        self.partition = partition

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        """Samples as :meth:`.Sampler.draw` does, with ``graph`` the whole one, whose lists are not read."""
        if graph.num_nodes != self.partition.num_nodes:
            raise PartitionMismatchError(
                f"the partition is of a graph of {self.partition.num_nodes} nodes, but this one has "
                f"{graph.num_nodes}. Give the graph that was partitioned, or partition this one: gnnload partition."
            )
        part, local = place_seeds(self.partition, draw.seeds, self.sampler.reach or 0)
        layout = self.sampler.draw(part.graph, draw._replace(seeds=local), memory)
        name_batch(part.graph, layout, memory)
        return layout

    @property
    def heeds(self) -> frozenset[str]:
        return self.sampler.heeds - {"exclusion"}  # links have negatives, which may be any node

    @property
    def description(self) -> str:
        return self.sampler.description

    def fingerprint_of(self, graph: Graph) -> str:
        """Returns what the partition knows, so that no list of the whole graph is read."""
        return self.partition.fingerprint

    def __repr__(self) -> str:
        return f"PartSampler({self.sampler!r}, {self.partition!r})"


class PartWorkload(Workload):
    """Makes the mini-batches of one rank by node ids of its own part, so that a policy sees the part and nothing else.
    ``whole`` is the workload of all ranks, in which rank ``p`` has seeds of part ``p``."""

    def __init__(self, whole: Workload, sampler: Sampler, part: Part, phase: str) -> None:
        self._whole = whole
        self._part = part
        seeds = held_ids(part, part.seeds[phase])
        part_settings = {"graph": part.graph, "sampler": sampler, "seeds": seeds, "num_ranks": 1, "labels": None}
        super().__init__(**{**whole.settings(), **part_settings, "order": Sequential()})

    def requests(self, epoch: int) -> Iterator[BatchRequest]:
        """Yields the rank's own of the whole workload's requests."""
        return (request for request in self._whole.requests(epoch) if request.rank == self._part.index)

    def seeds_of(self, request: BatchRequest) -> np.ndarray:
        return held_ids(self._part, self._whole.seeds_of(request))


def check_reach(sampler: Sampler, partition: Partition) -> None:
    """Raises PartReachError: the parts do not hold all that the sampler reads of their seeds."""
    reach = sampler.reach
    if reach is None:
        raise PartReachError(
            f"{sampler!r} may read any node of the graph (its reach is None), and no part holds all. Sample without a "
            f"partition, or with one that reads neighbourhoods only, such as NeighborSampler."
        )
    if reach > partition.hops:
        raise PartReachError(
            f"{sampler!r} reads {reach} hops of in-neighbours, but the parts hold {partition.hops}. Partition the "
            f"graph for it: gnnload partition ... --hops {reach}."
        )


def place_seeds(partition: Partition, seeds: np.ndarray, reach: int = 0) -> tuple[Part, np.ndarray]:
    """Finds the part that one rank's seeds, ids of the whole graph, belong to, and their ids in it, int64 ``[S]``. It
    holds ``reach`` hops of in-neighbours of them."""
    if seeds.size and not (seeds.min() >= 0 and seeds.max() < partition.num_nodes):
        raise SeedError(
            f"seeds span [{seeds.min()}, {seeds.max()}], but the graph has {partition.num_nodes} nodes; ids must lie "
            f"in [0, {partition.num_nodes})."
        )
    owners = partition.part_of(seeds)
    num_owned = np.bincount(owners, minlength=partition.num_parts)
    reasons = []
    # A node of two phases may be a seed of a part that does not own it: where its owner does not serve, look further.
    for index in np.argsort(-num_owned, kind="stable").tolist():
        part = partition.parts[index]
        try:
            return part, held_ids(part, seeds, reach)
        except PartReachError as error:
            reasons.append(error)
    # One part owns them all, and was tried first: its reason is the one to tell.
    if num_owned.max() == len(seeds):
        raise reasons[0]
    raise PartitionError(
        f"the seeds of a mini-batch are of the parts {np.flatnonzero(num_owned).tolist()}, but each part samples its "
        f"own alone. Order seeds by part, as LocalOrder does, and give {partition.num_parts} trainers one part each."
    ) from reasons[0]


def held_ids(part: Part, seeds: np.ndarray, reach: int = 0) -> np.ndarray:
    """Finds nodes of the whole graph, int64 ``[S]``, in a part that holds ``reach`` hops of them: in logarithmic time,
    with no memory beside the part's."""
    assert part.graph.origin is not None
    local = np.full_like(seeds, -1)
    # Its own nodes ascend, and its mirrors do. A seed may be a mirror: a node that two phases name.
    for begin, end in ((0, part.num_own), (part.num_own, part.graph.num_nodes)):
        nodes = part.graph.origin.node_ids[begin:end]
        positions = np.searchsorted(nodes, seeds)
        is_there = positions < len(nodes)
        is_there[is_there] = nodes[positions[is_there]] == seeds[is_there]
        local[is_there] = begin + positions[is_there]
    missing = seeds[local < 0]
    if len(missing):
        raise PartReachError(
            f"part {part.index} does not hold node {missing[0]}, nor {len(missing) - 1} more of {len(seeds)}. It was "
            f"made for the seeds of {', '.join(part.seeds)}; sample others in the whole graph."
        )
    part_reach = part.graph.origin.reach[local]
    short = np.flatnonzero(part_reach < reach)
    if len(short):
        raise PartReachError(
            f"part {part.index} holds {part_reach[short[0]]} hops of the in-neighbours of node {seeds[short[0]]}, but "
            f"{reach} are needed. It was made for the seeds of {', '.join(part.seeds)}; sample others in the whole "
            f"graph."
        )
    return local
