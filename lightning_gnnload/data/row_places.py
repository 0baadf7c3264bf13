"""RowPlaces: which part holds each row of a table, and where among the part's own rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Tells where rows of nodes lie: with the owner of their node, in the order of the part's own nodes.

    Rows are those of all nodes, or of one node type, whose nodes are consecutive in the whole graph, and in each part.

    Attributes:
        starts: int64 ``[K + 1]``, as :class:`.Partition` has them.
        new_ids: int64 ``[N]``, likewise.
        first: the node of the table's first row.
        begins: int64 ``[K]``, by part the new id of its first row.

    Example:
        >>> places = RowPlaces(np.array([0, 1, 3]), np.array([1, 0, 2]), 0, np.array([0, 1]))
        >>> [column.tolist() for column in places.of(np.array([2, 1]))]
        [[1, 0], [1, 0]]
    """

    starts: np.ndarray
    new_ids: np.ndarray
    first: int
    begins: np.ndarray

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the part of each row of the whole table, and the row's number among the part's own: int64 ``[B]``
        both; ``rows`` int64 ``[B]`` are rows of the table."""
        new_ids = self.new_ids[rows + self.first if self.first else rows]
        parts = np.searchsorted(self.starts, new_ids, side="right") - 1
        return parts, new_ids - self.begins[parts]


@dataclass(frozen=True, eq=False)
class EdgePlaces:
    """Tells where rows of edges lie: with the owner of their destination, in the order of the part's own lists. A row's
    number is its edge's position in the whole graph's ``indices``.

    Attributes:
        starts: int64 ``[K + 1]``, as :class:`.Partition` has them.
        new_ids: int64 ``[N]``, likewise.
        list_starts: int64 ``[N + 1]``, the whole graph's ``indptr``.
        own_starts: int64 ``[N + 1]``, by new id where its list begins, if lists lie by new id.
    """

    starts: np.ndarray
    new_ids: np.ndarray
    list_starts: np.ndarray
    own_starts: np.ndarray

    @classmethod
    def over(cls, starts: np.ndarray, node_ids: np.ndarray, new_ids: np.ndarray, list_starts: np.ndarray) -> EdgePlaces:
        """Finds where lists lie by new id: 8 bytes a node."""
        own_starts = np.zeros(len(list_starts), np.int64)
        np.cumsum(np.diff(list_starts)[node_ids], out=own_starts[1:])
        return cls(starts, new_ids, list_starts, own_starts)

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the part of each row, and the row's number among the part's own, as :meth:`RowPlaces.of` does."""
        nodes = np.searchsorted(self.list_starts, rows, side="right") - 1
        new_ids = self.new_ids[nodes]
        parts = np.searchsorted(self.starts, new_ids, side="right") - 1
        edges = self.own_starts[new_ids] + rows - self.list_starts[nodes]
        return parts, edges - self.own_starts[self.starts[parts]]


Places = RowPlaces | EdgePlaces
