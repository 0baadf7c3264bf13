"""What is derived from a graph's arrays when it is first asked for."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from lightning_gnnload import ops

_CHUNK_EDGES = 1 << 22  # edges that a fingerprint converts to one dtype at a time: 32 MiB at most


def num_edges_by_type(graph: Any) -> np.ndarray:
    """Counts the edges of each type of a graph with types, int64 ``[K]``."""
    types, run_ptr = graph.types, graph.run_ptr
    counts = np.zeros(len(types.edge_types), np.int64)
    for number, slots in enumerate(types.slots):
        first, last = types.first_run[number : number + 2]
        for place, kind in enumerate(slots):
            begins, ends = (
                run_ptr[first + place : last : len(slots)],
                run_ptr[first + place + 1 : last + 1 : len(slots)],
            )
            counts[kind] = ends.sum(dtype=np.int64) - begins.sum(dtype=np.int64)
    return counts


def typed_lists(graph: Any) -> ops.TypedLists:
    """Returns views of the arrays as kernels read them; a graph without types has one run a node."""
    timed = np.zeros(1, np.uint8) if graph.clock is None else graph.clock.timed.astype(np.uint8)
    if graph.types is None or graph.run_ptr is None:  # each list is one run
        whole = np.array([0, graph.num_nodes])
        one = np.zeros(1, np.int32)
        return ops.TypedLists(
            graph.indptr, whole, whole, np.array([0, 1]), one, graph.edge_time, timed, is_untyped=True
        )
    slots = graph.types.slots
    slot_ptr = np.concatenate([[0], np.cumsum([len(each) for each in slots], dtype=np.int64)]).astype(np.int64)
    if graph.clock is None:
        timed = np.zeros(len(graph.types.edge_types), np.uint8)
    slot_type = np.array([kind for each in slots for kind in each], np.int32)
    return ops.TypedLists(
        graph.run_ptr, graph.types.first_node, graph.types.first_run, slot_ptr, slot_type, graph.edge_time, timed
    )


def fingerprint(graph: Any) -> str:
    """Returns the numbers of nodes and edges, and a checksum (CRC-32) of all that samplers read."""
    checksum = zlib.crc32(graph.indptr.data)
    # One dtype each, so that a graph and its copy with ids or weights of another width have the same fingerprint.
    width = np.int32 if graph.num_nodes <= 2**31 else np.int64
    ranked = None if graph.clock is None else graph.clock.ranked
    widths = {
        "indices": (graph.indices, width),
        "edge_weight": (graph.edge_weight, np.float64),
        "edge_type": (graph.edge_type, np.int64),
        "run_ptr": (graph.run_ptr, np.int64),
        "edge_time": (graph.edge_time, np.uint32),
        "node_time": (graph.node_time, None),
        "ranked": (ranked, None),
    }
    for array, dtype in widths.values():
        if array is not None:
            for begin in range(0, len(array), _CHUNK_EDGES):
                chunk = np.ascontiguousarray(array[begin : begin + _CHUNK_EDGES], dtype)
                checksum = zlib.crc32(chunk.data, checksum)
    for described in (graph.types, graph.clock):
        if described is not None:
            checksum = zlib.crc32(json.dumps(described.to_json()).encode(), checksum)
    return f"{graph.num_nodes}-{graph.num_edges}-{checksum:08x}"
