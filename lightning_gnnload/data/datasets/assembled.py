"""What foreign folders hold by type, made into a graph and its data; without types where these have no names."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import RESERVED, check_name
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphDataError


def graph_of(
    num_nodes: Mapping[str, int],
    ends: Mapping[EdgeType, Any],
    *,
    typed: bool,
    keep_order: bool = False,
    **columns: Mapping[Any, np.ndarray],
) -> Graph:
    """Builds a graph with types; where ``typed`` is false, of the only type that there is, one without.

    Args:
        num_nodes: by node type.
        ends: sources and targets ``[2, E_k]`` by edge type.
        typed: whether types are kept.
        keep_order: as :meth:`.Graph.from_hetero` has it.
        columns: likewise ``edge_weight``, ``edge_time`` and ``node_time``, of those types that have some.
    """
    if typed:
        by_type: dict[str, Any] = {name: of_types or None for name, of_types in columns.items()}
        return Graph.from_hetero(num_nodes, ends, keep_order=keep_order, **by_type)
    src, dst = next(iter(ends.values()), np.empty((2, 0), np.int64))
    count = next(iter(num_nodes.values()), 0)
    of_all: dict[str, Any] = {name: next(iter(of_types.values()), None) for name, of_types in columns.items()}
    return Graph.from_coo(src, dst, count, keep_order=keep_order, **of_all)


def data_of(graph: Graph, **given: Any) -> GraphData:
    """Makes the data of arguments of :class:`.GraphData` by type, of which those that are None or empty are left out;
    what is no dict is as there. Features may be columns."""
    found: dict[str, Any] = {}
    for name, by_type in given.items():
        if isinstance(by_type, Mapping):
            by_type = {
                kind: rows
                for kind, rows in by_type.items()
                if not (rows is None or (isinstance(rows, Mapping) and not rows))
            }
            if name in ("x", "edge_x"):
                by_type = {kind: rows[:, None] if rows.ndim == 1 else rows for kind, rows in by_type.items()}
            if graph.types is None:
                by_type = next(iter(by_type.values()), None)
        found[name] = by_type or None if isinstance(by_type, Mapping) else by_type
    return GraphData(graph, **found)


def can_name(name: str, reserved: Container[str] = RESERVED) -> bool:
    """Returns whether a table can have this name."""
    try:
        check_name(name, reserved)
    except GraphDataError:
        return False
    return True
