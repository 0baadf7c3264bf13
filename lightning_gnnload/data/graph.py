"""Graph: the topology, in compressed sparse columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.derived import DerivedArrays
from lightning_gnnload.data.edge_lists import edge_endpoints, flat_arrays, hetero_arrays
from lightning_gnnload.data.graph_checks import check_edge_array, check_graph_arrays, check_graph_runs
from lightning_gnnload.data.origin import LocalIds, Origin
from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError
from lightning_gnnload.host.leases import protect_mapped

_SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class Graph(DerivedArrays):
    """Stores a directed graph as the in-neighbours of each node (CSC), and checks it once when it is built.

    Build one by :meth:`from_coo`, :meth:`from_csc` or :meth:`from_csr`; one with types of nodes by :meth:`from_hetero`.
    A node's in-neighbours lie by edge type, those of a type in the order of their times, where edges have them. Lists
    that do not lie by ``edge_type`` are copied in this order, and ``edge_order`` then tells where each edge was. Types
    that are not in [0, 4095) are kept as they are, but nothing is drawn by them.

    Attributes:
        indptr: int64 ``[N + 1]``; the in-neighbours of node ``v`` are ``indices[indptr[v]:indptr[v + 1]]``.
        indices: int32 or int64 ``[E]``.
        edge_weight: float32 or float64 ``[E]``, or None.
        edge_type: integer ``[E]``, or None.
        edge_order: int32 or int64 ``[E]``, or None: for each edge, its position in the edge list the graph was built
            from; in the list of its own type, where the graph has types of nodes.
        edge_time: uint32 ``[E]``, or None: from when on an edge is there, as a code of ``clock``: its own time or its
            source's, if that is later.
        run_ptr: uint32 or int64 ``[R + 1]``, or None: run ``r`` (:class:`.GraphTypes`) is
            ``indices[run_ptr[r]:run_ptr[r + 1]]``.
        node_time: int64 or float64 ``[N]``, or None: from when on a node is there.
        types: names of node and edge types; None for a graph with one type of nodes.
        clock: what turns times into codes; None for a graph without times.
        lost_order: the graph was built from an edge list here, and did not keep its order.
        origin: where the nodes and edges lie in the graph that this one is a part of; None for a whole graph.

    Shapes: N nodes, E edges. All arrays are NumPy arrays on the CPU; memory maps are welcome, and stay as they are now
    (:mod:`.leases`).

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 0], dst=[0, 0, 2])
        >>> graph
        Graph(num_nodes=3, num_edges=3)
        >>> graph.in_neighbors(0).tolist()
        [1, 2]
    """

    ARRAYS: ClassVar = (
        "edge_order",
        "edge_time",
        "edge_type",
        "edge_weight",
        "indices",
        "indptr",
        "node_time",
        "run_ptr",
    )
    __slots__ = ("__weakref__", "clock", "lost_order", "origin", "types", *ARRAYS)

    def __init__(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        edge_weight: np.ndarray | None = None,
        edge_type: np.ndarray | None = None,
        edge_order: np.ndarray | None = None,
        origin: Origin | None = None,
        *,
        edge_time: np.ndarray | None = None,
        node_time: np.ndarray | None = None,
        run_ptr: np.ndarray | None = None,
        types: GraphTypes | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.indptr = indptr
        self.indices = indices
        self.edge_weight = edge_weight
        self.edge_type = edge_type
        self.edge_order = edge_order
        self.edge_time = edge_time
        self.node_time = node_time
        self.run_ptr = run_ptr
        self.types = types
        self.clock = clock
        self.lost_order = False
        self.origin = origin
        self._derived = {}
        # Before they are checked: what is seen then is what kernels read later.
        origin_arrays = () if origin is None else (origin.node_ids, origin.reach, origin.edge_starts)
        clock_arrays = () if clock is None else (clock.ranked,)
        protect_mapped(self, [*(getattr(self, name) for name in self.ARRAYS), *origin_arrays, *clock_arrays])
        check_graph_arrays(self)
        self._sort_by_type()
        check_graph_runs(self)

    @classmethod
    def from_csc(cls, indptr: Any, indices: Any, edge_weight: Any = None, edge_type: Any = None) -> Graph:
        """Builds a graph over these arrays, without a copy, unless edge types have to be sorted (see :class:`Graph`).

        Columns are destinations: of an adjacency matrix ``A[src, dst]`` these are the arrays of ``A.tocsc()``. Those of
        ``A.tocsr()`` list out-neighbours, which nothing in them tells: give them to :meth:`from_csr`, or every edge
        would point the other way.

        Args:
            indptr: int64 ``[N + 1]``, array or tensor.
            indices: int32 or int64 ``[E]``, in-neighbours of node 0, of node 1, ...
            edge_weight: float ``[E]``, in the order of ``indices``.
            edge_type: integer ``[E]``, in the order of ``indices``.

        Raises:
            GraphFormatError: the arrays are no CSC graph; the message names the first bad entry.
        """
        for name, argument in (("indptr", indptr), ("indices", indices)):
            if hasattr(argument, "tocsc") or getattr(argument, "layout", None) in _SPARSE_LAYOUTS:
                raise GraphFormatError(
                    f"Graph.from_csc: {name} is a sparse matrix, but its arrays are needed. Of SciPy's A[src, dst]: "
                    f"csc = A.tocsc(); Graph.from_csc(csc.indptr.astype('int64'), csc.indices)."
                )
        return cls(
            as_array(indptr, name="Graph.from_csc: indptr"),
            as_array(indices, name="Graph.from_csc: indices"),
            None if edge_weight is None else as_array(edge_weight, name="Graph.from_csc: edge_weight"),
            None if edge_type is None else as_array(edge_type, name="Graph.from_csc: edge_type"),
        )

    @classmethod
    def from_csr(
        cls, indptr: Any, indices: Any, edge_weight: Any = None, edge_type: Any = None, *, keep_order: bool = False
    ) -> Graph:
        """Builds a graph from the out-neighbours of each node, which are sorted into in-neighbours.

        Args:
            indptr: int64 ``[N + 1]``, array or tensor.
            indices: int32 or int64 ``[E]``, out-neighbours of node 0, of node 1, ...
            edge_weight: float ``[E]``, in the order of ``indices``.
            edge_type: integer ``[E]``, in the order of ``indices``.
            keep_order: remember each edge's position in ``indices`` as :attr:`edge_order` (4 bytes an edge).

        Raises:
            GraphFormatError: the arrays are no CSR graph; the message names the first bad entry.

        Example:
            >>> Graph.from_csr(indptr=[0, 2, 2, 2], indices=[1, 2]).in_neighbors(2).tolist()
            [0]
        """
        transposed = cls.from_csc(indptr, indices)  # checks the arrays, which say what they list alone
        src = np.repeat(np.arange(transposed.num_nodes, dtype=transposed.indices.dtype), transposed.in_degrees)
        return cls.from_coo(
            src, transposed.indices, transposed.num_nodes, edge_weight, edge_type, keep_order=keep_order
        )

    @classmethod
    def from_coo(
        cls,
        src: Any,
        dst: Any = None,
        num_nodes: int | None = None,
        edge_weight: Any = None,
        edge_type: Any = None,
        *,
        edge_time: Any = None,
        node_time: Any = None,
        keep_order: bool = False,
    ) -> Graph:
        """Builds a graph from an edge list; edge ``src[e] -> dst[e]`` makes ``src[e]`` an in-neighbour of ``dst[e]``.

        Edges of one destination and type keep their order, or lie in that of their times; repeated edges stay. Node ids
        are stored as int32 where they fit.

        Args:
            src: integer ``[E]``.
            dst: integer ``[E]``.
            num_nodes: defaults to the largest id plus one.
            edge_weight: float ``[E]``, in the order of ``src``.
            edge_type: integer ``[E]``, in the order of ``src``.
            edge_time: since when an edge is there, int64, float64 or datetime64 ``[E]``.
            node_time: since when a node is there, likewise ``[N]``; edges from it are not there before.
            keep_order: remember each edge's position in this list as :attr:`edge_order` (4 bytes an edge).

        Raises:
            GraphFormatError: lengths differ, ids are no integers, negative or not below ``num_nodes``; a time that is
                none; times together with types that are not in [0, 4095).
        """
        if dst is None:
            raise GraphFormatError(
                "Graph.from_coo: dst is missing. Give the edges' sources and destinations, src and dst; of an "
                "edge_index [2, E], these are Graph.from_coo(*edge_index)."
            )
        src, dst = edge_endpoints(src, dst, list_name="Graph.from_coo")
        if num_nodes is None:
            num_nodes = 1 + max(int(src.max()), int(dst.max())) if len(src) else 0
        num_nodes = ops.as_integer("Graph.from_coo: num_nodes", num_nodes, GraphFormatError)
        if not 0 <= num_nodes < ops.MAX_NODES:
            raise GraphFormatError(
                f"Graph.from_coo: num_nodes is {num_nodes}, but must lie in [0, {ops.MAX_NODES}). Is an id too large?"
            )
        per_edge = [
            None if values is None else as_array(values, name=f"Graph.from_coo: {name}")
            for name, values in (("edge_weight", edge_weight), ("edge_type", edge_type))
        ]
        for name, values in zip(("edge_weight", "edge_type"), per_edge, strict=True):
            check_edge_array(name, values, "fiu", len(src))
        weight, types = per_edge
        arrays = flat_arrays(src, dst, num_nodes, weight, types, edge_time, node_time, keep_order=keep_order)
        graph = cls(**arrays)
        graph.lost_order = not keep_order
        if not keep_order:
            graph.edge_order = None  # of a sort by type: positions in no list of the user's
        return graph

    @classmethod
    def from_hetero(
        cls,
        num_nodes: Mapping[str, int] | None,
        edges: Mapping[EdgeType, Any],
        *,
        edge_weight: Mapping[EdgeType, Any] | None = None,
        edge_time: Mapping[EdgeType, Any] | None = None,
        node_time: Mapping[str, Any] | None = None,
        keep_order: bool = False,
    ) -> Graph:
        """Builds a graph with types of nodes and edges, and with times where they are given.

        The nodes of a type have consecutive ids in the graph, :meth:`.GraphTypes.range_of`; all ids that are given here
        count within their type.

        Args:
            num_nodes: nodes of each type; None: as many as the edges show.
            edges: ``{(source type, relation, target type): (src, dst)}``, integer ``[E_k]`` each, or ``[2, E_k]``.
            edge_weight: floats ``[E_k]`` by edge type; those of types left out are 1.
            edge_time: since when an edge is there, int64, float64 or datetime64 ``[E_k]`` by edge type; edges of types
                left out always are.
            node_time: since when a node is there, likewise ``[N_t]`` by node type; edges from it are not there before.
            keep_order: remember each edge's position in its list as :attr:`edge_order` (4 bytes an edge).

        Raises:
            GraphFormatError: a type that is not there, ids out of range, lengths that differ, a time that is none.

        Example:
            >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
            >>> graph.in_neighbors(graph.types.range_of("item")[2]).tolist()
            [0, 1]
        """
        graph = cls(**hetero_arrays(num_nodes, edges, edge_weight, edge_time, node_time, keep_order=keep_order))
        graph.lost_order = not keep_order
        return graph

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def has(self, name: str) -> bool:
        """Returns whether the graph has the array of this name, of :attr:`ARRAYS`, here or with the owners of its
        lists."""
        return getattr(self, name) is not None

    @property
    def has_lists(self) -> bool:
        """Whether this process has the lists: not of a :class:`.RemoteGraph`."""
        return True

    @property
    def in_degrees(self) -> np.ndarray:
        """int64 ``[N]``."""
        return np.diff(self.indptr)

    def out_degrees(self, chunk_edges: int = 1 << 24) -> np.ndarray:
        """Counts the edges that leave each node, int64 ``[N]``, by reading all lists, some at a time."""
        degrees = np.zeros(self.num_nodes, np.int64)
        for begin in range(0, self.num_edges, chunk_edges):  # in chunks: bincount copies its input to int64
            degrees += np.bincount(self.indices[begin : begin + chunk_edges], minlength=self.num_nodes)
        return degrees

    @property
    def names(self) -> np.ndarray | None:
        """The ids in the whole graph of a part's nodes, int64 ``[N]``, by which they draw. None in a whole graph."""
        return None if self.origin is None else self.origin.node_ids

    @property
    def adjacency(self) -> ops.Adjacency:
        """The arrays that all samplers read, checked for them once."""
        return self._derive("adjacency", lambda: ops.Adjacency(self.indptr, self.indices, self.names))

    def names_of(self, nodes: np.ndarray) -> np.ndarray:
        """Returns the ids in the whole graph, int64, of nodes of this one; random draws are keyed by them."""
        return nodes if self.origin is None else self.origin.node_ids[nodes]

    def local_ids(self, ids: np.ndarray) -> np.ndarray:
        """Returns the nodes of this graph, int64, with these ids in the whole graph: the reverse of :meth:`names_of`.

        Raises:
            PartReachError: a node that this part does not have.
        """
        return ids if self.origin is None else self._local_ids.of(ids)

    def held_ids(self, ids: np.ndarray) -> np.ndarray:
        """Returns the same, int64, and -1 for nodes that this part does not have."""
        return ids if self.origin is None else self._local_ids.find(ids)

    @property
    def _local_ids(self) -> LocalIds:
        assert self.origin is not None
        node_ids = self.origin.node_ids
        return self._derive("places", lambda: LocalIds(node_ids))

    def _sort_by_type(self) -> None:
        types = self.edge_type
        order = None if types is None or not ops.are_type_numbers(types) else ops.sort_by_type(self.indptr, types)
        if order is None:
            return
        for name in ("indices", "edge_weight", "edge_type", "edge_time", "edge_order"):
            if (array := getattr(self, name)) is not None:
                setattr(self, name, array[order])
        if self.edge_order is None and self.origin is None:
            self.edge_order = order

    @property
    def flat_order(self) -> np.ndarray | None:
        """The order that rows of all edges lie in: :attr:`edge_order`, or None: that of ``indices``, as where the
        orders of several types' lists are kept."""
        return None if self.types is not None else self.edge_order

    def edge_rows(self, edges: np.ndarray, edge_type: int | None = None) -> np.ndarray:
        """Returns the rows of edges in tables of all edges, or of those of one type, int64 ``[B]``, by their positions
        in ``indices``, int64 ``[B]``."""
        order = self.flat_order if edge_type is None else self.edge_order
        if order is None:
            return edges
        rows = np.empty(len(edges), order.dtype)
        ops.gather_rows(order, edges, rows)  # each is a miss of the caches
        return rows.astype(np.int64, copy=False)

    def edge_types_of(self, edges: np.ndarray) -> np.ndarray:
        """Returns the number of each edge's type, int32 ``[B]``, by its position in ``indices``, of a graph with
        types."""
        if self.edge_type is not None:
            return self.edge_type[edges].astype(np.int32)
        types, run_ptr = self.types, self.run_ptr
        assert types is not None
        assert run_ptr is not None
        # In the dtype of the runs: NumPy would convert all of them to that of the edges.
        return types.type_of_runs(np.searchsorted(run_ptr, edges.astype(run_ptr.dtype), side="right") - 1)

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Keeps the arrays alone: a process that gets the graph derives the rest again where it needs it."""
        return None, {
            name: getattr(self, name) for name in (*self.ARRAYS, "clock", "lost_order", "origin", "types")
        } | {"_derived": {}}

    def edge_type_number(self, name: Any) -> int:
        """Finds an edge type as :meth:`.GraphTypes.edge_type_number` does; a graph without types has one: 0, or None.

        Raises:
            SamplerConfigError: there is no such type, or several.
        """
        if self.types is not None:
            return self.types.edge_type_number(name)
        if name not in (0, None):
            raise SamplerConfigError(f"{name!r} names no edge type: the graph has no types. Leave it out, or give 0.")
        return 0

    def in_neighbors(self, node: int) -> np.ndarray:
        """Returns a view of the in-neighbours of one node, in stored order."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def __repr__(self) -> str:
        named = ("edge_weight", "edge_type", "edge_time", "node_time")
        extras = "".join(f", {name}" for name in named if getattr(self, name) is not None)
        types = "" if self.types is None else f", types={self.types!r}"
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{extras}{types})"
