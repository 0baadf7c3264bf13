"""What a partition cuts: edges of the graph, and edges of mini-batches, between nodes of different owners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.sample.base import Sampler

_EDGES_A_CHUNK = 1 << 22  # bounds scratch memory: graphs are larger than what is left


@dataclass(frozen=True)
class SampledCut:
    """Counts of sampled edges between parts in an epoch, where each trainer samples its own part's seeds.

    Of all blocks' ``edges``, ``cross_edges`` have endpoints of different owners; of the ``lists`` that were drawn from,
    ``foreign_lists`` lie with another part than the trainer's: requests over the network.

    Source: BGL (NSDI'23), section 5.4, figure 15, which calls it cross-partition communication and does not say which
    of the two it counts.
    """

    edges: int
    cross_edges: int
    lists: int
    foreign_lists: int
    num_batches: int

    @property
    def cross_share(self) -> float:
        return self.cross_edges / max(self.edges, 1)

    @property
    def foreign_share(self) -> float:
        return self.foreign_lists / max(self.lists, 1)


def count_cross_edges(
    graph: Graph, part_of: np.ndarray, *, advance: Callable[[float], object] = lambda share: None
) -> int:
    """Counts the edges whose two endpoints have different owners, ``part_of`` ``[N]``; reads ``indices`` once, in turn.

    Example:
        >>> count_cross_edges(Graph.from_coo([1, 2, 0], [0, 0, 2]), np.array([0, 0, 1]))
        2
    """
    owners = _owners(graph, part_of)
    cut = 0
    for begin in range(0, graph.num_edges, _EDGES_A_CHUNK):
        end = min(begin + _EDGES_A_CHUNK, graph.num_edges)
        # The lists that this chunk begins and ends in may be cut: their edges outside are clipped away.
        first = int(np.searchsorted(graph.indptr, begin, side="right")) - 1
        last = int(np.searchsorted(graph.indptr, end, side="left"))
        counts = np.diff(graph.indptr[first : last + 1].clip(begin, end))
        cut += int(np.count_nonzero(owners[graph.indices[begin:end]] != np.repeat(owners[first:last], counts)))
        advance(end / graph.num_edges)
    return cut


def count_sampled_cross_edges(
    graph: Graph,
    part_of: np.ndarray,
    seeds: np.ndarray,
    sampler: Sampler,
    *,
    batch_size: int = 1024,
    seed: int = 0,
    max_batches: int | None = None,
    advance: Callable[[float], object] = lambda share: None,
) -> SampledCut:
    """Samples an epoch as the parts' trainers would, each its own seeds in shuffled order, and counts what is cut.

    ``part_of`` ``[N]`` is the owner of each node, ``seeds`` int64 ``[S]``; of each part the first ``max_batches``
    mini-batches are sampled, one at a time, or all. Owners that are not one a node raise PartitionError.
    """
    owners = _owners(graph, part_of)
    ordered = Shuffled().order(seeds, seed=seed, epoch=0)
    batches = [
        (int(part), step, begin, end)
        for part in np.unique(owners[seeds])
        for step, (begin, end) in enumerate(
            _steps(int(np.count_nonzero(owners[seeds] == part)), batch_size, max_batches)
        )
    ]
    edges = cross = lists = foreign = 0
    part_seeds, current = np.empty(0, np.int64), -1
    for num_sampled, (part, step, begin, end) in enumerate(batches, 1):
        if part != current:
            part_seeds, current = ordered[owners[ordered] == part], part
        batch = sampler.sample(graph, part_seeds[begin:end], seed=seed, epoch=0, step=step)
        owner = owners[batch.nodes.numpy()]  # of the mini-batch's nodes
        for block in batch.blocks:
            edges += block.num_edges
            cross += int(np.count_nonzero(owner[block.indices.numpy()] != owner[block.edge_dst().numpy()]))
            lists += block.num_dst
            foreign += int(np.count_nonzero(owner[: block.num_dst] != part))
        advance(num_sampled / len(batches))
    return SampledCut(edges, cross, lists, foreign, len(batches))


def _steps(num_seeds: int, batch_size: int, most: int | None) -> list[tuple[int, int]]:
    plan = StepPlan(num_seeds, batch_size, 1)
    return [plan.step(step) for step in range(plan.num_steps if most is None else min(most, plan.num_steps))]


def _owners(graph: Graph, part_of: np.ndarray) -> np.ndarray:
    """Checks owners and stores them in as few bytes as their number allows, as each edge looks one up at random."""
    if part_of.shape != (graph.num_nodes,):
        raise PartitionError(
            f"part_of must have one owner for each of the {graph.num_nodes} nodes, but its shape is "
            f"{list(part_of.shape)}."
        )
    if part_of.size and int(part_of.min()) < 0:
        raise PartitionError("part_of has nodes that no part owns (below 0): settle open nodes first.")
    return part_of.astype(np.uint8 if part_of.size and int(part_of.max()) < 256 else np.int32)
