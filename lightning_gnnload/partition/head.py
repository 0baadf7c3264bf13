"""What a partition's head carries of the data, for trainers that have no graph."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import EDGE_TIME, edge_times, graph_columns
from lightning_gnnload.errors import PartitionError, warn


def carried(data: GraphData, *, features: bool, edge_columns: Sequence[str] = ()) -> GraphData:
    """Returns what parts whose lists lie with their owners carry of the data, and warns of what they do not.

    ``features`` False leaves labels and all rows of features out, as was asked for; ``edge_columns`` of the graph
    become edge tables. PartitionError: it does not have one of them.
    """
    data, reasons = copy(data), []
    if not features:
        data.x, data.y, data.tables, data.edge_x, data.edge_tables = None, None, {}, None, {}
    if edge_columns:
        data.edge_tables, data.names_edge_tables = (
            {**edge_columns_of(data.graph, edge_columns), **data.edge_tables},
            True,
        )
    if aggregates := [name for name in data.aggregates if name in data.tables]:
        reasons.append(f"tables {', '.join(aggregates)}, aggregates of a graph that trainers cannot compare them with")
        data.tables = {name: table for name, table in data.tables.items() if name not in aggregates}
    if reasons:
        warn(
            f"The partition is written without {'; and without '.join(reasons)}. Trainers that have the whole graph "
            "still take them from it."
        )
    data.aggregates = {}
    return data


def edge_columns_of(graph: Graph, names: Sequence[str]) -> dict[str, FeatureStore]:
    """Returns columns of a graph as tables of its edges. PartitionError: it does not have one of them."""
    if not names:
        return {}
    times = edge_times(graph) if EDGE_TIME in names and graph.edge_time is not None else {}
    columns = graph_columns(graph) | times
    if missing := [name for name in names if name not in columns]:
        raise PartitionError(
            f"edge_columns names {missing[0]!r}, but the graph's columns of edges are {', '.join(columns) or 'none'}."
        )
    return {name: columns[name] for name in names}


def array_names(graph: Graph) -> list[str]:
    """Returns the names of the arrays that a graph has, by which one without lists tells what it lacks."""
    return [name for name in Graph.ARRAYS if getattr(graph, name) is not None]
