"""DerivedArrays: what is derived from a graph's arrays when it is first asked for."""

from __future__ import annotations

import json
import threading
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.edge_lists import ALWAYS
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError
from lightning_gnnload.host.pages import source_of

_deriving = threading.Lock()  # one for all graphs: what is derived is made once, and seldom
_MOST_RUNS_AN_EDGE = (
    4  # of a run for each node and type: with 12 types they take 3/5 of the time, with 535 twice as long
)
_CHUNK_EDGES = 1 << 22  # edges that a fingerprint converts to one dtype at a time: 32 MiB at most


class DerivedArrays:
    """Makes what samplers need beside a :class:`.Graph`'s arrays, each once for all threads."""

    __slots__ = ("_derived",)

    _derived: dict[str, Any]
    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: np.ndarray | None
    edge_type: np.ndarray | None
    edge_order: np.ndarray | None
    edge_time: np.ndarray | None
    node_time: np.ndarray | None
    run_ptr: np.ndarray | None
    types: GraphTypes | None
    clock: Clock | None

    @property
    def num_edges_by_type(self) -> np.ndarray:
        """int64 ``[K]``, of a graph with types; made on first use, by reading ``run_ptr`` once, and kept."""
        types, run_ptr = self.types, self.run_ptr
        assert types is not None
        assert run_ptr is not None

        def count() -> np.ndarray:
            all_bounds = (run_bounds(types, run_ptr, edge_type) for edge_type in range(len(types.edge_types)))
            counts = [stops.sum(dtype=np.int64) - begins.sum(dtype=np.int64) for begins, stops in all_bounds]
            return np.array(counts, np.int64)

        return self._derive("num_edges_by_type", count)

    @property
    def edge_type_index(self) -> ops.TypedLists:
        """The former name of :attr:`typed_lists`.

        Raises:
            GraphFormatError: the graph has no edge types, or some not in [0, 4095).
        """
        warnings.warn(
            "Graph.edge_type_index goes in 0.3: write Graph.typed_lists, which has types and times.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.lists_by_number

    @property
    def lists_by_number(self) -> ops.TypedLists:
        """:attr:`typed_lists` of a graph with types, for fanouts by their numbers.

        Raises:
            GraphFormatError: the graph has no edge types, or some not in [0, 4095).
        """
        if self.types is None and self.edge_type is None:
            raise GraphFormatError("Graph: there are no edge types. Give Graph.from_coo(..., edge_type=types).")
        return self.typed_lists

    @property
    def typed_lists(self) -> ops.TypedLists:
        """The in-neighbours by edge type and time, for samplers by either: views of the graph's arrays, in which each
        list of a graph without types is one run. Runs of ``edge_type`` are found on first use, and kept: 4 bytes for
        each node and type, or, where the graph has many types, 12 for each type that a node has edges of.

        Raises:
            GraphFormatError: types of edges that are not in [0, 4095).
        """
        return self._derive("typed_lists", self._typed_lists)

    @property
    def whole_lists(self) -> ops.DenseLists:
        """The same lists, each one run whatever the types of its edges. Of a graph with ``edge_type`` and times, runs
        are then not in the order of these."""
        return self._derive("whole_lists", lambda: whole_lists_of(self.indptr, self.edge_time, self.clock))

    @property
    def link_lists(self) -> ops.DenseLists:
        """The lists to look links up in: by type where types have names, by which tables of links name theirs; else
        whole.

        Raises:
            SamplerConfigError: a part, whose nodes do not lie by type.
        """
        lists = self.whole_lists if self.types is None else self.typed_lists
        if not isinstance(lists, ops.DenseLists):
            raise SamplerConfigError("Graph: links are looked up in whole graphs, but this is a part of one.")
        return lists

    def _typed_lists(self) -> ops.TypedLists:
        if self.run_ptr is not None:
            assert self.types is not None
            return typed_lists_of(self.types, self.run_ptr, self.edge_time, self.clock)
        if self.edge_type is None:
            return whole_lists_of(self.indptr, self.edge_time, self.clock)
        # Others than numbers of types are refused below: no memory is taken by how large they are.
        has_numbers = len(self.edge_type) and ops.are_type_numbers(self.edge_type)
        present = int(self.edge_type.max()) + 1 if has_numbers else 0
        num_types = present if self.types is None else len(self.types.edge_types)
        timed = np.zeros(num_types, np.uint8)
        if self.clock is not None:
            timed[:] = self.clock.timed  # one for all, where types have no names
        try:
            lists = ops.SparseLists.of(self.indptr, self.edge_type, self.edge_time, timed)
        except GraphFormatError as error:
            raise GraphFormatError(f"{error}{source_of(self.edge_type.ctypes.data)}") from error
        # With few types a run for each of them is quicker to find, but with hundreds most of these would be empty.
        is_dense = num_types * lists.num_nodes <= _MOST_RUNS_AN_EDGE * len(self.indices)
        return lists.dense() if is_dense else lists

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
    def run_alias_table(self) -> ops.AliasTable:
        """Likewise, the table to draw from each run of a graph with types by edge weight.

        Raises:
            SamplerConfigError: the graph has no types, or no edge weights.
        """
        weight = self.weight_drawn_by
        if weight is None or (self.types is None and self.edge_type is None):
            raise SamplerConfigError(
                f"Graph: there are no {'edge weights' if weight is None else 'types'} to draw by. Give "
                "Graph.from_hetero(..., edge_weight={edge_type: weights})."
            )
        run_ptr = self.typed_lists.run_ptr  # not within _derive, whose lock is not reentrant

        def build() -> ops.AliasTable:
            table = ops.build_alias(run_ptr.astype(np.int64), weight)
            return ops.AliasTable(run_ptr, table.entries)  # half the memory of the copy

        return self._derive("run_alias_table", build)

    def zero_weight_nodes(self, *, by_type: bool) -> np.ndarray:
        """Returns the nodes that have edges, of which all, or ``by_type`` all of any one type, weigh zero: int64,
        ascending."""
        if not by_type:
            return self.alias_table.zero_nodes
        begins = self.typed_lists.run_ptr[self.run_alias_table.zero_nodes]
        return np.unique(np.searchsorted(self.indptr, begins.astype(np.int64), side="right") - 1)

    @property
    def weight_drawn_by(self) -> np.ndarray | None:
        """``edge_weight`` as kernels read it: float16 becomes float32, once; all else stays as it is."""
        weight = self.edge_weight
        if weight is None or weight.dtype != np.float16:
            return weight
        return self._derive("weight_drawn_by", lambda: weight.astype(np.float32))

    @property
    def node_codes(self) -> np.ndarray | None:
        """``node_time`` in codes of ``clock``, uint32 ``[N]``, made on first use and kept: 4 bytes a node; 0 for nodes
        that always are there. None for a graph without times of nodes."""
        times, clock = self.node_time, self.clock
        if times is None or clock is None:
            return None
        return self._derive("node_codes", lambda: clock.until(times, "<"))

    def node_codes_of(self, nodes: range) -> np.ndarray | None:
        """Returns :attr:`node_codes` of all nodes of a type; None where no time was given of any."""
        times, codes = self.node_time, self.node_codes  # not within _derive, whose lock is not reentrant
        if times is None or codes is None:
            return None
        which = slice(nodes.start, nodes.stop)
        always = ALWAYS if times.dtype == np.int64 else -np.inf
        return self._derive(f"codes of {nodes}", lambda: codes[which] if (times[which] != always).any() else None)

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
        """Tells this graph from others: N, E and a checksum (CRC-32) of indptr, indices, weights, types and times; the
        same whatever their width. Made on first use, by reading the graph once, and kept.
        """
        return self._derive("fingerprint", self._fingerprint)

    def _fingerprint(self) -> str:
        num_nodes, num_edges = len(self.indptr) - 1, len(self.indices)
        checksum = zlib.crc32(self.indptr.data)
        # One dtype each, so that a graph and its copy with ids or weights of another width have the same fingerprint.
        for array, dtype in (
            (self.indices, np.int32 if num_nodes <= 2**31 else np.int64),
            (self.edge_weight, np.float64),
            (self.edge_type, np.int64),
            (self.run_ptr, np.int64),
            (self.edge_time, np.uint32),
            (self.node_time, None),
            (None if self.clock is None else self.clock.ranked, None),
        ):
            checksum = _checksum_as(dtype, array, checksum)
        for described in (self.types, self.clock):
            if described is not None:
                checksum = zlib.crc32(json.dumps(described.to_json()).encode(), checksum)
        return f"{num_nodes}-{num_edges}-{checksum:08x}"

    @property
    def order_checksum(self) -> int:
        """CRC-32 of the order of the user's edge lists, which the fingerprint leaves out; made on first use and
        kept."""
        return self._derive("order checksum", lambda: _checksum_as(np.int64, self.edge_order, 0))

    def _derive(self, name: str, make: Callable[[], Any]) -> Any:
        """Returns what ``make`` makes of the graph, once for all threads that sample it."""
        if name not in self._derived:
            with _deriving:
                if name not in self._derived:
                    self._derived[name] = make()
        return self._derived[name]


def _checksum_as(dtype: Any, array: np.ndarray | None, checksum: int) -> int:
    """Goes on with a checksum by an array's entries in one dtype (None: its own), whatever it is stored in."""
    for begin in range(0, 0 if array is None else len(array), _CHUNK_EDGES):
        assert array is not None
        checksum = zlib.crc32(np.ascontiguousarray(array[begin : begin + _CHUNK_EDGES], dtype).data, checksum)
    return checksum


def run_bounds(types: GraphTypes, run_ptr: np.ndarray, edge_type: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns views of where the runs by edges of one type begin and end, ``[N_t]`` both: one run for each node of the
    type that it ends in."""
    runs = types.runs_of(edge_type)
    return run_ptr[:-1][runs], run_ptr[1:][runs]


def typed_lists_of(
    types: GraphTypes, run_ptr: np.ndarray, edge_time: np.ndarray | None, clock: Clock | None
) -> ops.DenseLists:
    """Views the arrays of a graph with names of types as lists by type and time."""
    timed = np.zeros(len(types.edge_types), np.uint8) if clock is None else clock.timed.astype(np.uint8)
    slot_ptr = np.cumsum([0, *map(len, types.slots)], dtype=np.int64)
    slot_type = np.array([edge_type for slots in types.slots for edge_type in slots], np.int32)
    return ops.DenseLists(run_ptr, edge_time, timed, types.first_node, types.first_run, slot_ptr, slot_type)


def whole_lists_of(indptr: np.ndarray, edge_time: np.ndarray | None, clock: Clock | None) -> ops.DenseLists:
    """Views whole lists as runs of one type, which is none."""
    timed = np.array([clock is not None and clock.timed.any()], np.uint8)
    bounds, one = np.array([0, len(indptr) - 1]), np.zeros(1, np.int32)
    return ops.DenseLists(indptr, edge_time, timed, bounds, bounds, np.array([0, 1]), one, is_untyped=True)
