"""Edges of one type among the lists of a typed graph: those that are there, and ends of some that are not.

Shapes: N graph nodes, E edges, K edge types, P pairs, S sources, D destinations.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError, SeedError
from .alias import AliasTable
from .checks import INDEX_DTYPES, as_integer, check_array, check_choice, check_kind
from .dispatch import MAX_HOP_DRAWS, DrawKey, kernels
from .typed_lists import DenseLists

MOST_DRAWS = 1 << 25  # negatives of a row: a name has 2**26 draws, and one may take two
MOST_TYPED_NODES = 1 << 32  # draws are of 32 bits
CORRUPT = ("dst", "src", "both")
Corrupt = Literal["dst", "src", "both"]
"""Which end of an edge negatives replace; ``"both"``: the first half of them, rounded up, its destination, and the rest
its source."""


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
) -> np.ndarray:
    """Draws nodes to replace an end of each edge by, so that it is none: of the type of that end, uniformly or by
    weight.

    A node that is the end itself, that makes an edge of the graph, or that is not there yet, is drawn again, up to
    ``tries`` times in all. A negative is a pure function of the graph, its row, its number and the seed and epoch of
    the key.

    Args:
        lists: of the graph, and ``indices`` int32 or int64 ``[E]``.
        indices: likewise.
        edge_type: the number of the edges' type.
        sources: nodes of the type that its edges come from.
        rows: int64 ``[P]``, the numbers by which each edge draws, below 2**48.
        key: seed and epoch.
        num: of negatives an edge.
        src: sources of the edges, int64 ``[P]``, and
        dst: their destinations; None, both: each node that is drawn is taken.
        until: uint32 ``[P]``, codes from which on edges and nodes are not there yet; None: whatever their time.
        src_time: codes of all ``sources``, uint32; None: they always are there.
        dst_time: likewise of all nodes that the edges may lead to.
        src_table: of one list, by :func:`.build_alias`: all ``sources``, in proportion to whose weights they are drawn;
            None: uniformly.
        dst_table: likewise of all nodes that the edges may lead to.
        corrupt: which end to replace.
        tries: of draws a negative.

    Returns:
        int64 ``[P, num]``, nodes of the graph; -1 where every try failed.

    Raises:
        SamplerConfigError, SeedError, GraphFormatError: settings, ends or arrays that cannot be.

    Source: negatives are named as other draws are; kernels/common/draw.h.
    """
    number, place = _place(lists, indices, edge_type)
    num = _within("num", num, 1, MOST_DRAWS)
    tries = _within("tries", tries, 1, MOST_DRAWS)
    check_choice("corrupt", corrupt, CORRUPT)
    check_array("rows", rows, (np.int64,), 1, SeedError)
    check_kind("key", key, DrawKey)
    if (src is None) != (dst is None):
        raise SeedError("src and dst are the ends of the same edges: give both, or none.")
    for name, array, dtype in (("src", src, np.int64), ("dst", dst, np.int64), ("until", until, np.uint32)):
        if array is not None:
            check_array(name, array, (dtype,), 1, SeedError, count=len(rows))
    num_src, num_dst = _count_ends(lists, number, sources, place)
    if until is None:
        src_time = dst_time = None
    for name, array, count in (("src_time", src_time, num_src), ("dst_time", dst_time, num_dst)):
        if array is not None:
            check_array(name, array, (np.uint32,), 1, SeedError, count=count)
    if len(rows) * num > MAX_HOP_DRAWS:
        raise SamplerConfigError(
            f"{num} negatives for each of {len(rows)} edges are {len(rows) * num}, but at most {MAX_HOP_DRAWS} are "
            "drawn at once. Use a smaller batch, or fewer negatives."
        )
    out = np.empty((len(rows), num), np.int64)
    kernels.draw_negatives(
        lists.run_ptr,
        indices,
        place,
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
    """Tells which pairs of a source and a destination are edges of one type: bool ``[S, D]``.

    Each destination's list is read once.

    Args:
        lists: of the graph, and ``indices`` int32 or int64 ``[E]``.
        indices: likewise.
        edge_type: the number of the edges' type.
        sources: int64 ``[S]``.
        destinations: int64 ``[D]``.
        until: uint32 ``[S]``: edges of this code on do not count; None: all do.

    Raises:
        SamplerConfigError, SeedError, GraphFormatError: no such type, a destination that no edge of the type can lead
            to, arrays that do not fit each other.
    """
    number, place = _place(lists, indices, edge_type)
    check_array("sources", sources, (np.int64,), 1, SeedError)
    check_array("destinations", destinations, (np.int64,), 1, SeedError)
    if until is not None:
        check_array("until", until, (np.uint32,), 1, SeedError, count=len(sources))
    edge_time = _edge_time(lists, number, until)
    known = np.empty((len(sources), len(destinations)), np.uint8)
    kernels.mark_edges(
        lists.run_ptr,
        indices,
        place,
        edge_time,
        sources,
        None if edge_time is None else until,
        destinations,
        known.reshape(-1),
    )
    return known.view(np.bool_)


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
    """Finds the first edge of one type into each destination that is from a source, or has an id.

    Args:
        lists: of the graph, and ``indices`` int32 or int64 ``[E]``.
        indices: likewise.
        edge_type: the number of the edges' type.
        destinations: int64 ``[P]``.
        sources: int64 ``[P]``, or
        edge_ids: int64 ``[P]``, entries of
        edge_order: int32 or int64 ``[E]``.
        begins: int64 ``[P]``, positions from which on to look; None: all.

    Returns:
        int64 ``[P]``, positions in ``indices``; -1 where there is none.

    Raises:
        SamplerConfigError, SeedError, GraphFormatError: as :func:`mark_edges`.
    """
    _, place = _place(lists, indices, edge_type)
    check_array("destinations", destinations, (np.int64,), 1, SeedError)
    by_id = edge_ids is not None
    wanted = edge_ids if edge_ids is not None else sources
    values = edge_order if by_id else indices
    if wanted is None or values is None or (by_id and sources is not None):
        raise SamplerConfigError("find_edges: give sources, or edge_ids and the graph's edge_order.")
    check_array("edge_order", values, INDEX_DTYPES, 1, GraphFormatError)
    if len(values) != len(indices):
        raise GraphFormatError(f"edge_order has {len(values)} entries, but the graph has {len(indices)} edges.")
    check_array("edge_ids" if by_id else "sources", wanted, (np.int64,), 1, SeedError, count=len(destinations))
    if begins is not None:
        check_array("begins", begins, (np.int64,), 1, SeedError, count=len(destinations))
    positions = np.empty(len(destinations), np.int64)
    kernels.find_edges(lists.run_ptr, indices, place, values, destinations, wanted, begins, positions)
    return positions


def _place(lists: DenseLists, indices: np.ndarray, edge_type: int) -> tuple[int, tuple[int, int, int, int]]:
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


def _count_ends(lists: DenseLists, edge_type: int, sources: range, place: tuple[int, int, int, int]) -> tuple[int, int]:
    """Returns how many sources and destinations there are to draw from."""
    check_kind("sources", sources, range)
    num_nodes = int(lists.first_node[-1])
    if sources.step != 1 or sources.start < 0 or sources.stop > num_nodes:
        raise SamplerConfigError(f"sources is {sources}, but must be a range of the graph's {num_nodes} nodes.")
    if not min(len(sources), place[3]) > 0 or max(len(sources), place[3]) >= MOST_TYPED_NODES:
        raise SamplerConfigError(
            f"edges of type {edge_type} lead from {len(sources)} nodes to {place[3]}: to draw negatives, each must be "
            "1 to 2**32 - 1."
        )
    return len(sources), place[3]


def _edge_time(lists: DenseLists, edge_type: int, until: np.ndarray | None) -> np.ndarray | None:
    """Returns the codes of edges, where some of this type may be too late."""
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


def _within(name: str, value: int, least: int, most: int) -> int:
    value = as_integer(name, value)
    if not least <= value <= most:
        raise SamplerConfigError(f"{name} is {value}, but must lie in [{least}, {most}].")
    return value
