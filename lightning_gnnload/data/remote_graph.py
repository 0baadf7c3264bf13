"""RemoteGraph: what is known of a graph whose lists lie elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import Any

import numpy as np

from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.derived import run_bounds
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import RemoteListsError
from lightning_gnnload.host.leases import protect_mapped


class RemoteGraph(Graph):
    """Stands for a graph in a process that has none of its lists: sizes, types, times of nodes and the fingerprint.

    Mini-batches of it are drawn by those who have the lists. Reading one here raises RemoteListsError; a column that
    the graph does not have is None, as in any other.

    Args:
        num_nodes: N.
        num_edges: E.
        fingerprint: as the whole graph has it.
        columns: which of :attr:`.Graph.ARRAYS` the whole graph has.
        types: names of node and edge types.
        clock: what turns times into codes.
        node_time: int64 or float64 ``[N]``, from when on a node is there.
        order_checksum: as the whole graph has it; None: not known.
        out_degrees: integer ``[N]``, edges that leave each node, by which caches rank rows; None: not known.
        run_ptr: as the whole graph has it, by which rows in tables of one edge type are found; None: not known.

    Example:
        >>> graph = RemoteGraph(4, 7, "4-7-00000000", ["indptr", "indices"])
        >>> graph.num_nodes, graph.edge_weight is None
        (4, True)
        >>> graph.indices
        Traceback (most recent call last):
            ...
        lightning_gnnload.errors.RemoteListsError: indices: the graph's lists are not on this machine, ...
    """

    __slots__ = (
        "_columns",
        "_known_fingerprint",
        "_known_run_ptr",
        "_num_edges",
        "_num_nodes",
        "_order_checksum",
        "_out_degrees",
    )

    def __init__(
        self,
        num_nodes: int,
        num_edges: int,
        fingerprint: str,
        columns: Collection[str],
        *,
        types: GraphTypes | None = None,
        clock: Clock | None = None,
        node_time: np.ndarray | None = None,
        order_checksum: int | None = None,
        out_degrees: np.ndarray | None = None,
        run_ptr: np.ndarray | None = None,
    ) -> None:
        # No list is there to be checked, and so Graph's constructor is not called.
        self._num_nodes, self._num_edges, self._known_fingerprint = num_nodes, num_edges, fingerprint
        self._columns, self._out_degrees = frozenset(columns), out_degrees
        self._order_checksum, self._known_run_ptr = order_checksum, run_ptr
        self.types, self.clock, self.node_time, self.origin, self.lost_order = types, clock, node_time, None, False
        self._derived = {}
        protect_mapped(self, [node_time, out_degrees, run_ptr, *(() if clock is None else (clock.ranked,))])

    def has(self, name: str) -> bool:
        return name in self._columns

    @property
    def has_lists(self) -> bool:
        return False

    @property
    def num_nodes(self) -> int:
        return self._num_nodes

    @property
    def num_edges(self) -> int:
        return self._num_edges

    @property
    def fingerprint(self) -> str:
        return self._known_fingerprint

    @property
    def order_checksum(self) -> int:
        return super().order_checksum if self._order_checksum is None else self._order_checksum

    def out_degrees(self, chunk_edges: int = 1 << 24) -> np.ndarray:
        return super().out_degrees() if self._out_degrees is None else self._out_degrees.astype(np.int64)

    def edge_rows(self, edges: np.ndarray, edge_type: int | None = None) -> np.ndarray:
        """Returns the rows of edges in tables, which lie with the lists, in their order."""
        if edge_type is None:
            return edges
        types, run_ptr = self.types, self.run_ptr
        assert types is not None
        assert run_ptr is not None

        def first_rows() -> tuple[np.ndarray, np.ndarray]:
            begins, stops = run_bounds(types, run_ptr, edge_type)
            counts = stops - begins
            return np.ascontiguousarray(begins), np.cumsum(counts, dtype=np.int64) - counts

        begins, rows = self._derive(f"rows of edge type {edge_type}", first_rows)
        at = np.searchsorted(begins, edges.astype(begins.dtype), side="right") - 1
        return rows[at] + edges - begins[at]

    def with_columns(self, columns: Collection[str]) -> RemoteGraph:
        """Returns the same, of a graph that has these of :attr:`.Graph.ARRAYS`."""
        graph = copy(self)
        graph._columns = frozenset(columns)
        return graph

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        names = (*RemoteGraph.__slots__, "clock", "lost_order", "node_time", "origin", "types")
        return None, {name: getattr(self, name) for name in names} | {"_derived": {}}

    def __repr__(self) -> str:
        types = "" if self.types is None else f", types={self.types!r}"
        return f"RemoteGraph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{types})"


def _list_array(name: str) -> property:
    def read(graph: RemoteGraph) -> Any:
        if name == "run_ptr" and graph._known_run_ptr is not None:
            return graph._known_run_ptr
        if name in graph._columns:
            raise RemoteListsError(
                f"{name}: the graph's lists are not on this machine, but with the owners of its parts. With "
                "GraphDataModule(graph='remote') these draw mini-batches; but what reads lists itself cannot: "
                "order='proximity', policy='degree-ratio', ids of edges in batches of other libraries' formats, "
                "inference by layers, devices. Leave that out, or give the whole graph in place of the partition. "
                "edge_weight, edge_type and edge_time come as rows of edges where the partition was made with "
                "edge_columns=[...] (gnnload partition --edge-columns)."
            )
        return None

    return property(read)


for _name in Graph.ARRAYS:
    if _name != "node_time":
        setattr(RemoteGraph, _name, _list_array(_name))
