"""Ops on graphs, rows and parts: sound arguments of each."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import numpy as np

from lightning_gnnload import ops
from tests.fuzz.sound import INDPTR, LISTS, TYPES, WEIGHTS, Arguments, Ops, graph, graph_first


def _build_runs(code: Any, weight: Any, **ends: Any) -> None:
    edges = ops.EdgeList("edges", **ends, num_src=4, num_dst=3, first_run=1, step=2, code=code, columns=[weight])
    ops.build_runs([edges], 7, np.int32, order_dtype=np.int64)


def _check_runs(**arguments: Any) -> None:
    ops.check_csc(arguments["indptr"], arguments["indices"])
    ops.check_runs(**arguments, node_types=[ops.NodesOfType(0, 4, 0, [range(4)] * 3)])


def _split_edge_list(nodes: Any, first_node: Any, **arguments: Any) -> None:
    ops.split_edge_list(**arguments, nodes=ops.split_nodes(nodes, first_node))


def _split_edges(nodes: Any, first_node: Any, **arguments: Any) -> None:
    ops.split_edges(**arguments, nodes=ops.split_nodes(nodes, first_node))


def _read_rows(**arguments: Any) -> None:
    """From a file of four rows, whose descriptor is right: a wrong one would be another open file."""
    fd = os.memfd_create("rows")
    try:
        os.write(fd, bytes(4 * 24))
        ops.read_rows(ops.RowReader(24, 1, 2, use_ring=False), ops.RowFile(fd, "rows", 0, 4, 24), **arguments)
    finally:
        os.close(fd)


def _find_ids(keys: Any, key_offsets: Any, is_null: Any, **ids: Any) -> None:
    index = ops.IdIndex(**ids)
    index.add(index.num_ids)
    index.repeats()
    index.find(keys, key_offsets, is_null)


def _spill_edges(source_time: Any, **edges: Any) -> None:
    """To a file whose descriptor is right, as in :func:`_read_rows`."""
    fd = os.memfd_create("edges")
    sizes = {"num_lists": 7, "shift": 1, "extent_bytes": 50, "num_nodes": 7, "most_ids": 100}
    try:
        spill = ops.EdgeSpill(fd, "edges", has_time=True, weight_dtype=np.float32, **sizes)
        spill.add(ops.SpillLists(4, 3, first_src=3, first_list=1, step=2, source_time=source_time), **edges)
        spill.finish()
        for bucket in spill.buckets:
            for part in [bucket, *spill.split(bucket)]:
                spill.read(part)
    finally:
        os.close(fd)


def _rows_of_four(random: Random) -> Arguments:
    return {
        "ids": np.array([3, 0]),
        "positions": random.choice([None, np.array([1, 0])]),
        "out": np.ones((2, 3)),
    }


DATA: Ops = {
    "build_runs": (
        _build_runs,
        lambda random: {
            "src": np.array([3, 0, 1]),
            "dst": np.array([2, 2, 0]),
            "code": random.choice([None, np.array([5, 1, 9], np.uint32)]),
            "weight": np.ones(3, random.choice([np.float16, np.float32, np.longdouble])),
        },
    ),
    "check_runs": (
        _check_runs,
        lambda random: graph(random) | {name: LISTS[name] for name in ("run_ptr", "edge_time")},
    ),
    "IdIndex": (
        _find_ids,
        lambda random: (
            random.choice(
                [
                    {"values": np.array([5, 7, 5]), "offsets": None, "keys": np.array([7, 8]), "key_offsets": None},
                    {
                        "values": np.arange(9, dtype=np.uint8),
                        "offsets": np.array([0, 4, 4, 9]),
                        "keys": np.arange(4, dtype=np.uint8),
                        "key_offsets": np.array([0, 0, 4], random.choice([np.int32, np.int64])),
                    },
                ]
            )
            | {"is_null": random.choice([None, np.array([True, False])])}
        ),
    ),
    "EdgeSpill": (
        _spill_edges,
        lambda random: {
            "src": np.array([3, 0, -1], np.int32),
            "dst": np.array([2, 2, 0], np.int32),
            "time": random.choice([None, np.array([5, 1, 9])]),
            "weight": random.choice([None, np.ones(3, np.float32)]),
            "source_time": random.choice([None, np.array([5, 1, 9, 7])]),
            "first_id": 0,
        },
    ),
    "split_nodes": (
        ops.split_nodes,
        lambda random: {
            "nodes": np.array([3, 0]),
            "first_node": np.array([0, 1, 4]),
            "local": random.choice([None, np.empty(2, np.int64)]),
        },
    ),
    "split_edges": (
        _split_edges,
        lambda random: {
            "nodes": np.array([3, 0, 2]),
            "first_node": np.array([0, 1, 4]),
            "indptr": np.array([0, 2], np.int32),
            "indices": np.array([1, 2], np.int32),
            "edge_type": np.array([0, 1], np.int32),
            "edge_ids": random.choice([None, np.array([7, 2])]),
            "src_type": np.array([0, 1], np.int32),
            "dst_type": np.array([1, 1], np.int32),
        },
    ),
    "list_edges": (
        ops.list_edges,
        lambda random: {
            "indptr": np.array([0, 2], np.int32),
            "indices": np.array([1, 2], np.int32),
            "edge_ids": np.array([3, 2]),
            "order": random.choice([None, np.arange(4), np.arange(4, dtype=np.int32)]),
            "num_edges": 4,
            "out": random.choice([None, np.empty(6, np.int64)]),
        },
    ),
    "split_edge_list": (
        _split_edge_list,
        lambda random: {
            "nodes": np.array([3, 0, 2]),
            "first_node": np.array([0, 1, 4]),
            "indptr": np.array([0, 2], np.int32),
            "indices": np.array([1, 2], np.int32),
            "edge_type": np.array([0, 1], np.int32),
            "edge_ids": np.array([3, 2]),
            "src_type": np.array([0, 1], np.int32),
            "dst_type": np.array([1, 1], np.int32),
            "num_dst": np.array([0, 1]),
            "order": random.choice([None, np.arange(4), np.arange(4, dtype=np.int32)]),
            "num_edges": 4,
            "out": random.choice([None, np.empty(6, np.int64)]),
        },
    ),
    "sort_by_type": (
        graph_first(ops.sort_by_type),
        lambda random: {"indptr": INDPTR, "edge_type": TYPES},
    ),
    "SparseLists": (
        graph_first(ops.SparseLists.of),
        lambda random: {"indptr": INDPTR, "edge_type": np.array([0, 1, 1, 0, 0, 1])},
    ),
    "build_alias": (
        graph_first(ops.build_alias),
        lambda random: {"indptr": INDPTR, "weights": WEIGHTS},
    ),
    "gather_rows": (
        ops.gather_rows,
        lambda random: {"table": np.ones((4, 3)), "ids": np.array([3, 0]), "out": np.ones((2, 3))},
    ),
    "locate_rows": (
        ops.locate_rows,
        lambda random: {
            "rows": np.array([3, 0, 1]),
            "num_rows": 4,
            "starts": np.array([0, 1, 4, 5]),
            "begins": np.array([0, 1, 4]),
            "new_ids": random.choice([None, np.array([4, 0, 2, 1, 3])]),
            "first": random.choice([0, 1]),
        },
    ),
    "gather_tiered": (
        ops.gather_tiered,
        lambda random: {
            "location": np.array([-1, 0, 1, 1 << 28], np.int32),
            "shards": [np.ones((2, 3)), np.ones((1, 3))],
            "backing": random.choice([None, np.ones((4, 3))]),
            "ids": np.array([3, 0]),
            "out": np.ones((2, 3)),
            "missed_ids": np.zeros(2, int),
            "missed_positions": np.zeros(2, int),
            "positions": random.choice([None, np.array([1, 0])]),
        },
    ),
    "gather_quantized": (
        ops.gather_quantized,
        lambda random: {
            "codes": np.ones((4, 3), np.int8),
            "scale": np.ones(3, np.float32),
            "offset": np.ones(3, np.float32),
            "ids": np.array([3, 0]),
            "out": np.ones((2, 3), random.choice([np.float32, np.float16, np.uint16])),
            "positions": random.choice([None, np.array([1, 0])]),
        },
    ),
    "sum_neighbors": (
        ops.sum_neighbors,
        lambda random: {
            "indptr": np.array([0, 2, 2], np.int32),
            "indices": np.array([3, 0], np.int32),
            "x": np.ones((4, 3), np.float32),
            "out": np.ones((2, 3), np.float32),
            "is_mean": random.choice([False, True]),
            "num_threads": random.choice([1, 2]),
        },
    ),
    "sum_destinations": (
        ops.sum_destinations,
        lambda random: {
            "indptr": np.array([0, 2, 2], np.int32),
            "indices": np.array([3, 0], np.int32),
            "grad": np.ones((2, 3), np.float32),
            "out": np.ones((4, 3), np.float32),
            "is_mean": random.choice([False, True]),
            "num_threads": random.choice([1, 2]),
        },
    ),
    "max_neighbors": (
        ops.max_neighbors,
        lambda random: {
            "indptr": np.array([0, 2, 2], np.int32),
            "indices": np.array([3, 0], np.int32),
            "x": np.ones((4, 3), np.float32),
            "out": np.ones((2, 3), np.float32),
            "source": np.zeros((2, 3), np.int32),
            "num_threads": random.choice([1, 2]),
        },
    ),
    "add_to_sources": (
        ops.add_to_sources,
        lambda random: {
            "source": np.array([[3, -1, 0], [0, 0, 0]], np.int32),
            "grad": np.ones((2, 3), np.float32),
            "into": np.ones((4, 3), np.float32),
            "num_threads": random.choice([1, 2]),
        },
    ),
    "EvictingSlots": (
        ops.EvictingSlots,
        lambda random: {"num_nodes": 4, "num_slots": 2, "row_bytes": 24, "eviction": random.choice(ops.EVICTIONS)},
    ),
    "EvictingSlots.read": (
        lambda **arguments: ops.EvictingSlots(4, 2, 24, "s3fifo").read(**arguments),
        lambda random: {
            "ids": np.array([3, 0]),
            "out": np.ones((2, 3)),
            "missed_ids": np.zeros(2, int),
            "missed_positions": np.zeros(2, int),
            "positions": random.choice([None, np.array([1, 0])]),
        },
    ),
    "EvictingSlots.admit": (
        lambda **arguments: ops.EvictingSlots(4, 2, 24, "s3fifo").admit(**arguments),
        lambda random: {"ids": np.array([3, 0]), "out": np.ones((2, 3)), "positions": np.array([1, 0])},
    ),
    "EvictingSlots.visit": (
        lambda **arguments: ops.EvictingSlots(4, 2, 0, "s3fifo").visit(**arguments),
        lambda random: {"ids": np.array([3, 0])},
    ),
    "RowFile": (
        ops.RowFile,
        lambda random: {"fd": 0, "name": "rows", "offset": 0, "num_rows": 4, "row_bytes": 24, "unit": 512},
    ),
    "RowReader": (
        ops.RowReader,
        lambda random: {"row_bytes": 24, "unit": 512, "in_flight": 2, "use_ring": random.choice([True, False])},
    ),
    "read_rows": (_read_rows, _rows_of_four),
    "gather_mapped": (ops.gather_mapped, lambda random: {"table": np.ones((4, 3)), **_rows_of_four(random)}),
    "coo_to_csc": (
        ops.coo_to_csc,
        lambda random: {"src": np.array([3, 0]), "dst": np.array([1, 1]), "num_nodes": 4, "keep_order": True},
    ),
    "check_csc": (ops.check_csc, graph),
    "breadth_first": (
        graph_first(ops.breadth_first),
        lambda random: (
            graph(random) | {"position": np.array([1, -1, 0, -1], np.int32), "roots": np.array([3, 0]), "num_seeds": 2}
        ),
    ),
    "spread_parts": (
        graph_first(ops.spread_parts),
        lambda random: (
            graph(random) | {"fresh": np.array([1, 0, 2, 1 << 63], np.uint64), "masks": np.ones(4, np.uint64)}
        ),
    ),
    "deal_seeds": (
        graph_first(ops.deal_seeds),
        lambda random: (
            graph(random)
            | {"seeds": np.array([3, 0]), "quotas": np.array([1, 1]), "dealt": ops.DealtSeeds.none_of(4, 2)}
            | {
                "hops": 2,
                "overlap": random.choice(["seeds", "nodes"]),
                "overlap_weight": 1,
                "smoothing": 0,
                "max_edges": 9,
            }
        ),
    ),
    "vote_nodes": (
        graph_first(ops.vote_nodes),
        lambda random: (
            graph(random)
            | {"part": np.array([1, -1, 0, -1], np.int32), "is_open": np.array([False, True, False, True])}
            | {"masks": random.choice([None, np.array([3, 2, 1, 0], np.uint64)]), "num_parts": 2}
            | {"capacity": 3, "begin": 0, "end": 4}
        ),
    ),
    "deal_nodes": (
        graph_first(ops.deal_nodes),
        lambda random: (
            graph(random)
            | {"is_seed": np.array([1, 0, 0, 1], np.uint8), "part_of": np.array([1, -1, 0, -1], np.int32)}
            | {"num_parts": 2, "node_capacity": 3, "seed_capacity": 1}
        ),
    ),
    "grow_blocks": (
        graph_first(ops.grow_blocks),
        lambda random: graph(random) | {"sources": np.array([3]), "most": 3},
    ),
    "join_blocks": (
        graph_first(ops.join_blocks),
        lambda random: (
            graph(random)
            | {"block_of": np.array([1, 0, 0, 2], np.int32), "sizes": np.array([2, 1, 1], np.int32)}
            | {"is_large": np.array([1, 0, 0], np.uint8), "most": 3}
        ),
    ),
    "link_blocks": (
        graph_first(ops.link_blocks),
        lambda random: graph(random) | {"block_of": np.array([1, 0, 0, 2], np.int32), "num_blocks": 3},
    ),
    "settle_nodes": (
        ops.settle_nodes,
        lambda random: {
            "part": np.array([1, -1, 0, -1], np.int32),
            "masks": random.choice([None, np.array([3, 2, 1, 0], np.uint64)]),
            "num_parts": 2,
        },
    ),
    "random_keys": (ops.random_keys, lambda random: {"seed": 1, "epoch": 2, "ids": np.array([3, 0])}),
}
