"""Whether arrays are a graph: what is checked once, when it is made, so that everything else can trust them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphFormatError


def check_graph_arrays(graph: Any) -> None:
    """Raises GraphFormatError: the arrays of a Graph do not fit each other, or are none; names the first bad entry."""
    _check_topology(graph.indptr, graph.indices)
    check_edge_array("edge_weight", graph.edge_weight, "f", graph.num_edges)
    check_edge_array("edge_type", graph.edge_type, "iu", graph.num_edges)
    check_edge_array("edge_order", graph.edge_order, "iu", graph.num_edges)
    _check_order(graph.edge_order, is_part=graph.origin is not None)
    if graph.origin is not None and len(graph.origin.node_ids) != graph.num_nodes:
        raise GraphFormatError(
            f"Graph: origin names {len(graph.origin.node_ids)} nodes, but the graph has {graph.num_nodes}."
        )
    _check_weights(graph.edge_weight)
    is_part = graph.origin is not None and graph.edge_type is not None
    if (graph.types is None) != (graph.run_ptr is None) and not is_part:
        raise GraphFormatError("Graph: types and run_ptr come together. Build the graph with Graph.from_hetero.")
    _check_times(graph)


def check_edge_array(name: str, values: np.ndarray | None, kinds: str, num_edges: int) -> None:
    """Raises GraphFormatError: not a number of these kinds for each edge."""
    if values is None:
        return
    if values.ndim != 1 or len(values) != num_edges or values.dtype.kind not in kinds:
        numbers = "floats" if kinds == "f" else "integers" if kinds == "iu" else "numbers"
        raise GraphFormatError(
            f"Graph: {name} must be {numbers} [{num_edges}], one an edge, but it is {values.dtype} "
            f"{list(values.shape)}."
        )


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


def _check_order(order: np.ndarray | None, *, is_part: bool) -> None:
    if order is None or not order.size:
        return
    low, high = int(order.min()), int(order.max())
    # The lists that a part was cut from have more edges than it.
    if low < 0 or (high >= len(order) and not is_part):
        bad = int(np.argmin(order) if low < 0 else np.argmax(order))
        raise GraphFormatError(
            f"Graph: edge_order[{bad}] is {order[bad]}, which is no row of an edge list of {len(order)} edges. Give "
            "each edge's position in the list that the graph was built from."
        )


def _check_weights(weight: np.ndarray | None) -> None:
    if weight is None or not weight.size:
        return
    # Not-a-number fails both comparisons.
    low, high = float(weight.min()), float(weight.max())
    if not (low >= 0 and high < np.inf):
        raise GraphFormatError(f"Graph: edge_weight must be finite and not negative, but it spans [{low}, {high}].")


def _check_times(graph: Any) -> None:
    """The arrays of times and their clock come together. Whether edges lie in their order is seen with the runs."""
    clock, time, node_time = graph.clock, graph.edge_time, graph.node_time
    if (clock is None) != (time is None) or (node_time is not None and clock is None):
        raise GraphFormatError(
            "Graph: edge_time and clock come together, and node_time with them. Build the graph with Graph.from_coo or "
            "from_hetero, which make the clock of the times."
        )
    if clock is None:
        return
    num_types = 1 if graph.types is None else len(graph.types.edge_types)
    if clock.timed.dtype != np.bool_ or clock.timed.shape != (num_types,):
        raise GraphFormatError(
            f"Graph: clock.timed must be bool [{num_types}], one an edge type, but it is {clock.timed.dtype} "
            f"{list(clock.timed.shape)}."
        )
    if node_time is not None and (
        node_time.shape != (graph.num_nodes,) or node_time.dtype not in (np.int64, np.float64)
    ):
        raise GraphFormatError(
            f"Graph: node_time must be int64 or float64 [{graph.num_nodes}], one a node, but it is {node_time.dtype} "
            f"{list(node_time.shape)}."
        )
    if node_time is not None and np.isnan(node_time.min(initial=0)):
        raise GraphFormatError(f"Graph: node_time[{np.isnan(node_time).argmax()}] is no time (NaN).")


def check_graph_runs(graph: Any) -> None:
    """Raises GraphFormatError: runs that do not cut the lists of a Graph, or whose times do not ascend."""
    types, run_ptr = graph.types, graph.run_ptr
    if types is not None and run_ptr is not None:
        if graph.edge_type is not None:
            raise GraphFormatError("Graph: types and edge_type exclude each other: run_ptr tells types of edges.")
        ops.check_runs(graph.indptr, graph.indices, run_ptr, graph.edge_time, _nodes_by_type(types))
    elif graph.edge_time is not None:
        # Each run is checked as the list of a node of its own.
        run_ptr = graph.indptr
        if graph.edge_type is not None:
            run_ptr = ops.SparseLists.of(graph.indptr, graph.edge_type).run_ptr
        owners = ops.NodesOfType(0, len(run_ptr) - 1, 0, [range(graph.num_nodes)])
        ops.check_runs(run_ptr, graph.indices, run_ptr, graph.edge_time, [owners])


def _nodes_by_type(types: GraphTypes) -> list[ops.NodesOfType]:
    sources = [types.range_of(source) for source, _, _ in types.edge_types]
    firsts = zip(types.first_node, types.first_run, strict=True)  # which end with one more
    return [
        ops.NodesOfType(int(first), count, int(run), [sources[edge_type] for edge_type in slots])
        for (first, run), count, slots in zip(firsts, types.num_nodes, types.slots, strict=False)
    ]
