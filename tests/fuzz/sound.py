"""Sound arguments that several ops take, and how ops are called with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from lightning_gnnload import ops

Arguments = dict[str, Any]
Ops = dict[str, tuple[Callable[..., Any], Callable[[Random], Arguments]]]
"""By name: how an op is called, and sound arguments of it."""
INDPTR, INDICES, TYPES = np.array([0, 2, 3, 3, 6]), np.array([1, 2, 0, 3, 3, 0]), np.array([1, 0, 1, 0, 1, 0])
WEIGHTS = np.array([1, 0, 2.5, 1e30, 1e-30, 1])
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

# The same edges, of two types as they lie.
SPARSE_LISTS: Arguments = {
    "run_ptr": np.array([0, 1, 2, 3, 5, 6]),
    "edge_time": np.array([1, 0, 7, 7, 8, 2], np.uint32),
    "timed": np.array([1, 0], np.uint8),
    "first_run": np.array([0, 2, 3, 3, 5]),
    "run_type": np.array([0, 1, 1, 0, 1], np.int32),
}


def graph(random: Random) -> Arguments:
    return {"indptr": INDPTR, "indices": INDICES.astype(random.choice([np.int32, np.int64]))}


def graph_first(op: Callable[..., Any]) -> Callable[..., Any]:
    """The graph counts only if it passes the check: ops trust what did."""

    def call(**arguments: Any) -> None:
        indices = arguments.get("indices")
        if indices is None:  # an op that is given as many of something as there are edges
            values = arguments.get("edge_type", arguments.get("weights"))
            indices = np.zeros(len(values) if isinstance(values, np.ndarray) and values.ndim else 0, int)
        ops.check_csc(arguments["indptr"], indices)
        growing(op)(**arguments)

    return call


def growing(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(**arguments: Any) -> None:
        with contextlib.suppress(ops.ArenaTooSmall):  # a signal to grow it
            op(**arguments)

    return call
