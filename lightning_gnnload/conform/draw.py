"""Draw: the least interface that a sampler of any library needs to have its choices counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from lightning_gnnload.conform.graphs import star_graph
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler

_MAX_HUBS, _MAX_EDGES = 20_000, 2_000_000  # of one star graph; more trials come from more steps


class DrawnEdges(NamedTuple):
    """Holds the edges that one hop drew, as node ids int64 ``[E]``, grouped by destination in the order of draws."""

    dst: np.ndarray
    src: np.ndarray


def drawn_edges(batch: MiniBatch, block: Block) -> DrawnEdges:
    """Returns the edges of one block. By NumPy: torch's threads would wait for one another on a busy machine."""
    nodes, indptr = batch.nodes.numpy(), block.indptr.numpy()
    return DrawnEdges(nodes[np.repeat(np.arange(block.num_dst), np.diff(indptr))], nodes[block.indices.numpy()])


# draw(graph, seeds, fanouts, key): the hops of one batch, nearest hop first. A sampler whose generator has a state
# ignores the key: each call is then another step.
Draw = Callable[[Graph, np.ndarray, Sequence[int], DrawKey], list[DrawnEdges]]


def sampler_draw(sampler_of: Callable[[Sequence[int]], Sampler]) -> Draw:
    """Returns the draws of a Sampler as a ``Draw``; ``sampler_of`` makes the sampler of fanouts, as the class
    ``NeighborSampler`` does."""

    def draw(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        sampler = sampler_of(list(fanouts))
        batch = sampler.sample(graph, seeds, key.seed, key.epoch, key.step, **row_argument(sampler, graph, seeds, key))
        return drawn_hops(batch, sampler.expand)

    return draw


def row_argument(sampler: Sampler, graph: Graph, seeds: np.ndarray, key: DrawKey) -> dict[str, np.ndarray]:
    """Returns the argument ``rows`` where rows draw by their numbers, whatever the step: each step has rows of its
    own."""
    return {"rows": seeds + key.step * graph.num_nodes} if getattr(sampler, "sharing", None) == "disjoint" else {}


def drawn_hops(
    batch: MiniBatch, expand: Literal["all", "new"], counts: Callable[[Block], np.ndarray] | None = None
) -> list[DrawnEdges]:
    """Returns what each hop drew, nearest hop first; of each block those edges that ``counts`` says, bool ``[E]``."""
    hops, num_known = [], 0
    for block in reversed(batch.blocks):
        edges = drawn_edges(batch, block)
        chosen = np.ones(block.num_edges, bool) if counts is None else counts(block)
        # Blocks that expand new nodes only begin with the edges of the hops before.
        chosen[:num_known] = False
        hops.append(DrawnEdges(edges.dst[chosen], edges.src[chosen]))
        num_known = block.num_edges if expand == "new" else 0
    return hops


def positions(draw: Draw, weights: np.ndarray, fanout: int, num_trials: int, key: DrawKey) -> np.ndarray:
    """Draws for many independent nodes with equal neighbourhoods, of ``weights`` ``[degree]``, and returns positions in
    the adjacency list, int64 ``[T, fanout]``.

    There must be ``fanout`` neighbours that can be drawn. ``num_trials`` T is rounded up to whole batches, which have
    steps from ``key`` on. Raises ConformanceError where a node did not draw ``fanout`` neighbours of its own.
    """
    # A star of all trials would have billions of edges for large degrees: steps are trials as good.
    num_steps = math.ceil(num_trials / min(_MAX_HUBS, max(_MAX_EDGES // len(weights), 1)))
    num_hubs = math.ceil(num_trials / num_steps)
    graph = star_graph(num_hubs, weights)
    keys = (DrawKey(key.seed, key.epoch, key.step + step) for step in range(num_steps))
    return np.concatenate([star_positions(draw, graph, num_hubs, fanout, key) for key in keys])


def star_positions(draw: Draw, star: Graph, num_hubs: int, fanout: int, key: DrawKey) -> np.ndarray:
    """Returns the positions that the hubs of a :func:`star_graph` draw in one batch, ``[num_hubs, fanout]``; raises
    ConformanceError where a hub did not draw ``fanout`` neighbours of its own."""
    hubs, degree = np.arange(num_hubs), star.num_nodes - num_hubs
    neighbors = by_node(draw(star, hubs, [fanout], key)[0], hubs, fanout) - num_hubs
    if neighbors.min(initial=0) < 0 or neighbors.max(initial=0) >= degree:
        raise ConformanceError(
            f"drew node {neighbors.max() + num_hubs}, which is no neighbour of its destination; "
            f"neighbours are {num_hubs} to {num_hubs + degree - 1}"
        )
    return neighbors


def by_node(edges: DrawnEdges, nodes: np.ndarray, fanout: int) -> np.ndarray:
    """Returns the neighbours that each of ``nodes`` drew, ``[D, fanout]``; raises ConformanceError where one drew
    another number."""
    order = np.argsort(edges.dst, kind="stable")
    dst = edges.dst[order]
    first, last = np.searchsorted(dst, nodes), np.searchsorted(dst, nodes, side="right")
    wrong = np.flatnonzero(last - first != fanout)
    if len(wrong):
        at = wrong[0]
        raise ConformanceError(f"node {nodes[at]} drew {last[at] - first[at]} neighbours instead of {fanout}")
    return edges.src[order][first[:, None] + np.arange(fanout)]
