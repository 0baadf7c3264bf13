"""Links over parts: which edges there are is asked of the owners of their lists.

Shapes: P pairs of a source and a destination, S sources, D destinations, X edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.derived import typed_lists_of, whole_lists_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.group.group import OwnedLists, SamplingGroup, operation
from lightning_gnnload.sample.group.messages import MOST, Message, narrow
from lightning_gnnload.sample.naming import edge_names
from lightning_gnnload.sample.seeds.lookup import EdgeLookup

_CODES = 2**32
_MOST_PAIRS = 1 << 22
"""Pairs that one owner looks up at once: 100 MB of scratch memory."""


class PartLookup(EdgeLookup):
    """Looks edges up in parts: each pair goes to the owner of its destination's list, which answers by whether, or
    where, there is an edge. A round each, and negatives one for each time that some of them turn out to be edges."""

    def __init__(self, group: SamplingGroup) -> None:
        self.group = group

    def find_all(self, edge_type: int, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions, pairs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        settings, columns = {"edge_type": edge_type}, {"src": narrow(src, self._num_nodes)}
        for answer in self.group.ask("links_between", self._new_ids(dst), settings, columns):
            counts = answer.numbers("counts", MOST, len(answer.positions)).astype(np.int64)
            positions.append(answer.numbers("positions", MOST, int(counts.sum())).astype(np.int64))
            pairs.append(np.repeat(answer.positions, counts))
        return np.concatenate(positions), np.concatenate(pairs)

    def find_ids(self, edge_type: int, dst: np.ndarray, edge_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self.group.owned.graph.has("edge_order"):
            raise SamplerConfigError(
                "edges are given by id, but the parts do not keep the order of edge lists. Build the graph with "
                "keep_order=True and partition it again, or give the ends of edges alone."
            )
        positions, sources = np.full((2, len(dst)), -1)
        settings, columns = {"edge_type": edge_type}, {"edge_ids": edge_ids}
        for answer in self.group.ask("links_named", self._new_ids(dst), settings, columns):
            is_there = answer.numbers("found", 2, len(answer.positions)).astype(np.bool_)
            at = answer.positions[is_there]
            positions[at] = answer.numbers("positions", MOST, len(at))
            sources[at] = answer.numbers("sources", self._num_nodes, len(at))
        return positions, sources

    def are_edges(self, edge_type: int, src: np.ndarray, dst: np.ndarray, until: np.ndarray | None) -> np.ndarray:
        is_edge = np.zeros(len(src), np.bool_)
        columns = {"src": narrow(src, self._num_nodes), **({} if until is None else {"until": until})}
        for answer in self.group.ask("are_links", self._new_ids(dst), {"edge_type": edge_type}, columns):
            is_edge[answer.positions] = answer.numbers("found", 2, len(answer.positions))
        return is_edge

    def mark(self, edge_type: int, src: np.ndarray, dst: np.ndarray, until: np.ndarray | None) -> np.ndarray:
        marks = np.zeros((len(src), len(dst)), np.bool_)
        shared = {"src": narrow(src, self._num_nodes), **({} if until is None else {"until": until})}
        settings = {"edge_type": edge_type}
        for answer in self.group.ask("mark_links", self._new_ids(dst), settings, shared=shared):
            num_bits = len(answer.positions) * len(src)
            bits = answer.numbers("bits", 256, -(-num_bits // 8)).astype(np.uint8)
            part_marks = np.unpackbits(bits, count=num_bits).reshape(len(answer.positions), len(src))
            marks[:, answer.positions] = part_marks.T
        return marks

    def count(self, edge_type: int, *, distinct: bool) -> int:
        answers = self.group.ask_all("count_links", {"edge_type": edge_type, "distinct": distinct})
        return sum(int(answer.numbers("count", MOST, 1)[0]) for answer in answers)

    def draw_negatives(
        self, edge_type: int, sources: range, rows: np.ndarray, key: DrawKey, num: int, **settings: Any
    ) -> np.ndarray:
        """Draws as if there were no edges, and asks of what is drawn; what is an edge is drawn again from the next try
        on. So each negative is the one that the whole graph's lists would leave."""
        no_lists = self.group.once("lists without edges", self._no_lists)
        tried = np.zeros((len(rows), num), np.int64)
        src, dst, until = (settings.get(name) for name in ("src", "dst", "until"))
        num_dst = ops.num_corrupt_dst(num, settings.get("corrupt", "dst"))
        unknown = np.ones(tried.shape, np.bool_)
        where = no_lists, np.empty(0, np.int32), edge_type, sources, rows, key, num
        while True:
            negatives = ops.draw_negatives(*where, **settings, tried=tried)
            row, number = np.nonzero(unknown & (negatives >= 0))
            if src is None or dst is None or not len(row):
                return negatives
            nodes, is_dst = negatives[row, number], number < num_dst
            refused = self.are_edges(
                edge_type,
                np.where(is_dst, src[row], nodes),
                np.where(is_dst, nodes, dst[row]),
                None if until is None else until[row],
            )
            unknown[row[~refused], number[~refused]] = False
            tried[row[refused], number[refused]] += 1

    def _no_lists(self) -> ops.DenseLists:
        """Returns lists of the graph's nodes without any edge; pages that are only read take no memory."""
        partition = self.group.partition
        types, clock = partition.types, partition.clock
        edge_time = None if clock is None else np.empty(0, np.uint32)
        if types is None:
            return whole_lists_of(np.zeros(partition.num_nodes + 1, np.int64), edge_time, clock)
        return typed_lists_of(types, np.zeros(int(types.first_run[-1]) + 1, np.uint32), edge_time, clock)

    @property
    def _num_nodes(self) -> int:
        return self.group.partition.num_nodes

    def _new_ids(self, nodes: np.ndarray) -> np.ndarray:
        if len(nodes) and not (nodes.min() >= 0 and nodes.max() < self._num_nodes):
            raise SeedError(
                f"ends of links span [{nodes.min()}, {nodes.max()}], but nodes lie in [0, {self._num_nodes})."
            )
        return np.asarray(self.group.partition.new_ids)[nodes]


@operation
def links_between(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Finds all edges of a type from sources, by their ids in the whole graph, to own nodes: their positions there."""
    edges, pairs = _edges_between(owned, rows, _sources(owned, task, len(rows)), _edge_type(owned.graph, task))
    order = np.argsort(pairs, kind="stable")
    positions = edge_names(owned.graph, rows[pairs[order]], edges[order])
    return {"counts": narrow(np.bincount(pairs, minlength=len(rows))), "positions": narrow(positions)}


@operation
def links_named(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Finds the edges of a type with these ids, in the list of their type, that lead to own nodes: which there are,
    their positions in the whole graph, and their sources' ids there."""
    graph, ids = owned.graph, task.numbers("edge_ids", MOST)
    if len(ids) != len(rows) or graph.edge_order is None:
        raise SamplerConfigError(f"{len(ids)} edges are named for {len(rows)} nodes, in parts that keep their ids.")
    named = {"edge_ids": ids.astype(np.int64), "edge_order": graph.edge_order}
    edges, pairs = _edges_of(graph, rows, _edge_type(graph, task), named)
    first = np.unique(pairs, return_index=True)[1]
    edges, pairs = edges[first], pairs[first]
    is_there = np.zeros(len(rows), np.uint8)
    is_there[pairs] = 1
    sources = graph.names_of(graph.indices[edges])
    return {
        "found": is_there,
        "positions": narrow(edge_names(graph, rows[pairs], edges)),
        "sources": narrow(sources, owned.num_nodes),
    }


@operation
def are_links(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Tells which pairs of a source and an own node are edges of a type that count."""
    return {"found": _found(owned, rows, _sources(owned, task, len(rows)), task, _until(task, len(rows)))}


@operation
def mark_links(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Tells which of the sources lead to each own node, a bit for each: those of the first node first."""
    num = len(task.numbers("src", owned.num_nodes))
    src, until = _sources(owned, task, num), _until(task, num)
    marks = [np.empty(0, np.uint8)]
    for begin in range(0, len(rows), at_once := max(_MOST_PAIRS // max(num, 1), 1)):
        some = rows[begin : begin + at_once]
        bounds = None if until is None else np.tile(until, len(some))
        marks.append(_found(owned, np.repeat(some, num), np.tile(src, len(some)), task, bounds))
    return {"bits": np.packbits(np.concatenate(marks))}


@operation
def count_links(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Counts the edges of a type, or the distinct pairs among them."""
    graph, edge_type = owned.graph, _edge_type(owned.graph, task)
    is_of_type = np.ones(graph.num_edges, np.bool_) if edge_type is None else graph.edge_type == edge_type
    if not task.about["distinct"]:
        return {"count": np.array([np.count_nonzero(is_of_type)])}
    pairs = np.repeat(np.arange(graph.num_nodes), graph.in_degrees)[is_of_type] * graph.num_nodes
    return {"count": np.array([len(np.unique(pairs + graph.indices[is_of_type]))])}


def _edges_between(
    owned: OwnedLists, rows: np.ndarray, src: np.ndarray, edge_type: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of edges in the part's ``indices``, and of which pair each is; ``src`` are nodes of the
    part, -1 for those that lie elsewhere and so lead to none of it."""
    here = np.flatnonzero(src >= 0)
    edges, pairs = _edges_of(owned.graph, rows[here], edge_type, {"sources": src[here]})
    return edges, here[pairs]


def _edges_of(
    graph: Graph, rows: np.ndarray, edge_type: int | None, keys: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the edges into ``rows`` that have the ``keys``, as :func:`.ops.find_edges` has them, and
    of which row each is."""
    pairs, begins = np.arange(len(rows)), np.zeros(len(rows), np.int64)
    positions, pair_of_edge = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    by_row = [name for name in keys if name != "edge_order"]
    while len(pairs):  # as often as there are such edges of one node
        some = {**keys, **{name: keys[name][pairs] for name in by_row}}
        edges = ops.find_edges(graph.whole_lists, graph.indices, 0, rows[pairs], **some, begins=begins)
        pairs, edges = pairs[edges >= 0], edges[edges >= 0]
        is_of_type = np.ones(len(edges), np.bool_)
        if edge_type is not None and graph.edge_type is not None:
            is_of_type = graph.edge_type[edges] == edge_type
        positions.append(edges[is_of_type])
        pair_of_edge.append(pairs[is_of_type])
        begins = edges + 1
    return np.concatenate(positions), np.concatenate(pair_of_edge)


def _found(owned: OwnedLists, rows: np.ndarray, src: np.ndarray, task: Message, until: np.ndarray | None) -> np.ndarray:
    graph, edge_type = owned.graph, _edge_type(owned.graph, task)
    edges, pairs = _edges_between(owned, rows, src, edge_type)
    if until is not None and graph.clock is not None and graph.edge_time is not None:
        is_timed = graph.clock.timed.any() if edge_type is None else graph.clock.timed[edge_type]
        pairs = pairs[graph.edge_time[edges] < until[pairs]] if is_timed else pairs
    is_edge = np.zeros(len(rows), np.uint8)
    is_edge[pairs] = 1
    return is_edge


def _sources(owned: OwnedLists, task: Message, num: int) -> np.ndarray:
    """Returns the sources that a task names by their nodes in the part, int64; -1 for those that it does not have."""
    src = task.numbers("src", owned.num_nodes)
    if len(src) != num:
        raise SamplerConfigError(f"there are {len(src)} sources, but one for each of {num} nodes is needed.")
    return owned.graph.held_ids(src.astype(np.int64))


def _until(task: Message, num: int) -> np.ndarray | None:
    if "until" not in task.arrays:
        return None
    until = task.numbers("until", _CODES)
    if len(until) != num:
        raise SamplerConfigError(f"there are {len(until)} bounds in time, but {num} are needed.")
    return until


def _edge_type(graph: Graph, task: Message) -> int | None:
    """Returns the number of the type asked for; None in a graph whose types have no names, where any edge is meant."""
    number = task.about.get("edge_type")
    num_types = 1 if graph.types is None else len(graph.types.edge_types)
    if type(number) is not int or not 0 <= number < num_types:
        raise SamplerConfigError(f"edge_type is {number!r:.20}, but must be a number in [0, {num_types}).")
    return None if graph.types is None else number
