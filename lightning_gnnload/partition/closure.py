"""What each part holds: its seeds' neighbourhoods as deep as it has to sample, or the lists of its own nodes alone.

Shapes: N nodes of the whole graph, n of a part, K parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition.lists import edge_chunks


class Holdings(ABC):
    """Tells which nodes each part holds, and how many hops deep."""

    @abstractmethod
    def of(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the nodes that a part holds, int64 ``[n]``, ascending; and their reach, uint8 ``[n]``: how many hops
        of in-neighbours behind each it holds. 0 says that it holds the node without its list."""


@dataclass(frozen=True)
class Closure(Holdings):
    """Gives each part all that its seeds need, so that it samples alone.

    A node that lies ``d`` hops before a part's nearest seed reaches ``hops - d``: only so much of what is behind it
    is ever sampled. So lists of nodes that are ``hops`` away are left out, and so are nodes farther away.

    Attributes:
        hops: that parts hold of their seeds.
        masks: uint64 ``[N]``: bit ``p`` is set where part ``p`` holds the node.
        layers: uint64 ``[N]`` each: the parts that hold the node at that distance and none smaller, from 0 on.

    Memory: 8 bytes for each node and layer, and 8 more.

    Source: PaGraph (TPDS'21), section 3.2, self-reliance, and section 4 on what is redundant.
    """

    hops: int
    masks: np.ndarray
    layers: list[np.ndarray]

    def of(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        nodes = members(self.masks, part)
        reach = np.zeros(len(nodes), np.uint8)
        for distance, layer in enumerate(self.layers):
            reach[bit(layer[nodes], part)] = self.hops - distance
        return nodes, reach


@dataclass(frozen=True)
class OwnLists(Holdings):
    """Gives each part its own nodes' in-neighbour lists, and the nodes that they mention without theirs.

    Source: DSP (PPoPP'23), section 3.1.
    """

    graph: Graph
    owner: np.ndarray

    def of(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        own_nodes = np.flatnonzero(self.owner == part)
        holds = np.zeros(self.graph.num_nodes, np.bool_)
        indptr = self.graph.indptr
        for edges, _ in edge_chunks(indptr, own_nodes, indptr[own_nodes + 1] - indptr[own_nodes]):
            holds[self.graph.indices[edges]] = True
        holds[own_nodes] = True
        nodes = np.flatnonzero(holds)
        return nodes, (self.owner[nodes] == part).astype(np.uint8)


def close_parts(
    graph: Graph, seeds: Iterable[tuple[np.ndarray, np.ndarray]], hops: int, advance: Callable[[str, float], None]
) -> Closure:
    """Closes parts over their seeds' in-neighbours, ``hops`` deep, in one pass over the graph a hop for all parts at
    once; ``seeds`` are node ids and the part of each, in pairs of arrays."""
    masks = np.zeros(graph.num_nodes, np.uint64)
    for ids, parts in seeds:
        np.bitwise_or.at(masks, ids, np.uint64(1) << parts.astype(np.uint64))
    layers = [masks.copy()]
    for hop in range(hops):
        advance("Closing parts", hop / hops)
        reached, num_reached = ops.spread_parts(graph.indptr, graph.indices, layers[-1], masks)
        if not num_reached:
            break
        layers.append(reached)
    advance("Closing parts", 1.0)
    return Closure(hops, masks, layers)


def members(masks: np.ndarray, part: int) -> np.ndarray:
    """Returns the nodes whose mask has a part's bit, int64, ascending."""
    return np.flatnonzero(bit(masks, part))


def bit(masks: np.ndarray, part: int) -> np.ndarray:
    """Tells which masks have a part's bit, bool."""
    return (masks & np.uint64(1 << part)) != 0
