"""Amid: the graphs of the statistical checks among edges that must not matter: of other types, or at other times.

A sampler that draws by type draws from each node's edges of a type as if there were no others; one that heeds times, as
if there were none later. So whatever law holds in the checks' plain graphs has to hold here, of the edges that count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lightning_gnnload.conform.draw import Draw, DrawnEdges, drawn_hops, row_argument
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler

NODE = "node"
COUNTED: EdgeType = (NODE, "counted", NODE)
SEED_TIME, WINDOW = 1000, 100


class GivenEdges(NamedTuple):
    """Holds edges of one type, ``[E]`` each; ``time`` is None where there are no times."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray
    time: np.ndarray | None = None


Amid = Callable[[Graph], dict[EdgeType, GivenEdges]]
"""Puts a plain graph among other edges; the draws of those of type :data:`COUNTED` count."""


def amid_types(graph: Graph) -> dict[EdgeType, GivenEdges]:
    """Puts the graph's edges between two types of which every node with neighbours has a few: loops, so that no node is
    found by them alone."""
    few, many = ((NODE, name, NODE) for name in ("few", "many"))
    nodes = _with_neighbors(graph)
    return {few: _loops(nodes.repeat(2)), COUNTED: _edges(graph), many: _loops(nodes.repeat(9))}


def amid_times(graph: Graph, *, past: bool = True) -> dict[EdgeType, GivenEdges]:
    """Puts the graph's edges before loops that are later than the seeds, and with ``past`` behind loops that are older
    than the window; the edges are there at the seeds' time, with ``past`` some of them shortly before."""
    # Some nodes have nothing but what is later.
    bare = np.flatnonzero(graph.in_degrees[:1000] == 0)
    edges, later = _edges(graph), _loops(np.concatenate([_with_neighbors(graph).repeat(3), bare]))
    parts = [
        (edges, SEED_TIME - np.arange(graph.num_edges) % (4 if past else 1)),
        (later, np.full(len(later.src), SEED_TIME + 1)),
    ]
    if past:
        older = _loops(_with_neighbors(graph).repeat(2))
        parts.append((older, np.full(len(older.src), SEED_TIME - WINDOW - 1)))
    src, dst, weight = (np.concatenate(columns) for columns in zip(*(each[:3] for each, _ in parts), strict=True))
    return {COUNTED: GivenEdges(src, dst, weight, np.concatenate([time for _, time in parts]))}


def amid_types_and_times(graph: Graph, *, past: bool = True) -> dict[EdgeType, GivenEdges]:
    """Does both: the loops of other types are there at the seeds' time."""
    others = {
        kind: edges._replace(time=np.full(len(edges.src), SEED_TIME)) for kind, edges in amid_types(graph).items()
    }
    return others | amid_times(graph, past=past)


def draw_amid(sampler_of: Callable[[Sequence[int]], Sampler], amid: Amid) -> Draw:
    """Returns the draws of a Sampler among other edges as a :data:`.Draw`.

    Args:
        sampler_of: the sampler for these fanouts; one with ``window=WINDOW`` where edges are older.
        amid: what to put graphs among; seeds are asked for at ``SEED_TIME`` where it gives edges times.
    """
    held: list[tuple[Graph, Graph]] = []

    def draw(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        if not held or held[0][0] is not graph:
            held[:] = [(graph, _graph_of(amid(graph), graph.num_nodes))]
        made, sampler = held[0][1], sampler_of(list(fanouts))
        asked = row_argument(sampler, made, seeds, key)
        if made.clock is not None:
            is_strict = getattr(sampler, "before", "<=") == "<"
            asked = {"rows": seeds + key.step * graph.num_nodes, "times": np.full(len(seeds), SEED_TIME + is_strict)}
        batch = sampler.sample(made, seeds, key.seed, key.epoch, key.step, **asked)
        number = made.edge_type_number(COUNTED)
        return drawn_hops(batch, sampler.expand, lambda block: edge_types(block, made) == number)

    return draw


def _edges(graph: Graph) -> GivenEdges:
    weight = np.ones(graph.num_edges, np.float32) if graph.edge_weight is None else graph.edge_weight
    return GivenEdges(graph.indices, np.repeat(np.arange(graph.num_nodes), graph.in_degrees), weight)


def _with_neighbors(graph: Graph) -> np.ndarray:
    return np.flatnonzero(graph.in_degrees)


def _loops(nodes: np.ndarray) -> GivenEdges:
    return GivenEdges(nodes, nodes, np.full(len(nodes), 5, np.float32))


def _graph_of(lists: dict[EdgeType, GivenEdges], num_nodes: int) -> Graph:
    return Graph.from_hetero(
        {NODE: num_nodes},
        {kind: edges[:2] for kind, edges in lists.items()},
        edge_weight={kind: edges.weight for kind, edges in lists.items()},
        edge_time={kind: edges.time for kind, edges in lists.items() if edges.time is not None},
    )
