"""The arrays of a graph, built from edge lists: of one type or of several, with times or without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.clock import Clock, are_dates, as_times
from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.errors import GraphFormatError

ALWAYS = np.iinfo(np.int64).min
"""The time of nodes whose type has no times, where times are whole numbers: they are there from the beginning."""
Ends = tuple[np.ndarray, np.ndarray]


def edge_ends(src: Any, dst: Any, *, what: str, names: tuple[str, str] = ("src", "dst")) -> Ends:
    """Converts the ends of edges to int32 or int64 ``[E]``, both alike; those that are so are not copied.

    Raises:
        GraphFormatError: no integers ``[E]``, or not as many of each.
    """
    ends = [_integers(ids, f"{what}: {name}") for ids, name in zip((src, dst), names, strict=True)]
    if len(ends[0]) != len(ends[1]):
        raise GraphFormatError(
            f"{what}: {names[0]} has {len(ends[0])} entries but {names[1]} has {len(ends[1])}; give one of each an "
            "edge."
        )
    dtype = np.int32 if all(ids.dtype == np.int32 for ids in ends) else np.int64
    return ends[0].astype(dtype, copy=False), ends[1].astype(dtype, copy=False)


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
    what = "Graph.from_coo"
    time = None if edge_time is None else as_times(edge_time, what=f"{what}: edge_time")
    of_nodes = None if node_time is None else as_times(node_time, what=f"{what}: node_time")
    for name, values, wanted in (("edge_time", time, len(src)), ("node_time", of_nodes, num_nodes)):
        if values is not None and len(values) != wanted:
            things = "edges" if name == "edge_time" else "nodes"
            raise GraphFormatError(f"{what}: {name} has {len(values)} entries for {wanted} {things}; one each.")
    has_times = time is not None or of_nodes is not None
    clock = _clock([edge_time, node_time], [time, of_nodes]) if has_times else None
    columns = {"edge_weight": edge_weight, "edge_type": edge_type}
    given = {name: values for name, values in columns.items() if values is not None}
    code: Any = _codes(clock, time, of_nodes, src)
    if code is None and edge_type is not None and ops.are_type_numbers(edge_type):
        code = edge_type.astype(np.uint32)  # lists lie by type, as runs by time
    edges = ops.EdgeList(what, src, dst, num_nodes, num_nodes, code=code, columns=tuple(given.values()))
    order_dtype = _index_dtype(len(src)) if keep_order else None
    runs = ops.build_runs([edges], num_nodes, _index_dtype(num_nodes), order_dtype=order_dtype)
    return {
        "indptr": runs.run_ptr,
        "indices": runs.indices,
        "edge_order": runs.order,
        "edge_time": None if clock is None else runs.edge_time,
        "node_time": of_nodes,
        "clock": clock,
        **dict(zip(given, runs.columns, strict=True)),
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
    by_type = {"edges": edges, "edge_weight": edge_weight, "edge_time": edge_time, "node_time": node_time}
    for name, given in {"num_nodes": num_nodes, **by_type}.items():
        if not isinstance(given, Mapping) and (given is not None or name == "edges"):
            raise GraphFormatError(
                f"Graph.from_hetero: {name} must be a dict by type, but it is a {type(given).__name__}."
            )
    ends = {kind: _pair(kind, pair) for kind, pair in edges.items()}
    types = _types(num_nodes, ends)
    weights = {kind: as_array(rows, what=f"edge_weight of {kind}") for kind, rows in (edge_weight or {}).items()}
    times = {kind: as_times(values, what=f"edge_time of {kind}") for kind, values in (edge_time or {}).items()}
    for what, values in (("edge_weight", weights), ("edge_time", times)):
        _check_lengths(what, values, {kind: len(src) for kind, (src, _) in ends.items()}, "edges")
    of_nodes = {name: as_times(values, what=f"node_time of {name!r}") for name, values in (node_time or {}).items()}
    _check_lengths("node_time", of_nodes, dict(zip(types.node_types, types.num_nodes, strict=True)), "nodes")

    clock = None
    if times or of_nodes:
        timed = np.array([kind in times or kind[0] in of_nodes for kind in ends], np.bool_)
        clock = _clock(
            [*(edge_time or {}).values(), *(node_time or {}).values()], [*times.values(), *of_nodes.values()], timed
        )
    lists = _edge_lists(types, ends, weights, clock, times, of_nodes)
    num_all, num_runs = int(types.first_node[-1]), int(types.first_run[-1])
    num_edges = [len(src) for src, _ in ends.values()]
    runs = ops.build_runs(
        lists,
        num_runs,
        _index_dtype(num_all),
        ptr_dtype=np.uint32 if sum(num_edges) < 2**32 else np.int64,
        order_dtype=_index_dtype(max(num_edges, default=0)) if keep_order else None,
    )
    time = runs.edge_time
    if clock is not None and time is None:  # of nodes alone from which no edges lead
        time = np.zeros(len(runs.indices), np.uint32)
    return {
        "indptr": _list_begins(types, runs.run_ptr),
        "indices": runs.indices,
        "edge_weight": runs.columns[0] if weights else None,
        "edge_order": runs.order,
        "edge_time": time,
        "node_time": _node_times(types, of_nodes) if of_nodes else None,
        "run_ptr": runs.run_ptr,
        "types": types,
        "clock": clock,
    }


def _integers(values: Any, what: str) -> np.ndarray:
    ids = as_array(values, what=what)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise GraphFormatError(f"{what} must be integers [E], but it is {ids.dtype} {list(ids.shape)}.")
    return ids if ids.dtype in (np.int32, np.int64) else ids.astype(np.int64)


def _pair(kind: EdgeType, pair: Any) -> Ends:
    try:
        src, dst = pair
    except (TypeError, ValueError, NotImplementedError) as error:
        raise GraphFormatError(f"the edges of {kind} must be (src, dst) or [2, E]: {error}.") from error
    return edge_ends(src, dst, what=f"the edges of {kind}", names=("sources", "targets"))


def _types(num_nodes: Mapping[str, int] | None, ends: Mapping[EdgeType, Ends]) -> GraphTypes:
    """Returns the types; counts that are not given are those that the edges show."""
    GraphTypes.check_names((), ends)
    counts = dict(num_nodes or {})
    if num_nodes is None:
        for (src_type, _, dst_type), pair in ends.items():
            for name, ids in zip((src_type, dst_type), pair, strict=True):
                counts[name] = max(counts.get(name, 0), int(ids.max()) + 1 if len(ids) else 0)
    sizes = (ops.as_integer(f"num_nodes of {name!r}", count, GraphFormatError) for name, count in counts.items())
    return GraphTypes(tuple(counts), tuple(sizes), tuple(ends))


def _check_lengths(what: str, values: Mapping[Any, np.ndarray], counts: Mapping[Any, int], things: str) -> None:
    for kind, rows in values.items():
        if kind not in counts:
            raise GraphFormatError(f"{what} names {kind!r}, which is not one of the graph's types, {list(counts)}.")
        if rows.shape != (counts[kind],):
            raise GraphFormatError(
                f"{what} of {kind!r} has the shape {list(rows.shape)}, but there are {counts[kind]} {things}; one each "
                "is needed."
            )


def _edge_lists(
    types: GraphTypes,
    ends: Mapping[EdgeType, Ends],
    weights: Mapping[EdgeType, np.ndarray],
    clock: Clock | None,
    times: Mapping[EdgeType, np.ndarray],
    of_nodes: Mapping[str, np.ndarray],
) -> list[ops.EdgeList]:
    """Returns the lists to group into runs."""
    weight_dtype = np.result_type(*weights.values(), np.float32) if weights else np.dtype(np.float32)
    lists = []
    for number, (kind, (src, dst)) in enumerate(ends.items()):
        source, target = types.node_type_number(kind[0]), types.node_type_number(kind[2])
        slots = types.slots[target]
        weight = [_weight(weights, kind, len(src), weight_dtype)] if weights else []
        lists.append(
            ops.EdgeList(
                f"the edges of {kind}",
                src,
                dst,
                types.num_nodes[source],
                types.num_nodes[target],
                first_src=int(types.first_node[source]),
                first_run=int(types.first_run[target]) + slots.index(number),
                step=len(slots),
                code=_codes(clock, times.get(kind), of_nodes.get(kind[0]), src),
                columns=weight,
            )
        )
    return lists


def _clock(given: Iterable[Any], times: Iterable[np.ndarray | None], timed: np.ndarray | None = None) -> Clock:
    """Makes the clock of times as they were given, and as they were converted; where there are any.

    Raises:
        GraphFormatError: several kinds of times.
    """
    held = [each for each in times if each is not None]
    dated = {are_dates(values) for values in given if values is not None and len(values)}
    if len({each.dtype for each in held if each.size}) > 1 or len(dated) > 1:
        raise GraphFormatError(
            "times of edges and nodes are of several kinds, out of whole numbers, fractions and dates. Give all of one."
        )
    # Where there are no times, none of them is a number whose unit is not known.
    return Clock.of(held, timed, of_dates=dated <= {True})


@dataclass(frozen=True)
class EdgeCodes:
    """Makes codes of edges: that of an edge's own time or its source's, whichever is later.

    Attributes:
        clock: whose codes they are.
        time: of the edges, int64 or float64 ``[E_k]``, or None.
        of_nodes: codes of the sources' type, uint32 ``[N_t]``, or None.
        src: the sources, ``[E_k]``.
    """

    clock: Clock
    time: np.ndarray | None
    of_nodes: np.ndarray | None
    src: np.ndarray

    def codes_of(self, piece: slice) -> np.ndarray:
        """Returns uint32 ``[n]``, of a slice of the edges, whose sources are nodes."""
        if self.of_nodes is None:
            assert self.time is not None
            return self.clock.codes(self.time[piece])
        of_source = self.of_nodes[self.src[piece]]
        return of_source if self.time is None else np.maximum(self.clock.codes(self.time[piece]), of_source)


def _codes(
    clock: Clock | None, time: np.ndarray | None, node_time: np.ndarray | None, src: np.ndarray
) -> EdgeCodes | None:
    if clock is None or (time is None and node_time is None):
        return None
    return EdgeCodes(clock, time, None if node_time is None else clock.codes(node_time), src)


def _weight(weights: Mapping[EdgeType, np.ndarray], kind: EdgeType, num_edges: int, dtype: np.dtype) -> np.ndarray:
    """Returns the weights of a type's edges. What is no float is refused."""
    weight = weights.get(kind)
    if weight is None:
        return np.ones(num_edges, dtype)
    if weight.dtype.kind != "f":
        raise GraphFormatError(f"edge_weight must be floats, one an edge, but the dtype is {weight.dtype}.")
    return weight.astype(dtype, copy=False)


def _index_dtype(count: int) -> type:
    return np.int32 if count <= 2**31 else np.int64


def _list_begins(types: GraphTypes, run_ptr: np.ndarray) -> np.ndarray:
    """Returns indptr, int64 ``[N + 1]``: where the first run of each node begins."""
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
