"""GraphData: a graph with its features, labels and splits."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids, as_rows, tensor_view
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.tables import (
    EDGE_PREFIX,
    NodeTable,
    as_store,
    check_edge_rows,
    check_edge_tables,
    graph_columns,
    named_tables,
)
from lightning_gnnload.errors import GraphDataError

SPLITS = ("train", "val", "test")


class GraphData:
    """Holds the data that a model trains on: a graph, its features, labels and splits.

    Args:
        graph: the topology, N nodes.
        x: node features ``[N, F]``: array, tensor or :class:`FeatureStore`; None for a graph without. Arrays of more
            dimensions, ``[N, T, F]``, keep them in mini-batches.
        y: node labels, ``[N]`` or ``[N, C]``, any numeric dtype; None for a graph without. Nodes without a
            label may carry any value (NaN, -1), as long as no split names them.
        train: node ids to train on, int64; likewise ``val`` and ``test``. Missing splits are empty.
        num_classes: number of label classes; counted from integer labels when None.
        tables: further node features by name, each an array, tensor or :class:`FeatureStore` ``[N, F]`` of its own
            width and dtype, a column ``[N]``, or a :class:`NodeTable` for the nodes of one type.
        edge_x: edge features ``[E, F]``: array, tensor or :class:`FeatureStore`. Rows lie in the order in which the
            edges were given: that of ``Graph.from_csc``'s ``indices``, or of ``Graph.from_coo``'s list, which the
            graph then has to keep (``keep_order=True``).
        edge_tables: further edge features ``[E, F]`` and columns ``[E]`` by name, in the same order. None: none of
            one's own, but mini-batches in DGL's and PyG's formats carry the graph's ``edge_weight`` and ``edge_type``.

    Raises:
        GraphDataError: sizes that differ from N or E, ids out of range or repeated, a table's name that is taken.

    Example:
        >>> graph = Graph.from_coo([0, 1], [1, 2])
        >>> data = GraphData(graph, x=np.ones((3, 4), np.float32), y=[0, 1, 1], train=[0, 1])
        >>> data.num_classes, data.train.tolist(), data.test.tolist()
        (2, [0, 1], [])
    """

    def __init__(
        self,
        graph: Graph,
        x: Any = None,
        y: Any = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        *,
        num_classes: int | None = None,
        tables: Mapping[str, Any] | None = None,
        edge_x: Any = None,
        edge_tables: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self.x: FeatureStore | None = None if x is None else as_store(x, what="features x", dims=(2, None))
        self.y: torch.Tensor | None = None if y is None else as_rows(y, what="labels y")
        if self.y is not None and self.y.ndim not in (1, 2):
            raise GraphDataError(f"labels y must be [N] or [N, C], but the shape is {list(self.y.shape)}.")
        for name, rows in (("features x", self.x), ("labels y", self.y)):
            if rows is not None and rows.shape[0] != graph.num_nodes:
                raise GraphDataError(
                    f"{name} has {rows.shape[0]} rows, but the graph has {graph.num_nodes} nodes; "
                    f"one row a node is needed."
                )
        self.tables: dict[str, FeatureStore | NodeTable] = named_tables(
            {} if tables is None else tables, graph.num_nodes
        )
        self.edge_x: FeatureStore | None = None if edge_x is None else as_store(edge_x, what="edge features edge_x")
        if self.edge_x is not None:
            check_edge_rows(self.edge_x, graph, "edge features edge_x")
        self.edge_tables = check_edge_tables({} if edge_tables is None else edge_tables, graph)
        self.names_edge_tables = edge_tables is not None
        self.train, self.val, self.test = (
            _split(name, ids, graph.num_nodes) for name, ids in zip(SPLITS, (train, val, test), strict=True)
        )
        self._num_classes = num_classes

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def num_features(self) -> int:
        """Numbers in the last dimension of x."""
        return 0 if self.x is None else self.x.row_shape[-1]

    @property
    def stores(self) -> dict[str, FeatureStore]:
        """What mini-batches gather from, by name: ``"x"``, the tables, :attr:`edge_stores`."""
        tables = {name: table.store if isinstance(table, NodeTable) else table for name, table in self.tables.items()}
        return {**({} if self.x is None else {"x": self.x}), **tables, **self.edge_stores}

    @property
    def edge_stores(self) -> dict[str, FeatureStore]:
        """The stores that have rows of edges: ``"edge_x"``, and edge tables as ``"edge.<name>"``."""
        tables = {EDGE_PREFIX + name: table for name, table in self.edge_tables.items()}
        return {**({} if self.edge_x is None else {"edge_x": self.edge_x}), **tables}

    def with_graph_columns(self) -> GraphData:
        """Returns these data with the graph's edge weights and types as edge tables, unless edge tables were named."""
        if self.names_edge_tables or (self.graph.edge_weight is None and self.graph.edge_type is None):
            return self
        data = copy(self)  # the caller's own data stay as they are; graph and stores are shared
        data.edge_tables, data.names_edge_tables = graph_columns(self.graph), True
        return data

    def put(self, name: str, store: FeatureStore) -> None:
        """Replaces the store of that name in :attr:`stores` by one with the same rows."""
        table = self.tables.get(name)
        if isinstance(table, NodeTable):
            self.tables[name] = NodeTable(store, table.first)
        elif table is not None:
            self.tables[name] = store
        elif name.startswith(EDGE_PREFIX):
            self.edge_tables[name.removeprefix(EDGE_PREFIX)] = store
        else:
            setattr(self, name, store)

    @property
    def num_classes(self) -> int:
        """The number of classes: as given, or one more than the largest integer label of the splits."""
        if self._num_classes is None:
            if self.y is None or self.y.is_floating_point() or self.y.ndim != 1:
                raise GraphDataError(
                    "num_classes cannot be counted from these labels; give GraphData(..., num_classes=...)."
                )
            # Nodes outside the splits may carry any label, so theirs are not counted.
            used = [self.y[tensor_view(ids)] for ids in (self.train, self.val, self.test) if len(ids)]
            labels = torch.cat(used) if used else self.y
            self._num_classes = int(labels.max()) + 1 if labels.numel() else 0
            if self._num_classes < 0:
                raise GraphDataError(f"all labels are negative, up to {self._num_classes - 1}: classes count from 0.")
        return self._num_classes

    def split(self, name: str) -> np.ndarray:
        """Returns the node ids of ``"train"``, ``"val"`` or ``"test"``."""
        if name not in SPLITS:
            raise GraphDataError(f"there is no split {name!r}; the splits are {', '.join(SPLITS)}.")
        ids: np.ndarray = getattr(self, name)
        return ids

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={len(self.split(name))}" for name in SPLITS)
        tables = f", tables={sorted(self.tables)}" if self.tables else ""
        tables += f", edge_tables={sorted(self.edge_tables)}" if self.edge_tables else ""
        tables += f", num_edge_features={self.edge_x.shape[1]}" if self.edge_x is not None else ""
        return f"GraphData({self.graph!r}, num_features={self.num_features}, {sizes}{tables})"


def _split(name: str, ids: Any, num_nodes: int) -> np.ndarray:
    if ids is None:
        return np.empty(0, np.int64)
    checked = as_ids(ids, what=f"{name} ids", num_nodes=num_nodes)
    ordered = np.sort(checked)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise GraphDataError(
            f"{name} ids: node {ordered[twice[0]]} appears more than once; each node may be in a split once."
        )
    return checked
