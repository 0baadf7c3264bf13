"""What a partition's head carries of the data, for trainers that have no graph."""

from __future__ import annotations

from copy import copy

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import warn


def carried(data: GraphData, *, features: bool) -> GraphData:
    """Returns what parts whose lists lie with their owners carry of the data, and warns of what they do not.

    ``features`` False leaves labels and all rows of features out, as was asked for.
    """
    data, reasons = copy(data), []
    if not features:
        data.x, data.y, data.tables, data.edge_x, data.edge_tables = None, None, {}, None, {}
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


def array_names(graph: Graph) -> list[str]:
    """Returns the names of the arrays that a graph has, by which one without lists tells what it lacks."""
    return [name for name in Graph.ARRAYS if getattr(graph, name) is not None]
