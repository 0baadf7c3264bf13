"""Edge lists grouped into runs: the in-neighbours of one node by edges of one type, in the order of their times.

Shapes: E edges, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GraphFormatError
from .checks import INDEX_DTYPES, check_array, check_graph
from .dispatch import kernels

MAX_LIST_EDGES = 2**32 - 1  # a place in a list is kept in 32 bits beside a code


@dataclass(frozen=True)
class EdgeList:
    """The edges of one type as they were given, and which of a graph's runs are theirs.

    Attributes:
        name: begins the message of an error.
        src: int32 or int64 ``[E_k]``, in ``[0, num_src)``; ``dst`` likewise, in ``[0, num_dst)`` and of the same dtype.
        num_src: how many nodes of the sources' type there are.
        num_dst: of the targets' type.
        first_src: the id in the graph of source 0.
        first_run: the run of target 0; that of target ``v`` is number ``first_run + v * step``.
        step: how many runs a target has.
        code: uint32 ``[E_k]``, the times; None where edges have none.
        weight: float32 or float64 ``[E_k]``, or None.
    """

    name: str
    src: np.ndarray
    dst: np.ndarray
    num_src: int
    num_dst: int
    first_src: int = 0
    first_run: int = 0
    step: int = 1
    code: np.ndarray | None = None
    weight: np.ndarray | None = None

    def check(self) -> None:
        """Raises GraphFormatError: arrays that kernels do not take, or too many edges."""
        check_array(f"{self.name}: src", self.src, INDEX_DTYPES, 1, GraphFormatError)
        check_array(f"{self.name}: dst", self.dst, (self.src.dtype,), 1, GraphFormatError)
        if self.code is not None:
            check_array(f"{self.name}: times", self.code, (np.uint32,), 1, GraphFormatError)
        if self.weight is not None:
            check_array(f"{self.name}: weights", self.weight, (np.float32, np.float64), 1, GraphFormatError)
        for what, values in (("targets", self.dst), ("times", self.code), ("weights", self.weight)):
            if values is not None and len(values) != len(self.src):
                raise GraphFormatError(f"{self.name}: {len(self.src)} sources, but {len(values)} {what}.")
        if len(self.src) > MAX_LIST_EDGES:
            raise GraphFormatError(
                f"{self.name}: {len(self.src)} edges are more than the {MAX_LIST_EDGES} that one type can have. Divide "
                "them among several edge types."
            )


@dataclass(frozen=True)
class Runs:
    """A graph's edges, run by run: its arrays, as :class:`.Graph` has them.

    Attributes:
        run_ptr: int64 ``[R + 1]``; run ``r`` is ``indices[run_ptr[r]:run_ptr[r + 1]]``.
        indices: sources ``[E]``; in each run in the order of (time, place in the list).
        edge_time: uint32 ``[E]``, zero for lists without times; None where none has any.
        edge_weight: float ``[E]``, or None.
        order: uint32 ``[E]``, each edge's place in its list; None unless wanted.
    """

    run_ptr: np.ndarray
    indices: np.ndarray
    edge_time: np.ndarray | None
    edge_weight: np.ndarray | None
    order: np.ndarray | None


def build_runs(lists: Sequence[EdgeList], num_runs: int, index_dtype: type, *, keep_order: bool = False) -> Runs:
    """Groups edge lists into runs, which none of the lists shares with another.

    Args:
        lists: of which either all have weights, of one dtype, or none.
        num_runs: R, of all lists.
        index_dtype: int32 or int64, of the indices.
        keep_order: also return each edge's place in its list.

    Memory: while a list is grouped, 8 bytes for each of its edges and 4 for each of its targets, beside the result.

    Raises:
        GraphFormatError: an id out of range; the message names the list, the edge and the id.

    Example:
        >>> codes = np.array([9, 8, 7], np.uint32)
        >>> edges = EdgeList("edges", np.array([0, 1, 2]), np.array([1, 1, 0]), num_src=3, num_dst=3, code=codes)
        >>> runs = build_runs([edges], 3, np.int32)
        >>> runs.run_ptr.tolist(), runs.indices.tolist(), runs.edge_time.tolist()
        ([0, 1, 3, 3], [2, 1, 0], [7, 8, 9])
    """
    try:
        run_ptr = np.zeros(num_runs + 1, np.int64)
    except MemoryError as error:
        raise GraphFormatError(
            f"{num_runs} runs, one for each node and edge type that ends in its type, take {num_runs / 2**27:.1f} GiB, "
            "more than this machine gives. Is an id too large?"
        ) from error
    for each in lists:
        each.check()
        kernels.count_runs(*_list(each), run_ptr[1:])  # type: ignore[call-overload]
    np.cumsum(run_ptr, out=run_ptr)
    num_edges = int(run_ptr[-1])
    has_times = any(each.code is not None for each in lists)
    weight = next((each.weight for each in lists if each.weight is not None), None)
    runs = Runs(
        run_ptr,
        np.empty(num_edges, index_dtype),
        np.empty(num_edges, np.uint32) if has_times else None,
        None if weight is None else np.empty(num_edges, weight.dtype),
        np.empty(num_edges, np.uint32) if keep_order else None,
    )
    for each in lists:
        kernels.fill_runs(  # type: ignore[call-overload, misc]
            *_list(each),
            each.code,
            each.weight,
            each.first_src,
            run_ptr,
            runs.indices,
            runs.edge_time,
            runs.order,
            runs.edge_weight,
        )
    return runs


def _list(edges: EdgeList) -> Any:
    return edges.name, edges.src, edges.dst, edges.num_src, edges.num_dst, edges.first_run, edges.step


@dataclass(frozen=True)
class NodesOfType:
    """The nodes of one type, and where the sources of their runs lie.

    Attributes:
        first_node: the lowest id.
        num_nodes: how many there are.
        first_run: the first run of the first node.
        sources: for each run that a node has, the ids of the nodes that may be in it.
    """

    first_node: int
    num_nodes: int
    first_run: int
    sources: Sequence[range]


def check_runs(
    indptr: np.ndarray,
    indices: np.ndarray,
    run_ptr: np.ndarray,
    edge_time: np.ndarray | None,
    node_types: Sequence[NodesOfType],
) -> None:
    """Checks that runs cut a graph's lists, so that every other kernel can trust them.

    Args:
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``, of a graph that passed :func:`.check_csc`.
        run_ptr: uint32 or int64 ``[R + 1]``.
        edge_time: uint32 ``[E]``, or None.
        node_types: the types, which have all nodes in turn, and all runs.

    Raises:
        GraphFormatError: a node's runs that do not follow each other from the begin of its list to the end; an index
            that is no node of the run's source type; times that fall in a run. Names the first bad position and value.
    """
    check_graph(indptr, indices)
    check_array("run_ptr", run_ptr, (np.uint32, np.int64), 1, GraphFormatError)
    num_nodes = sum(each.num_nodes for each in node_types)
    num_runs = sum(each.num_nodes * len(each.sources) for each in node_types)
    if len(indptr) != num_nodes + 1:
        raise GraphFormatError(f"the types have {num_nodes} nodes, but the graph {len(indptr) - 1}.")
    if len(run_ptr) != num_runs + 1:
        raise GraphFormatError(
            f"run_ptr has {len(run_ptr)} entries, but {num_runs + 1} are needed: one for each node and edge type that "
            "ends in its type, and one more."
        )
    if run_ptr[0] != 0 or run_ptr[-1] != len(indices):
        raise GraphFormatError(
            f"run_ptr goes from {run_ptr[0]} to {run_ptr[-1]}, but must from 0 to {len(indices)}, the number of edges."
        )
    if edge_time is not None:
        check_array("edge_time", edge_time, (np.uint32,), 1, GraphFormatError)
        if len(edge_time) != len(indices):
            raise GraphFormatError(f"edge_time has {len(edge_time)} entries for {len(indices)} edges; one each.")
    for each in node_types:
        least, bound = (np.array([getattr(ids, end) for ids in each.sources], np.int64) for end in ("start", "stop"))
        kernels.check_runs(
            indptr, indices, run_ptr, edge_time, each.first_node, each.num_nodes, each.first_run, least, bound
        )
