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


def edges_of(batch: MiniBatch, block: Block) -> DrawnEdges:
    """Returns the edges of one block. By NumPy: torch's threads would wait for one another on a busy machine."""
    nodes, indptr = batch.nodes.numpy(), block.indptr.numpy()
    return DrawnEdges(nodes[np.repeat(np.arange(block.num_dst), np.diff(indptr))], nodes[block.indices.numpy()])


Draw = Callable[[Graph, np.ndarray, Sequence[int], DrawKey], list[DrawnEdges]]
"""``draw(graph, seeds, fanouts, key)``: the hops of one batch, nearest hop first.

A sampler whose generator has a state ignores the key: each call is then another step.
"""


def sampler_draw(sampler_of: Callable[[Sequence[int]], Sampler]) -> Draw:
    """Returns the draws of a Sampler as a :data:`Draw`.

    Args:
        sampler_of: the sampler for these fanouts, such as the class ``NeighborSampler`` itself.
    """

    def draw(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        sampler = sampler_of(list(fanouts))
        batch = sampler.sample(graph, seeds, key.seed, key.epoch, key.step, **rows_of(sampler, graph, seeds, key))
        return drawn_hops(batch, sampler.expand)

    return draw


def rows_of(sampler: Sampler, graph: Graph, seeds: np.ndarray, key: DrawKey) -> dict[str, np.ndarray]:
    """Returns the argument ``rows`` where rows draw by their numbers, whatever the step: other steps are others'."""
    return {"rows": seeds + key.step * graph.num_nodes} if getattr(sampler, "sharing", None) == "disjoint" else {}


def drawn_hops(
    batch: MiniBatch, expand: Literal["all", "new"], counts: Callable[[Block], np.ndarray] | None = None
) -> list[DrawnEdges]:
    """Returns what each hop drew, nearest hop first; of each block those edges that ``counts`` says, bool ``[E]``."""
    hops, num_known = [], 0
    for block in reversed(batch.blocks):
        drawn = edges_of(batch, block)
        chosen = np.ones(block.num_edges, bool) if counts is None else counts(block)
        # Blocks that expand new nodes only begin with the edges of the hops before.
        chosen[:num_known] = False
        hops.append(DrawnEdges(drawn.dst[chosen], drawn.src[chosen]))
        num_known = block.num_edges if expand == "new" else 0
    return hops


def positions(draw: Draw, weights: np.ndarray, fanout: int, num_trials: int, key: DrawKey) -> np.ndarray:
    """Draws for many independent nodes with equal neighbourhoods, and returns positions in the adjacency list.

    Args:
        draw: what is examined.
        weights: ``[degree]``, of each node's neighbours.
        fanout: neighbours a node; there must be as many that can be drawn.
        num_trials: T, rounded up to whole batches.
        key: of the first batch; further ones have further steps.

    Returns:
        int64 ``[T, fanout]``, in ``[0, degree)``.

    Raises:
        ConformanceError: a node did not draw ``fanout`` neighbours of its own.
    """
    num_steps = math.ceil(num_trials / min(_MAX_HUBS, max(_MAX_EDGES // len(weights), 1)))
    num_hubs = math.ceil(num_trials / num_steps)
    graph = star_graph(num_hubs, weights)
    keys = (DrawKey(key.seed, key.epoch, key.step + step) for step in range(num_steps))
    return np.concatenate([star_positions(draw, graph, num_hubs, fanout, key) for key in keys])


def star_positions(draw: Draw, star: Graph, num_hubs: int, fanout: int, key: DrawKey) -> np.ndarray:
    """Returns the positions that the hubs of a :func:`star_graph` draw in one batch: ``[num_hubs, fanout]``.

    Raises:
        ConformanceError: a hub did not draw ``fanout`` neighbours of its own.
    """
    hubs, degree = np.arange(num_hubs), star.num_nodes - num_hubs
    drawn = by_node(draw(star, hubs, [fanout], key)[0], hubs, fanout) - num_hubs
    if drawn.min(initial=0) < 0 or drawn.max(initial=0) >= degree:
        raise ConformanceError(
            f"drew node {drawn.max() + num_hubs}, which is no neighbour of its destination; "
            f"neighbours are {num_hubs} to {num_hubs + degree - 1}"
        )
    return drawn


def by_node(drawn: DrawnEdges, nodes: np.ndarray, fanout: int) -> np.ndarray:
    """Returns the neighbours that each of ``nodes`` drew: ``[D, fanout]``.

    Raises:
        ConformanceError: one of them drew another number.
    """
    order = np.argsort(drawn.dst, kind="stable")
    dst = drawn.dst[order]
    first, last = np.searchsorted(dst, nodes), np.searchsorted(dst, nodes, side="right")
    wrong = np.flatnonzero(last - first != fanout)
    if len(wrong):
        at = wrong[0]
        raise ConformanceError(f"node {nodes[at]} drew {last[at] - first[at]} neighbours instead of {fanout}")
    return drawn.src[order][first[:, None] + np.arange(fanout)]
