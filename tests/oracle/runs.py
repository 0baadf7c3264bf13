"""Edge lists grouped into runs, by one sort of all edges."""

from __future__ import annotations

import numpy as np


def typed_graph(num_nodes, edges, edge_time, node_time, edge_weight):
    """Returns what the arrays of a typed, timed graph must be, by name, as lists.

    Args:
        num_nodes: by node type.
        edges: ``{(source type, relation, target type): (src, dst)}``.
        edge_time: whole numbers by edge type, ``node_time`` by node type; either may lack types.
        edge_weight: by edge type; those of types left out are 1.
    """
    first, at = {}, 0
    for name, count in num_nodes.items():
        first[name], at = at, at + count
    times = [t for values in (*edge_time.values(), *node_time.values()) for t in values]
    earliest = min(times, default=0)
    rows = []  # one an edge: (target, type, code, place in its list, source, weight)
    for number, (kind, (src, dst)) in enumerate(edges.items()):
        for e, (u, v) in enumerate(zip(src, dst, strict=True)):
            since = [edge_time[kind][e]] if kind in edge_time else []
            since += [node_time[kind[0]][u]] if kind[0] in node_time else []
            code = max(since) - earliest if since else 0
            weight = edge_weight[kind][e] if kind in edge_weight else 1.0
            rows.append((first[kind[2]] + v, number, code, e, first[kind[0]] + u, weight))
    rows.sort()
    run_ptr = [0]
    for name, count in num_nodes.items():
        slots = [number for number, kind in enumerate(edges) if kind[2] == name]
        for v in range(first[name], first[name] + count):
            for slot in slots:
                run_ptr.append(run_ptr[-1] + sum(row[:2] == (v, slot) for row in rows))
    heads = [row[0] for row in rows]
    return {
        "indptr": np.searchsorted(heads, np.arange(at + 1)).tolist(),
        "run_ptr": run_ptr,
        "edge_time": [row[2] for row in rows],
        "edge_order": [row[3] for row in rows],
        "indices": [row[4] for row in rows],
        "edge_weight": [row[5] for row in rows],
    }
