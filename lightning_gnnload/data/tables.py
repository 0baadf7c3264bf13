"""Tables beside x and y: further features of nodes, those of one node type, and those of edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_gnnload.data.arrays import as_rows
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.errors import GraphDataError

RESERVED = ("x", "y", "edge_x", "nodes", "seeds", "blocks", "positions")
"""What no table can be named: names of the graph's or the mini-batch's own."""


class NodeTable:
    """Features of one node type: row ``i`` belongs to node ``first + i``.

    The nodes of a type have consecutive ids, and each type's features a width and dtype of their own.

    Args:
        rows: ``[count, F]``: array, tensor or :class:`FeatureStore`.
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
        self.store = as_store(rows, what="a NodeTable's rows")
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


def as_store(rows: Any, *, what: str) -> FeatureStore:
    """``rows`` ``[R, F]`` as a store; arrays and tensors are not copied when they are contiguous.

    Raises:
        GraphDataError: no table of numbers; the message begins with ``what``.
    """
    if isinstance(rows, FeatureStore):
        return rows
    table = as_rows(rows, what=what)
    if table.ndim != 2:
        advice = " A column becomes a table by [:, None]." if table.ndim == 1 else ""
        raise GraphDataError(f"{what} must be [rows, F], but the shape is {list(table.shape)}.{advice}")
    return MemoryFeatureStore(table)


def named_tables(tables: Mapping[str, Any], num_nodes: int) -> dict[str, FeatureStore | NodeTable]:
    """Tables by name, each checked against the graph: a store has a row for every node, a NodeTable for its range.

    Raises:
        GraphDataError: a table with too few or too many rows, a range beyond the graph, or a name that is taken.
    """
    if not isinstance(tables, Mapping):
        raise GraphDataError(f"tables must be a dict of tables by name, but it is a {type(tables).__name__}.")
    checked: dict[str, FeatureStore | NodeTable] = {}
    for name, rows in tables.items():
        check_name(name)
        if isinstance(rows, NodeTable):
            if rows.nodes.stop > num_nodes:
                raise GraphDataError(f"table {name!r} is for {rows}, but the graph has {num_nodes} nodes, from 0 on.")
            checked[name] = rows
            continue
        store = as_store(rows, what=f"table {name!r}")
        if store.shape[0] != num_nodes:
            raise GraphDataError(
                f"table {name!r} has {store.shape[0]} rows, but the graph has {num_nodes} nodes; one row a node is "
                f"needed. For some of the nodes alone, give NodeTable(rows, first), with their lowest id."
            )
        checked[name] = store
    return checked


def check_name(name: Any) -> None:
    """Raises GraphDataError: no name for a table, which is a key of dicts, an attribute and a part of file names."""
    if not isinstance(name, str) or not (name.isascii() and name.isidentifier()) or name.startswith("_"):
        raise GraphDataError(
            f"{name!r} cannot name a table: ASCII letters, digits and underscores are needed, a letter first."
        )
    if name in RESERVED:
        raise GraphDataError(f"no table can be named {name!r}; the names {', '.join(RESERVED)} are taken.")
