"""Ops that draw: sound arguments of each."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from random import Random
from typing import Any

import numpy as np

from lightning_gnnload import Graph, ops
from tests.fuzz.sound import (
    INDICES,
    INDPTR,
    LISTS,
    SPARSE_LISTS,
    TYPES,
    WEIGHTS,
    Arguments,
    Ops,
    graph,
    graph_first,
    growing,
)
from tests.ops.graphs import sample_with


def _batch(random: Random) -> Arguments:
    whole = np.zeros(random.choice([64, 512, 8192]) + 64, np.uint8)
    begin = -whole.ctypes.data % ops.ARENA_ALIGNMENT
    return graph(random) | {
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
    fanouts = random.choice([[], [{0: 1, 1: -1}, 2], [{1: 3}]])
    return _neighbors(random) | SPARSE_LISTS | {"fanouts": ops.fanout_table(fanouts, 2)}


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
    lists = ops.DenseLists(**{name: arguments.pop(name) for name in LISTS})
    ops.sample_typed_neighbors(inputs, lists, **arguments)


def _sample_sparse_lists(inputs: ops.SamplerInput, **arguments: Any) -> None:
    lists = ops.SparseLists(**{name: arguments.pop(name) for name in SPARSE_LISTS})
    ops.sample_typed_neighbors(inputs, lists, **arguments)


def _sample_queries(inputs: ops.SamplerInput, **arguments: Any) -> None:
    names = [field.name for field in fields(ops.Queries)]
    queries = ops.Queries(**{name: arguments.pop(name) for name in names})
    ops.sample_typed_neighbors(inputs, ops.DenseLists(**LISTS), queries=queries, **arguments)


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


def _line(random: Random) -> Arguments:
    weights = WEIGHTS.astype(random.choice([np.float32, np.float64]))
    return {"indptr": INDPTR, "weights": weights, "rows": np.array([0, 0, 1]), "units": ops.LineUnits(1e30, 6)}


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


def _hgt(random: Random) -> Arguments:
    arguments = _typed_lists(random) | {"max_neighbors": random.choice([-1, 1, 520]), "num_layers": 2}
    arguments |= {"num_samples": np.full((random.choice([0, 2]), len(LISTS["first_node"]) - 1), 2)}
    return {name: value for name, value in arguments.items() if name not in ("replace", "expand", "fanouts")}


def _sample_hgt(inputs: ops.SamplerInput, **arguments: Any) -> None:
    lists = ops.DenseLists(**{name: arguments.pop(name) for name in LISTS})
    ops.sample_hgt(inputs, lists, **arguments)


def _shadow(random: Random) -> Arguments:
    arguments = _neighbors(random) | {"num_layers": 2}
    return {name: value for name, value in arguments.items() if name not in ("replace", "expand")}


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


SAMPLING: Ops = {
    "sample_neighbors": (graph_first(partial(sample_with, ops.sample_neighbors)), _neighbors),
    "sample_typed_neighbors": (graph_first(partial(sample_with, _sample_sparse_lists)), _typed),
    "DenseLists": (graph_first(partial(sample_with, _sample_lists)), _typed_lists),
    "Queries": (graph_first(partial(sample_with, _sample_queries)), _queries),
    "fanout_table": (
        ops.fanout_table,
        lambda random: {"fanouts": random.choice([[1, -1], [{0: 2, 3: -1}]]), "num_edge_types": 4},
    ),
    "sample_weighted": (graph_first(partial(sample_with, ops.sample_weighted)), _weighted),
    "sample_labor": (graph_first(partial(sample_with, ops.sample_labor)), _labor),
    "sample_hgt": (graph_first(partial(sample_with, _sample_hgt)), _hgt),
    "sample_shadow": (graph_first(partial(sample_with, ops.sample_shadow)), _shadow),
    "induced_edges": (
        graph_first(ops.induced_edges),
        lambda random: (
            graph(random)
            | {"nodes": np.array([3, 0, 1, 0]), "ptr": np.array([0, 3, 3, 4])}
            | {"workspace": random.choice([None, ops.Workspace(4, random.choice(["stamp", "hash"]))])}
        ),
    ),
    "sample_walks": (graph_first(partial(sample_with, ops.sample_walks)), _walks),
    "sample_layers": (graph_first(partial(sample_with, ops.sample_layers)), _layers),
    "add_hop": (growing(ops.add_hop), _hop),
    "random_walk": (
        graph_first(ops.random_walk),
        lambda random: (
            graph(random)
            | {"starts": np.array([3, 0]), "walks": ops.Walks(3, 2, 0.1, 0.2), "key": ops.DrawKey(1, 2, 3, 1)}
            | {"names": np.array([7, 2**40, 0, 3]), "table": _table(random)}
        ),
    ),
    "step_walks": (
        graph_first(ops.step_walks),
        lambda random: (
            graph(random)
            | {"current": np.array([3, 0]), "starts": np.array([7, 5]), "numbers": np.array([1, 0])}
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
    "draw_places": (
        ops.draw_places,
        lambda random: {
            "length": random.choice([1, 10**18]),
            "num_missing": random.choice([1, 3]),
            "key": ops.DrawKey(1, 2, 3, 1),
            "first_seed": 7,
            "wave": random.choice([0, 5]),
        },
    ),
    "measure_lists": (graph_first(ops.measure_lists), _line),
    "find_on_line": (
        graph_first(ops.find_on_line),
        lambda random: _line(random) | {"positions": np.array([0, 2**50, 7])},
    ),
    "importance_tree": (
        graph_first(ops.importance_tree),
        lambda random: graph(random) | {"weights": random.choice([None, WEIGHTS])},
    ),
    "importances": (
        graph_first(ops.importances),
        lambda random: graph(random) | {"weights": random.choice([None, WEIGHTS]), "num_graph_nodes": 9},
    ),
    "tree_of": (ops.tree_of, lambda random: {"importances": np.array([0, 3, 2**40, 1])}),
    "draw_nodes": (
        ops.draw_nodes,
        lambda random: {
            "tree": ops.importance_tree(INDPTR, INDICES),
            "budget": random.choice([1, 3]),
            "key": ops.DrawKey(1, 2, 3, 1),
            "first_seed": 2,
            "replace": random.choice([False, True]),
        },
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
    "DrawKey": (ops.DrawKey, lambda random: {"seed": 1, "epoch": 2, "step": 3, "hop": 4}),
    "SamplerInput": (
        graph_first(ops.SamplerInput),
        lambda random: {name: value for name, value in _batch(random).items() if name != "expand"},
    ),
    "Walks": (ops.Walks, lambda random: {"length": 3, "num_walks": 2, "termination_prob": 0.1, "restart_prob": 0.2}),
    "Workspace": (ops.Workspace, lambda random: {"num_nodes": 4, "table": "auto"}),
}
