"""In-neighbours by edge type.

Shapes: N graph nodes, E edges, R runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import GraphFormatError
from .checks import check_array
from .dispatch import kernels

# A draw's hop has 16 bits: 4 for the hop and 12 for the type, of which 0 means untyped draws.
MAX_EDGE_TYPES: int = kernels.MAX_EDGE_TYPES


@dataclass(frozen=True)
class EdgeTypeIndex:
    """An index of each node's in-neighbours by edge type.

    A run is the in-neighbours of one node by edges of one type. A node's runs are in ascending order of type, and
    within a run the edges keep their order.

    Attributes:
        run_ptr: int64 ``[N + 1]``; node ``v`` has the runs ``run_ptr[v]`` to ``run_ptr[v + 1] - 1``.
        run_type: int32 ``[R]``.
        run_end: uint32 ``[R]``, where each run ends, counted from the node's first edge.
        order: uint32 ``[E]``, each node's edges by type, counted likewise; None if they are stored so.
        num_types: more than any type.

    Raises:
        GraphFormatError: wrong dtypes or lengths.
    """

    run_ptr: np.ndarray
    run_type: np.ndarray
    run_end: np.ndarray
    order: np.ndarray | None
    num_types: int

    is_untyped = False

    def __post_init__(self) -> None:
        for name, dtype in (("run_ptr", np.int64), ("run_type", np.int32), ("run_end", np.uint32)):
            check_array(name, getattr(self, name), (dtype,), 1, GraphFormatError)
        if self.order is not None:
            check_array("order", self.order, (np.uint32,), 1, GraphFormatError)
        num_runs = self.run_ptr[-1] if len(self.run_ptr) else -1
        if not len(self.run_type) == len(self.run_end) == num_runs:
            raise GraphFormatError(
                f"run_type has {len(self.run_type)} entries and run_end {len(self.run_end)}, but run_ptr ends at "
                f"{num_runs}: index the edges with index_edge_types()."
            )

    @property
    def num_edge_types(self) -> int:
        """As :class:`TypedLists` has it."""
        return self.num_types

    @property
    def num_nodes(self) -> int:
        return len(self.run_ptr) - 1

    @cached_property
    def native(self) -> kernels.SparseRuns:
        return kernels.SparseRuns(self.run_ptr, self.run_type, self.run_end, self.order)


def index_edge_types(indptr: np.ndarray, edge_type: np.ndarray) -> EdgeTypeIndex:
    """Indexes the edges of a graph that passed :func:`.check_csc` by their types, integers ``[E]``.

    Raises:
        GraphFormatError: a type that is negative, or not below 4,095.

    Example:
        >>> index = index_edge_types(np.array([0, 3]), np.array([1, 0, 1]))
        >>> index.run_type.tolist(), index.run_end.tolist(), index.order.tolist()
        ([0, 1], [1, 3], [1, 0, 2])
    """
    check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    check_array("edge_type", edge_type, None, 1, GraphFormatError)
    if edge_type.dtype.kind not in "iu":
        raise GraphFormatError(f"edge_type has dtype {edge_type.dtype}, but types are integers.")
    low, high = (int(edge_type.min()), int(edge_type.max())) if edge_type.size else (0, -1)
    if low < 0 or high >= MAX_EDGE_TYPES:
        raise GraphFormatError(
            f"edge types lie in [{low}, {high}], but sampling by type needs them in [0, {MAX_EDGE_TYPES}): "
            "number them from 0, for example with numpy.unique(edge_type, return_inverse=True)[1]."
        )
    types = edge_type.astype(np.int32, copy=False)
    num_edges = indptr[-1] if len(indptr) else 0
    if len(indptr) == 0 or len(types) != num_edges:
        raise GraphFormatError(f"edge_type has {len(types)} entries, but the graph has {num_edges} edges.")
    run_ptr = np.empty_like(indptr)
    is_sorted = kernels.count_edge_type_runs(indptr, types, run_ptr)
    run_type, run_end = np.empty(run_ptr[-1], np.int32), np.empty(run_ptr[-1], np.uint32)
    # Edges that are sorted already need no order, which takes 4 bytes each.
    order = None if is_sorted else np.empty(len(types), np.uint32)
    kernels.index_edge_types(indptr, types, run_ptr, run_type, run_end, order)
    return EdgeTypeIndex(run_ptr, run_type, run_end, order, high + 1)
