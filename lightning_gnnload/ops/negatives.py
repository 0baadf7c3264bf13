"""Edges of one type in a typed graph: those that exist, and endpoints of some that do not.

Shapes: N graph nodes, E edges, K edge types, P pairs, S sources, D destinations.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError, SeedError
from .alias import AliasTable
from .checks import INDEX_DTYPES, as_integer, as_integer_within, check_apart, check_array, check_choice, check_kind
from .dispatch import MAX_HOP_DRAWS, DrawKey, kernels
from .typed_lists import DenseLists

MOST_DRAWS = 1 << 25  # negatives of a row: its counter has 2**26 draws, and a negative may take two
MOST_TYPED_NODES = 1 << 32  # draws are of 32 bits
CORRUPT = ("dst", "src", "both")
Corrupt = Literal["dst", "src", "both"]
"""The endpoint of an edge that negatives replace; ``"both"``: the first half of them, rounded up, its destination, and
the rest its source."""


def num_corrupt_dst(num: int, corrupt: Corrupt) -> int:
    """Counts those of ``num`` negatives, the first ones, that replace destinations."""
    return {"dst": num, "src": 0, "both": (num + 1) // 2}[corrupt]


def draw_negatives(
    lists: DenseLists,
    indices: np.ndarray,
    edge_type: int,
    sources: range,
    rows: np.ndarray,
    key: DrawKey,
    num: int,
    *,
    src: np.ndarray | None = None,
    dst: np.ndarray | None = None,
    until: np.ndarray | None = None,
    src_time: np.ndarray | None = None,
    dst_time: np.ndarray | None = None,
    src_table: AliasTable | None = None,
    dst_table: AliasTable | None = None,
    corrupt: Corrupt = "dst",
    tries: int = 16,
    tried: np.ndarray | None = None,
) -> np.ndarray:
    """Draws ``num`` nodes to replace an endpoint of each edge, so that the pair is no edge of the graph: int64 ``[P,
    num]``, -1 where all ``tries`` failed. They are of that endpoint's type, drawn uniformly or by weight.

    A draw of the endpoint itself, of an edge of the graph, or of a node that is not there yet, is repeated. A negative
    is a pure function of the graph, its row, its number, and the seed and epoch of the key.

    The edges ``src``, ``dst``, int64 ``[P]`` each, are of type ``edge_type``, from nodes of ``sources``, and draw by
    ``rows``, int64 ``[P]`` below 2**48; without both, every draw is taken. ``until``, uint32 ``[P]``, are the time
    codes from which on edges and nodes are not there yet, against ``src_time`` and ``dst_time``, uint32, of all nodes
    of the types. ``src_table`` and ``dst_table`` are alias tables of one list over these. ``tried``, int64 ``[P, num]``
    in ``[0, tries]``, says by which try each negative begins, and then by which one it was taken: so who looks edges up
    elsewhere refuses single negatives. Raises SamplerConfigError, SeedError or GraphFormatError.

    Source: negatives are named as other draws are; kernels/common/draw.h.
    """
    number, runs = _runs_of(lists, indices, edge_type)
    num = as_integer_within("num", num, 1, MOST_DRAWS)
    tries = as_integer_within("tries", tries, 1, MOST_DRAWS)
    check_choice("corrupt", corrupt, CORRUPT)
    check_array("rows", rows, (np.int64,), 1, SeedError)
    check_kind("key", key, DrawKey)
    if (src is None) != (dst is None):
        raise SeedError("src and dst are the ends of the same edges: give both, or none.")
    for name, array, dtype in (("src", src, np.int64), ("dst", dst, np.int64), ("until", until, np.uint32)):
        if array is not None:
            check_array(name, array, (dtype,), 1, SeedError, count=len(rows))
    num_src, num_dst = _count_endpoints(lists, number, sources, runs)
    if until is None:
        # Without a bound nodes of any time count, and the kernel need not look.
        src_time = dst_time = None
    for name, array, count in (("src_time", src_time, num_src), ("dst_time", dst_time, num_dst)):
        if array is not None:
            check_array(name, array, (np.uint32,), 1, SeedError, count=count)
    if len(rows) * num > MAX_HOP_DRAWS:
        raise SamplerConfigError(
            f"{num} negatives for each of {len(rows)} edges are {len(rows) * num}, but at most {MAX_HOP_DRAWS} are "
            "drawn at once. Use a smaller batch, or fewer negatives."
        )
    if tried is not None:
        check_array("tried", tried, (np.int64,), 2, SeedError, writable=True)
        if tried.shape != (len(rows), num):
            raise SeedError(f"tried has shape {list(tried.shape)}, but needs a number of each negative, [P, num].")
        check_apart("tried", tried, ("rows", rows), ("src", src), ("dst", dst))
    out = np.empty((len(rows), num), np.int64)
    kernels.draw_negatives(
        lists.run_ptr,
        indices,
        runs,
        (sources.start, num_src),
        _edge_time(lists, number, until),
        src_time,
        dst_time,
        rows,
        src,
        dst,
        until,
        num,
        num_corrupt_dst(num, corrupt),
        tries,
        _entries("src_table", src_table, num_src),
        _entries("dst_table", dst_table, num_dst),
        key.seed,
        key.epoch,
        0 if lists.is_untyped else (number + 1) << 4,
        out.reshape(-1),
        None if tried is None else tried.reshape(-1),
    )
    return out


def mark_edges(
    lists: DenseLists,
    indices: np.ndarray,
    edge_type: int,
    sources: np.ndarray,
    destinations: np.ndarray,
    until: np.ndarray | None = None,
) -> np.ndarray:
    """Tells which pairs of ``sources`` and ``destinations``, int64, are edges of one type: bool ``[S, D]``. Edges of a
    source's time code ``until``, uint32 ``[S]``, or later do not count. Reads each destination's list once.

    Raises SamplerConfigError, SeedError or GraphFormatError for a type that does not exist, a destination that no edge
    of the type can lead to, or arrays that do not fit each other.
    """
    number, runs = _runs_of(lists, indices, edge_type)
    check_array("sources", sources, (np.int64,), 1, SeedError)
    check_array("destinations", destinations, (np.int64,), 1, SeedError)
    if until is not None:
        check_array("until", until, (np.uint32,), 1, SeedError, count=len(sources))
    edge_time = _edge_time(lists, number, until)
    is_edge = np.empty((len(sources), len(destinations)), np.uint8)
    kernels.mark_edges(
        lists.run_ptr,
        indices,
        runs,
        edge_time,
        sources,
        None if edge_time is None else until,
        destinations,
        is_edge.reshape(-1),
    )
    return is_edge.view(np.bool_)


def find_edges(
    lists: DenseLists,
    indices: np.ndarray,
    edge_type: int,
    destinations: np.ndarray,
    *,
    sources: np.ndarray | None = None,
    edge_ids: np.ndarray | None = None,
    edge_order: np.ndarray | None = None,
    begins: np.ndarray | None = None,
) -> np.ndarray:
    """Finds the first edge of one type into each destination, int64 ``[P]``, that is from a source, or has an edge id
    of ``edge_order``, the user's ids by position. Returns positions in ``indices``, int64 ``[P]``, from ``begins`` on
    where given; -1 for none. Raises as :func:`mark_edges`."""
    _, runs = _runs_of(lists, indices, edge_type)
    check_array("destinations", destinations, (np.int64,), 1, SeedError)
    by_id = edge_ids is not None
    keys = edge_ids if edge_ids is not None else sources
    values = edge_order if by_id else indices
    if keys is None or values is None or (by_id and sources is not None):
        raise SamplerConfigError("find_edges: give sources, or edge_ids and the graph's edge_order.")
    check_array("edge_order", values, INDEX_DTYPES, 1, GraphFormatError)
    if len(values) != len(indices):
        raise GraphFormatError(f"edge_order has {len(values)} entries, but the graph has {len(indices)} edges.")
    check_array("edge_ids" if by_id else "sources", keys, (np.int64,), 1, SeedError, count=len(destinations))
    if begins is not None:
        check_array("begins", begins, (np.int64,), 1, SeedError, count=len(destinations))
    positions = np.empty(len(destinations), np.int64)
    kernels.find_edges(lists.run_ptr, indices, runs, values, destinations, keys, begins, positions)
    return positions


def _runs_of(lists: DenseLists, indices: np.ndarray, edge_type: int) -> tuple[int, tuple[int, int, int, int]]:
    """Checks lists and an edge type, and returns the type's number and where its runs are."""
    check_kind("lists", lists, DenseLists)
    check_array("indices", indices, INDEX_DTYPES, 1, GraphFormatError)
    if int(lists.run_ptr[-1]) != len(indices):
        raise GraphFormatError(
            f"run_ptr has {len(lists.run_ptr)} entries and ends at {lists.run_ptr[-1]}, but there are {len(indices)} "
            "edges: take the lists and the indices of one graph."
        )
    number = edge_type if type(edge_type) is int else as_integer("edge_type", edge_type)
    if not 0 <= number < len(lists.places):
        raise SamplerConfigError(f"edge_type is {number}, but must lie in [0, {len(lists.places)}).")
    return number, lists.places[number]


def _count_endpoints(
    lists: DenseLists, edge_type: int, sources: range, runs: tuple[int, int, int, int]
) -> tuple[int, int]:
    """Returns the numbers of sources and destinations to draw from."""
    check_kind("sources", sources, range)
    num_nodes = int(lists.first_node[-1])
    if sources.step != 1 or sources.start < 0 or sources.stop > num_nodes:
        raise SamplerConfigError(f"sources is {sources}, but must be a range of the graph's {num_nodes} nodes.")
    if not min(len(sources), runs[3]) > 0 or max(len(sources), runs[3]) >= MOST_TYPED_NODES:
        raise SamplerConfigError(
            f"edges of type {edge_type} lead from {len(sources)} nodes to {runs[3]}: to draw negatives, each must be "
            "1 to 2**32 - 1."
        )
    return len(sources), runs[3]


def _edge_time(lists: DenseLists, edge_type: int, until: np.ndarray | None) -> np.ndarray | None:
    """Returns the time codes of edges, where some of this type may be too late."""
    return lists.edge_time if until is not None and lists.timed[edge_type] else None


def _entries(name: str, table: AliasTable | None, count: int) -> np.ndarray | None:
    if table is None:
        return None
    check_kind(name, table, AliasTable)
    if len(table.indptr) != 2 or len(table.entries) != count:
        raise SamplerConfigError(
            f"{name} has {len(table.indptr) - 1} lists of {len(table.entries)} in all, but one of {count} is needed: "
            f"build_alias(np.array([0, {count}]), weights)."
        )
    if len(table.zero_nodes):
        raise SamplerConfigError(f"{name}: all weights are 0, so that no node can be drawn. Make some positive.")
    return table.entries
