"""The edges of a hop as pairs of 64-bit endpoints with the user's edge ids, as PyG has them.

Shapes: D destinations, E edges of the hop, H hops that they belong to, K edge types, N edges of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import GraphFormatError
from .by_type import SplitNodes, check_hop
from .checks import as_integer_within, check_apart, check_array
from .dispatch import kernels

_MOST_EDGES = 2**63 - 1


@dataclass(frozen=True)
class SplitEdgeList:
    """The edges of a hop by type: those of type ``k`` are entries ``ptr[k]`` to ``ptr[k + 1]``, in the hop's order."""

    ptr: np.ndarray  # int64 [K + 1]
    counts: np.ndarray  # int64 [H, K], edges of each type that each hop adds
    edge_index: np.ndarray  # int64 [2 * E], of each type the sources, then the targets, as positions in their types
    edge_ids: np.ndarray  # int64 [E]

    def of_type(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the endpoints of the edges of type ``k``, int64 ``[2, E_k]``, and their ids, int64 ``[E_k]``."""
        begin, end = self.ptr[k], self.ptr[k + 1]
        return self.edge_index[2 * begin : 2 * end].reshape(2, end - begin), self.edge_ids[begin:end]


def list_edges(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_ids: np.ndarray,
    order: np.ndarray | None,
    num_edges: int,
    out: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Lists the edges of a hop: sources and targets, int64 ``[2, E]``, and edge ids, int64 ``[E]``.

    ``indptr`` int32 ``[D + 1]`` and ``indices`` int32 ``[E]`` are the hop's; ``edge_ids`` int64 ``[E]`` are positions
    in the graph, and ``order``, int32 or int64 ``[N]``, has the user's id at each; None: the position itself. The
    result goes to ``out``, int64 ``[3 * E]``, or to new memory.

    Raises GraphFormatError for a position that is not in the graph, an ``indptr`` that does not ascend to E, or ``out``
    of another size; SamplerConfigError where ``out`` is memory of another argument.

    Example:
        >>> hop = np.array([0, 2, 3], np.int32), np.array([1, 2, 2], np.int32), np.array([0, 1, 2])
        >>> [rows.tolist() for rows in list_edges(*hop, np.array([7, 9, 8]), 3)]
        [[[1, 2, 2], [0, 0, 1]], [7, 9, 8]]
    """
    num_edges = _checked(indptr, indices, edge_ids, order, num_edges)
    edge_index, numbers = _lists(len(indices), out, indptr=indptr, indices=indices, edge_ids=edge_ids, order=order)
    kernels.list_edges(indptr, indices, edge_ids, order, num_edges, edge_index, numbers)
    return edge_index.reshape(2, -1), numbers


def split_edge_list(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_type: np.ndarray,
    edge_ids: np.ndarray,
    nodes: SplitNodes,
    src_type: np.ndarray,
    dst_type: np.ndarray,
    num_dst: np.ndarray,
    order: np.ndarray | None,
    num_edges: int,
    out: np.ndarray | None = None,
) -> SplitEdgeList:
    """Lists the edges of a hop by type.

    ``edge_type`` is int32 ``[E]``; edges of a type lead from nodes of ``src_type`` to ``dst_type``, int32 ``[K]`` each;
    ``num_dst``, int64 ``[H]``, counts the destinations up to each hop, D at the last. Other arguments and errors as in
    :func:`list_edges`; GraphFormatError also for a type that does not exist, or a ``num_dst`` that does not ascend to
    D.

    Example:
        >>> nodes = SplitNodes(np.array([0, 1, 3]), np.array([1, 0, 2], np.int32), np.array([1, 0, 2]), None)
        >>> hop = [np.array([0, 2], np.int32), np.array([1, 2], np.int32), np.array([1, 0], np.int32), np.array([5, 6])]
        >>> types = np.array([1, 0], np.int32), np.array([1, 1], np.int32)
        >>> listed = split_edge_list(*hop, nodes, *types, np.array([1]), None, 7)
        >>> [rows.tolist() for rows in listed.of_type(0)], listed.counts.tolist()
        ([[[1], [0]], [6]], [[1, 1]])
    """
    num_edges = _checked(indptr, indices, edge_ids, order, num_edges)
    for name, array in (("edge_type", edge_type), ("src_type", src_type), ("dst_type", dst_type)):
        check_array(name, array, (np.int32,), 1, GraphFormatError)
    check_array("num_dst", num_dst, (np.int64,), 1, GraphFormatError)
    most_dst = len(indptr) - 1
    check_hop(most_dst, indices, edge_type, nodes, src_type, dst_type)
    if not len(num_dst) or num_dst[0] < 0 or (num_dst[1:] < num_dst[:-1]).any() or num_dst[-1] != most_dst:
        raise GraphFormatError(
            f"num_dst is {num_dst.tolist()}, but must ascend to the number of destinations, {most_dst}."
        )
    result = SplitEdgeList(
        np.empty(len(src_type) + 1, np.int64),
        np.empty((len(num_dst), len(src_type)), np.int64),
        *_lists(
            len(indices),
            out,
            indptr=indptr,
            indices=indices,
            edge_type=edge_type,
            edge_ids=edge_ids,
            order=order,
            **{"nodes.rank": nodes.rank, "nodes.ptr": nodes.ptr, "num_dst": num_dst},
        ),
    )
    kernels.split_edge_list(
        indptr,
        indices,
        edge_type,
        edge_ids,
        order,
        num_edges,
        nodes.rank,
        nodes.ptr,
        src_type,
        dst_type,
        num_dst,
        result.counts.reshape(-1),
        result.ptr,
        result.edge_index,
        result.edge_ids,
    )
    return result


def _lists(count: int, out: np.ndarray | None, **inputs: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns memory for the endpoints of so many edges, int64 ``[2 * E]``, and for their ids, int64 ``[E]``."""
    if out is None:
        out = np.empty(3 * count, np.int64)
    check_array("out", out, (np.int64,), 1, GraphFormatError, writable=True)
    if len(out) != 3 * count:
        raise GraphFormatError(f"out has {len(out)} entries, but {count} edges take {3 * count}: 3 each.")
    check_apart("out", out, *inputs.items())
    return out[: 2 * count], out[2 * count :]


def _checked(
    indptr: np.ndarray, indices: np.ndarray, edge_ids: np.ndarray, order: np.ndarray | None, num_edges: int
) -> int:
    """Checks the columns that all hops have; returns the number of the graph's edges as a plain integer."""
    num_edges = as_integer_within("num_edges", num_edges, 0, _MOST_EDGES, GraphFormatError)
    for name, array in (("indptr", indptr), ("indices", indices)):
        check_array(name, array, (np.int32,), 1, GraphFormatError)
    check_array("edge_ids", edge_ids, (np.int64,), 1, GraphFormatError)
    if not len(indptr) or len(edge_ids) != len(indices):
        raise GraphFormatError(
            f"indptr has {len(indptr)} entries, and there are {len(indices)} edges with {len(edge_ids)} ids: indptr "
            "must have one more than there are destinations, and each edge its id."
        )
    if order is not None:
        check_array("order", order, (np.int32, np.int64), 1, GraphFormatError)
        if len(order) != num_edges:
            raise GraphFormatError(f"order has {len(order)} entries, but the graph has {num_edges} edges.")
    return num_edges
