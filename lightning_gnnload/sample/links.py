"""Links as seeds: their ends, their negatives, and the edges that they must not see.

Shapes: R rows of a mini-batch, M negatives a row, P edges that are asked about, X excluded edges, Q queries, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from lightning_gnnload.data.arrays import is_integer
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.exclusion import excluded_positions, reverse_of
from lightning_gnnload.sample.negatives import Negatives

Exclude = Literal["self", "reverse"]


@dataclass(frozen=True)
class LinkSettings:
    """Settings of mini-batches of links: which false edges come with them, and which edges are left out of sampling.

    Args:
        negatives: None for none.
        exclude: ``"self"``: the edges that the mini-batch is asked about; ``"reverse"``: those and the ones that go
            back; None: none. Of rows without ``edge_ids``, all edges between their ends.
        reverse_types: ``{edge type: type of the edges that go back}``; None: as :func:`.reverse_of` finds it.
        weights: of the nodes, floats ``[N]``, in proportion to which negatives with a ``weight`` are drawn.

    Raises:
        SamplerConfigError: an unknown name; no dict of types.
    """

    negatives: Negatives | None = None
    exclude: Exclude | None = None
    reverse_types: Mapping[Any, Any] | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.exclude not in ("self", "reverse", None):
            raise SamplerConfigError(f"exclude={self.exclude!r} is not known; give 'reverse', 'self' or None.")
        if self.reverse_types is not None and not isinstance(self.reverse_types, Mapping):
            raise SamplerConfigError(
                f"reverse_types={self.reverse_types!r}: a dict {{edge type: type of the edges that go back}} is needed."
            )


class LinkRows:
    """The rows of a table of links: finds their negatives and the edges that they must not see. Thread-safe.

    Args:
        graph: the topology.
        table: of links.
        settings: what else is asked.

    Raises:
        GraphDataError: negatives where every pair is an edge.
        SeedError: a table without the negatives that are asked of it.
        SamplerConfigError: types that are not there, or a table that lacks what the settings need.
    """

    def __init__(self, graph: Graph, table: SeedTable, settings: LinkSettings) -> None:
        self.graph = graph
        self.table = table
        self.settings = settings
        self._edge_type = graph.edge_type_number(table.edge_type)
        self._reverse_type = None
        if settings.exclude == "reverse":
            self._reverse_type = reverse_of(graph.types, self._edge_type, settings.reverse_types)
        self._weights = None
        if settings.negatives is not None:
            settings.negatives.check(graph, self._edge_type)
            if settings.negatives.mode == "hard":
                _check_given(table)
            if settings.weights is not None:
                self._weights = settings.negatives.weigh(graph, self._edge_type, settings.weights)

    def negatives(self, rows: np.ndarray, ends: np.ndarray, until: np.ndarray | None, key: DrawKey) -> np.ndarray:
        """Returns the negatives of these rows, ids in the graph, int64 ``[R, M]``; -1 where there is none.

        Args:
            rows: their numbers, int64 ``[R]``.
            ends: their sources and targets in this epoch, ids in the graph, int64 ``[R, 2]``.
            until: the code before which known edges count, uint32 ``[R]``; None for all edges.
            key: of the mini-batch.
        """
        settings = self.settings.negatives
        if settings is None:
            return np.empty((len(rows), 0), np.int64)
        src, dst = np.ascontiguousarray(ends.T)
        given = self._given(rows) if settings.mode == "hard" else None
        return settings.draw(self.graph, self._edge_type, rows, src, dst, until, key, given, self._weights)

    def excluded(self, ends: np.ndarray, taken: np.ndarray, of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Finds the edges that are left out: positions in ``indices``, int64 ``[X]``, and for which query, int32.

        Args:
            ends: sources and targets of the rows, ids in the graph, int64 ``[R, 2]``.
            taken: which of the table's targets these are, int64 ``[R]``.
            of_row: the query of each.
        """
        if self.settings.exclude is None:
            return None
        src, dst = np.ascontiguousarray(ends.T)
        ids = None if self.table.edge_ids is None else self.table.edge_ids[taken]
        positions, found_for = excluded_positions(
            self.graph, self._edge_type, src, dst, ids, reverse_type=self._reverse_type
        )
        # Rows that share a query leave out the same edge once.
        num_edges = max(self.graph.num_edges, 1)
        of_query, positions = np.divmod(np.unique(of_row[found_for] * num_edges + positions), num_edges)
        return positions, of_query.astype(np.int32)

    def columns(self, rows: np.ndarray, ends: np.ndarray, places: np.ndarray) -> dict[str, torch.Tensor]:
        """Returns what a mini-batch says about its links, by name.

        Args:
            rows: int64 ``[R]``.
            ends: ids in the graph of sources, targets and negatives, int64 ``[R, 2 + M]``; -1 where there is none.
            places: of each among the seeds, likewise; 0 where there is none.
        """
        src, dst, found = places[:, 0], places[:, 1], places[:, 2:]
        settings = self.settings.negatives
        if settings is None:
            return _tensors(src=src, dst=dst)
        is_there = ends[:, 2:] >= 0
        if settings.mode != "binary":
            return _tensors(src=src, dst=dst, negatives=found, negative_mask=is_there)
        # Further edges, row by row: each keeps the end that was not replaced.
        row, at = np.nonzero(is_there)
        replaces_dst = at < settings.num_dst(found.shape[1])
        label = np.ones(len(src) + len(row), np.float32)
        label[len(src) :] = 0
        return _tensors(
            src=np.concatenate([src, np.where(replaces_dst, src[row], found[row, at])]),
            dst=np.concatenate([dst, np.where(replaces_dst, found[row, at], dst[row])]),
            label=label,
            row=np.concatenate([np.arange(len(src)), row]),
        )

    def _given(self, rows: np.ndarray) -> np.ndarray:
        """Returns the table's own negatives by their ids in the graph."""
        found = self.table.columns["negatives"][torch.from_numpy(rows)].long().numpy()
        if self.graph.types is None:
            return found
        assert self.settings.negatives is not None
        src, _, dst = self.graph.types.edge_types[self._edge_type]
        num_dst = self.settings.negatives.num_dst(self.settings.negatives.num or found.shape[1])
        of_dst = np.arange(found.shape[1]) < num_dst
        first = np.where(of_dst, self.graph.types.range_of(dst).start, self.graph.types.range_of(src).start)
        return np.where(found < 0, -1, found + first)


def _check_given(table: SeedTable) -> None:
    """Raises SeedError: a table that has no negatives ``[R, M]`` of its own."""
    column = table.columns.get("negatives")
    if column is None or column.ndim != 2 or not is_integer(column):
        given = "there is none" if column is None else f"it is {column.dtype} {list(column.shape)}"
        raise SeedError(
            f"Negatives: mode 'hard' takes those of the seed table's column 'negatives', integers [{len(table)}, num], "
            f"but {given}. Give SeedTable(..., columns={{'negatives': ids}}), or take another mode."
        )


def distinct_ends(ends: np.ndarray, of_row: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the distinct nodes of each query, in order of first occurrence.

    Args:
        ends: nodes of each row, int64 ``[R, C]``; -1 where there is none.
        of_row: the query of each row, int64 ``[R]``.
        num_nodes: of the graph.

    Returns:
        Nodes int64 ``[S]``, the query of each, and the place of each end among them, int64 ``[R, C]``, 0 for none.

    Example:
        >>> seeds, _, places = distinct_ends(np.array([[5, 3], [3, -1]]), np.array([0, 0]), num_nodes=8)
        >>> seeds.tolist(), places.tolist()
        ([5, 3], [[0, 1], [1, 0]])
    """
    is_there = ends >= 0
    of_end = np.broadcast_to(of_row[:, None], ends.shape)[is_there]
    nodes = ends[is_there]
    _, first, found = np.unique(of_end * num_nodes + nodes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    places = np.zeros(ends.shape, np.int64)
    places[is_there] = place[found.ravel()]
    return nodes[first[order]], of_end[first[order]], places


def _tensors(**arrays: np.ndarray) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
