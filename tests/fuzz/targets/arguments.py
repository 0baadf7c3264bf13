"""Arguments of the public functions: of other types, dtypes, shapes and layouts, out of range, overlapping."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, NeighborSampler, ops
from tests.fuzz.damage import ODD_NUMBERS, ODD_TEXTS
from tests.fuzz.targets.stored_graphs import use

Arguments = dict[str, Any]
INDPTR, INDICES, TYPES = np.array([0, 2, 3, 3, 6]), np.array([1, 2, 0, 3, 3, 0]), np.array([1, 0, 1, 0, 1, 0])


def call_ops(random: Random, folder: Path) -> None:
    """One op with one or two arguments gone wrong."""
    name = random.choice(list(OPS))
    call, make = OPS[name]
    arguments = make(random)
    _spoil(random, arguments)
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
        _spoil(random, arguments)
    graph = build(**arguments)
    num_nodes = graph.num_nodes
    data: Arguments = {"x": np.ones((num_nodes, 3)), "y": np.zeros(num_nodes, int), "train": np.arange(1), "val": None}
    if wrong == 1:
        _spoil(random, data)
    elif wrong > 1:
        _spoil(random, settings if wrong == 2 else request)
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
        "key": ops.DrawKey(1, 2, 3),
        "arena": whole[begin : begin + len(whole) - 64],
        "expand": random.choice(["all", "new"]),
    }


def _neighbors(random: Random) -> Arguments:
    settings = {"replace": random.random() < 0.5, "edge_ids": random.random() < 0.5}
    return _batch(random) | settings | {"fanouts": random.choice([[], [1, 2], [-1]])}


def _typed(random: Random) -> Arguments:
    fanouts = random.choice([[], [{0: 1, 1: -1}, 2], [{1: 3}]])
    return _neighbors(random) | {"types": ops.index_edge_types(INDPTR, TYPES), "fanouts": fanouts}


def _weighted(random: Random) -> Arguments:
    return _neighbors(random) | {"table": ops.build_alias(INDPTR, TYPES.astype(np.float32))}


def _walks(random: Random) -> Arguments:
    settings = {"num_hops": 2, "num_neighbors": 3, "include_self": False, "normalize": True}
    return _batch(random) | settings | {"walks": ops.Walks(3, 4, 0.25, 0.5)}


def _layers(random: Random) -> Arguments:
    method = random.choice(ops.LAYER_METHODS)
    flags = {name: random.random() < 0.5 for name in ("replace", "normalize", "edge_ids")}
    return (
        _batch(random)
        | flags
        | {
            "budgets": random.choice([[], [2, 3], [-1]]),
            "method": method,
            "importance_tree": ops.importance_tree(INDPTR, INDICES) if method == "fastgcn" else None,
            "keep_known": method != "dsp" and random.random() < 0.5,
        }
    )


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


def _rows_of_four(random: Random) -> Arguments:
    return {
        "ids": np.array([3, 0]),
        "positions": random.choice([None, np.array([1, 0])]),
        "out": np.ones((2, 3)),
    }


OPS: dict[str, tuple[Callable[..., Any], Callable[[Random], Arguments]]] = {
    "sample_neighbors": (_graph_first(ops.sample_neighbors), _neighbors),
    "sample_typed_neighbors": (_graph_first(ops.sample_typed_neighbors), _typed),
    "sample_weighted": (_graph_first(ops.sample_weighted), _weighted),
    "sample_labor": (_graph_first(ops.sample_labor), _labor),
    "sample_shadow": (_graph_first(ops.sample_shadow), _shadow),
    "sample_walks": (_graph_first(ops.sample_walks), _walks),
    "sample_layers": (_graph_first(ops.sample_layers), _layers),
    "random_walk": (
        _graph_first(ops.random_walk),
        lambda random: (
            _graph(random)
            | {"starts": np.array([3, 0]), "walks": ops.Walks(3, 2, 0.1, 0.2), "key": ops.DrawKey(1, 2, 3), "hop": 1}
        ),
    ),
    "importance_tree": (_graph_first(ops.importance_tree), _graph),
    "index_edge_types": (
        _graph_first(ops.index_edge_types),
        lambda random: {"indptr": INDPTR, "edge_type": TYPES},
    ),
    "build_alias": (
        _graph_first(ops.build_alias),
        lambda random: {"indptr": INDPTR, "weights": np.array([1, 0, 2.5, 1e30, 1e-30, 1])},
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
    "random_keys": (ops.random_keys, lambda random: {"seed": 1, "epoch": 2, "ids": np.array([3, 0])}),
    "DrawKey": (ops.DrawKey, lambda random: {"seed": 1, "epoch": 2, "step": 3}),
    "Walks": (ops.Walks, lambda random: {"length": 3, "num_walks": 2, "termination_prob": 0.1, "restart_prob": 0.2}),
    "Workspace": (ops.Workspace, lambda random: {"num_nodes": 4, "table": "auto"}),
}


def _spoil(random: Random, arguments: Arguments) -> None:
    """Replaces up to two, sometimes by what makes two arrays share memory."""
    for _ in range(random.choice([0, 1, 1, 2])):
        name = random.choice(list(arguments))
        arrays = [value for value in arguments.values() if type(value) is np.ndarray]
        if arrays and random.random() < 0.2:
            arguments[name] = _relative(random, random.choice(arrays))
        elif type(arguments[name]) is np.ndarray and random.random() < 0.6:
            arguments[name] = _odd_array(random, arguments[name])
        else:
            arguments[name] = _odd_argument(random)


def _relative(random: Random, array: np.ndarray) -> np.ndarray:
    """A view of an array that may be another argument, too."""
    array = np.atleast_1d(array)
    if (
        array.flags.c_contiguous
        and array.nbytes
        and array.nbytes % 8 == 0
        and not array.dtype.hasobject
        and random.random() < 0.5
    ):
        return array.reshape(-1).view(random.choice([np.uint8, np.int32, np.int64]))
    return array[random.choice([slice(None), slice(1, None), slice(None, None, -1), slice(0, 0)])]


def _odd_array(random: Random, array: np.ndarray) -> Any:
    array = np.atleast_1d(array if array.dtype.kind in "iufb" and array.size else np.zeros(3))
    numbers = [n for n in ODD_NUMBERS if isinstance(n, int) and -(2**63) <= n < 2**63]

    def changed(at: int, number: int) -> np.ndarray:
        copy = array.copy()
        if copy.size:
            info = np.iinfo(copy.dtype) if copy.dtype.kind in "iu" else None
            with np.errstate(over="ignore"):  # in float16, most of them are infinite
                fitting = np.array(number if info is None else min(max(number, info.min), info.max)).astype(copy.dtype)
            copy.flat[at % copy.size] = fitting
        return copy

    def misaligned() -> np.ndarray:
        buffer = np.zeros(array.nbytes + 1, np.uint8)
        view = buffer[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view

    def cast() -> np.ndarray:
        with np.errstate(all="ignore"):
            return array.astype(random.choice(["i1", "i4", "u8", ">i8", "f4", "f8", "c8", "O", "?", "M8[s]", "U4"]))

    def frozen() -> np.ndarray:
        copy = array.copy()
        copy.flags.writeable = False
        return copy

    ways: list[Callable[[], Any]] = [
        *[lambda: changed(random.randrange(64), random.choice(numbers))] * 4,
        cast,
        lambda: np.repeat(array, 2, axis=0)[::2],
        lambda: array[::-1],
        lambda: array[:-1],
        lambda: array[:0],
        lambda: array[None],
        lambda: array.reshape(-1),
        lambda: np.asfortranarray(np.stack([array, array])),
        lambda: np.broadcast_to(array.reshape(-1)[:1], (7,)),
        lambda: np.array(3),
        lambda: np.ma.masked_array(array, mask=True),
        lambda: array.reshape(-1).view(np.matrix),
        lambda: np.zeros(3, [("a", "i4"), ("b", "f8")]),
        misaligned,
        frozen,
        lambda: torch.zeros(array.shape, dtype=torch.int64),
        lambda: array.tolist(),
        lambda: memoryview(array.copy()),
    ]
    return random.choice(ways)()


def _odd_argument(random: Random) -> Any:
    scalars: list[Any] = [
        *ODD_NUMBERS,
        *ODD_TEXTS,
        None,
        True,
        b"bytes",
        1j,
        object(),
        int,
        [],
        {},
        (),
        [[]],
        "new",
        "hash",
    ]
    others: list[Any] = [
        [0, 0],
        [None],
        ["a", "b"],
        [2**70],
        [[0, 1], [2]],
        [0.5, 1.5],
        range(3),
        np.int64(3),
        np.float32(2),
        np.array([1, 2]),
        np.array("text"),
        np.zeros((2, 2, 2)),
        np.empty(0),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(2, 3).t(),
        torch.zeros(3, requires_grad=True),
        torch.zeros(3, device="meta"),
        torch.eye(2).to_sparse(),
    ]
    return random.choice([*scalars, *others])
