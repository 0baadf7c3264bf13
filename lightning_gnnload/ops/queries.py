"""Lists cut by edge type and sorted by time, and the queries by which the seeds of a mini-batch ask them.

Shapes: N graph nodes, E edges, T node types, K edge types, R runs, S seeds, Q queries, X excluded edges.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError, SeedError
from .checks import as_flag, as_integer, check_apart, check_array, check_kind
from .dispatch import DrawKey, kernels
from .edge_types import EdgeTypeIndex
from .inputs import SamplerInput


@dataclass(frozen=True)
class TypedLists:
    """The in-neighbours of a graph's nodes by edge type and time: what :func:`.sample_typed_neighbors` reads.

    A run is the in-neighbours of one node by edges of one type. Node ``v`` of type ``t`` has runs ``first_run[t] +
    (v - first_node[t]) * W + s`` for each slot ``s`` of the W edge types that end in ``t``.

    Attributes:
        run_ptr: uint32 or int64 ``[R + 1]``: run ``r`` is ``indices[run_ptr[r]:run_ptr[r + 1]]``.
        first_node: int64 ``[T + 1]``.
        first_run: int64 ``[T + 1]``.
        slot_ptr: int64 ``[T + 1]``, where in ``slot_type`` the slots of a node type begin.
        slot_type: int32 ``[K]``, the edge type of each slot.
        edge_time: uint32 ``[E]``, ascending in each run; None for a graph without times.
        timed: uint8 ``[K]``: which edge types have times; edges of the others are always eligible.
        is_untyped: there is one edge type, and draws are those of a graph without types.

    Raises:
        GraphFormatError: arrays of wrong dtypes or lengths, or that do not fit each other. That times ascend is not
            checked.
    """

    run_ptr: np.ndarray
    first_node: np.ndarray
    first_run: np.ndarray
    slot_ptr: np.ndarray
    slot_type: np.ndarray
    edge_time: np.ndarray | None
    timed: np.ndarray
    is_untyped: bool = False

    def __post_init__(self) -> None:
        _check_runs(self)
        if self.edge_time is not None:
            check_array("edge_time", self.edge_time, (np.uint32,), 1, GraphFormatError, count=int(self.run_ptr[-1]))
        check_array("timed", self.timed, (np.uint8,), 1, GraphFormatError)
        if len(self.timed) != len(self.slot_type):
            raise GraphFormatError(
                f"timed has {len(self.timed)} entries, but there are {len(self.slot_type)} edge types: one each."
            )
        if as_flag("is_untyped", self.is_untyped) and len(self.slot_type) != 1:
            raise GraphFormatError(f"lists without types have one edge type, not {len(self.slot_type)}.")

    @property
    def num_edge_types(self) -> int:
        return len(self.slot_type)

    @cached_property
    def places(self) -> list[tuple[int, int, int, int]]:
        """Of each edge type, where its runs are: the first one's number, how far apart they are, and the first and the
        number of the nodes that they are of."""
        places = [(0, 0, 0, 0)] * len(self.slot_type)
        for t, (begin, end) in enumerate(pairwise(self.slot_ptr.tolist())):
            first, last = self.first_node[t : t + 2].tolist()
            for slot in range(begin, end):
                run = int(self.first_run[t]) + slot - begin
                places[self.slot_type[slot]] = run, end - begin, first, last - first
        return places

    @cached_property
    def arrays(self) -> list[tuple[str, np.ndarray]]:
        """The arrays by their names."""
        return arrays_of("lists", self)

    @property
    def num_nodes(self) -> int:
        return int(self.first_node[-1])

    @cached_property
    def native(self) -> kernels.DenseRuns:
        return kernels.DenseRuns(
            self.run_ptr,
            self.first_node,
            self.first_run,
            self.slot_ptr,
            self.slot_type,
            self.edge_time,
            self.timed,
        )


@dataclass(frozen=True)
class Queries:
    """What the seeds of a mini-batch ask for: since when and until when edges count, and by which name to draw them.

    A query is that of one seed row, or of all seeds of one time. Seeds are distinct within a query, and so are the
    nodes that are found for it: a node that two queries find is in the mini-batch twice.

    Attributes:
        of_seed: int32 ``[S]``, the query of each seed.
        name: uint32 ``[Q]``, which takes the place of the step in the names of draws; None: the step for all.
        by_row: draws are named by rows, so that they are independent of the batch that a row is in.
        since: uint32 ``[Q]``: edges of types with times are eligible from this code on; None: from the first.
        until: uint32 ``[Q]``: and below this one; None: whatever their time.
        along_path: a node found by an edge of code ``c`` asks for edges until ``c + path_end``, and not for those until
            its seed's time; needs ``until``.
        path_end: 1 where an edge's own time is included, 0 otherwise.
        excluded: int64 ``[X]``, positions in ``indices`` of edges into seeds that are not to be drawn, wherever along
            paths a seed's node is found again.
        excluded_query: int32 ``[X]``, for which query.
    """

    of_seed: np.ndarray
    name: np.ndarray | None = None
    by_row: bool = False
    since: np.ndarray | None = None
    until: np.ndarray | None = None
    along_path: bool = False
    path_end: int = 1
    excluded: np.ndarray | None = None
    excluded_query: np.ndarray | None = None

    @cached_property
    def num_queries(self) -> int:
        for array in (self.name, self.until, self.since):
            if array is not None:
                return len(array)
        return 1

    @property
    def differ(self) -> bool:
        """Whether the mini-batch says which query each node is of: not where all seeds always share one."""
        return any(each is not None for each in (self.name, self.since, self.until))

    @property
    def are_one(self) -> bool:
        """Whether a node is in the mini-batch once at most: there is one query, and no paths make more of it."""
        return self.num_queries == 1 and not self.along_path


class Draw(NamedTuple):
    """What a sampler is asked for: one mini-batch, beside the graph.

    Attributes:
        seeds: node ids, int64 ``[S]``, distinct within each query.
        key: decides every draw.
        queries: of the seeds, for a sampler that heeds them; None where all edges count for all.
    """

    seeds: np.ndarray
    key: DrawKey
    queries: Queries | None = None


def arrays_of(name: str, described: Any) -> list[tuple[str, np.ndarray]]:
    """Lists the arrays of a dataclass, by their names."""
    values = [(f"{name}.{field.name}", getattr(described, field.name)) for field in fields(described)]
    return [(field, value) for field, value in values if isinstance(value, np.ndarray)]


def check_lists(lists: TypedLists | EdgeTypeIndex, inputs: SamplerInput) -> None:
    """Raises SamplerConfigError where these are lists of another graph than the input's."""
    num_nodes, num_edges = len(inputs.indptr) - 1, len(inputs.indices)
    if lists.num_nodes != num_nodes:
        raise SamplerConfigError(
            f"lists index {lists.num_nodes} nodes, but the graph has {num_nodes}: index this graph's."
        )
    if isinstance(lists, TypedLists):
        known, arrays = int(lists.run_ptr[-1]), lists.arrays
    else:
        known, arrays = num_edges if lists.order is None else len(lists.order), arrays_of("lists", lists)
    check_apart("arena", inputs.arena, *arrays)
    if known != num_edges:
        raise SamplerConfigError(f"lists are of {known} edges, but the graph has {num_edges}: index this graph's.")


def native_queries(queries: Queries, lists: TypedLists | EdgeTypeIndex | None, inputs: SamplerInput) -> kernels.Queries:
    """Returns checked queries of the input's seeds, as kernels take them; of a graph without types, ``lists`` is None.

    Raises:
        SeedError, SamplerConfigError: as :func:`check_queries`.
    """
    if lists is not None:
        check_kind("lists, with queries,", lists, TypedLists)
    has_times = isinstance(lists, TypedLists) and lists.edge_time is not None
    shift = check_queries(queries, len(inputs.seeds), len(inputs.indptr) - 1, len(inputs.indices), has_times)
    check_apart("arena", inputs.arena, *arrays_of("queries", queries))
    return kernels.Queries(
        queries.of_seed,
        queries.name,
        queries.since,
        queries.until,
        queries.excluded,
        queries.excluded_query,
        queries.num_queries,
        shift,
        queries.by_row,
        queries.along_path,
        queries.path_end,
    )


def check_queries(queries: Queries, num_seeds: int, num_nodes: int, num_edges: int, has_times: bool) -> int:
    """Checks what seeds ask of a graph, and returns how many bits the numbers of its nodes and edges take.

    Raises:
        SeedError: arrays of wrong dtypes or lengths, a query or a position out of range.
        SamplerConfigError: too many queries, or times that the graph does not have.
    """
    check_kind("queries", queries, Queries)
    by_query = (("name", queries.name), ("since", queries.since), ("until", queries.until))
    for name, array in by_query:
        if array is not None:
            check_array(f"queries.{name}", array, (np.uint32,), 1, SeedError)
    num_queries, shift = queries.num_queries, max(num_nodes, num_edges).bit_length()
    if (num_queries - 1).bit_length() + shift > 63:
        raise SamplerConfigError(
            f"{num_queries} queries do not fit above the numbers of nodes and edges, {shift} bits, within 63 bits. Use "
            "a smaller batch."
        )
    for name, array in by_query:
        if array is not None and len(array) != num_queries:
            raise SeedError(f"queries.{name} has {len(array)} entries, but {num_queries} are needed.")
    _check_numbers("queries.of_seed", queries.of_seed, np.int32, num_seeds, num_queries)
    if (queries.excluded is None) != (queries.excluded_query is None):
        raise SeedError("queries.excluded and queries.excluded_query are given together, one of each an edge.")
    if queries.excluded is not None:
        _check_numbers("queries.excluded", queries.excluded, np.int64, None, num_edges)
        assert queries.excluded_query is not None
        _check_numbers("queries.excluded_query", queries.excluded_query, np.int32, len(queries.excluded), num_queries)
    as_flag("queries.by_row", queries.by_row)
    if as_flag("queries.along_path", queries.along_path) and (queries.until is None or not has_times):
        raise SamplerConfigError("queries along paths need queries.until, and lists with edge_time.")
    path_end = as_integer("queries.path_end", queries.path_end)
    if path_end not in (0, 1):
        raise SamplerConfigError(f"queries.path_end is {path_end}, but must be 0 or 1.")
    return shift


def _check_runs(lists: TypedLists) -> None:
    check_array("run_ptr", lists.run_ptr, (np.uint32, np.int64), 1, GraphFormatError)
    for name in ("first_node", "first_run", "slot_ptr"):
        array = getattr(lists, name)
        check_array(name, array, (np.int64,), 1, GraphFormatError)
        ascends = len(array) >= 2 and array[0] == 0 and not np.any(array[1:] < array[:-1])  # differences may overflow
        if not ascends or len(array) != len(lists.first_node):
            raise GraphFormatError(
                f"{name} is {array!r:.200}, but must ascend from 0, with an entry for each node type and one more."
            )
    check_array("slot_type", lists.slot_type, (np.int32,), 1, GraphFormatError)
    if lists.slot_ptr[-1] != len(lists.slot_type) or not np.array_equal(
        np.sort(lists.slot_type), np.arange(len(lists.slot_type))
    ):
        raise GraphFormatError(
            f"slot_type is {lists.slot_type!r:.200}, but must have each edge type once, and slot_ptr end at their "
            f"number, not at {lists.slot_ptr[-1]}."
        )
    num_runs = np.diff(lists.first_node) * np.diff(lists.slot_ptr)
    if not np.array_equal(np.diff(lists.first_run), num_runs) or len(lists.run_ptr) != lists.first_run[-1] + 1:
        raise GraphFormatError(
            f"run_ptr has {len(lists.run_ptr)} entries and first_run is {lists.first_run!r:.200}, but one run a node "
            f"and slot makes {num_runs.sum()} runs: {num_runs!r:.200} by node type."
        )
    if lists.run_ptr[0] != 0 or np.any(lists.run_ptr[1:] < lists.run_ptr[:-1]):
        raise GraphFormatError("run_ptr must ascend from 0: run r is indices[run_ptr[r]:run_ptr[r + 1]].")


def _check_numbers(name: str, array: np.ndarray, dtype: type, count: int | None, end: int) -> None:
    check_array(name, array, (dtype,), 1, SeedError, count=count)
    if array.size and not 0 <= array.min() <= array.max() < end:
        bad = int(np.flatnonzero((array < 0) | (array >= end))[0])
        raise SeedError(f"{name}[{bad}] is {array[bad]}, but must lie in [0, {end}).")
