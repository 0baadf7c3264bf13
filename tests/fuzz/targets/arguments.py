"""Arguments of the public functions, of which some went wrong."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lightning_gnnload import Graph, GraphData, NeighborSampler, ops
from tests.fuzz.spoil import spoil
from tests.fuzz.targets.stored_graphs import use
from tests.ops.graphs import sample_with

Arguments = dict[str, Any]
INDPTR, INDICES, TYPES = np.array([0, 2, 3, 3, 6]), np.array([1, 2, 0, 3, 3, 0]), np.array([1, 0, 1, 0, 1, 0])
WEIGHTS = np.array([1, 0, 2.5, 1e30, 1e-30, 1])


def call_ops(random: Random, folder: Path) -> None:
    """One op with one or two arguments gone wrong."""
    name = random.choice(list(OPS))
    call, make = OPS[name]
    arguments = make(random)
    spoil(random, arguments)
    call(**arguments)


def build_graphs(random: Random, folder: Path) -> None:
    """A graph, its data, and a mini-batch of them, one of which went wrong; what can be built can be used."""
    arrays: Arguments = {"indptr": INDPTR, "indices": INDICES, "edge_weight": np.ones(6), "edge_type": TYPES}
    edges: Arguments = {"src": [0, 1, 2], "dst": [1, 2, 4], "num_nodes": random.choice([None, 5, 2**20])}
    build, arguments = random.choice([(Graph.from_csc, arrays), (Graph.from_coo, edges)])
    settings: Arguments = {
        "fanouts": random.choice([[2, -1], [{1: 2, 0: -1}]]) if build is Graph.from_csc else [2, -1],
        "replace": True,
        "expand": "new",
        "edge_ids": True,
    }
    request: Arguments = {"seeds": [0], "seed": 1, "epoch": 2, "step": 3}
    wrong = random.randrange(4)
    if wrong == 0:
        spoil(random, arguments)
    graph = build(**arguments)
    num_nodes = graph.num_nodes
    data: Arguments = {"x": np.ones((num_nodes, 3)), "y": np.zeros(num_nodes, int), "train": np.arange(1), "val": None}
    if wrong == 1:
        spoil(random, data)
    elif wrong > 1:
        spoil(random, settings if wrong == 2 else request)
    use(GraphData(graph, **data))
    NeighborSampler(**settings).sample(graph, **request)


def _graph_first(op: Callable[..., Any]) -> Callable[..., Any]:
    """The graph counts only if it passes the check: ops trust what did."""

    def call(**arguments: Any) -> None:
        indices = arguments.get("indices")
        if indices is None:  # an op that is given as many of something as there are edges
            values = arguments.get("edge_type", arguments.get("weights"))
            indices = np.zeros(len(values) if isinstance(values, np.ndarray) and values.ndim else 0, int)
        ops.check_csc(arguments["indptr"], indices)
        with contextlib.suppress(ops.ArenaTooSmall):  # a signal to grow it
            op(**arguments)

    return call


def _graph(random: Random) -> Arguments:
    return {"indptr": INDPTR, "indices": INDICES.astype(random.choice([np.int32, np.int64]))}


def _batch(random: Random) -> Arguments:
    whole = np.zeros(random.choice([64, 512, 8192]) + 64, np.uint8)
    begin = -whole.ctypes.data % ops.ARENA_ALIGNMENT
    return _graph(random) | {
        "workspace": ops.Workspace(4, random.choice(["stamp", "hash"])),
        "seeds": np.array([3, 0]),
        "key": ops.DrawKey(1, 2, 3, random.choice([0, 1])),
        "names": random.choice([None, np.array([7, 2**40, 0, 3])]),
        "arena": whole[begin : begin + len(whole) - 64],
        "expand": random.choice(["all", "new"]),
    }


def _neighbors(random: Random) -> Arguments:
    settings = {"replace": random.random() < 0.5, "edge_ids": random.random() < 0.5}
    return _batch(random) | settings | {"fanouts": random.choice([[], [1, 2], [-1]])}


def _typed(random: Random) -> Arguments:
    lists = ops.index_edge_types(INDPTR, TYPES)
    fanouts = random.choice([[], [{0: 1, 1: -1}, 2], [{1: 3}]])
    return _neighbors(random) | {"lists": lists, "fanouts": ops.fanout_table(fanouts, lists.num_types)}


# Three edge types, of which one has times, between nodes of one type.
LISTS: Arguments = {
    "run_ptr": np.array([0, 1, 2, 2, 3, 3, 3, 3, 3, 3, 4, 5, 6]),
    "first_node": np.array([0, 4]),
    "first_run": np.array([0, 12]),
    "slot_ptr": np.array([0, 3]),
    "slot_type": np.array([0, 1, 2], np.int32),
    "edge_time": np.array([1, 0, 7, 7, 0, 2], np.uint32),
    "timed": np.array([1, 0, 0], np.uint8),
}


def _typed_lists(random: Random) -> Arguments:
    lists = LISTS | {"run_ptr": LISTS["run_ptr"].astype(random.choice([np.uint32, np.int64]))}
    return _neighbors(random) | lists | {"fanouts": np.array([[1, -1, 2], [3, 0, 1]])}


def _queries(random: Random) -> Arguments:
    queries: Arguments = {
        "of_seed": np.array([1, 1], np.int32),
        "name": random.choice([None, np.array([5, 6], np.uint32)]),
        "by_row": random.random() < 0.5,
        "since": random.choice([None, np.array([0, 1], np.uint32)]),
        "until": np.array([9, 3], np.uint32),
        "along_path": random.random() < 0.5,
        "path_end": random.choice([0, 1]),
        "excluded": np.array([4, 0], np.int64),
        "excluded_query": np.array([1, 1], np.int32),
    }
    fanouts = np.array([[1, -1, 2], [3, 0, 1]])
    return _neighbors(random) | queries | {"fanouts": fanouts, "replace": False, "pick": "last"}


def _sample_lists(inputs: ops.SamplerInput, **arguments: Any) -> None:
    lists = ops.TypedLists(**{name: arguments.pop(name) for name in LISTS})
    ops.sample_typed_neighbors(inputs, lists, **arguments)


def _sample_queries(inputs: ops.SamplerInput, **arguments: Any) -> None:
    names = [field.name for field in fields(ops.Queries)]
    queries = ops.Queries(**{name: arguments.pop(name) for name in names})
    ops.sample_typed_neighbors(inputs, ops.TypedLists(**LISTS), queries=queries, **arguments)


def _build_runs(code: Any, weight: Any, **ends: Any) -> None:
    edges = ops.EdgeList("edges", **ends, num_src=4, num_dst=3, first_run=1, step=2, code=code, weight=weight)
    ops.build_runs([edges], 7, np.int32, keep_order=True)


def _check_runs(**arguments: Any) -> None:
    ops.check_csc(arguments["indptr"], arguments["indices"])
    ops.check_runs(**arguments, node_types=[ops.NodesOfType(0, 4, 0, [range(4)] * 3)])


def _split_edges(nodes: Any, first_node: Any, **arguments: Any) -> None:
    ops.split_edges(**arguments, nodes=ops.split_nodes(nodes, first_node))


def _weighted(random: Random) -> Arguments:
    return _neighbors(random) | {"table": ops.build_alias(INDPTR, TYPES.astype(np.float32))}


def _walks(random: Random) -> Arguments:
    settings = {"num_hops": 2, "num_neighbors": 3, "include_self": False, "normalize": True}
    return _batch(random) | settings | {"walks": ops.Walks(3, 4, 0.25, 0.5), "table": _table(random)}


def _table(random: Random) -> ops.AliasTable | None:
    return random.choice([None, ops.build_alias(INDPTR, WEIGHTS)])


def _layers(random: Random) -> Arguments:
    method = random.choice(ops.LAYER_METHODS)
    flags = {name: random.random() < 0.5 for name in ("replace", "normalize", "edge_ids")}
    weights = random.choice([None, WEIGHTS, WEIGHTS.astype(np.float32)])
    return (
        _batch(random)
        | flags
        | {
            "budgets": random.choice([[], [2, 3], [-1]]),
            "method": method,
            "weights": weights,
            "importance_tree": ops.importance_tree(INDPTR, INDICES, weights) if method == "fastgcn" else None,
            "num_drawn": random.choice([0, 1, 2]),
            "keep_known": method != "dsp" and random.random() < 0.5,
        }
    )


def _links(random: Random) -> Arguments:
    """Of a graph of two node types and two edge types, with times or without."""
    ends = [0, 1, 1, 0, 1], [0, 2, 2, 1, 0]
    graph = Graph.from_hetero(
        {"a": 2, "b": 3},
        {("a", "to", "b"): ends, ("b", "of", "a"): ends[::-1]},
        edge_time=random.choice([None, {("a", "to", "b"): [3, 1, 2, 0, 1]}]),
        keep_order=True,
    )
    graph.indices = graph.indices.astype(random.choice([np.int32, np.int64]))
    return {"lists": graph.typed_lists, "indices": graph.indices, "edge_type": 0}


def _negatives(random: Random) -> Arguments:
    return _links(random) | {
        "sources": range(2),
        "rows": np.array([7, 2**40]),
        "key": ops.DrawKey(1, 2, 3),
        "num": random.choice([1, 3, 9]),
        "src": np.array([1, 0]),
        "dst": np.array([4, 2]),
        "until": random.choice([None, np.array([2, 9], np.uint32)]),
        "dst_time": random.choice([None, np.array([0, 3, 1], np.uint32)]),
        "src_table": random.choice([None, ops.build_alias(np.array([0, 2]), np.array([1.0, 3.0]))]),
        "corrupt": random.choice(ops.CORRUPT),
        "tries": 3,
    }


def _labor(random: Random) -> Arguments:
    importance = random.choice([0, 0, 1, -1])
    return _batch(random) | {
        "fanouts": random.choice([[], [1, 2], [-1]]),
        "importance": importance,
        "layer_dependency": random.random() < 0.5,
        "fixed_count": importance == 0 and random.random() < 0.5,
        "estimate": random.choice(["mean", "sum"]),
        "edge_ids": random.random() < 0.5,
    }


def _shadow(random: Random) -> Arguments:
    arguments = _neighbors(random) | {"num_layers": 2}
    return {name: value for name, value in arguments.items() if name not in ("replace", "expand")}


def _read_rows(**arguments: Any) -> None:
    """From a file of four rows, whose descriptor is right: a wrong one would be another open file."""
    fd = os.memfd_create("rows")
    try:
        os.write(fd, bytes(4 * 24))
        ops.read_rows(ops.RowReader(24, 1, 2, use_ring=False), ops.RowFile(fd, "rows", 0, 4, 24), **arguments)
    finally:
        os.close(fd)


def _hop(random: Random) -> Arguments:
    arena = np.zeros(random.choice([64, 256, 1024]), np.uint8)
    arena[:16].view(np.int64)[:] = [3, 0]
    return {
        "workspace": ops.Workspace(4, random.choice(["stamp", "hash"])),
        "num_nodes": 4,
        "num_known": 2,
        "counts": np.array([1, 2]),
        "neighbors": np.array([1, 3, 2]),
        "arena": arena,
        "hops_begin": random.choice([None, 64]),
        "edge_ids": random.choice([None, np.arange(3)]),
        "edge_weights": random.choice([None, np.ones(3, np.float32)]),
        "edge_types": random.choice([None, np.ones(3, np.int32)]),
    }


def _growing(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(**arguments: Any) -> None:
        with contextlib.suppress(ops.ArenaTooSmall):  # a signal to grow it
            op(**arguments)

    return call


def _rows_of_four(random: Random) -> Arguments:
    return {
        "ids": np.array([3, 0]),
        "positions": random.choice([None, np.array([1, 0])]),
        "out": np.ones((2, 3)),
    }


OPS: dict[str, tuple[Callable[..., Any], Callable[[Random], Arguments]]] = {
    "sample_neighbors": (_graph_first(partial(sample_with, ops.sample_neighbors)), _neighbors),
    "sample_typed_neighbors": (_graph_first(partial(sample_with, ops.sample_typed_neighbors)), _typed),
    "TypedLists": (_graph_first(partial(sample_with, _sample_lists)), _typed_lists),
    "Queries": (_graph_first(partial(sample_with, _sample_queries)), _queries),
    "fanout_table": (
        ops.fanout_table,
        lambda random: {"fanouts": random.choice([[1, -1], [{0: 2, 3: -1}]]), "num_edge_types": 4},
    ),
    "build_runs": (
        _build_runs,
        lambda random: {
            "src": np.array([3, 0, 1]),
            "dst": np.array([2, 2, 0]),
            "code": random.choice([None, np.array([5, 1, 9], np.uint32)]),
            "weight": random.choice([None, np.ones(3, np.float32)]),
        },
    ),
    "check_runs": (
        _check_runs,
        lambda random: _graph(random) | {name: LISTS[name] for name in ("run_ptr", "edge_time")},
    ),
    "split_nodes": (ops.split_nodes, lambda random: {"nodes": np.array([3, 0]), "first_node": np.array([0, 1, 4])}),
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
    "sample_weighted": (_graph_first(partial(sample_with, ops.sample_weighted)), _weighted),
    "sample_labor": (_graph_first(partial(sample_with, ops.sample_labor)), _labor),
    "sample_shadow": (_graph_first(partial(sample_with, ops.sample_shadow)), _shadow),
    "sample_walks": (_graph_first(partial(sample_with, ops.sample_walks)), _walks),
    "sample_layers": (_graph_first(partial(sample_with, ops.sample_layers)), _layers),
    "add_hop": (_growing(ops.add_hop), _hop),
    "random_walk": (
        _graph_first(ops.random_walk),
        lambda random: (
            _graph(random)
            | {"starts": np.array([3, 0]), "walks": ops.Walks(3, 2, 0.1, 0.2), "key": ops.DrawKey(1, 2, 3, 1)}
            | {"names": np.array([7, 2**40, 0, 3]), "table": _table(random)}
        ),
    ),
    "step_walks": (
        _graph_first(ops.step_walks),
        lambda random: (
            _graph(random)
            | {"places": np.array([3, 0]), "starts": np.array([7, 5]), "numbers": np.array([1, 0])}
            | {"walks": ops.Walks(3, 2, 0.1, 0.2), "key": ops.DrawKey(1, 2, 3, 1), "t": 2, "table": _table(random)}
        ),
    ),
    "rank_visits": (
        ops.rank_visits,
        lambda random: {
            "starts": np.array([7, 5]),
            "visits": np.array([[7, -1, 3], [5, 5, 1]]),
            "num_neighbors": 2,
            "include_self": random.random() < 0.5,
            "normalize": random.random() < 0.5,
        },
    ),
    "draw_layer": (
        ops.draw_layer,
        lambda random: {
            "degrees": np.array([2, 0, 3]),
            "budget": random.choice([-1, 2]),
            "key": ops.DrawKey(1, 2, 3, 1),
            "first_seed": 7,
            "replace": random.random() < 0.5,
            "normalize": random.random() < 0.5,
        },
    ),
    "importance_tree": (
        _graph_first(ops.importance_tree),
        lambda random: _graph(random) | {"weights": random.choice([None, WEIGHTS])},
    ),
    "index_edge_types": (
        _graph_first(ops.index_edge_types),
        lambda random: {"indptr": INDPTR, "edge_type": TYPES},
    ),
    "draw_negatives": (ops.draw_negatives, _negatives),
    "mark_edges": (
        ops.mark_edges,
        lambda random: (
            _links(random)
            | {"sources": np.array([1, 0, 1]), "destinations": np.array([4, 2])}
            | {"until": random.choice([None, np.array([2, 9, 0], np.uint32)])}
        ),
    ),
    "find_edges": (
        ops.find_edges,
        lambda random: (
            _links(random)
            | {"destinations": np.array([4, 2]), "begins": random.choice([None, np.array([0, 3])])}
            | random.choice(
                [
                    {"sources": np.array([1, 0])},
                    {"edge_ids": np.array([1, 0]), "edge_order": np.arange(10, dtype=np.int32)},
                ]
            )
        ),
    ),
    "build_alias": (
        _graph_first(ops.build_alias),
        lambda random: {"indptr": INDPTR, "weights": WEIGHTS},
    ),
    "gather_rows": (
        ops.gather_rows,
        lambda random: {"table": np.ones((4, 3)), "ids": np.array([3, 0]), "out": np.ones((2, 3))},
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
    "DynamicCache": (
        ops.DynamicCache,
        lambda random: {"num_nodes": 4, "num_slots": 2, "row_bytes": 24, "eviction": random.choice(ops.EVICTIONS)},
    ),
    "DynamicCache.read": (
        lambda **arguments: ops.DynamicCache(4, 2, 24, "s3fifo").read(**arguments),
        lambda random: {
            "ids": np.array([3, 0]),
            "out": np.ones((2, 3)),
            "missed_ids": np.zeros(2, int),
            "missed_positions": np.zeros(2, int),
            "positions": random.choice([None, np.array([1, 0])]),
        },
    ),
    "DynamicCache.admit": (
        lambda **arguments: ops.DynamicCache(4, 2, 24, "s3fifo").admit(**arguments),
        lambda random: {"ids": np.array([3, 0]), "out": np.ones((2, 3)), "positions": np.array([1, 0])},
    ),
    "DynamicCache.visit": (
        lambda **arguments: ops.DynamicCache(4, 2, 0, "s3fifo").visit(**arguments),
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
    "check_csc": (ops.check_csc, _graph),
    "breadth_first": (
        _graph_first(ops.breadth_first),
        lambda random: (
            _graph(random) | {"position": np.array([1, -1, 0, -1], np.int32), "roots": np.array([3, 0]), "num_seeds": 2}
        ),
    ),
    "round_robin": (
        ops.round_robin,
        lambda random: {"sequences": [np.array([0, 2, 1], np.int32)] * 2, "starts": np.array([2, 0])},
    ),
    "spread_parts": (
        _graph_first(ops.spread_parts),
        lambda random: (
            _graph(random) | {"fresh": np.array([1, 0, 2, 1 << 63], np.uint64), "held": np.ones(4, np.uint64)}
        ),
    ),
    "deal_seeds": (
        _graph_first(ops.deal_seeds),
        lambda random: (
            _graph(random)
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
        _graph_first(ops.vote_nodes),
        lambda random: (
            _graph(random)
            | {"part": np.array([1, -1, 0, -1], np.int32), "is_open": np.array([False, True, False, True])}
            | {"held": random.choice([None, np.array([3, 2, 1, 0], np.uint64)]), "num_parts": 2}
            | {"capacity": 3, "begin": 0, "end": 4}
        ),
    ),
    "deal_nodes": (
        _graph_first(ops.deal_nodes),
        lambda random: (
            _graph(random)
            | {"is_seed": np.array([1, 0, 0, 1], np.uint8), "part_of": np.array([1, -1, 0, -1], np.int32)}
            | {"num_parts": 2, "node_capacity": 3, "seed_capacity": 1}
        ),
    ),
    "grow_blocks": (
        _graph_first(ops.grow_blocks),
        lambda random: _graph(random) | {"sources": np.array([3]), "most": 3},
    ),
    "join_blocks": (
        _graph_first(ops.join_blocks),
        lambda random: (
            _graph(random)
            | {"block_of": np.array([1, 0, 0, 2], np.int32), "sizes": np.array([2, 1, 1], np.int32)}
            | {"is_large": np.array([1, 0, 0], np.uint8), "most": 3}
        ),
    ),
    "link_blocks": (
        _graph_first(ops.link_blocks),
        lambda random: _graph(random) | {"block_of": np.array([1, 0, 0, 2], np.int32), "num_blocks": 3},
    ),
    "settle_nodes": (
        ops.settle_nodes,
        lambda random: {
            "part": np.array([1, -1, 0, -1], np.int32),
            "held": random.choice([None, np.array([3, 2, 1, 0], np.uint64)]),
            "num_parts": 2,
        },
    ),
    "random_keys": (ops.random_keys, lambda random: {"seed": 1, "epoch": 2, "ids": np.array([3, 0])}),
    "DrawKey": (ops.DrawKey, lambda random: {"seed": 1, "epoch": 2, "step": 3, "hop": 4}),
    "SamplerInput": (
        _graph_first(ops.SamplerInput),
        lambda random: {name: value for name, value in _batch(random).items() if name != "expand"},
    ),
    "Walks": (ops.Walks, lambda random: {"length": 3, "num_walks": 2, "termination_prob": 0.1, "restart_prob": 0.2}),
    "Workspace": (ops.Workspace, lambda random: {"num_nodes": 4, "table": "auto"}),
}
