"""Graph: the topology, in compressed sparse columns."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.origin import LocalIds, Origin
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError

_deriving = threading.Lock()  # one for all graphs: what is derived is made once, and seldom
_CHUNK_EDGES = 1 << 22  # edges that a fingerprint converts to one dtype at a time: 32 MiB at most
_SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class Graph:
    """Stores a directed graph as the in-neighbours of each node (CSC), and checks it once when it is built.

    Build one by :meth:`from_coo`, :meth:`from_csc` or :meth:`from_csr`.

    Attributes:
        indptr: int64 ``[N + 1]``; the in-neighbours of node ``v`` are ``indices[indptr[v]:indptr[v + 1]]``.
        indices: int32 or int64 ``[E]``.
        edge_weight: float32 or float64 ``[E]``, or None.
        edge_type: integer ``[E]``, or None.
        edge_order: int64 ``[E]``, or None: for each edge, its position in the edge list the graph was built from.
        lost_order: the graph was built from an edge list here, and did not keep its order.
        origin: where the nodes and edges lie in the graph that this one is a part of; None for a whole graph.

    Shapes: N nodes, E edges. All arrays are NumPy arrays on the CPU; memory maps are welcome.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 0], dst=[0, 0, 2])
        >>> graph
        Graph(num_nodes=3, num_edges=3)
        >>> graph.in_neighbors(0).tolist()
        [1, 2]
    """

    ARRAYS: ClassVar = ("edge_order", "edge_type", "edge_weight", "indices", "indptr")
    __slots__ = ("_derived", "lost_order", "origin", *ARRAYS)

    def __init__(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        edge_weight: np.ndarray | None = None,
        edge_type: np.ndarray | None = None,
        edge_order: np.ndarray | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.indptr = indptr
        self.indices = indices
        self.edge_weight = edge_weight
        self.edge_type = edge_type
        self.edge_order = edge_order
        self.lost_order = False
        self.origin = origin
        self._derived: dict[str, Any] = {}
        _check_topology(indptr, indices)
        _check_edge_array("edge_weight", edge_weight, "f", len(indices))
        _check_edge_array("edge_type", edge_type, "iu", len(indices))
        _check_edge_array("edge_order", edge_order, "iu", len(indices))
        if origin is not None and len(origin.node_ids) != self.num_nodes:
            raise GraphFormatError(
                f"Graph: origin names {len(origin.node_ids)} nodes, but the graph has {self.num_nodes}."
            )
        if edge_weight is not None and edge_weight.size:
            # Not-a-number fails both comparisons.
            low, high = float(edge_weight.min()), float(edge_weight.max())
            if not (low >= 0 and high < np.inf):
                raise GraphFormatError(
                    f"Graph: edge weights must be finite and not negative, but they span [{low}, {high}]."
                )

    @classmethod
    def from_csc(cls, indptr: Any, indices: Any, edge_weight: Any = None, edge_type: Any = None) -> Graph:
        """Builds a graph over these arrays, without a copy.

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
        for name, given in (("indptr", indptr), ("indices", indices)):
            if hasattr(given, "tocsc") or getattr(given, "layout", None) in _SPARSE_LAYOUTS:
                raise GraphFormatError(
                    f"Graph.from_csc: {name} is a sparse matrix, but its arrays are needed. Of SciPy's A[src, dst]: "
                    f"csc = A.tocsc(); Graph.from_csc(csc.indptr.astype('int64'), csc.indices)."
                )
        return cls(
            as_array(indptr, what="Graph.from_csc: indptr"),
            as_array(indices, what="Graph.from_csc: indices"),
            None if edge_weight is None else as_array(edge_weight, what="Graph.from_csc: edge_weight"),
            None if edge_type is None else as_array(edge_type, what="Graph.from_csc: edge_type"),
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
            keep_order: remember each edge's position in ``indices`` as :attr:`edge_order` (8 bytes an edge).

        Raises:
            GraphFormatError: the arrays are no CSR graph; the message names the first bad entry.

        Example:
            >>> Graph.from_csr(indptr=[0, 2, 2, 2], indices=[1, 2]).in_neighbors(2).tolist()
            [0]
        """
        given = cls.from_csc(indptr, indices)  # checks the arrays, which say what they list alone
        src = np.repeat(np.arange(given.num_nodes, dtype=given.indices.dtype), given.in_degrees)
        return cls.from_coo(src, given.indices, given.num_nodes, edge_weight, edge_type, keep_order=keep_order)

    @classmethod
    def from_coo(
        cls,
        src: Any,
        dst: Any,
        num_nodes: int | None = None,
        edge_weight: Any = None,
        edge_type: Any = None,
        *,
        keep_order: bool = False,
    ) -> Graph:
        """Builds a graph from an edge list; edge ``src[e] -> dst[e]`` makes ``src[e]`` an in-neighbour of ``dst[e]``.

        Edges of one destination keep their order; repeated edges stay. Node ids are stored as int32 where
        they fit.

        Args:
            src: integer ``[E]``.
            dst: integer ``[E]``.
            num_nodes: defaults to the largest id plus one.
            edge_weight: float ``[E]``, in the order of ``src``.
            edge_type: integer ``[E]``, in the order of ``src``.
            keep_order: remember each edge's position in this list as :attr:`edge_order` (8 bytes an edge).

        Raises:
            GraphFormatError: lengths differ, ids are no integers, negative or not below ``num_nodes``.
        """
        src = _edge_ends(src, "src")
        dst = _edge_ends(dst, "dst")
        if len(src) != len(dst):
            raise GraphFormatError(
                f"Graph.from_coo: src has {len(src)} entries but dst has {len(dst)}; give one of each an edge."
            )
        if num_nodes is None:
            num_nodes = 1 + max(int(src.max()), int(dst.max())) if len(src) else 0
        num_nodes = ops.as_integer("Graph.from_coo: num_nodes", num_nodes, GraphFormatError)
        if num_nodes < 0:
            raise GraphFormatError(f"Graph.from_coo: num_nodes is {num_nodes}; it must be 0 or more.")
        per_edge = [
            None if values is None else as_array(values, what=f"Graph.from_coo: {name}")
            for name, values in (("edge_weight", edge_weight), ("edge_type", edge_type))
        ]
        for name, values in zip(("edge_weight", "edge_type"), per_edge, strict=True):
            _check_edge_array(name, values, "fiu", len(src))
        # Weights and types are sorted by the order, so it is made for them even where it is not kept.
        wants_order = keep_order or any(values is not None for values in per_edge)
        if num_nodes < 2**31 and (src.dtype != np.int32 or dst.dtype != np.int32):
            src, dst = _narrow(src, num_nodes, "src"), _narrow(dst, num_nodes, "dst")
        indptr, indices, order = ops.coo_to_csc(src, dst, num_nodes, keep_order=wants_order)
        weight, kind = (None if values is None else values[order] for values in per_edge)
        graph = cls(indptr, indices, weight, kind, order if keep_order else None)
        graph.lost_order = not keep_order
        return graph

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def in_degrees(self) -> np.ndarray:
        """int64 ``[N]``."""
        return np.diff(self.indptr)

    @property
    def names(self) -> np.ndarray | None:
        """The ids in the whole graph of a part's nodes, int64 ``[N]``, by which they draw. None in a whole graph."""
        return None if self.origin is None else self.origin.node_ids

    def names_of(self, nodes: np.ndarray) -> np.ndarray:
        """Returns the ids in the whole graph, int64, of nodes of this one; random draws are keyed by them."""
        return nodes if self.origin is None else self.origin.node_ids[nodes]

    def local_ids(self, ids: np.ndarray) -> np.ndarray:
        """Returns the nodes of this graph, int64, with these ids in the whole graph: the reverse of :meth:`names_of`.

        Raises:
            PartReachError: a node that this part does not have.
        """
        origin = self.origin
        return ids if origin is None else self._derive("places", lambda: LocalIds(origin.node_ids)).of(ids)

    @property
    def edge_type_index(self) -> ops.EdgeTypeIndex:
        """An index of in-neighbours by edge type, made on first use and kept: 4 bytes an edge, unless stored by type,
        and 8 for each node and type that it has.

        Raises:
            GraphFormatError: the graph has no edge types, or some not in [0, 4095).
        """
        edge_type = self.edge_type
        if edge_type is None:
            raise GraphFormatError("Graph: there are no edge types. Give Graph.from_coo(..., edge_type=types).")
        return self._derive("edge_type_index", lambda: ops.index_edge_types(self.indptr, edge_type))

    @property
    def alias_table(self) -> ops.AliasTable:
        """The table to draw in-neighbours by edge weight from, made on first use and kept: 8 bytes an edge.

        Raises:
            SamplerConfigError: the graph has no edge weights.
            GraphFormatError: weights of a dtype wider than float64.
        """
        weight = self.weight_drawn_by  # not within _derive, whose lock is not reentrant
        if weight is None:
            raise SamplerConfigError(
                "Graph: there are no edge weights to draw by. Give Graph.from_coo(..., edge_weight=weights), or draw "
                "uniformly with NeighborSampler."
            )
        return self._derive("alias_table", lambda: ops.build_alias(self.indptr, weight))

    @property
    def weight_drawn_by(self) -> np.ndarray | None:
        """``edge_weight`` as kernels read it: float16 becomes float32, once; all else stays as it is."""
        weight = self.edge_weight
        if weight is None or weight.dtype != np.float16:
            return weight
        return self._derive("weight_drawn_by", lambda: weight.astype(np.float32))

    def importance_tree(self, weighted: bool = True) -> np.ndarray:
        """Returns each node's importance to the whole graph, int64 ``[N + 1]``, as :func:`.ops.importance_tree` has it;
        made on first use and kept.

        Args:
            weighted: by edge weight, where there are weights.
        """
        weight = self.weight_drawn_by if weighted else None  # not within _derive, whose lock is not reentrant
        name = "importance_tree" if weight is None else "importance_tree by weight"
        return self._derive(name, lambda: ops.importance_tree(self.indptr, self.indices, weight))

    @property
    def fingerprint(self) -> str:
        """Tells this graph from others: N, E and a checksum (CRC-32) of indptr, indices, weights and types; the same
        whatever their width. Made on first use, by reading the graph once, and kept.
        """
        return self._derive("fingerprint", lambda: _fingerprint(self))

    def _derive(self, name: str, make: Callable[[], Any]) -> Any:
        """Returns what ``make`` makes of the graph, once for all threads that sample it."""
        with _deriving:
            if name not in self._derived:
                self._derived[name] = make()
            return self._derived[name]

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Keeps the arrays alone: a process that gets the graph derives the rest again where it needs it."""
        return None, {name: getattr(self, name) for name in (*self.ARRAYS, "lost_order", "origin")} | {"_derived": {}}

    def in_neighbors(self, node: int) -> np.ndarray:
        """Returns a view of the in-neighbours of one node, in stored order."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def __repr__(self) -> str:
        extras = "".join(f", {name}" for name in ("edge_weight", "edge_type") if getattr(self, name) is not None)
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{extras})"


def _check_topology(indptr: np.ndarray, indices: np.ndarray) -> None:
    if indptr.dtype != np.int64 or indptr.ndim != 1 or len(indptr) < 1:
        raise GraphFormatError(
            f"Graph: indptr must be int64 [N + 1], but it is {indptr.dtype} {list(indptr.shape)}. "
            f"Convert it with .astype('int64')."
        )
    if indices.dtype not in (np.int32, np.int64) or indices.ndim != 1:
        raise GraphFormatError(
            f"Graph: indices must be int32 or int64 [E], but it is {indices.dtype} {list(indices.shape)}. "
            f"Convert it with .astype('int32')."
        )
    if indptr[-1] != len(indices):
        raise GraphFormatError(
            f"Graph: indptr[-1] is {indptr[-1]} but indices has {len(indices)} edges. indptr must have "
            f"N + 1 entries and end at E. If the graph is stored as COO, build it with Graph.from_coo(src, dst)."
        )
    ops.check_csc(indptr, indices)


def _check_edge_array(name: str, values: np.ndarray | None, kinds: str, num_edges: int) -> None:
    if values is None:
        return
    if values.ndim != 1 or len(values) != num_edges or values.dtype.kind not in kinds:
        wanted = "floats" if kinds == "f" else "integers" if kinds == "iu" else "numbers"
        raise GraphFormatError(
            f"Graph: {name} must be {wanted} [{num_edges}], one an edge, but it is {values.dtype} {list(values.shape)}."
        )


def _edge_ends(values: Any, name: str) -> np.ndarray:
    ends = as_array(values, what=f"Graph.from_coo: {name}")
    if ends.ndim != 1 or (ends.dtype.kind not in "iu" and ends.size):
        raise GraphFormatError(
            f"Graph.from_coo: {name} must be integers [E], but it is {ends.dtype} {list(ends.shape)}."
        )
    return ends if ends.dtype in (np.int32, np.int64) else ends.astype(np.int64)


def _fingerprint(graph: Graph) -> str:
    checksum = zlib.crc32(graph.indptr.data)
    # One dtype each, so that a graph and its copy with ids or weights of another width have the same fingerprint.
    width = np.int32 if graph.num_nodes <= 2**31 else np.int64
    for array, dtype in ((graph.indices, width), (graph.edge_weight, np.float64), (graph.edge_type, np.int64)):
        if array is not None:
            for begin in range(0, graph.num_edges, _CHUNK_EDGES):
                chunk = np.ascontiguousarray(array[begin : begin + _CHUNK_EDGES], dtype)
                checksum = zlib.crc32(chunk.data, checksum)
    return f"{graph.num_nodes}-{graph.num_edges}-{checksum:08x}"


def _narrow(ends: np.ndarray, num_nodes: int, name: str) -> np.ndarray:
    """Narrows ids to int32. Their range is checked first: a cast would wrap a bad id into a good one."""
    if len(ends):
        low, high = int(ends.min()), int(ends.max())
        if low < 0 or high >= num_nodes:
            edge = int(np.flatnonzero((ends < 0) | (ends >= num_nodes))[0])
            raise GraphFormatError(
                f"Graph.from_coo: {name}[{edge}] is {ends[edge]}, which is not a node; ids must lie in "
                f"[0, {num_nodes}). Give num_nodes if the graph has more nodes than its edges show."
            )
    return ends.astype(np.int32, copy=False)
