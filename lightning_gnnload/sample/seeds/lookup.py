"""EdgeLookup: what links ask about the edges of a graph, whose lists lie here, or with the owners of its parts.

Shapes: P pairs of a source and a destination, S sources, D destinations, X edges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey


class EdgeLookup(ABC):
    """Looks edges of one type up by their ends, which are ids of the whole graph, int64. Types are numbers. An edge of
    a time counts below the code ``until``, uint32; None: all count. Thread-safe."""

    @abstractmethod
    def find_all(self, edge_type: int, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns all edges between the ends of pairs: their positions in the graph's ``indices`` and of which pair
        each is, int64 ``[X]`` both, in no order."""

    @abstractmethod
    def find_ids(self, edge_type: int, dst: np.ndarray, edge_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position of each pair's edge by its id in the list of its type, and its source, int64 ``[P]``
        both; -1 where no such edge leads to the destination. SamplerConfigError: ids were not kept."""

    @abstractmethod
    def are_edges(self, edge_type: int, src: np.ndarray, dst: np.ndarray, until: np.ndarray | None) -> np.ndarray:
        """Returns which pairs are edges, bool ``[P]``; ``until`` is each pair's."""

    @abstractmethod
    def mark(self, edge_type: int, src: np.ndarray, dst: np.ndarray, until: np.ndarray | None) -> np.ndarray:
        """Returns which sources lead to which destinations, bool ``[S, D]``; ``until`` is each source's."""

    @abstractmethod
    def count(self, edge_type: int, *, distinct: bool) -> int:
        """Counts the edges of a type, or the distinct pairs among them."""

    @abstractmethod
    def draw_negatives(
        self, edge_type: int, sources: range, rows: np.ndarray, key: DrawKey, num: int, **settings: Any
    ) -> np.ndarray:
        """Draws negatives as :func:`.ops.draw_negatives` does."""


class ListLookup(EdgeLookup):
    """Looks edges up in the lists of a graph that are here."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __reduce__(self) -> tuple[Any, ...]:
        return ListLookup, (self.graph,)  # a process that gets it derives the lists again

    @cached_property
    def _lists(self) -> tuple[ops.DenseLists, np.ndarray]:
        return self.graph.link_lists, self.graph.indices

    def find_all(self, edge_type: int, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, begins = np.arange(len(dst)), np.zeros(len(dst), np.int64)
        positions, row_of_edge = [begins[:0]], [rows[:0]]
        while len(rows):  # as often as there are edges between the same endpoints
            edges = ops.find_edges(*self._lists, edge_type, dst[rows], sources=src[rows], begins=begins)
            rows, begins = rows[edges >= 0], edges[edges >= 0] + 1
            positions.append(begins - 1)
            row_of_edge.append(rows)
        return np.concatenate(positions), np.concatenate(row_of_edge)

    def find_ids(self, edge_type: int, dst: np.ndarray, edge_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.graph.edge_order is None:
            raise SamplerConfigError(
                "edges are given by id, but the graph did not keep its edge list's order. Build it with "
                "keep_order=True, or give the ends of edges alone."
            )
        positions = ops.find_edges(*self._lists, edge_type, dst, edge_ids=edge_ids, edge_order=self.graph.edge_order)
        sources = np.full(len(dst), -1)
        sources[positions >= 0] = self.graph.indices[positions[positions >= 0]]
        return positions, sources

    def are_edges(self, edge_type: int, src: np.ndarray, dst: np.ndarray, until: np.ndarray | None) -> np.ndarray:
        lists, indices = self._lists
        positions = ops.find_edges(lists, indices, edge_type, dst, sources=src)
        codes = lists.edge_time
        if until is not None and codes is not None and lists.timed[edge_type]:
            # Of several such edges any may be the earliest: whole lists of several types are not in the order of times.
            while len(late := np.flatnonzero((positions >= 0) & (codes[positions] >= until))):
                begins = positions[late] + 1
                positions[late] = ops.find_edges(lists, indices, edge_type, dst[late], sources=src[late], begins=begins)
        return positions >= 0

    def mark(self, edge_type: int, src: np.ndarray, dst: np.ndarray, until: np.ndarray | None) -> np.ndarray:
        return ops.mark_edges(*self._lists, edge_type, src, dst, until)

    def count(self, edge_type: int, *, distinct: bool) -> int:
        lists, indices = self._lists
        first_run, stride, _, count = lists.places[edge_type]
        runs = first_run + stride * np.arange(count)
        first, last = (lists.run_ptr[at].astype(np.int64) for at in (runs, runs + 1))
        if not distinct:
            return int((last - first).sum())
        spans = zip(first.tolist(), last.tolist(), strict=True)
        return sum(len(np.unique(indices[begin:end])) for begin, end in spans)

    def draw_negatives(
        self, edge_type: int, sources: range, rows: np.ndarray, key: DrawKey, num: int, **settings: Any
    ) -> np.ndarray:
        return ops.draw_negatives(*self._lists, edge_type, sources, rows, key, num, **settings)
