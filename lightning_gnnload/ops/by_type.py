"""The nodes and edges of a mini-batch by type, each type's in the order of the batch.

Shapes: V nodes of the mini-batch, T node types, K edge types, D destinations and E edges of a hop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import GraphFormatError
from .checks import check_array
from .dispatch import kernels


@dataclass(frozen=True)
class SplitNodes:
    """Says which nodes of a mini-batch are of which type: those of type ``t`` are entries ``ptr[t]`` to ``ptr[t + 1]``.

    Attributes:
        type: int32 ``[V]``, of each node in the order of the batch.
        place: int32 ``[V]``, likewise, its place among the nodes of its type.
        ptr: int64 ``[T + 1]``.
        position: int64 ``[V]``, by type, where each node is in the batch.
        local: int64 ``[V]``, by type, its id within its type.
    """

    type: np.ndarray
    place: np.ndarray
    ptr: np.ndarray
    position: np.ndarray
    local: np.ndarray

    def counts(self, num_nodes: int) -> np.ndarray:
        """Returns how many of the batch's first ``num_nodes`` are of each type, int64 ``[T]``."""
        return np.bincount(self.type[:num_nodes], minlength=len(self.ptr) - 1)


@dataclass(frozen=True)
class SplitEdges:
    """Says which edges of a hop are of which type: those of type ``k`` are entries ``ptr[k]`` to ``ptr[k + 1]``.

    Attributes:
        ptr: int64 ``[K + 1]``.
        begin: int64 ``[K + 1]``, the same for ``indptrs``.
        indptrs: int32, of each type's block, whose destinations are those of the type's target.
        sources: int32 ``[E]``, by type, each edge's source as its place within its type.
        position: int64 ``[E]``, by type, where the edge is in the hop.
    """

    ptr: np.ndarray
    begin: np.ndarray
    indptrs: np.ndarray
    sources: np.ndarray
    position: np.ndarray


def split_nodes(nodes: np.ndarray, first_node: np.ndarray) -> SplitNodes:
    """Splits nodes by type, and keeps the order of those of one type.

    Args:
        nodes: int64 ``[V]``, node ids.
        first_node: int64 ``[T + 1]``, ascending from 0: the ids of type ``t`` are ``first_node[t]`` to
            ``first_node[t + 1] - 1``.

    Raises:
        GraphFormatError: an id beyond the last type.

    Example:
        >>> found = split_nodes(np.array([7, 2, 5]), np.array([0, 5, 10]))
        >>> found.ptr.tolist(), found.position.tolist(), found.local.tolist()
        ([0, 1, 3], [1, 0, 2], [2, 2, 0])
    """
    check_array("nodes", nodes, (np.int64,), 1, GraphFormatError)
    check_array("first_node", first_node, (np.int64,), 1, GraphFormatError)
    if not len(first_node) or first_node[0] != 0 or (first_node[1:] < first_node[:-1]).any():
        raise GraphFormatError(f"first_node is {first_node.tolist()}, but must ascend from 0.")
    number, place = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
    ptr, position, local = np.empty_like(first_node), np.empty_like(nodes), np.empty_like(nodes)
    kernels.split_nodes(nodes, first_node, number, place, ptr, position, local)
    return SplitNodes(number, place, ptr, position, local)


def split_edges(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_type: np.ndarray,
    nodes: SplitNodes,
    src_type: np.ndarray,
    dst_type: np.ndarray,
) -> SplitEdges:
    """Splits the edges of a hop by type, and keeps the order of those of one type.

    Args:
        indptr: int32 ``[D + 1]``, of the hop, whose destinations are the first nodes of the mini-batch.
        indices: int32 ``[E]``, sources as places in the mini-batch.
        edge_type: int32 ``[E]``.
        nodes: of the mini-batch, by type.
        src_type: int32 ``[K]``, the node type that edges of a type come from.
        dst_type: int32 ``[K]``, the one that they end in.

    Raises:
        GraphFormatError: a place or a type that is not there, or an edge whose ends are of other types than its own.

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
    num_dst, num_types = len(indptr) - 1, len(nodes.ptr) - 1
    if not 0 <= num_dst <= len(nodes.type):
        raise GraphFormatError(f"the hop has {num_dst} destinations, but the mini-batch {len(nodes.type)} nodes.")
    if len(edge_type) != len(indices) or len(dst_type) != len(src_type):
        raise GraphFormatError(
            f"there are {len(indices)} edges with {len(edge_type)} types, and edge types with {len(src_type)} sources "
            f"and {len(dst_type)} targets: give one of each."
        )
    if dst_type.size and not (dst_type.min() >= 0 and dst_type.max() < num_types):
        raise GraphFormatError(f"dst_type is {dst_type.tolist()}, but the node types lie in [0, {num_types}).")
    begin = np.concatenate([[0], np.cumsum(nodes.counts(num_dst)[dst_type] + 1)]).astype(np.int64)
    ptr, indptrs = np.empty(len(src_type) + 1, np.int64), np.zeros(begin[-1], np.int32)
    sources, position = np.empty(len(indices), np.int32), np.empty(len(indices), np.int64)
    kernels.split_edges(
        indptr, indices, edge_type, nodes.type, nodes.place, src_type, dst_type, begin, ptr, indptrs, sources, position
    )
    return SplitEdges(ptr, begin, indptrs, sources, position)
