"""Small graphs with node types, edge types and times, and the lists that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lightning_gnnload.ops import (
    DenseLists,
    DrawKey,
    Queries,
    SamplerInput,
    SparseLists,
    TypedLists,
    Workspace,
    sample_typed_neighbors,
)
from tests.oracle import TypedEdge

from .graphs import KEY, Batch, sampled

UNTIMED = 0xFFFFFFFF  # what stands in edge_time for edges without times: no one may read it


@dataclass(frozen=True)
class TypedGraph:
    """``edges`` by ids of the whole graph, whose types have ``num_nodes`` each; ``ends``: source and destination type
    of each edge type."""

    num_nodes: list[int]
    ends: list[tuple[int, int]]
    edges: list[TypedEdge]
    timed: list[bool]

    @property
    def size(self) -> int:
        return sum(self.num_nodes)

    @cached_property
    def stored(self) -> list[TypedEdge]:
        """Edges in the order of the lists."""
        return sorted(self.edges, key=lambda edge: (edge.dst, edge.kind, edge.time or 0, edge.number))

    @cached_property
    def position(self) -> dict[TypedEdge, int]:
        return {edge: i for i, edge in enumerate(self.stored)}

    def csc(self, dtype: type = np.int64) -> tuple[np.ndarray, np.ndarray]:
        degrees = np.bincount([edge.dst for edge in self.edges] or np.empty(0, int), minlength=self.size)
        return np.concatenate([[0], np.cumsum(degrees)]), np.array([edge.src for edge in self.stored], dtype)

    def lists(self, dtype: type = np.uint32, untyped: bool = False) -> DenseLists:
        first_node = np.concatenate([[0], np.cumsum(self.num_nodes)])
        slots = [[k for k, (_, dst) in enumerate(self.ends) if dst == t] for t in range(len(self.num_nodes))]
        degrees = dict[tuple[int, int], int]()
        for edge in self.edges:
            degrees[edge.dst, edge.kind] = degrees.get((edge.dst, edge.kind), 0) + 1
        runs = [
            degrees.get((node, kind), 0)
            for t, kinds in enumerate(slots)
            for node in range(first_node[t], first_node[t + 1])
            for kind in kinds
        ]
        num_runs = [count * len(kinds) for count, kinds in zip(self.num_nodes, slots, strict=True)]
        return DenseLists(
            np.concatenate([[0], np.cumsum(runs)]).astype(dtype),
            *self.times,
            first_node,
            np.concatenate([[0], np.cumsum(num_runs)]),
            np.concatenate([[0], np.cumsum([len(kinds) for kinds in slots])]),
            np.array([kind for kinds in slots for kind in kinds], np.int32),
            untyped,
        )

    @property
    def times(self) -> tuple[np.ndarray | None, np.ndarray]:
        """``edge_time`` and ``timed`` of the lists."""
        codes = [UNTIMED if edge.time is None else edge.time for edge in self.stored]
        return np.array(codes, np.uint32) if any(self.timed) else None, np.array(self.timed, np.uint8)

    def sparse(self) -> SparseLists:
        indptr, _ = self.csc()
        return SparseLists.of(indptr, np.array([edge.kind for edge in self.stored], np.int64), *self.times)

    def sample(
        self,
        seeds: Any,
        fanouts: Any,
        *,
        key: DrawKey = KEY,
        table: Any = "auto",
        lists: TypedLists | None = None,
        dtype: type = np.int64,
        names: np.ndarray | None = None,
        **options: Any,
    ) -> Batch:
        inputs = (Workspace(self.size, table), *self.csc(dtype), np.asarray(seeds, np.int64), key)
        lists = lists or self.lists()
        fanouts = np.asarray(fanouts, np.int64).reshape(-1, len(self.ends))
        return sampled(
            lambda arena: sample_typed_neighbors(
                SamplerInput(*inputs, arena, names), lists, fanouts, edge_ids=True, **options
            )
        )


def random_typed_graph(rng: np.random.Generator, untyped: bool = False, most_edges: int = 250) -> TypedGraph:
    """Multi-edges, loops, hubs, types without nodes, edge types without edges or without times, times that tie."""
    num_types, num_kinds = (1, 1) if untyped else (int(rng.integers(1, 5)), int(rng.integers(1, 7)))
    num_nodes = [int(rng.integers(0 if num_types > 1 else 1, 40)) for _ in range(num_types)]
    if sum(num_nodes) == 0:
        num_nodes[0] = 3
    first = np.concatenate([[0], np.cumsum(num_nodes)])
    ends = [(int(rng.integers(num_types)), int(rng.integers(num_types))) for _ in range(num_kinds)]
    timed = [bool(rng.random() < 0.7) for _ in ends]
    span = int(rng.choice([3, 50, 10**6]))
    edges = []
    for kind, (src, dst) in enumerate(ends):
        count = int(rng.integers(0, most_edges)) if num_nodes[src] and num_nodes[dst] and rng.random() > 0.1 else 0
        sources = first[src] + rng.integers(0, max(num_nodes[src], 1), count)
        skew = rng.random(count) ** int(rng.integers(1, 5))
        targets = first[dst] + (skew * num_nodes[dst]).astype(int)
        times = rng.integers(0, span, count).tolist() if timed[kind] else [None] * count
        edges += [
            TypedEdge(int(u), int(v), kind, time, i)
            for i, (u, v, time) in enumerate(zip(sources, targets, times, strict=True))
        ]
    return TypedGraph(num_nodes, ends, edges, timed)


def random_queries(
    rng: np.random.Generator, graph: TypedGraph, num_seeds: int
) -> tuple[np.ndarray, Queries, list[tuple[int, TypedEdge]]]:
    """Seeds, distinct within a query, what they ask for, and the edges that are left out."""
    count = int(rng.integers(1, num_seeds + 2))
    pairs = rng.permutation(graph.size * count)[:num_seeds]
    of_seed, seeds = (pairs // graph.size).astype(np.int32), pairs % graph.size
    codes = [edge.time for edge in graph.edges if edge.time is not None]
    end = max(codes, default=2) + 2
    until = rng.integers(0, end, count).astype(np.uint32) if rng.random() < 0.8 else None
    since = None
    if rng.random() < 0.4:
        top = np.full(count, end) if until is None else until.astype(int)
        since = np.maximum(top - rng.integers(0, end // 2 + 2, count), 0).astype(np.uint32)
        if rng.random() < 0.2:  # nothing counts
            since += np.uint32(end)
    askers = {(int(seed), int(query)) for seed, query in zip(seeds, of_seed, strict=True)}
    excluded = [
        (query, edge)
        for edge in graph.edges
        for query in range(count)
        if (edge.dst, query) in askers and rng.random() < 0.2
    ]
    if rng.random() < 0.5:
        excluded = []
    excluded = [excluded[i] for i in rng.permutation(len(excluded))]
    queries = Queries(
        of_seed,
        name=rng.integers(0, 2**32, count).astype(np.uint32) if until is None or rng.random() < 0.7 else None,
        by_row=bool(rng.random() < 0.5),
        since=since,
        until=until,
        along_path=until is not None and any(graph.timed) and bool(rng.random() < 0.3),
        path_end=int(rng.integers(0, 2)),
        excluded=np.array([graph.position[edge] for _, edge in excluded], np.int64) if excluded else None,
        excluded_query=np.array([query for query, _ in excluded], np.int32) if excluded else None,
    )
    return seeds, queries, excluded


def paths_back_to_seeds(
    rng: np.random.Generator,
) -> tuple[TypedGraph, np.ndarray, Queries, list[tuple[int, TypedEdge]]]:
    """Few nodes and many edges, so that paths come back to seeds, of which half of the edges are left out."""
    ends, timed, first, sizes = [(0, 0), (1, 0), (0, 1)], [True, bool(rng.random() < 0.5), True], [0, 3], [3, 2]
    edges = [
        TypedEdge(first[src] + int(rng.integers(sizes[src])), first[dst] + int(rng.integers(sizes[dst])), kind, time, i)
        for kind, (src, dst) in enumerate(ends)
        for i, time in enumerate(rng.integers(0, 8, 14).tolist() if timed[kind] else [None] * 14)
    ]
    graph = TypedGraph(sizes, ends, edges, timed)
    of_seed, seeds = np.repeat(np.arange(3, dtype=np.int32), 2), np.concatenate([rng.permutation(5)[:2] for _ in "123"])
    askers = set(zip(seeds.tolist(), of_seed.tolist(), strict=True))
    excluded = [(q, edge) for edge in edges for q in range(3) if (edge.dst, q) in askers and rng.random() < 0.5]
    queries = Queries(
        of_seed,
        name=rng.integers(0, 2**32, 3).astype(np.uint32),
        by_row=bool(rng.random() < 0.5),
        until=rng.integers(5, 10, 3).astype(np.uint32),
        along_path=True,
        path_end=int(rng.integers(0, 2)),
        excluded=np.array([graph.position[edge] for _, edge in excluded], np.int64),
        excluded_query=np.array([query for query, _ in excluded], np.int32),
    )
    return graph, seeds, queries, excluded


def at_the_end(
    graph: TypedGraph, queries: Queries, excluded: list[tuple[int, TypedEdge]]
) -> tuple[TypedGraph, Queries, list[tuple[int, TypedEdge]]]:
    """The same, with codes that go up to the last one that a clock has, ``2**32 - 2``."""
    base = 2**32 - 2 - max((edge.time for edge in graph.edges if edge.time is not None), default=0)

    def moved(edge: TypedEdge) -> TypedEdge:
        return edge if edge.time is None else edge._replace(time=edge.time + base)

    bounds = {"since": queries.since, "until": queries.until}
    late = {
        name: None if codes is None else np.minimum(codes.astype(np.int64) + base, 2**32 - 1).astype(np.uint32)
        for name, codes in bounds.items()
    }
    edges = [moved(edge) for edge in graph.edges]
    return replace(graph, edges=edges), replace(queries, **late), [(query, moved(edge)) for query, edge in excluded]
