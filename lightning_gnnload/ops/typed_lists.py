"""Lists cut into runs, the in-neighbours of one node by edges of one type, each in the order of its times.

Shapes: N graph nodes, E edges, T node types, K edge types, R runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError
from .checks import as_flag, check_apart, check_array
from .dispatch import kernels
from .inputs import SamplerInput
from .runs import EdgeList, build_runs

# A draw's hop has 16 bits: 4 for the hop and 12 for the type, of which 0 means untyped draws.
MAX_EDGE_TYPES = (1 << 12) - 1


@dataclass(frozen=True)
class TypedLists:
    """The in-neighbours of a graph's nodes by edge type and time: what :func:`.sample_typed_neighbors` reads.

    There are two layouts, :class:`DenseLists` and :class:`SparseLists`. Draws do not depend on it.

    Attributes:
        run_ptr: ``[R + 1]``: run ``r`` is ``indices[run_ptr[r]:run_ptr[r + 1]]``. A node's runs ascend by type.
        edge_time: uint32 ``[E]``, ascending in each run, which is not checked; None for a graph without times.
        timed: uint8 ``[K]``: which edge types have times; edges of the others are always eligible.
    """

    run_ptr: np.ndarray
    edge_time: np.ndarray | None
    timed: np.ndarray

    is_untyped = False
    """Whether there is one edge type, and draws are those of a graph without types."""

    def __post_init__(self) -> None:
        run_ptr = self.run_ptr
        if len(run_ptr) == 0 or run_ptr[0] != 0 or np.any(run_ptr[1:] < run_ptr[:-1]):
            raise GraphFormatError("run_ptr must ascend from 0: run r is indices[run_ptr[r]:run_ptr[r + 1]].")
        if self.edge_time is not None:
            check_array("edge_time", self.edge_time, (np.uint32,), 1, GraphFormatError, count=int(run_ptr[-1]))
        check_array("timed", self.timed, (np.uint8,), 1, GraphFormatError)

    @property
    def num_edge_types(self) -> int:
        return len(self.timed)

    @property
    def num_nodes(self) -> int:
        raise NotImplementedError

    @property
    def native(self) -> kernels.DenseRuns | kernels.SparseRuns:
        raise NotImplementedError

    def bounds(self, nodes: np.ndarray, edge_type: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the run of each node, int64 ``[n]``, by edges of a type begins and ends in ``indices``: int64
        ``[n]`` both, and equal where there are none."""
        raise NotImplementedError

    def timed_runs(self, nodes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the runs of nodes ``[n]`` whose edges have times: positions in ``nodes``, distinct in each pair, and
        the run of each."""
        raise NotImplementedError

    @cached_property
    def arrays(self) -> list[tuple[str, np.ndarray]]:
        """The arrays by their names."""
        return arrays_of("lists", self)


@dataclass(frozen=True)
class DenseLists(TypedLists):
    """The layout for few edge types: a run for each node and type, of nodes that lie by node type.

    Node ``v`` of type ``t`` has runs ``first_run[t] + (v - first_node[t]) * W + s`` for each slot ``s`` of the W edge
    types that end in ``t``.

    Attributes:
        run_ptr: uint32 or int64.
        first_node: int64 ``[T + 1]``.
        first_run: int64 ``[T + 1]``.
        slot_ptr: int64 ``[T + 1]``, where in ``slot_type`` the slots of a node type begin.
        slot_type: int32 ``[K]``, the edge type of each slot.
    """

    first_node: np.ndarray
    first_run: np.ndarray
    slot_ptr: np.ndarray
    slot_type: np.ndarray
    is_untyped: bool = False

    def __post_init__(self) -> None:
        check_array("run_ptr", self.run_ptr, (np.uint32, np.int64), 1, GraphFormatError)
        for name in ("first_node", "first_run", "slot_ptr"):
            array = getattr(self, name)
            check_array(name, array, (np.int64,), 1, GraphFormatError)
            ascends = len(array) >= 2 and array[0] == 0 and not np.any(array[1:] < array[:-1])  # or they may overflow
            if not ascends or len(array) != len(self.first_node):
                raise GraphFormatError(
                    f"{name} is {array!r:.200}, but must ascend from 0, with an entry for each node type and one more."
                )
        check_array("slot_type", self.slot_type, (np.int32,), 1, GraphFormatError)
        num_slots = len(self.slot_type)
        if self.slot_ptr[-1] != num_slots or not np.array_equal(np.sort(self.slot_type), np.arange(num_slots)):
            raise GraphFormatError(
                f"slot_type is {self.slot_type!r:.200}, but must have each edge type once, and slot_ptr end at their "
                f"number, not at {self.slot_ptr[-1]}."
            )
        num_runs = np.diff(self.first_node) * np.diff(self.slot_ptr)
        if not np.array_equal(np.diff(self.first_run), num_runs) or len(self.run_ptr) != self.first_run[-1] + 1:
            raise GraphFormatError(
                f"run_ptr has {len(self.run_ptr)} entries and first_run is {self.first_run!r:.200}, but one run a node "
                f"and slot makes {num_runs.sum()} runs: {num_runs!r:.200} by node type."
            )
        super().__post_init__()
        if len(self.timed) != num_slots:
            raise GraphFormatError(
                f"timed has {len(self.timed)} entries, but there are {num_slots} edge types: one each."
            )
        if as_flag("is_untyped", self.is_untyped) and num_slots != 1:
            raise GraphFormatError(f"lists without types have one edge type, not {num_slots}.")

    @property
    def num_nodes(self) -> int:
        return int(self.first_node[-1])

    @cached_property
    def places(self) -> list[tuple[int, int, int, int]]:
        """Of each edge type, where its runs are: the first one's number, how far apart they are, and the first and the
        number of the nodes that they are of."""
        positions = [(0, 0, 0, 0)] * len(self.slot_type)
        for t, (begin, end) in enumerate(pairwise(self.slot_ptr.tolist())):
            first, last = self.first_node[t : t + 2].tolist()
            for slot in range(begin, end):
                run = int(self.first_run[t]) + slot - begin
                positions[self.slot_type[slot]] = run, end - begin, first, last - first
        return positions

    def bounds(self, nodes: np.ndarray, edge_type: int) -> tuple[np.ndarray, np.ndarray]:
        first, stride, first_node, num_nodes = self.places[edge_type]
        offsets = nodes - first_node
        has_run = (offsets >= 0) & (offsets < num_nodes)
        runs = np.where(has_run, first + offsets * stride, 0)
        begins = self.run_ptr[runs].astype(np.int64)
        return begins, np.where(has_run, self.run_ptr[runs + has_run], begins).astype(np.int64)

    def timed_runs(self, nodes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        node_type = np.searchsorted(self.first_node, nodes, side="right") - 1
        for t in np.unique(node_type):
            rows = np.flatnonzero(node_type == t)
            slots = self.slot_type[self.slot_ptr[t] : self.slot_ptr[t + 1]]
            for slot in np.flatnonzero(self.timed[slots]):
                yield rows, self.first_run[t] + (nodes[rows] - self.first_node[t]) * len(slots) + slot

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
class SparseLists(TypedLists):
    """The layout for many edge types, and for nodes in any order: the runs that are not empty.

    Attributes:
        run_ptr: int64.
        first_run: int64 ``[N + 1]``: node ``v`` has the runs ``first_run[v]`` to ``first_run[v + 1] - 1``.
        run_type: int32 ``[R]``.
    """

    first_run: np.ndarray
    run_type: np.ndarray

    def __post_init__(self) -> None:
        for name, dtype in (("run_ptr", np.int64), ("first_run", np.int64), ("run_type", np.int32)):
            check_array(name, getattr(self, name), (dtype,), 1, GraphFormatError)
        super().__post_init__()
        first_run, run_type, num_runs = self.first_run, self.run_type, len(self.run_ptr) - 1
        ascends = len(first_run) > 0 and first_run[0] == 0 and not np.any(first_run[1:] < first_run[:-1])
        if not ascends or not first_run[-1] == len(run_type) == num_runs:
            raise GraphFormatError(
                f"first_run is {first_run!r:.200}, but must ascend from 0 to the number of runs, which is {num_runs} "
                f"by run_ptr and {len(run_type)} by run_type."
            )
        # Kernels have room for one run of each type a node.
        ascends_by_type = run_type[1:] > run_type[:-1]
        ascends_by_type[first_run[(first_run > 0) & (first_run < num_runs)] - 1] = True
        in_range = num_runs == 0 or 0 <= run_type.min() <= run_type.max() < len(self.timed)
        if not in_range or not ascends_by_type.all():
            raise GraphFormatError(
                f"run_type is {run_type!r:.200}, but must ascend within each node, and lie in [0, {len(self.timed)}), "
                "as timed has an entry for each edge type."
            )

    @classmethod
    def of(
        cls,
        indptr: np.ndarray,
        edge_type: np.ndarray,
        edge_time: np.ndarray | None = None,
        timed: np.ndarray | None = None,
    ) -> SparseLists:
        """Finds the runs of lists that are sorted by ``edge_type``, integers ``[E]`` in [0, 4095); ``timed`` as above,
        or None: of the types up to the largest, none has times.

        Example:
            >>> lists = SparseLists.of(np.array([0, 3]), np.array([0, 1, 1]))
            >>> lists.run_type.tolist(), lists.run_ptr.tolist()
            ([0, 1], [0, 1, 3])
        """
        types = _type_numbers(indptr, edge_type)
        if not _are_sorted(indptr, types):
            raise GraphFormatError(
                "edge_type must ascend within each node's list; sort_by_type() tells how to sort it."
            )
        changes = types[1:] != types[:-1]
        changes[_inner_begins(indptr) - 1] = True
        begins = np.append(np.zeros(min(len(types), 1), np.int64), np.flatnonzero(changes) + 1)
        run_ptr, first_run = np.append(begins, len(types)), np.searchsorted(begins, indptr)
        run_type = types[begins].astype(np.int32, copy=False)
        if timed is None:
            timed = np.zeros(int(types.max()) + 1 if len(types) else 0, np.uint8)
        return cls(run_ptr, edge_time, timed, first_run, run_type)

    @property
    def num_nodes(self) -> int:
        return len(self.first_run) - 1

    def dense(self) -> DenseLists:
        """Returns the same lists in the other layout, with a run for each of the N nodes and K types."""
        num_nodes, num_types = self.num_nodes, self.num_edge_types
        run_ptr = np.zeros(num_nodes * num_types + 1, np.uint32 if self.run_ptr[-1] < 2**32 else np.int64)
        nodes = np.repeat(np.arange(num_nodes), np.diff(self.first_run))
        run_ptr[1 + nodes * num_types + self.run_type] = np.diff(self.run_ptr)
        np.cumsum(run_ptr, dtype=run_ptr.dtype, out=run_ptr)
        first_node, first_run, slot_ptr = (np.array([0, end]) for end in (num_nodes, len(run_ptr) - 1, num_types))
        slot_type = np.arange(num_types, dtype=np.int32)
        return DenseLists(run_ptr, self.edge_time, self.timed, first_node, first_run, slot_ptr, slot_type)

    @cached_property
    def _keys(self) -> np.ndarray:
        """Of each run its node and type as one number, int64 ``[R]``, ascending."""
        nodes = np.repeat(np.arange(self.num_nodes), np.diff(self.first_run))
        return nodes * self.num_edge_types + self.run_type

    def bounds(self, nodes: np.ndarray, edge_type: int) -> tuple[np.ndarray, np.ndarray]:
        keys = nodes * self.num_edge_types + edge_type
        runs = np.searchsorted(self._keys, keys)
        has_run = runs < len(self._keys)
        has_run[has_run] = self._keys[runs[has_run]] == keys[has_run]
        begins = self.run_ptr[runs]
        return begins, np.where(has_run, self.run_ptr[runs + has_run], begins)

    def timed_runs(self, nodes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        begin, end = self.first_run[nodes], self.first_run[nodes + 1]
        for offset in range(int((end - begin).max(initial=0))):
            rows = np.flatnonzero(begin + offset < end)
            rows = rows[self.timed[self.run_type[begin[rows] + offset]] != 0]
            yield rows, begin[rows] + offset

    @cached_property
    def native(self) -> kernels.SparseRuns:
        return kernels.SparseRuns(self.run_ptr, self.first_run, self.run_type, self.edge_time, self.timed)


def sort_by_type(indptr: np.ndarray, edge_type: np.ndarray) -> np.ndarray | None:
    """Returns the positions of edges, int32 or int64 ``[E]``, each node's in the order of their types, those of a type
    in the order that they have; None where they lie so.

    Example:
        >>> sort_by_type(np.array([0, 3]), np.array([1, 0, 1])).tolist()
        [1, 0, 2]
    """
    types, num_nodes = _type_numbers(indptr, edge_type), len(indptr) - 1
    if _are_sorted(indptr, types):
        return None
    dtype = np.int32 if max(len(types), num_nodes) < 2**31 else np.int64
    nodes = np.repeat(np.arange(num_nodes, dtype=dtype), np.diff(indptr))
    # Types take the place of times, by which runs are sorted.
    positions, codes = np.arange(len(types), dtype=dtype), types.astype(np.uint32)
    edges = EdgeList("sort_by_type", positions, nodes, len(types), num_nodes, code=codes)
    return build_runs([edges], num_nodes, dtype).indices


def are_type_numbers(edge_type: np.ndarray) -> bool:
    """Returns whether edges can be drawn by these types: integers in [0, 4095)."""
    if edge_type.dtype.kind not in "iu":
        return False
    return not edge_type.size or bool(edge_type.min() >= 0 and edge_type.max() < MAX_EDGE_TYPES)


def _type_numbers(indptr: np.ndarray, edge_type: np.ndarray) -> np.ndarray:
    """Returns edge types once they are checked."""
    check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    check_array("edge_type", edge_type, None, 1, GraphFormatError)
    num_edges = indptr[-1] if len(indptr) else 0
    if len(indptr) == 0 or len(edge_type) != num_edges:
        raise GraphFormatError(f"edge_type has {len(edge_type)} entries, but the graph has {num_edges} edges.")
    if not are_type_numbers(edge_type):
        are_numbers = edge_type.size and edge_type.dtype.kind in "iuf"
        some = f"lie in [{edge_type.min()}, {edge_type.max()}]" if are_numbers else f"are {edge_type.dtype}"
        raise GraphFormatError(
            f"edge types {some}, but sampling by type needs integers in [0, {MAX_EDGE_TYPES}): number them from 0, for "
            "example with numpy.unique(edge_type, return_inverse=True)[1]."
        )
    return edge_type


def _inner_begins(indptr: np.ndarray) -> np.ndarray:
    """Returns where lists begin, but for those at the first edge and behind the last."""
    return indptr[(indptr > 0) & (indptr < indptr[-1])]


def _are_sorted(indptr: np.ndarray, types: np.ndarray) -> bool:
    falls = types[1:] < types[:-1]
    falls[_inner_begins(indptr) - 1] = False
    return not falls.any()


def arrays_of(name: str, described: Any) -> list[tuple[str, np.ndarray]]:
    """Lists the arrays of a dataclass, by their names."""
    values = [(f"{name}.{field.name}", getattr(described, field.name)) for field in fields(described)]
    return [(field, value) for field, value in values if isinstance(value, np.ndarray)]


def check_lists(lists: TypedLists, inputs: SamplerInput) -> None:
    """Raises SamplerConfigError where these are lists of another graph than the input's."""
    num_nodes, num_edges, num_indexed = len(inputs.indptr) - 1, len(inputs.indices), int(lists.run_ptr[-1])
    if lists.num_nodes != num_nodes:
        raise SamplerConfigError(
            f"lists index {lists.num_nodes} nodes, but the graph has {num_nodes}: index this graph's."
        )
    check_apart("arena", inputs.arena, *lists.arrays)
    if num_indexed != num_edges:
        raise SamplerConfigError(
            f"lists are of {num_indexed} edges, but the graph has {num_edges}: index this graph's."
        )
