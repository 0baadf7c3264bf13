"""Groups edge lists into runs: the in-neighbours of one node by edges of one type, in the order of their times.

Shapes: E edges, R runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphFormatError
from .checks import INDEX_DTYPES, as_flag, as_integer, check_array, check_csc_form
from .dispatch import MAX_NODES, kernels

_MOST_CELLS = 1 << 16  # so that their counts and parts stay in a cache
_MOST_PARTS = 1 << 12  # as dividing edges writes to one memory line of each part
_PART_EDGES = 1 << 15  # whose sort keys fit a cache of 1 MB
_PIECE_EDGES = 1 << 20  # divided at once, so that columns made for it stay small
_MOST_SORTED = 2**32 - 1  # edges of a part: a sort key has 32 bits for a position beside a time code


@dataclass(frozen=True)
class EdgeList:
    """The edges of one type as the user gave them, and the runs of a graph that they belong to."""

    name: str  # begins the message of an error
    src: np.ndarray  # int32 or int64 [E_k], in [0, num_src)
    dst: np.ndarray  # of the same dtype [E_k], in [0, num_dst)
    num_src: int  # nodes of the sources' type
    num_dst: int  # nodes of the targets' type
    first_src: int = 0  # id in the graph of source 0
    first_run: int = 0  # of target 0; that of target v is first_run + v * step
    step: int = 1
    code: Any = None  # times, uint32 [E_k], or an object whose codes_of makes those of a slice; None: no times
    columns: Sequence[np.ndarray] = ()  # other arrays [E_k], such as weights

    def check(self) -> None:
        """Raises GraphFormatError for arrays that kernels do not take."""
        check_array(f"{self.name}: src", self.src, INDEX_DTYPES, 1, GraphFormatError)
        check_array(f"{self.name}: dst", self.dst, (self.src.dtype,), 1, GraphFormatError)
        for values in self.columns:
            check_array(f"{self.name}: a column", values, None, 1, GraphFormatError)
            if values.dtype.kind not in "fiub" or not values.dtype.isnative:
                raise GraphFormatError(f"{self.name}: a column has the dtype {values.dtype}; numbers are needed.")
        for count_name, values in (("targets", self.dst), *(("values of a column", values) for values in self.columns)):
            if len(values) != len(self.src):
                raise GraphFormatError(f"{self.name}: {len(self.src)} sources, but {len(values)} {count_name}.")

    def codes(self, piece: slice) -> np.ndarray | None:
        """Returns the time codes of some edges. Raises GraphFormatError where they are not one uint32 each."""
        if self.code is None:
            return None
        codes = self.code.codes_of(piece) if hasattr(self.code, "codes_of") else self.code
        check_array(f"{self.name}: times", codes, (np.uint32,), 1, GraphFormatError)
        if codes is self.code:
            codes = codes[piece]
        if len(codes) != piece.stop - piece.start:
            raise GraphFormatError(
                f"{self.name}: sources {piece.start} to {piece.stop - 1} have {len(codes)} times; one each is needed."
            )
        return codes


@dataclass(frozen=True)
class Runs:
    """A graph's edges, run by run: its arrays, as :class:`.Graph` has them."""

    run_ptr: np.ndarray  # int64 or uint32 [R + 1]; run r is indices[run_ptr[r]:run_ptr[r + 1]]
    indices: np.ndarray  # sources [E]; in each run by (time, position in the list)
    edge_time: np.ndarray | None  # uint32 [E], zero for lists without times; None where none has any
    order: np.ndarray | None  # [E], each edge's position in its list; None without order_dtype
    columns: list[np.ndarray]  # the lists' other arrays, [E] each


def build_runs(
    lists: Sequence[EdgeList],
    num_runs: int,
    index_dtype: Any,
    *,
    ptr_dtype: type = np.int64,
    order_dtype: type | None = None,
) -> Runs:
    """Groups edge lists into ``num_runs`` runs, none of which two lists share; all have as many columns, of the same
    dtypes.

    ``ptr_dtype`` is int64, or uint32 for less than 2**32 edges; ``order_dtype`` asks for each edge's position in its
    list. It takes 4 bytes an edge beside the result: edges are divided among parts of consecutive runs, and each part
    is sorted by itself; where a few runs have most of the edges, another 28 for each of these. Raises GraphFormatError
    for an id out of range, naming the list, the edge and the id.

    Example:
        >>> codes = np.array([9, 8, 7], np.uint32)
        >>> edges = EdgeList("edges", np.array([0, 1, 2]), np.array([1, 1, 0]), num_src=3, num_dst=3, code=codes)
        >>> runs = build_runs([edges], 3, np.int32)
        >>> runs.run_ptr.tolist(), runs.indices.tolist(), runs.edge_time.tolist()
        ([0, 1, 3, 3], [2, 1, 0], [7, 8, 9])
    """
    run_ptr = _empty_runs(num_runs, ptr_dtype)
    shift = (num_runs // _MOST_CELLS).bit_length()
    num_in_cell = _count_cells(lists, num_runs, shift)
    has_times = any(edges.code is not None for edges in lists)
    parts = _Parts.of(num_in_cell, shift, num_runs, has_times)
    num_edges = int(parts.begin[-1])
    indices = np.empty(num_edges, index_dtype)
    edge_time = np.empty(num_edges, np.uint32) if has_times else None
    # The order is one column more, so that it is divided and sorted with the others.
    orders = [] if order_dtype is None else [np.dtype(order_dtype)]
    columns = [np.empty(num_edges, dtype) for dtype in (*orders, *_column_dtypes(lists))]
    bits = [_bits(values) for values in columns]
    run = np.empty(num_edges, np.uint32)
    following = parts.begin[:-1].copy()
    for edges, piece in _pieces(lists):
        order = [np.arange(piece.start, piece.stop, dtype=dtype) for dtype in orders]
        kernels.divide_edges(  # type: ignore[call-overload]
            *_endpoints(edges, piece),
            edges.first_src,
            edges.codes(piece),
            order + [_bits(values[piece]) for values in edges.columns],
            shift,
            parts.part_of_cell,
            following,
            run,
            indices,
            edge_time,
            bits,
        )
    kernels.sort_parts(parts.first_run, parts.begin, run, edge_time, [indices, *bits], run_ptr)
    return Runs(run_ptr, indices, edge_time, columns.pop(0) if orders else None, columns)


def _count_cells(lists: Sequence[EdgeList], num_runs: int, shift: int) -> np.ndarray:
    num_in_cell = np.zeros((num_runs >> shift) + 1, np.int64)
    for edges in lists:
        edges.check()
        kernels.count_cells(  # type: ignore[call-overload]
            edges.name, *_endpoints(edges, slice(None)), edges.num_src, edges.num_dst, shift, num_in_cell
        )
    return num_in_cell


def _column_dtypes(lists: Sequence[EdgeList]) -> list[np.dtype[Any]]:
    return [values.dtype for values in lists[0].columns] if lists else []


def _pieces(lists: Sequence[EdgeList]) -> Iterator[tuple[EdgeList, slice]]:
    for edges in lists:
        for begin in range(0, len(edges.src), _PIECE_EDGES):
            yield edges, slice(begin, min(begin + _PIECE_EDGES, len(edges.src)))


def _empty_runs(num_runs: int, ptr_dtype: type) -> np.ndarray:
    try:
        return np.zeros(num_runs + 1, ptr_dtype)
    except MemoryError as error:
        raise GraphFormatError(
            f"{num_runs} runs, one for each node and edge type that ends in its type, take "
            f"{num_runs * np.dtype(ptr_dtype).itemsize / 2**30:.1f} GiB, more than this machine gives. Is an id too "
            "large?"
        ) from error


def _bits(values: np.ndarray) -> np.ndarray:
    """Returns the values as unsigned integers of their width, which kernels copy; not of long doubles."""
    return values.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}[values.itemsize])


def _endpoints(edges: EdgeList, piece: slice) -> Any:
    return edges.src[piece], edges.dst[piece], edges.first_run, edges.step


class _Parts(NamedTuple):
    """Consecutive runs by parts, which are sorted one after the other."""

    part_of_cell: np.ndarray  # uint16 [C]; a cell is 2**shift runs
    first_run: np.ndarray  # int64 [P + 1], of each part, and the number of runs
    begin: np.ndarray  # int64 [P + 1], edges in the parts before

    @classmethod
    def of(cls, num_in_cell: np.ndarray, shift: int, num_runs: int, has_times: bool) -> _Parts:
        begin = np.concatenate([[0], np.cumsum(num_in_cell)])
        # A part has cells that begin within ``size`` edges, and less than 2**31 runs, whose numbers a sort key holds.
        cells = np.arange(len(num_in_cell))
        size = max(_PART_EDGES, int(begin[-1]) // _MOST_PARTS)
        part_of_cell = begin[:-1] // size + (cells << shift >> 31)
        first_cell = np.searchsorted(part_of_cell, np.arange(int(part_of_cell[-1]) + 2))
        parts = cls(part_of_cell.astype(np.uint16), np.minimum(first_cell << shift, num_runs), begin[first_cell])
        largest = int(np.diff(parts.begin).argmax())
        num_edges = int(parts.begin[largest + 1] - parts.begin[largest])
        if has_times and num_edges > _MOST_SORTED:
            raise GraphFormatError(
                f"{num_edges} edges lie in runs {parts.first_run[largest]} to {parts.first_run[largest + 1] - 1}, more "
                f"than the {_MOST_SORTED} that are sorted by time together."
            )
        return parts


def coo_to_csc(
    src: np.ndarray, dst: np.ndarray, num_nodes: int, *, keep_order: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Groups edges by destination; an edge src -> dst makes src an in-neighbour of dst.

    Returns ``indptr`` int64 ``[N + 1]``, ``indices`` ``[E]`` in the dtype of ``src``, and with ``keep_order`` each
    edge's position in the input, int64 ``[E]``. The sort is stable: edges into one node keep their order. Raises
    GraphFormatError for an id outside ``[0, N)``, or arrays that do not fit each other.

    Example:
        >>> indptr, indices, _ = coo_to_csc(np.array([2, 0, 1]), np.array([1, 1, 0]), 3)
        >>> indptr.tolist(), indices.tolist()
        ([0, 1, 3, 3], [1, 2, 0])
    """
    num_nodes = as_integer("num_nodes", num_nodes, GraphFormatError)
    if not 0 <= num_nodes < MAX_NODES:
        raise GraphFormatError(f"num_nodes is {num_nodes}, but must lie in [0, 2**48).")
    for name, ids in (("src", src), ("dst", dst)):
        check_array(name, ids, INDEX_DTYPES, 1, GraphFormatError)
    wide = np.result_type(src, dst)
    src_of, dst_of = (ids.astype(wide, copy=False) for ids in (src, dst))
    edges = EdgeList("coo_to_csc", src_of, dst_of, num_nodes, num_nodes)
    order_dtype = np.int64 if as_flag("keep_order", keep_order) else None
    runs = build_runs([edges], num_nodes, src.dtype, order_dtype=order_dtype)
    return runs.run_ptr, runs.indices, runs.order


@dataclass(frozen=True)
class NodesOfType:
    """The nodes of one type, and the source types of their runs."""

    first_node: int  # lowest id
    num_nodes: int
    first_run: int  # of the first node
    sources: Sequence[range]  # for each run of a node, the ids of the nodes that may be in it


def check_runs(
    indptr: np.ndarray,
    indices: np.ndarray,
    run_ptr: np.ndarray,
    edge_time: np.ndarray | None,
    node_types: Sequence[NodesOfType],
) -> None:
    """Checks that runs cut a graph's lists, so that every other kernel can trust them. ``node_types`` have all nodes in
    turn, and all runs.

    Raises GraphFormatError where a node's runs do not follow each other through its list, an index is no node of the
    run's source type, or times fall within a run; it names the first bad position and value.
    """
    check_csc_form(indptr, indices)
    _check_run_ptr(indptr, indices, run_ptr, node_types)
    if edge_time is not None:
        check_array("edge_time", edge_time, (np.uint32,), 1, GraphFormatError)
        if len(edge_time) != len(indices):
            raise GraphFormatError(f"edge_time has {len(edge_time)} entries for {len(indices)} edges; one each.")
    for nodes in node_types:
        least = np.array([ids.start for ids in nodes.sources], np.int64)
        bound = np.array([ids.stop for ids in nodes.sources], np.int64)
        kernels.check_runs(
            indptr, indices, run_ptr, edge_time, nodes.first_node, nodes.num_nodes, nodes.first_run, least, bound
        )


def _check_run_ptr(
    indptr: np.ndarray, indices: np.ndarray, run_ptr: np.ndarray, node_types: Sequence[NodesOfType]
) -> None:
    check_array("run_ptr", run_ptr, (np.uint32, np.int64), 1, GraphFormatError)
    num_nodes = sum(nodes.num_nodes for nodes in node_types)
    num_runs = sum(nodes.num_nodes * len(nodes.sources) for nodes in node_types)
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
