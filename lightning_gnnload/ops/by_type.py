"""Splits the nodes and edges of a mini-batch by type, each type's in the order of the batch.

Shapes: V nodes of the mini-batch, T node types, K edge types, D destinations and E edges of a hop.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..errors import GraphFormatError
from .checks import check_apart, check_array
from .dispatch import kernels


@dataclass(frozen=True)
class SplitNodes:
    """The nodes of a mini-batch by type: those of type ``t`` are entries ``ptr[t]`` to ``ptr[t + 1]``."""

    ptr: np.ndarray  # int64 [T + 1]
    rank: np.ndarray  # int32 [V], in the order of the batch: which entry each node is
    position: np.ndarray  # int64 [V], by type: where each node is in the batch; ascends within a type
    local: np.ndarray  # int64 [V], by type: its id within its type

    def counts(self, num_nodes: int | np.ndarray) -> np.ndarray:
        """Returns how many of the batch's first ``num_nodes`` are of each type, int64 ``[T]``; of ``[H]`` such numbers,
        ``[T, H]``."""
        type_ranges = pairwise(self.ptr.tolist())
        return np.array([np.searchsorted(self.position[begin:end], num_nodes) for begin, end in type_ranges], np.int64)

    def places(self, nodes: np.ndarray) -> np.ndarray:
        """Returns the position of each of these nodes of the batch among those of its type, int64 like ``nodes``."""
        rank = self.rank[nodes].astype(np.int64)
        return rank - self.ptr[np.searchsorted(self.ptr, rank, side="right") - 1]


@dataclass(frozen=True)
class SplitEdges:
    """The edges of a hop by type: those of type ``k`` are entries ``ptr[k]`` to ``ptr[k + 1]``."""

    ptr: np.ndarray  # int64 [K + 1]
    begin: np.ndarray  # int64 [K + 1], the same for ``indptrs``
    indptrs: np.ndarray  # int32, of each type's block, whose destinations are those of its target type
    sources: np.ndarray  # int32 [E], by type: each source's position within its type
    edge_ids: np.ndarray | None  # int64 [E], those of the hop by type
    position: np.ndarray | None  # int64 [E], by type: where the edge is in the hop


def split_nodes(nodes: np.ndarray, first_node: np.ndarray, local: np.ndarray | None = None) -> SplitNodes:
    """Splits nodes, int64 ``[V]``, by type, and keeps the order within a type.

    The ids of type ``t`` are ``first_node[t]`` to ``first_node[t + 1] - 1``, int64 ``[T + 1]``, ascending from 0.
    ``local`` is memory for the result's, int64 ``[V]``; None: new. Raises GraphFormatError for an id beyond the last
    type or a ``local`` of another size, SamplerConfigError where ``local`` is memory of another argument.

    Example:
        >>> split = split_nodes(np.array([7, 2, 5]), np.array([0, 5, 10]))
        >>> split.ptr.tolist(), split.position.tolist(), split.local.tolist()
        ([0, 1, 3], [1, 0, 2], [2, 2, 0])
    """
    check_array("nodes", nodes, (np.int64,), 1, GraphFormatError)
    check_array("first_node", first_node, (np.int64,), 1, GraphFormatError)
    if not len(first_node) or first_node[0] != 0 or (first_node[1:] < first_node[:-1]).any():
        raise GraphFormatError(f"first_node is {first_node.tolist()}, but must ascend from 0.")
    ptr, rank, position = np.empty_like(first_node), np.empty(len(nodes), np.int32), np.empty_like(nodes)
    if local is None:
        local = np.empty_like(nodes)
    check_array("local", local, (np.int64,), 1, GraphFormatError, writable=True)
    if len(local) != len(nodes):
        raise GraphFormatError(f"local has {len(local)} entries for {len(nodes)} nodes; one each is needed.")
    check_apart("local", local, ("nodes", nodes), ("first_node", first_node))
    kernels.split_nodes(nodes, first_node, ptr, rank, position, local)
    return SplitNodes(ptr, rank, position, local)


def check_hop(
    num_dst: int,
    indices: np.ndarray,
    edge_type: np.ndarray,
    nodes: SplitNodes,
    src_type: np.ndarray,
    dst_type: np.ndarray,
) -> None:
    """Raises GraphFormatError where the columns of a hop do not fit each other, or a node type does not exist."""
    num_types = len(nodes.ptr) - 1
    if not 0 <= num_dst <= len(nodes.rank):
        raise GraphFormatError(f"the hop has {num_dst} destinations, but the mini-batch {len(nodes.rank)} nodes.")
    if len(edge_type) != len(indices) or len(dst_type) != len(src_type):
        raise GraphFormatError(
            f"there are {len(indices)} edges with {len(edge_type)} types, and edge types with {len(src_type)} sources "
            f"and {len(dst_type)} targets: give one of each."
        )
    for name, node_types in (("src_type", src_type), ("dst_type", dst_type)):
        if node_types.size and not (node_types.min() >= 0 and node_types.max() < num_types):
            raise GraphFormatError(f"{name} is {node_types.tolist()}, but the node types lie in [0, {num_types}).")


def split_edges(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_type: np.ndarray,
    nodes: SplitNodes,
    src_type: np.ndarray,
    dst_type: np.ndarray,
    *,
    edge_ids: np.ndarray | None = None,
    positions: bool = True,
) -> SplitEdges:
    """Splits the edges of a hop by type, and keeps the order within a type.

    ``indptr`` int32 ``[D + 1]`` and ``indices`` int32 ``[E]`` are the hop's, whose destinations are the mini-batch's
    first nodes; ``edge_type`` is int32 ``[E]``. Edges of a type lead from nodes of ``src_type`` to nodes of
    ``dst_type``, int32 ``[K]`` each. Raises GraphFormatError for a position or type that does not exist, or an edge
    whose nodes are of other types than its own.

    Example:
        >>> nodes = split_nodes(np.array([7, 2, 5]), np.array([0, 5, 10]))
        >>> hop = (np.array([0, 2], np.int32), np.array([1, 2], np.int32), np.array([1, 0], np.int32))
        >>> edges = split_edges(*hop, nodes, np.array([1, 0], np.int32), np.array([1, 1], np.int32))
        >>> edges.ptr.tolist(), edges.indptrs.tolist(), edges.sources.tolist(), edges.position.tolist()
        ([0, 1, 2], [0, 1, 0, 1], [1, 0], [1, 0])
    """
    for name, array in (
        ("indptr", indptr),
        ("indices", indices),
        ("edge_type", edge_type),
        ("src_type", src_type),
        ("dst_type", dst_type),
    ):
        check_array(name, array, (np.int32,), 1, GraphFormatError)
    num_dst = len(indptr) - 1
    check_hop(num_dst, indices, edge_type, nodes, src_type, dst_type)
    # One more than its destinations for each type's indptr.
    begin = np.concatenate([[0], np.cumsum(nodes.counts(num_dst)[dst_type] + 1)]).astype(np.int64)
    ptr, indptrs = np.empty(len(src_type) + 1, np.int64), np.zeros(begin[-1], np.int32)
    sources, ids_by_type = np.empty(len(indices), np.int32), None
    if edge_ids is not None:
        check_array("edge_ids", edge_ids, (np.int64,), 1, GraphFormatError)
        if len(edge_ids) != len(indices):
            raise GraphFormatError(f"edge_ids has {len(edge_ids)} entries, but there are {len(indices)} edges.")
        ids_by_type = np.empty_like(edge_ids)
    position = np.empty(len(indices), np.int64) if positions else None
    kernels.split_edges(
        indptr,
        indices,
        edge_type,
        edge_ids,
        nodes.rank,
        nodes.ptr,
        src_type,
        dst_type,
        begin,
        ptr,
        indptrs,
        sources,
        ids_by_type,
        position,
    )
    return SplitEdges(ptr, begin, indptrs, sources, ids_by_type, position)
