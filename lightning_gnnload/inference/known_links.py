"""KnownLinks: the destinations that each source leads to already, at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable


class TargetLists:
    """Lists of targets by a number that they belong to, such as those of each source.

    Args:
        number: int64 ``[E]``, below ``count``.
        target: int64 ``[E]``.
        code: uint32 ``[E]``, the time code from which on each counts; None: always.

    Example:
        >>> lists = TargetLists(np.array([1, 0, 1]), np.array([7, 8, 9]), 2)
        >>> [part.tolist() for part in lists.of(np.array([1, 0]))]
        [[0, 0, 1], [7, 9, 8]]
    """

    def __init__(self, number: np.ndarray, target: np.ndarray, count: int, code: np.ndarray | None = None) -> None:
        order = np.argsort(number, kind="stable")
        self.ptr = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(number, minlength=count), out=self.ptr[1:])
        self.target = target[order]
        self.code = None if code is None else code[order]

    def of(self, numbers: np.ndarray, until: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the targets of some numbers, int64 ``[P]``: which of these each belongs to, and the targets, int64
        ``[K]`` each. Those of a time code ``until``, uint32 ``[P]``, or later are left out."""
        first, count = self.ptr[numbers], self.ptr[numbers + 1] - self.ptr[numbers]
        row = np.repeat(np.arange(len(numbers)), count)
        at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(row))
        if self.code is not None and until is not None:
            counts = self.code[at] < until[row]
            row, at = row[counts], at[counts]
        return row, self.target[at]


class KnownLinks:
    """The links of one edge type that a graph has, by their source; 16 bytes an edge, 20 with times.

    Ids count within the types of the ends. Links of ``tables``, of this edge type, are known from the graph's first
    time on.

    Raises:
        SamplerConfigError: there is no such edge type, or the graph is a part of another.

    Example:
        >>> graph = Graph.from_coo(src=[0, 0, 1], dst=[1, 2, 3])
        >>> KnownLinks(graph, 0).of(np.array([0]))[1].tolist()
        [1, 2]
    """

    def __init__(self, graph: Graph, edge_type: Any, tables: Iterable[SeedTable] = ()) -> None:
        number, types = graph.edge_type_number(edge_type), graph.types
        lists = graph.link_lists
        first_run, stride, _, count = lists.places[number]
        runs = first_run + stride * np.arange(count)
        begin, end = (lists.run_ptr[at].astype(np.int64) for at in (runs, runs + 1))
        size = end - begin
        dst = np.repeat(np.arange(count), size)
        at = np.repeat(begin - np.cumsum(size) + size, size) + np.arange(len(dst))
        first_src = 0 if types is None else types.range_of(types.edge_types[number][0]).start
        src = graph.indices[at].astype(np.int64) - first_src
        has_times = lists.edge_time is not None and bool(lists.timed[number])
        codes = [lists.edge_time[at] if has_times else np.zeros(len(at), np.uint32)]  # type: ignore[index]
        sources, targets = [src], [dst]
        for table in tables:
            for links in links_of(table, graph, number):
                sources.append(links[0])
                targets.append(links[1])
                codes.append(np.zeros(len(links[0]), np.uint32))
        num_sources = graph.num_nodes if types is None else len(types.range_of(types.edge_types[number][0]))
        code = np.concatenate(codes) if has_times else None
        self._lists = TargetLists(np.concatenate(sources), np.concatenate(targets), num_sources, code)

    def of(self, sources: np.ndarray, until: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the known links of sources, as :meth:`TargetLists.of` does."""
        return self._lists.of(sources, until)


def links_of(table: SeedTable, graph: Graph, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns all links of one edge type that a table has, with all targets of each row: sources and targets within
    their types, int64 ``[E]`` each; none of a table of nodes."""
    if table.kind != "links" or table.targets is None:
        return []
    links = []
    for edge_type, rows in table.rows_by_type.items():
        if (0 if edge_type is None else graph.edge_type_number(edge_type)) != number:
            continue
        source = table.ends[rows.start : rows.stop, 0]
        if table.dst_ptr is None:
            links.append((source, table.targets[rows.start : rows.stop]))
        else:
            links.append((np.repeat(source, np.diff(table.dst_ptr)), table.targets))
    return links
