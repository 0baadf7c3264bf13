"""Partitions by definition: slow, in memory, and made with nothing of what makes those of the package."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gnnload import Graph
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.data.partition import Part, Partition


def partition_of(
    graph: Graph, assignment: np.ndarray, seeds: Mapping[str, np.ndarray], hops: int, num_parts: int | None = None
) -> Partition:
    """Part ``assignment[v]`` owns node ``v`` and, of each phase, the seeds among its nodes. A part with hops holds no
    node that its seeds do not reach."""
    num_parts = num_parts or int(assignment.max()) + 1
    node_ids = np.argsort(assignment, kind="stable")
    new_ids = np.empty_like(node_ids)
    new_ids[node_ids] = np.arange(len(node_ids))
    starts = np.searchsorted(assignment[node_ids], np.arange(num_parts + 1))
    parts = []
    for index in range(num_parts):
        own = {phase: np.sort(ids[assignment[ids] == index]) for phase, ids in seeds.items()}
        owned = node_ids[starts[index] : starts[index + 1]]
        parts.append(_part(graph, index, owned, own, hops))
    head = {"types": graph.types, "clock": graph.clock, "node_time": graph.node_time}
    return Partition(starts, node_ids, new_ids, parts, hops, "by hand", graph.fingerprint, **head)


def _part(graph: Graph, index: int, owned: np.ndarray, seeds: Mapping[str, np.ndarray], hops: int) -> Part:
    reach = dict.fromkeys(owned.tolist(), 0 if hops else 1)
    frontier = {seed for ids in seeds.values() for seed in ids.tolist()} if hops else set()
    for left in range(hops, -1, -1):
        for node in frontier:
            reach[node] = max(reach.get(node, 0), left)
        frontier = {source for node in frontier for source in graph.in_neighbors(node).tolist()}
    needed = {source for node, left in reach.items() if left for source in graph.in_neighbors(node).tolist()}
    held = needed | {node for node, left in reach.items() if left}
    held |= set(owned.tolist()) if hops == 0 else set(np.concatenate([*seeds.values()]).tolist())
    own = [node for node in owned.tolist() if node in held]
    nodes = np.array([*own, *sorted(held - set(own))], np.int64)
    local = {node: place for place, node in enumerate(nodes.tolist())}
    none = np.empty(0, np.int64)
    edges = [np.arange(*graph.indptr[node : node + 2]) if reach.get(node) else none for node in nodes.tolist()]
    kept = np.concatenate([none, *edges])
    has_types = graph.types is not None or graph.edge_type is not None
    origin = Origin(nodes, np.array([reach.get(node, 0) for node in nodes.tolist()], np.uint8), graph.indptr[nodes])
    return Part(
        index,
        Graph(
            np.cumsum([0, *map(len, edges)]),
            np.array([local[source] for source in graph.indices[kept].tolist()], np.int32),
            None if graph.edge_weight is None else graph.edge_weight[kept],
            graph.edge_types_of(kept) if has_types else None,
            None if graph.edge_order is None or hops else graph.edge_order[kept],
            origin=origin,
            edge_time=None if graph.edge_time is None else graph.edge_time[kept],
            node_time=None if graph.node_time is None else graph.node_time[nodes],
            types=graph.types,
            clock=graph.clock,
        ),
        len(own),
        seeds,
    )
