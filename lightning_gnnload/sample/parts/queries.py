"""The queries of seeds (:class:`.Queries`) where ranks sample together: who asks keeps which query each node was found
for, and the owners of lists draw for pairs of a query and a node.

Shapes: S seeds, Q queries, D nodes of a frontier, E edges that they draw, X excluded edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import ExchangeError, SamplerConfigError
from lightning_gnnload.ops import MAX_NODES, DrawKey, Queries
from lightning_gnnload.ops.philox import hash32
from lightning_gnnload.sample.group.messages import Message, narrow
from lightning_gnnload.sample.parts.edges import HopEdges

_CODES = 2**32
_BY_QUERY = ("name", "since", "until")


class PairNumbers:
    """Numbers the nodes of one mini-batch by query and node: that of the query stands above the node's new id, as in
    the kernels. Along paths, queries of a seed's query and a bound in time come as they are found.

    Args:
        queries: of the seeds.
        seeds: new ids, int64 ``[S]``.
        num_graph_nodes: N of the whole graph.

    Raises:
        SamplerConfigError: more queries than have numbers above those of nodes, within 48 bits.
    """

    num_nodes = MAX_NODES - 1
    """What an :class:`.ArenaBuilder` takes for the number of nodes: there are so many pairs at most."""

    def __init__(self, queries: Queries, seeds: np.ndarray, num_graph_nodes: int) -> None:
        self._queries = queries
        self._shift = num_graph_nodes.bit_length()
        self._outer = np.arange(queries.num_queries)  # of each number, the query of seeds that it came from
        self._until = queries.until
        self.seeds = self._pairs(queries.of_seed.astype(np.int64), seeds)

    def nodes_of(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the nodes of pairs, new ids int64 ``[D]``."""
        return pairs & ((1 << self._shift) - 1)

    def queries_of(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the seeds' queries that pairs were found for, int32 ``[D]``."""
        return self._outer[pairs >> self._shift].astype(np.int32)

    def asked_by(self, pairs: np.ndarray, key: DrawKey) -> Queries:
        """Returns what a frontier of pairs asks for at one hop: as queries of seeds, each with a name and a bound of
        its own, so that owners need know of no path. Excluded edges are positions in the whole graph's ``indices``."""
        queries, numbers = self._queries, pairs >> self._shift
        # Edges are left out for seeds alone, which therefore have queries apart from those of other nodes.
        is_seed = np.zeros(len(pairs), np.bool_)
        if queries.excluded is not None:
            is_seed = np.isin(self._outer[numbers] << self._shift | self.nodes_of(pairs), self.seeds)
        slots, slot_of_pair = np.unique(2 * numbers + is_seed, return_inverse=True)
        number, outer = slots >> 1, self._outer[slots >> 1]
        name = np.full(len(slots), key.step, np.uint32) if queries.name is None else queries.name[outer]
        until = None if self._until is None else self._until[number]
        if queries.along_path:
            assert until is not None
            assert queries.until is not None
            name = np.where(until == queries.until[outer], name, name ^ hash32(until))
        excluded, excluded_query = self._excluded(outer, (slots & 1).astype(np.bool_))
        return replace(
            queries,
            of_seed=slot_of_pair.astype(np.int32),
            name=name,
            since=None if queries.since is None else queries.since[outer],
            until=until,
            excluded=excluded,
            excluded_query=excluded_query,
        )

    def find(self, pairs: np.ndarray, edges: HopEdges) -> HopEdges:
        """Returns the edges that a frontier drew with pairs in the place of neighbours, each of the query that it was
        found for."""
        numbers = np.repeat(pairs >> self._shift, edges.counts)
        if self._queries.along_path:
            assert edges.until is not None
            numbers = self._numbers_of(self._outer[numbers], edges.until)
        return replace(edges, neighbors=self._pairs(numbers, edges.neighbors.astype(np.int64)), until=None)

    def _pairs(self, numbers: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        if len(self._outer) << self._shift > self.num_nodes:
            raise SamplerConfigError(
                f"a mini-batch of {len(self._outer)} queries, each with a number above those of nodes, {self._shift} "
                "bits, goes beyond the 48 bits that ranks which sample together have for both. Use a smaller batch."
            )
        return numbers << self._shift | nodes

    def _numbers_of(self, outer: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Returns the numbers of queries along paths, and gives new ones to those that are new."""
        assert self._until is not None
        numbered = self._outer << 32 | self._until
        distinct, which = np.unique(outer << 32 | until, return_inverse=True)
        order = np.argsort(numbered)
        at = np.searchsorted(numbered, distinct, sorter=order)
        is_known = at < len(numbered)
        is_known[is_known] = numbered[order[at[is_known]]] == distinct[is_known]
        numbers = np.empty(len(distinct), np.int64)
        numbers[is_known] = order[at[is_known]]
        new = distinct[~is_known]
        numbers[~is_known] = len(numbered) + np.arange(len(new))
        self._outer = np.append(self._outer, new >> 32)
        self._until = np.append(self._until, (new & (_CODES - 1)).astype(np.uint32))
        return numbers[which]

    def _excluded(self, outer: np.ndarray, is_seed: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Returns the edges that queries leave out, and for which: of each seed's query, for those of its seeds."""
        excluded, excluded_query = self._queries.excluded, self._queries.excluded_query
        if excluded is None or excluded_query is None:
            return None, None
        slots = np.flatnonzero(is_seed)
        slots = slots[np.argsort(outer[slots], kind="stable")]
        first, last = (np.searchsorted(outer[slots], excluded_query, side=side) for side in ("left", "right"))
        counts = last - first
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(excluded, counts), slots[np.repeat(first, counts) + steps].astype(np.int32)


def as_task(queries: Queries) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns what owners are told of a frontier's queries: JSON values, the columns ``[D]`` of its nodes, and arrays
    that all owners get."""
    about = {name: getattr(queries, name) for name in ("by_row", "along_path", "path_end")}
    shared = {name: array for name in _BY_QUERY if (array := getattr(queries, name)) is not None}
    if queries.excluded is not None and len(queries.excluded):
        assert queries.excluded_query is not None
        shared |= {"excluded": queries.excluded, "excluded_query": narrow(queries.excluded_query)}
    return {"queries": about}, {"query": narrow(queries.of_seed)}, shared


def from_task(task: Message, num_pairs: int) -> Queries | None:
    """Reads the queries of ``num_pairs`` nodes that another rank sends; what they count is checked where they are drawn
    for. ExchangeError: they are none."""
    about: Mapping[str, Any] | None = task.about.get("queries")
    if about is None:
        return None
    bounds = {"query": 2**31, "excluded_query": 2**31, "excluded": 2**63, **dict.fromkeys(_BY_QUERY, _CODES)}
    arrays = {name: task.numbers(name, below) for name, below in bounds.items() if name in task.arrays}
    if len(arrays.get("query", ())) != num_pairs or ("excluded" in arrays) != ("excluded_query" in arrays):
        raise ExchangeError(f"a rank asks for {num_pairs} nodes by queries, but sent {', '.join(arrays) or 'none'}.")
    dtypes = {"query": np.int32, "excluded_query": np.int32, "excluded": np.int64}
    columns: dict[str, Any] = {
        name: array.astype(dtypes.get(name, np.uint32), copy=False) for name, array in arrays.items()
    }
    settings: dict[str, Any] = {name: about.get(name) for name in ("by_row", "along_path", "path_end")}
    queries = Queries(columns.pop("query"), **columns, **settings)
    # Before those of other lists are left out, so that a mistake is one in any part.
    if "excluded_query" in columns and columns["excluded_query"].max(initial=0) >= queries.num_queries:
        raise ExchangeError(f"edges are left out of a query beyond the {queries.num_queries} that there are.")
    return queries


def here(queries: Queries, graph: Graph, rows: np.ndarray) -> Queries:
    """Returns queries of nodes, int64 ``[D]``, for kernels of the part that has their lists: excluded edges by their
    positions there, and without those of other lists; paths end with the hop."""
    queries = replace(queries, along_path=False)
    if queries.excluded is None or graph.origin is None:
        return queries
    assert queries.excluded_query is not None
    nodes = np.unique(rows)
    nodes = nodes[graph.indptr[nodes] < graph.indptr[nodes + 1]]  # empty lists begin where others do
    nodes = nodes[np.argsort(graph.origin.edge_starts[nodes], kind="stable")]
    starts, lengths = graph.origin.edge_starts[nodes], graph.indptr[nodes + 1] - graph.indptr[nodes]
    at = np.searchsorted(starts, queries.excluded, side="right") - 1
    is_here = at >= 0
    is_here[is_here] = (queries.excluded - starts[at])[is_here] < lengths[at[is_here]]
    at = at[is_here]
    local = queries.excluded[is_here] - starts[at] + graph.indptr[nodes[at]]
    return replace(queries, excluded=local, excluded_query=queries.excluded_query[is_here])


def bounds_along(
    queries: Queries, graph: Graph, counts: np.ndarray, edges: np.ndarray, edge_type: np.ndarray | None
) -> np.ndarray:
    """Returns until when what each edge finds counts along its path, uint32 ``[E]``: until the edge's own time, of an
    edge without one until its query does. ``edges`` are positions in ``graph.indices``, ``counts`` int64 ``[D]``."""
    clock, times = graph.clock, graph.edge_time
    if clock is None or times is None or queries.until is None:
        raise SamplerConfigError("queries along paths need times, but this part of the graph has none.")
    until_of_queries = queries.until[np.repeat(queries.of_seed, counts)]
    is_timed = clock.timed.any() if graph.types is None or edge_type is None else clock.timed[edge_type]
    return np.where(is_timed, times[edges] + np.uint32(queries.path_end), until_of_queries)
