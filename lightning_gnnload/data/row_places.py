"""RowPlaces: which part holds each row of a table, and where among the part's own rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lightning_gnnload import ops


class PartRows(NamedTuple):
    """The rows of a gather that one part has: ``numbers`` int64 ``[B]``, theirs among the part's own rows, and
    ``positions`` int64 ``[B]``, ascending, where they stand among all rows of the gather."""

    part: int
    numbers: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Tells where rows of nodes lie: with the owner of their node, in the order of the part's own nodes.

    Rows are those of all nodes, or of one node type, whose nodes are consecutive in the whole graph, and in each part.

    Attributes:
        starts: int64 ``[K + 1]``, as :class:`.Partition` has them.
        new_ids: int64 ``[N]``, likewise.
        first: the node of the table's first row.
        begins: int64 ``[K]``, by part the new id of its first row.
        firsts: int64 ``[K + 1]``, how many rows lie with the parts before.

    Example:
        >>> nodes = np.array([1, 0, 2])  # by new id; the first part owns node 1
        >>> places = RowPlaces.over(np.array([0, 1, 3]), nodes, np.argsort(nodes), range(3))
        >>> [(part, numbers.tolist()) for part, numbers, _ in places.by_part(np.array([2, 1]))]
        [(0, [0]), (1, [1])]
    """

    starts: np.ndarray
    new_ids: np.ndarray
    first: int
    begins: np.ndarray
    firsts: np.ndarray

    @classmethod
    def over(cls, starts: np.ndarray, node_ids: np.ndarray, new_ids: np.ndarray, nodes: range) -> RowPlaces:
        """Finds where rows of consecutive ``nodes`` lie, by the numbering of :class:`.Partition`."""
        # Within a part, new ids ascend by id, so that the nodes are one stretch.
        bounds = [
            low + np.searchsorted(node_ids[low:high], (nodes.start, nodes.stop)) for low, high in pairwise(starts)
        ]
        begins, last = np.array(bounds, np.int64).reshape(-1, 2).T.copy()
        return cls(starts, new_ids, nodes.start, begins, np.append(0, np.cumsum(last - begins)))

    def by_part(self, rows: np.ndarray) -> list[PartRows]:
        """Returns the rows that each part has, of parts that have any; ``rows`` int64 ``[B]`` are rows of the table."""
        num_rows = len(self.new_ids) - self.first
        return _split(*ops.locate_rows(rows, num_rows, self.starts, self.begins, self.new_ids, self.first))

    def numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of rows if they lay by part, int64 ``[B]``."""
        by_part = np.empty(len(rows), np.int64)
        for part, numbers, positions in self.by_part(rows):
            by_part[positions] = self.firsts[part] + numbers
        return by_part

    def num_own(self, part: int) -> int:
        """Returns how many rows lie with a part."""
        return int(self.firsts[part + 1] - self.firsts[part])


@dataclass(frozen=True, eq=False)
class EdgePlaces:
    """Tells where rows of edges lie: with the owner of their destination, in the order of the part's own lists. A row's
    number is its edge's position in the lists of the whole graph, one after the other; or, of one edge type, in those
    by edges of it.

    Attributes:
        nodes: where rows of the destinations lie, M nodes of the whole graph: all, or those of one type.
        list_starts: int64 ``[M + 1]``, where the list of each destination begins among the rows.
        own_starts: int64 ``[M + 1]``, where they begin if lists lie by part, and in each part by its own rows.

    Example:
        >>> ids = np.array([1, 0, 2])  # by new id; the first part owns node 1
        >>> nodes = RowPlaces.over(np.array([0, 1, 3]), ids, np.argsort(ids), range(3))
        >>> places = EdgePlaces.over(nodes, np.array([0, 2, 3, 3]))
        >>> [(part, numbers.tolist()) for part, numbers, _ in places.by_part(np.array([2, 0, 1]))], places.num_own(1)
        ([(0, [0]), (1, [0, 1])], 2)
    """

    nodes: RowPlaces
    list_starts: np.ndarray
    own_starts: np.ndarray

    @classmethod
    def over(cls, nodes: RowPlaces, list_starts: np.ndarray) -> EdgePlaces:
        """Finds where lists lie by part: 8 bytes a destination."""
        own_starts = np.zeros(len(list_starts), np.int64)
        own_starts[1 + nodes.numbers_of(np.arange(len(list_starts) - 1))] = np.diff(list_starts)
        return cls(nodes, list_starts, np.cumsum(own_starts, out=own_starts))

    def by_part(self, rows: np.ndarray) -> list[PartRows]:
        """Returns the rows that each part has, as :meth:`RowPlaces.by_part` does."""
        at = np.searchsorted(self.list_starts, rows, side="right") - 1
        edges = self.own_starts[self.nodes.numbers_of(at)] + rows - self.list_starts[at]
        starts = self.own_starts[self.nodes.firsts]
        return _split(*ops.locate_rows(edges, int(starts[-1]), starts, starts[:-1]))

    def num_own(self, part: int) -> int:
        """Returns how many rows lie with a part."""
        first, last = self.own_starts[self.nodes.firsts[part : part + 2]].tolist()
        return last - first


def _split(counts: np.ndarray, own_rows: np.ndarray, positions: np.ndarray) -> list[PartRows]:
    part_ends = np.cumsum(counts)
    return [
        PartRows(part, own_rows[end - count : end], positions[end - count : end])
        for part, (count, end) in enumerate(zip(counts.tolist(), part_ends.tolist(), strict=True))
        if count
    ]


Places = RowPlaces | EdgePlaces
