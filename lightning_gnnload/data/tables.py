"""Tables beside x and y: further columns and features of nodes, of edges, and of those of one type."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphDataError

RESERVED = ("x", "y", "edge_x", "nodes", "seeds", "blocks", "positions")
"""Names of attributes of graphs and mini-batches, which tables cannot have."""
GRAPH_COLUMNS = ("edge_weight", "edge_type")
"""Arrays of a graph that batches in other libraries' formats carry as well, unless the user named edge tables."""
EDGE_TIME = "edge_time"
"""The edge table of :meth:`.GraphData.with_edge_times`."""
OF_ALL_EDGES = (*GRAPH_COLUMNS, EDGE_TIME)
"""Edge tables that a graph with types may have for edges of all types, by their positions in ``indices``."""
EDGE_PREFIX = "edge."
"""The prefix of edge tables among all stores, as a node table may have the same name."""


class NodeTable:
    """Holds the features of one node type: row ``i`` belongs to node ``first + i``.

    The nodes of a type have consecutive ids, and each type's features a width and dtype of their own.

    Args:
        rows: ``[count, F]``, or a column ``[count]``: array, tensor or :class:`FeatureStore`.
        first: the lowest id of the type.
        count: its number of nodes; the number of rows when None.

    Attributes:
        store: the rows.

    Raises:
        GraphDataError: another number of rows than ``count``, or a range that starts below zero.

    Example:
        >>> NodeTable([[0.5, 1.0], [2.0, 4.0]], first=7)
        NodeTable(nodes 7 to 8, num_features=2)
    """

    def __init__(self, rows: Any, first: int, count: int | None = None) -> None:
        self.store = as_store(rows, name="a NodeTable's rows", dims=(1, None))
        num_rows = self.store.shape[0]
        self.first = first
        self.count = num_rows if count is None else count
        if type(first) is not int or type(self.count) is not int or first < 0:
            raise GraphDataError(
                f"NodeTable: first={first!r}, count={count!r}: node ids from 0 on, and how many, are needed as int."
            )
        if self.count != num_rows:
            raise GraphDataError(f"NodeTable: {num_rows} rows were given for {self.count} nodes; one a node is needed.")

    @property
    def nodes(self) -> range:
        """The node ids that it has rows for."""
        return range(self.first, self.first + self.count)

    def __repr__(self) -> str:
        return f"NodeTable(nodes {self.first} to {self.nodes.stop - 1}, num_features={self.store.shape[1]})"


class EdgeTable:
    """Holds the features of one edge type: row ``i`` belongs to edge ``i`` of the list that the type's edges were given
    by, which the graph has to keep (``Graph.from_hetero(..., keep_order=True)``).

    Args:
        rows: ``[E_k, F]``, or a column ``[E_k]``: array, tensor or :class:`FeatureStore`.
        edge_type: its triple.

    Attributes:
        store: the rows.

    Example:
        >>> EdgeTable([[0.5], [2.0]], ("user", "buys", "item"))
        EdgeTable(user__buys__item, 2 edges, num_features=1)
    """

    def __init__(self, rows: Any, edge_type: EdgeType) -> None:
        self.store = as_store(rows, name="an EdgeTable's rows", dims=(1, None))
        self.edge_type = edge_type

    def __repr__(self) -> str:
        num_edges, width = self.store.shape
        return f"EdgeTable({'__'.join(self.edge_type)}, {num_edges} edges, num_features={width})"


def as_store(rows: Any, *, name: str, dims: tuple[int, int | None] = (2, 2)) -> FeatureStore:
    """Wraps an array or tensor as a store, without a copy where it is contiguous; a store is returned as it is.

    ``dims`` are the least and the most dimensions that it may have, None for no limit.
    """
    if isinstance(rows, FeatureStore):
        return rows
    table, (least, most) = as_rows(rows, name=name), dims
    if table.ndim < least or (most is not None and table.ndim > most):
        advice = " A column becomes a table by [:, None]." if table.ndim == 1 else ""
        raise GraphDataError(f"{name} must be [rows, F], but the shape is {list(table.shape)}.{advice}")
    return MemoryFeatureStore(table)


def named_tables(tables: Mapping[str, Any], graph: Graph) -> dict[str, FeatureStore | NodeTable]:
    """Checks tables of nodes, which need a row for every node; a NodeTable, one for each of its range.

    A table named ``"<column>.<node type>"`` needs one for each node of that type.
    """
    checked: dict[str, FeatureStore | NodeTable] = {}
    num_nodes = graph.num_nodes
    for name, rows in _by_name(tables, "tables", () if graph.types is None else graph.types.node_types):
        if graph.types is not None and "." in name:
            checked[name] = _table_of_type(name, rows, graph.types.range_of(name.partition(".")[2]))
            continue
        # A range of nodes need not be a type: its ids are those of the graph.
        if isinstance(rows, NodeTable):
            if rows.nodes.stop > num_nodes:
                raise GraphDataError(f"table {name!r} is for {rows}, but the graph has {num_nodes} nodes, from 0 on.")
            checked[name] = rows
            continue
        store = as_store(rows, name=f"table {name!r}", dims=(1, None))
        if store.shape[0] != num_nodes:
            raise GraphDataError(
                f"table {name!r} has {store.shape[0]} rows, but the graph has {num_nodes} nodes; one row a node is "
                f"needed. For some of the nodes alone, give NodeTable(rows, first), with their lowest id."
            )
        checked[name] = store
    return checked


def _table_of_type(name: str, rows: Any, nodes: range) -> NodeTable:
    store = as_store(rows.store if isinstance(rows, NodeTable) else rows, name=f"table {name!r}", dims=(1, None))
    if store.shape[0] != len(nodes) or (isinstance(rows, NodeTable) and rows.nodes != nodes):
        raise GraphDataError(
            f"table {name!r} has {store.shape[0]} rows, but there are {len(nodes)} nodes of this type; one row a node "
            f"is needed."
        )
    return NodeTable(store, nodes.start)


def check_edge_tables(tables: Mapping[str, Any], graph: Graph) -> dict[str, FeatureStore | EdgeTable]:
    """Checks tables of edges, which need a row for every edge, in the order in which the user passed the edges.

    In a graph with types, a table is named ``"<column>.<edge type>"``, and needs one for every edge of that type; but
    for those made of the graph's own columns, :data:`OF_ALL_EDGES`.

    Raises:
        GraphDataError: a table with too few or too many rows, or a name that is taken; or the graph has lost the order.
    """
    checked: dict[str, FeatureStore | EdgeTable] = {}
    types = () if graph.types is None else graph.types.edge_types
    edge_types = {"__".join(triple): triple for triple in types}
    for name, rows in _by_name(tables, "edge_tables", edge_types):
        store = as_store(
            rows.store if isinstance(rows, EdgeTable) else rows, name=f"edge table {name!r}", dims=(1, None)
        )
        if graph.types is None:
            check_edge_rows(store, graph, f"edge table {name!r}")
            checked[name] = store
            continue
        if name in OF_ALL_EDGES and store.shape[0] == graph.num_edges:
            checked[name] = store
            continue
        edge_type = edge_types.get(name.partition(".")[2])
        if edge_type is None:
            raise GraphDataError(
                f"edge table {name!r} has rows of all edges, but the graph has several types of them. Give tables by "
                f"type: edge_tables={{('user', 'buys', 'item'): {{{name!r}: rows}}}}."
            )
        _check_rows_of_type(store, graph, name, edge_type)
        checked[name] = EdgeTable(store, edge_type)
    return checked


def _check_rows_of_type(store: FeatureStore, graph: Graph, name: str, edge_type: EdgeType) -> None:
    assert graph.types is not None
    num_edges = int(graph.num_edges_by_type[graph.types.edge_type_number(edge_type)])
    if store.shape[0] != num_edges:
        raise GraphDataError(
            f"edge table {name!r} has {store.shape[0]} rows, but there are {num_edges} edges of this type; one row an "
            f"edge is needed."
        )
    if not graph.has("edge_order"):
        raise GraphDataError(
            f"edge table {name!r}: its rows cannot be matched with edges, because the graph did not keep the order of "
            f"its edge lists. Build the graph with Graph.from_hetero(..., keep_order=True)."
        )


def graph_columns(graph: Graph) -> dict[str, FeatureStore]:
    """Returns the graph's edge weights and types, where it has them, as edge tables."""
    return _edge_columns(graph, {name: array for name in GRAPH_COLUMNS if (array := getattr(graph, name)) is not None})


def edge_times(graph: Graph) -> dict[str, FeatureStore]:
    """Returns the times of the graph's edges as an edge table. Raises GraphDataError: it has none."""
    if graph.clock is None or graph.edge_time is None:
        raise GraphDataError(
            "the graph has no times of edges to carry. Give Graph.from_coo or from_hetero(..., edge_time=times), or "
            "time: COLUMN at the edges in graph.yaml; or leave edge_time out."
        )
    return _edge_columns(graph, {EDGE_TIME: graph.clock.times(graph.edge_time)})


def _edge_columns(graph: Graph, columns: dict[str, np.ndarray]) -> dict[str, FeatureStore]:
    if (order := graph.flat_order) is not None:
        for name, array in columns.items():
            columns[name] = np.empty_like(array)
            columns[name][order] = array  # rows of edge tables are in the order of the user's edges
    return {name: MemoryFeatureStore(array) for name, array in columns.items()}


def check_edge_rows(store: FeatureStore, graph: Graph, name: str) -> None:
    """Raises GraphDataError: there is not one row for each edge, or the graph has lost the order of its edges."""
    if graph.types is not None:
        raise GraphDataError(
            f"{name}: rows of all edges were given, but the graph has several types of them. Give a dict by edge type."
        )
    if store.shape[0] != graph.num_edges:
        raise GraphDataError(
            f"{name} has {store.shape[0]} rows, but the graph has {graph.num_edges} edges; one row an edge is needed."
        )
    if graph.lost_order and graph.edge_order is None:
        raise GraphDataError(
            f"{name}: its rows cannot be matched with edges, because the graph did not keep the order of its edge "
            f"list. Build the graph with Graph.from_coo(src, dst, keep_order=True)."
        )


def _by_name(tables: Mapping[str, Any], argument: str, type_names: Container[str]) -> Iterable[tuple[str, Any]]:
    if not isinstance(tables, Mapping):
        raise GraphDataError(f"{argument} must be a dict of tables by name, but it is a {type(tables).__name__}.")
    for name in tables:
        column, dot, type_key = name.partition(".") if isinstance(name, str) else (name, "", "")
        if dot and type_key in type_names:
            check_name(column, reserved=())
        else:
            check_name(name)
    return tables.items()


def check_name(name: Any, reserved: Container[str] = RESERVED) -> None:
    """Raises GraphDataError: it cannot name a table."""
    # Names of tables become keys of dicts, attributes of batches and parts of file names.
    if not isinstance(name, str) or not (name.isascii() and name.isidentifier()):
        raise GraphDataError(
            f"{name!r} cannot name a table: ASCII letters, digits and underscores are needed, no digit first. Rename "
            f"it, or leave it out."
        )
    if name in reserved:
        raise GraphDataError(
            f"no table can be named {name!r}; the names {', '.join(RESERVED)} are taken. Rename it, or leave it out."
        )
