"""What parts must hold, found node by node."""

from __future__ import annotations

import numpy as np

from lightning_gnnload import Graph, Part


def distances(graph: Graph, seeds: np.ndarray, hops: int) -> dict[int, int]:
    """How many steps against the edges lie between the seeds and each node within ``hops`` of them."""
    found = dict.fromkeys(seeds.tolist(), 0)
    edge = list(found)
    for distance in range(1, hops + 1):
        behind = {int(source) for node in edge for source in graph.in_neighbors(node)}
        edge = [node for node in behind if node not in found]
        found |= dict.fromkeys(edge, distance)
    return found


def assert_lists_are_those_of_the_whole(part: Part, graph: Graph) -> None:
    """Every list that a part says it has, in the order of the whole graph, with what belongs to its edges; no other."""
    origin = part.graph.origin
    assert origin is not None
    for local, node in enumerate(origin.node_ids.tolist()):
        ours = slice(*part.graph.indptr[local : local + 2])
        if origin.reach[local] == 0:
            assert ours.start == ours.stop
            continue
        whole = slice(*graph.indptr[node : node + 2])
        assert origin.edge_starts[local] == whole.start
        np.testing.assert_array_equal(origin.node_ids[part.graph.indices[ours]], graph.indices[whole])
        if graph.types is not None:  # whose runs say the types of edges
            edges = np.arange(whole.start, whole.stop)
            np.testing.assert_array_equal(
                part.graph.edge_types_of(np.arange(ours.start, ours.stop)), graph.edge_types_of(edges)
            )
        for name in ("edge_weight", "edge_time", *(["edge_type"] if graph.types is None else [])):
            column = getattr(graph, name)
            if column is None:
                assert getattr(part.graph, name) is None
            else:
                assert getattr(part.graph, name).dtype == column.dtype
                np.testing.assert_array_equal(getattr(part.graph, name)[ours], column[whole])
