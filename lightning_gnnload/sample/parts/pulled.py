"""PulledLists: lists that come from their owners as a sampler gets to need them, for one mini-batch.

Shapes: n nodes that are known, for their own lists or as neighbours, E edges.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.edges import HopEdges
from lightning_gnnload.sample.parts.hops import fetch_lists


class PulledLists:
    """Holds lists of a graph with ``types`` that were pulled for one mini-batch, each once; nodes are ids of the whole
    graph."""

    def __init__(self, group: SamplingGroup, types: GraphTypes) -> None:
        self._group, self._types = group, types
        self._nodes, self._starts = np.empty((2, 0), np.int64)
        self._edges: HopEdges | None = None

    def pull(self, nodes: np.ndarray) -> None:
        """Fetches the lists of nodes, int64, that are not there yet. ExchangeError: a rank cannot answer."""
        nodes, partition = np.setdiff1d(nodes, self._nodes), self._group.partition
        if not len(nodes) and self._edges is not None:
            return
        edges, starts = fetch_lists(self._group, np.asarray(partition.new_ids)[nodes], ["edge_type", "edge_starts"])
        named = replace(edges, neighbors=np.asarray(partition.node_ids)[edges.neighbors])
        self._edges = named.after(self._edges)
        self._nodes, self._starts = np.append(self._nodes, nodes), np.append(self._starts, starts)

    def graph(self) -> Graph:
        """Returns a part of the graph with the lists so far, whose nodes lie by type, as those of the whole graph do;
        neighbours whose lists are not there draw nothing.

        Raises:
            ExchangeError: a rank sent edges of types that their nodes cannot have.
        """
        edges = self._edges
        assert edges is not None, "lists are pulled first"
        assert edges.edge_type is not None
        names = np.unique(np.concatenate([self._nodes, edges.neighbors]))
        rows = np.searchsorted(names, self._nodes)
        destinations = np.repeat(rows, edges.counts)
        order = np.argsort(destinations, kind="stable")  # each list stays as it is
        starts, reach = np.zeros(len(names), np.int64), np.zeros(len(names), np.uint8)
        starts[rows], reach[rows] = self._starts, 1
        types = replace(self._types, num_nodes=tuple(np.diff(np.searchsorted(names, self._types.first_node)).tolist()))
        runs = _runs(types, destinations, edges.edge_type)
        return Graph(
            _ends(np.bincount(destinations, minlength=len(names))),
            np.searchsorted(names, edges.neighbors[order]).astype(np.int32),
            run_ptr=_ends(np.bincount(runs, minlength=int(types.first_run[-1]))),
            types=types,
            origin=Origin(names, reach, starts),
        )


def _ends(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


def _runs(types: GraphTypes, destinations: np.ndarray, edge_type: np.ndarray) -> np.ndarray:
    """Returns the run that each edge is in, int64 ``[E]``."""
    node_type = np.searchsorted(types.first_node, destinations, side="right") - 1
    ends_in = types.endpoint_types[1]
    bad = edge_type >= len(ends_in)
    bad[~bad] = ends_in[edge_type[~bad]] != node_type[~bad]
    if bad.any():
        raise ExchangeError(
            f"a rank sent an edge of type number {edge_type[bad][0]} into a node of type "
            f"{types.node_types[node_type[bad][0]]!r}, where none of these leads. Do all ranks have one folder?"
        )
    slot = np.zeros(len(ends_in), np.int64)
    slot[list(chain.from_iterable(types.slots))] = list(chain.from_iterable(map(range, map(len, types.slots))))
    widths = np.array([len(slots) for slots in types.slots], np.int64)
    offset = (destinations - types.first_node[node_type]) * widths[node_type]
    return types.first_run[node_type] + offset + slot[edge_type]
