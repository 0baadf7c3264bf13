"""Builds the arrays of a graph from edge lists: of one type or of several, with times or without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.clock import Clock, are_dates, as_times
from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.errors import GraphFormatError

ALWAYS = np.iinfo(np.int64).min
"""The time of nodes whose type has no times, where times are whole numbers: always eligible."""
Endpoints = tuple[np.ndarray, np.ndarray]


def edge_endpoints(src: Any, dst: Any, *, list_name: str, names: tuple[str, str] = ("src", "dst")) -> Endpoints:
    """Converts sources and targets to int32 or int64 ``[E]``, both alike, without a copy where they are so."""
    endpoints = [_integers(ids, f"{list_name}: {name}") for ids, name in zip((src, dst), names, strict=True)]
    if len(endpoints[0]) != len(endpoints[1]):
        raise GraphFormatError(
            f"{list_name}: {names[0]} has {len(endpoints[0])} entries but {names[1]} has {len(endpoints[1])}; give one "
            "of each an edge."
        )
    dtype = np.int32 if all(ids.dtype == np.int32 for ids in endpoints) else np.int64
    return endpoints[0].astype(dtype, copy=False), endpoints[1].astype(dtype, copy=False)


def flat_arrays(
    src: np.ndarray,
    dst: np.ndarray,
    num_nodes: int,
    edge_weight: np.ndarray | None,
    edge_type: np.ndarray | None,
    edge_time: Any,
    node_time: Any,
    *,
    keep_order: bool,
) -> dict[str, Any]:
    """Returns the arguments of :class:`.Graph`, by name, of a graph of one type: each list is one run."""
    caller = "Graph.from_coo"
    time = None if edge_time is None else as_times(edge_time, name=f"{caller}: edge_time")
    node_times = None if node_time is None else as_times(node_time, name=f"{caller}: node_time")
    for name, values, count in (("edge_time", time, len(src)), ("node_time", node_times, num_nodes)):
        if values is not None and len(values) != count:
            unit = "edges" if name == "edge_time" else "nodes"
            raise GraphFormatError(f"{caller}: {name} has {len(values)} entries for {count} {unit}; one each.")
    has_times = time is not None or node_times is not None
    clock = _clock([edge_time, node_time], [time, node_times]) if has_times else None
    optional = {"edge_weight": edge_weight, "edge_type": edge_type}
    columns = {name: values for name, values in optional.items() if values is not None}
    code: Any = _codes(clock, time, node_times, src)
    if code is None and edge_type is not None and ops.are_type_numbers(edge_type):
        code = edge_type.astype(np.uint32)  # lists lie by type, as runs by time
    edges = ops.EdgeList(caller, src, dst, num_nodes, num_nodes, code=code, columns=tuple(columns.values()))
    order_dtype = _index_dtype(len(src)) if keep_order else None
    runs = ops.build_runs([edges], num_nodes, _index_dtype(num_nodes), order_dtype=order_dtype)
    return {
        "indptr": runs.run_ptr,
        "indices": runs.indices,
        "edge_order": runs.order,
        "edge_time": None if clock is None else runs.edge_time,
        "node_time": node_times,
        "clock": clock,
        **dict(zip(columns, runs.columns, strict=True)),
    }


def hetero_arrays(
    num_nodes: Mapping[str, int] | None,
    edges: Mapping[EdgeType, Any],
    edge_weight: Mapping[EdgeType, Any] | None,
    edge_time: Mapping[EdgeType, Any] | None,
    node_time: Mapping[str, Any] | None,
    *,
    keep_order: bool,
) -> dict[str, Any]:
    """Returns the arguments of :class:`.Graph`, by name; see :meth:`.Graph.from_hetero`."""
    _check_mappings(edges, num_nodes=num_nodes, edge_weight=edge_weight, edge_time=edge_time, node_time=node_time)
    endpoints = {edge_type: _pair(edge_type, pair) for edge_type, pair in edges.items()}
    types = _types(num_nodes, endpoints)
    num_edges = [len(src) for src, _ in endpoints.values()]
    edge_counts = dict(zip(endpoints, num_edges, strict=True))
    node_counts = dict(zip(types.node_types, types.num_nodes, strict=True))
    weights = _columns("edge_weight", edge_weight, edge_counts, "edges", as_array)
    times = _columns("edge_time", edge_time, edge_counts, "edges", as_times)
    node_times = _columns("node_time", node_time, node_counts, "nodes", as_times)
    clock = None
    if times or node_times:
        # An edge is there from its own time on, and not before its source.
        timed = np.array([name in times or name[0] in node_times for name in endpoints], np.bool_)
        raw_times = [*(edge_time or {}).values(), *(node_time or {}).values()]
        clock = _clock(raw_times, [*times.values(), *node_times.values()], timed)
    runs = ops.build_runs(
        _edge_lists(types, endpoints, weights, clock, times, node_times),
        int(types.first_run[-1]),
        _index_dtype(int(types.first_node[-1])),
        ptr_dtype=np.uint32 if sum(num_edges) < 2**32 else np.int64,
        order_dtype=_index_dtype(max(num_edges, default=0)) if keep_order else None,
    )
    time = runs.edge_time
    if clock is not None and time is None:  # the only nodes with times have no out-edges
        time = np.zeros(len(runs.indices), np.uint32)
    return {
        "indptr": list_begins(types, runs.run_ptr),
        "indices": runs.indices,
        "edge_weight": runs.columns[0] if weights else None,
        "edge_order": runs.order,
        "edge_time": time,
        "node_time": _node_times(types, node_times) if node_times else None,
        "run_ptr": runs.run_ptr,
        "types": types,
        "clock": clock,
    }


def _check_mappings(edges: Any, **arguments: Any) -> None:
    for name, value in {"edges": edges, **arguments}.items():
        if not isinstance(value, Mapping) and (value is not None or name == "edges"):
            raise GraphFormatError(
                f"Graph.from_hetero: {name} must be a dict by type, but it is a {type(value).__name__}."
            )


def _integers(values: Any, name: str) -> np.ndarray:
    ids = as_array(values, name=name)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise GraphFormatError(f"{name} must be integers [E], but it is {ids.dtype} {list(ids.shape)}.")
    return ids if ids.dtype in (np.int32, np.int64) else ids.astype(np.int64)


def _pair(edge_type: EdgeType, pair: Any) -> Endpoints:
    try:
        src, dst = pair
    except (TypeError, ValueError, NotImplementedError) as error:
        raise GraphFormatError(f"the edges of {edge_type} must be (src, dst) or [2, E]: {error}.") from error
    return edge_endpoints(src, dst, list_name=f"the edges of {edge_type}", names=("sources", "targets"))


def _types(num_nodes: Mapping[str, int] | None, endpoints: Mapping[EdgeType, Endpoints]) -> GraphTypes:
    """Returns the types; without ``num_nodes``, a type has as many nodes as the largest id of an edge needs."""
    GraphTypes.check_names((), endpoints)
    counts = dict(num_nodes or {})
    if num_nodes is None:
        for (src_type, _, dst_type), pair in endpoints.items():
            for name, ids in zip((src_type, dst_type), pair, strict=True):
                counts[name] = max(counts.get(name, 0), int(ids.max()) + 1 if len(ids) else 0)
    sizes = (ops.as_integer(f"num_nodes of {name!r}", count, GraphFormatError) for name, count in counts.items())
    return GraphTypes(tuple(counts), tuple(sizes), tuple(endpoints))


def _columns(
    column: str,
    values: Mapping[Any, Any] | None,
    counts: Mapping[Any, int],
    unit: str,
    convert: Callable[..., np.ndarray],
) -> dict[Any, np.ndarray]:
    """Converts a column that is passed by type, and checks that it has a row for each edge or node of its types."""
    arrays = {type_key: convert(rows, name=f"{column} of {type_key!r}") for type_key, rows in (values or {}).items()}
    for type_key, rows in arrays.items():
        if type_key not in counts:
            raise GraphFormatError(
                f"{column} names {type_key!r}, which is not one of the graph's types, {list(counts)}."
            )
        if rows.shape != (counts[type_key],):
            raise GraphFormatError(
                f"{column} of {type_key!r} has the shape {list(rows.shape)}, but there are {counts[type_key]} {unit}; "
                "one each is needed."
            )
    return arrays


def _edge_lists(
    types: GraphTypes,
    endpoints: Mapping[EdgeType, Endpoints],
    weights: Mapping[EdgeType, np.ndarray],
    clock: Clock | None,
    times: Mapping[EdgeType, np.ndarray],
    node_times: Mapping[str, np.ndarray],
) -> list[ops.EdgeList]:
    """Returns one list an edge type, each with the runs that its edges go to."""
    weight_dtype = np.result_type(*weights.values(), np.float32) if weights else np.dtype(np.float32)
    lists = []
    for number, (edge_type, (src, dst)) in enumerate(endpoints.items()):
        source, target = types.node_type_number(edge_type[0]), types.node_type_number(edge_type[2])
        slots = types.slots[target]
        weight = [_weight(weights, edge_type, len(src), weight_dtype)] if weights else []
        lists.append(
            ops.EdgeList(
                f"the edges of {edge_type}",
                src,
                dst,
                types.num_nodes[source],
                types.num_nodes[target],
                first_src=int(types.first_node[source]),
                first_run=int(types.first_run[target]) + slots.index(number),
                step=len(slots),
                code=_codes(clock, times.get(edge_type), node_times.get(edge_type[0]), src),
                columns=weight,
            )
        )
    return lists


def _clock(raw_times: Iterable[Any], times: Iterable[np.ndarray | None], timed: np.ndarray | None = None) -> Clock:
    """Makes the clock of all times, as the user passed them and as they were converted."""
    arrays = [array for array in times if array is not None]
    dated = {are_dates(values) for values in raw_times if values is not None and len(values)}
    if len({array.dtype for array in arrays if array.size}) > 1 or len(dated) > 1:
        raise GraphFormatError(
            "times of edges and nodes are of several kinds, out of whole numbers, fractions and dates. Give all of one."
        )
    # Without any time, a window in time units is allowed: no time is a number whose unit is unknown.
    return Clock.of(arrays, timed, has_dates=dated <= {True})


@dataclass(frozen=True)
class EdgeCodes:
    """Makes the codes of an edge type: that of an edge's own time or its source's, whichever is later."""

    clock: Clock
    time: np.ndarray | None  # of the edges, int64 or float64 ``[E_k]``
    node_codes: np.ndarray | None  # of the sources' type, uint32 ``[N_t]``
    src: np.ndarray  # ``[E_k]``

    def codes_of(self, piece: slice) -> np.ndarray:
        """Returns the uint32 codes ``[n]`` of a slice of the edges, whose sources were checked."""
        # By slices, so that codes of all edges at once take no memory.
        if self.node_codes is None:
            assert self.time is not None
            return self.clock.codes(self.time[piece])
        source_codes = self.node_codes[self.src[piece]]
        return source_codes if self.time is None else np.maximum(self.clock.codes(self.time[piece]), source_codes)


def _codes(
    clock: Clock | None, time: np.ndarray | None, node_time: np.ndarray | None, src: np.ndarray
) -> EdgeCodes | None:
    if clock is None or (time is None and node_time is None):
        return None
    return EdgeCodes(clock, time, None if node_time is None else clock.codes(node_time), src)


def _weight(weights: Mapping[EdgeType, np.ndarray], edge_type: EdgeType, num_edges: int, dtype: np.dtype) -> np.ndarray:
    """Returns the weights of an edge type, ones where it has none. Raises GraphFormatError: they are no floats."""
    weight = weights.get(edge_type)
    if weight is None:
        return np.ones(num_edges, dtype)
    if weight.dtype.kind != "f":
        raise GraphFormatError(f"edge_weight must be floats, one an edge, but the dtype is {weight.dtype}.")
    return weight.astype(dtype, copy=False)


def _index_dtype(count: int) -> type:
    return np.int32 if count <= 2**31 else np.int64


def list_begins(types: GraphTypes, run_ptr: np.ndarray) -> np.ndarray:
    """Returns where the lists of nodes begin, int64 ``[N + 1]``: each where its first run does."""
    begins = np.empty(int(types.first_node[-1]) + 1, np.int64)
    for number, slots in enumerate(types.slots):
        nodes = slice(*types.first_node[number : number + 2])
        first, last = types.first_run[number : number + 2]
        begins[nodes] = run_ptr[first : last : len(slots)] if slots else run_ptr[first]
    begins[-1] = run_ptr[-1]
    return begins


def _node_times(types: GraphTypes, times: Mapping[str, np.ndarray]) -> np.ndarray:
    dtype = np.result_type(*(values for values in times.values() if values.size), np.int64)
    always = ALWAYS if dtype == np.int64 else -np.inf
    return np.concatenate(
        [
            times[name].astype(dtype, copy=False) if name in times else np.full(count, always, dtype)
            for name, count in zip(types.node_types, types.num_nodes, strict=True)
        ]
    )
