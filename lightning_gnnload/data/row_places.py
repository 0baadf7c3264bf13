"""RowPlaces: which part holds each row of a table, and where among the part's own rows."""

from __future__ import annotations

from dataclasses import dataclass
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

    Example:
        >>> places = RowPlaces(np.array([0, 1, 3]), np.array([1, 0, 2]), 0, np.array([0, 1]))
        >>> [(part, numbers.tolist()) for part, numbers, _ in places.by_part(np.array([2, 1]))]
        [(0, [0]), (1, [1])]
    """

    starts: np.ndarray
    new_ids: np.ndarray
    first: int
    begins: np.ndarray

    def by_part(self, rows: np.ndarray) -> list[PartRows]:
        """Returns the rows that each part has, of parts that have any; ``rows`` int64 ``[B]`` are rows of the table."""
        num_rows = len(self.new_ids) - self.first
        return _split(*ops.locate_rows(rows, num_rows, self.starts, self.begins, self.new_ids, self.first))


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

    def by_part(self, rows: np.ndarray) -> list[PartRows]:
        """Returns the rows that each part has, as :meth:`RowPlaces.by_part` does."""
        nodes = np.searchsorted(self.list_starts, rows, side="right") - 1
        edges = self.own_starts[self.new_ids[nodes]] + rows - self.list_starts[nodes]
        starts = self.own_starts[self.starts]
        return _split(*ops.locate_rows(edges, int(starts[-1]), starts, starts[:-1]))


def _split(counts: np.ndarray, own_rows: np.ndarray, positions: np.ndarray) -> list[PartRows]:
    part_ends = np.cumsum(counts)
    return [
        PartRows(part, own_rows[end - count : end], positions[end - count : end])
        for part, (count, end) in enumerate(zip(counts.tolist(), part_ends.tolist(), strict=True))
        if count
    ]


Places = RowPlaces | EdgePlaces
