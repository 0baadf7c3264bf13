"""GraphData: a graph with its features, labels and splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.aggregates import Aggregate
from lightning_gnnload.data.arrays import as_ids, as_rows, check_each_once, tensor_view
from lightning_gnnload.data.by_type import (
    check_labels,
    columns_of_type,
    flat_labels,
    flat_seeds,
    flat_split,
    flat_tables,
    refuse_tables,
    type_name,
)
from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.tables import (
    EDGE_PREFIX,
    EdgeTable,
    NodeTable,
    as_store,
    check_edge_rows,
    check_edge_tables,
    edge_times,
    graph_columns,
    named_tables,
)
from lightning_gnnload.data.task import Task
from lightning_gnnload.data.userids import UserIds, named_ids
from lightning_gnnload.errors import GraphDataError, naming
from lightning_gnnload.lazy import Imported
from lightning_gnnload.ops import as_integer

SPLITS = ("train", "val", "test")
"""The splits whose seeds have labels."""
PREDICT = "predict"
PHASES = (*SPLITS, PREDICT)


class GraphData:
    """Holds the data that a model trains on: a graph, its features, labels and splits.

    Args:
        graph: the topology, N nodes.
        x: node features ``[N, F]``: array, tensor or :class:`FeatureStore`; None for a graph without. Arrays of more
            dimensions, ``[N, T, F]``, keep them in mini-batches.
        y: node labels, ``[N]`` or ``[N, C]``, any numeric dtype; None for a graph without. Nodes without a
            label may carry any value (NaN, -1), as long as no split names them.
        train: node ids to train on, int64, or a :class:`SeedTable`, of links also a dict of them by edge type; likewise
            ``val`` and ``test``. Missing splits are empty. As attributes, those of a table are the nodes of its rows,
            ascending, each once.
        num_classes: number of label classes; counted from integer labels when None.
        tables: further node features by name, each an array, tensor or :class:`FeatureStore` ``[N, F]`` of its own
            width and dtype, a column ``[N]``, or a :class:`NodeTable` for the nodes of one type.
        edge_x: edge features ``[E, F]``: array, tensor or :class:`FeatureStore`. Rows lie in the order in which the
            edges were given: that of ``Graph.from_csc``'s ``indices``, or of ``Graph.from_coo``'s list, which the
            graph then has to keep (``keep_order=True``).
        edge_tables: further edge features ``[E, F]`` and columns ``[E]`` by name, in the same order. None: none of
            one's own, but mini-batches in DGL's and PyG's formats carry the graph's ``edge_weight`` and ``edge_type``.
        user_ids: what the user calls the nodes: :class:`.UserIds`, or a list of texts or whole numbers, ``[N]``.
            Predictions are written beside them.
        class_names: the name of each class, ``[num_classes]`` texts.
        tasks: further questions about the same graph, by name: :meth:`with_task` takes one.
        predict: what to predict, as ``train``; it needs no labels.

    Of a graph with types, all of these but ``num_classes`` may be dicts by type, of which any may be left out:
    ``x={"paper": [N_t, F], ...}`` with widths and dtypes of their own, ``tables={"paper": {"year": [N_t]}}``, likewise
    ``edge_x`` and ``edge_tables`` by edge type; ``y={"paper": [N_t]}`` of one dtype, and splits ``{"paper": ids}``, by
    ids that count within the type. The tables of a type are then named ``"<column>.<type>"``: ``"x.paper"``,
    ``"year.author__writes__paper"``. Labels and splits are kept by the ids of the graph.

    Attributes:
        user_ids: :class:`.UserIds` by node type; those of a graph without types under ``""``.
        aggregates: what those tables are that :func:`.preaggregate` made, by name.
        task: the name of the task whose splits these are; None where they were given by themselves.
        label_names: the user's name of the label, or of each of several, where a task was taken that knows it.
        as_of: the time for which to predict, likewise.
        vocabularies: of tables of categories, by name: for each column the name of its values, where other columns
            have the same, so that models share one embedding; else None.
        folder: where :func:`.load_graph_data` found it; None of data that were made in memory.
        folder_fingerprint: of that folder: hexadecimal digits that are alike in two processes exactly where both
            loaded the same content. None likewise.

    Raises:
        GraphDataError: sizes that differ from N or E, ids out of range or repeated, a table's name that is taken; a
            number of classes that is none; in a graph with types, a node of a split without a label.

    Example:
        >>> graph = Graph.from_coo([0, 1], [1, 2])
        >>> data = GraphData(graph, x=np.ones((3, 4), np.float32), y=[0, 1, 1], train=[0, 1])
        >>> data.num_classes, data.train.tolist(), data.test.tolist()
        (2, [0, 1], [])
    """

    # No attribute is lost without a word: each is carried under its name, or is an error or a warning that names it.
    from_pyg = Imported["GraphData"]("lightning_gnnload.adapters.pyg.read")
    from_dgl = Imported["GraphData"]("lightning_gnnload.adapters.dgl.read")
    from_networkx = Imported["GraphData"]("lightning_gnnload.adapters.networkx_graph")
    from_scipy = Imported["GraphData"]("lightning_gnnload.adapters.scipy_matrix")
    from_edge_list = Imported["GraphData"]("lightning_gnnload.adapters.edge_list")
    from_tables = Imported["GraphData"]("lightning_gnnload.ingest.dataset")

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
        user_ids: Any = None,
        class_names: Sequence[str] | None = None,
        tasks: Mapping[str, Task] | None = None,
        predict: Any = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise GraphDataError(
                f"graph is a {type(graph).__name__}; give Graph.from_coo(src, dst), which of an edge_index is "
                f"Graph.from_coo(*edge_index)."
            )
        self.graph = graph
        x, tables = flat_tables(x, tables, graph.types, for_edges=False)
        self.names_edge_tables = edge_tables is not None
        edge_x, edge_tables = flat_tables(edge_x, edge_tables, graph.types, for_edges=True)
        self.x: FeatureStore | None = None if x is None else as_store(x, name="features x", dims=(2, None))
        self.y: torch.Tensor | None = None if y is None else _labels(y, graph)
        _check_num_rows(graph, {"features x": self.x, "labels y": self.y})
        self.tables: dict[str, FeatureStore | NodeTable] = named_tables(tables, graph)
        self.edge_x: FeatureStore | None = None
        if edge_x is not None:
            self.edge_x = as_store(edge_x, name="edge features edge_x")
            check_edge_rows(self.edge_x, graph, "edge features edge_x")
        self.edge_tables: dict[str, FeatureStore | EdgeTable] = check_edge_tables(edge_tables, graph)
        self.user_ids: dict[str, UserIds] = named_ids(user_ids, graph.num_nodes, graph.types)
        self.tasks: dict[str, Task] = dict(tasks or {})
        self.task: str | None = None
        splits = {}
        for name, seeds in zip(PHASES, (train, val, test, predict), strict=True):
            with naming(name):
                splits[name] = flat_seeds(seeds)
        self.seed_tables = {name: seeds for name, seeds in splits.items() if isinstance(seeds, SeedTable)}
        self.train, self.val, self.test, self.predict = (_split(name, seeds, graph) for name, seeds in splits.items())
        self._check_split_labels()
        self._num_classes, self.class_names = _classes(num_classes, class_names)
        self.label_names: tuple[str, ...] | None = None
        self.as_of: int | float | None = None
        self.vocabularies: dict[str, tuple[str | None, ...]] = {}
        self.aggregates: dict[str, Aggregate] = {}
        self.folder: Path | None = None
        self.folder_fingerprint: str | None = None

    def _check_split_labels(self) -> None:
        if self.graph.types is None or self.y is None:
            return
        for name in SPLITS:
            if name not in self.seed_tables:  # rows may have labels of their own
                check_labels(self.y, name, self.split(name), self.graph.types)

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def summary(self) -> str:
        """Sizes, and the fingerprint of the folder if there is one, by which ranks compare their data at no cost."""
        # Content of data in memory is not compared: hashing it would take as long as reading all of it.
        folder = "" if self.folder_fingerprint is None else f", folder {self.folder_fingerprint[:16]}"
        return f"{self.num_nodes} nodes, {self.graph.num_edges} edges{folder}"

    @property
    def num_features(self) -> int:
        """Width of x in its last dimension; 0 without x."""
        return 0 if self.x is None else self.x.row_shape[-1]

    @property
    def stores(self) -> dict[str, FeatureStore]:
        """The stores that mini-batches gather from, by name: ``"x"``, the tables, :attr:`edge_stores`."""
        tables = {name: _store(table) for name, table in self.tables.items()}
        return {**({} if self.x is None else {"x": self.x}), **tables, **self.edge_stores}

    @property
    def edge_stores(self) -> dict[str, FeatureStore]:
        """The stores that have rows of edges: ``"edge_x"``, and edge tables as ``"edge.<name>"``."""
        tables = {EDGE_PREFIX + name: _store(table) for name, table in self.edge_tables.items()}
        return {**({} if self.edge_x is None else {"edge_x": self.edge_x}), **tables}

    def with_graph_columns(self) -> GraphData:
        """Returns these data with the graph's edge weights and types as edge tables, unless edge tables were named."""
        if self.names_edge_tables or (self.graph.edge_weight is None and self.graph.edge_type is None):
            return self
        data = copy(self)  # the caller's object stays as it is; graph and stores are shared
        data.edge_tables, data.names_edge_tables = {**self.edge_tables, **graph_columns(self.graph)}, True
        return data

    def with_edge_times(self) -> GraphData:
        """Returns these data with the times of edges as the edge table ``"edge_time"``, 8 bytes an edge, in the unit of
        the seeds' times; those of edges that have none are the graph's earliest.

        Raises:
            GraphDataError: the graph has no times.
        """
        data = copy(self)  # graph and stores are shared
        data.edge_tables = {**self.edge_tables, **edge_times(self.graph)}
        return data

    def with_task(self, name: str) -> GraphData:
        """Returns these data with the splits and classes of one of :attr:`tasks`.

        Raises:
            GraphDataError: there is no such task, or its rows are no nodes of this graph.

        Example:
            >>> tasks = {"churn": Task({"train": SeedTable([1], y=[0])}, num_classes=2)}
            >>> GraphData(Graph.from_coo([0], [1]), tasks=tasks).with_task("churn").train.tolist()
            [1]
        """
        if name not in self.tasks:
            available = f"the tasks are {', '.join(self.tasks)}" if self.tasks else "these data have no tasks"
            raise GraphDataError(f"there is no task {name!r}; {available}.")
        task, data = self.tasks[name], copy(self)  # graph and stores are shared
        data.task, data.seed_tables = name, dict(task.splits)
        for split in PHASES:
            setattr(data, split, _split(split, task.splits.get(split), self.graph))
        data._num_classes, data.class_names = task.num_classes, task.class_names
        data.label_names, data.as_of = task.label_names, task.as_of
        return data

    def with_tables(self, tables: Mapping[str, Any], aggregates: Mapping[str, Aggregate]) -> GraphData:
        """Returns these data with further tables of nodes, or others of the same names, that are aggregates."""
        data = copy(self)
        data.tables = {**self.tables, **named_tables(tables, self.graph)}
        data.aggregates = {**self.aggregates, **aggregates}
        return data

    def only_tables(self, names: Sequence[str]) -> GraphData:
        """Returns these data with some of the tables of nodes alone, by their names or those of columns.

        Raises:
            GraphDataError: there is no such table.
        """
        if isinstance(names, str):
            names = [names]
        data = copy(self)
        data.tables = {name: table for name, table in self.tables.items() if {name, name.partition(".")[0]} & {*names}}
        for name in names:
            if name not in {part for table in data.tables for part in (table, table.partition(".")[0])}:
                raise GraphDataError(
                    f"there is no table {name!r} of the nodes; these are {', '.join(self.tables) or 'none'}."
                )
        data.aggregates = {name: aggregate for name, aggregate in self.aggregates.items() if name in data.tables}
        return data

    def aggregates_of(self, name: str, aggr: str | None = None, **settings: Any) -> dict[int, str]:
        """Returns the names of the tables that are aggregates of one of :attr:`stores`, by hop.

        ``settings`` are further attributes of :class:`.Aggregate` that they have, as ``weighted=False``.

        Raises:
            GraphDataError: there are several of a hop, which ``settings`` do not tell apart.
        """
        by_hop: dict[int, str] = {}
        settings |= {} if aggr is None else {"aggr": aggr}
        for table, aggregate in self.aggregates.items():
            is_of = aggregate.table == name and table in self.tables
            if not is_of or any(getattr(aggregate, setting) != value for setting, value in settings.items()):
                continue
            if (rival := by_hop.setdefault(aggregate.hop, table)) != table:
                raise GraphDataError(
                    f"tables {rival!r} ({self.aggregates[rival]}) and {table!r} ({aggregate}) are both aggregates of "
                    f"{name!r}. Say which by aggr=, or load one of them: GraphFolder(folder, tables=[...])."
                )
        return by_hop

    def put(self, name: str, store: FeatureStore) -> None:
        """Replaces the store of that name in :attr:`stores` by one with the same rows."""
        for key, aggregate in self.aggregates.items():
            if aggregate.table == name and aggregate.is_of(self.graph, self.stores[name]):
                self.aggregates[key] = aggregate.bound(self.graph, store)
        table = self.tables.get(name)
        if isinstance(table, NodeTable):
            self.tables[name] = NodeTable(store, table.first)
        elif table is not None:
            self.tables[name] = store
        elif name.startswith(EDGE_PREFIX):
            key = name.removeprefix(EDGE_PREFIX)
            edge_table = self.edge_tables[key]
            self.edge_tables[key] = (
                EdgeTable(store, edge_table.edge_type) if isinstance(edge_table, EdgeTable) else store
            )
        else:
            setattr(self, name, store)

    @property
    def num_classes(self) -> int:
        """The number of classes: as given, or one more than the largest integer label of the splits."""
        if self._num_classes is None:
            # Nodes outside the splits may carry any label, so theirs count only where no split has labels.
            used = [labels for name in SPLITS if len(self.split(name)) and (labels := self._labels(name)) is not None]
            self._num_classes = _count_classes(used or ([] if self.y is None else [self.y]))
        return self._num_classes

    def _labels(self, name: str) -> torch.Tensor | None:
        table = self.table(name)
        if table is not None and not table.takes_labels_of_nodes:
            return table.y
        return None if self.y is None else self.y[tensor_view(self.split(name))]

    def table(self, name: str) -> SeedTable | None:
        """Returns the rows of ``"train"``, ``"val"``, ``"test"`` or ``"predict"``; None for a split that was given as
        node ids."""
        self.split(name)  # raises for a name that is no split
        return self.seed_tables.get(name)

    def split(self, name: str, node_type: str | None = None) -> np.ndarray:
        """Returns the node ids of ``"train"``, ``"val"``, ``"test"`` or ``"predict"``: of all types by their ids in the
        graph, or of one by those that count within the type. Those of a :class:`SeedTable` come once each."""
        if name not in PHASES:
            raise GraphDataError(f"there is no split {name!r}; the splits are {', '.join(PHASES)}.")
        ids: np.ndarray = getattr(self, name)
        if node_type is None:
            return ids
        nodes = self._nodes_of(node_type, "split")
        return ids[(ids >= nodes.start) & (ids < nodes.stop)] - nodes.start

    @property
    def time_form(self) -> TimeForm | None:
        """The form of the user's times, as rows of the splits have it; None where none says it."""
        forms = (table.time_form for table in self.seed_tables.values())
        return next((form for form in forms if form is not None), None)

    def tables_of(self, node_type: str) -> dict[str, NodeTable]:
        """Returns the tables of a node type by the names of their columns; features are ``"x"``."""
        return columns_of_type(self.tables, type_name(node_type, self.graph.types, "tables"))

    def edge_tables_of(self, edge_type: Any) -> dict[str, EdgeTable]:
        """Returns the tables of an edge type: its triple, its relation if that is unique, or its number."""
        return columns_of_type(self.edge_tables, type_name(edge_type, self.graph.types, "edge_tables"))

    def node_column(self, name: str) -> np.ndarray:
        """Returns a table of one number a node as float64 ``[N]``; 0 for nodes of types without it.

        Raises:
            GraphDataError: there is no such table, or it has several numbers a node.
        """
        # Typed tables are named "<column>.<type>"; a name alone takes those of all types.
        column = np.zeros(self.num_nodes)
        tables = [table for key, table in self.tables.items() if name in (key, key.partition(".")[0])]
        for table in tables:
            store, nodes = _store(table), table.nodes if isinstance(table, NodeTable) else range(self.num_nodes)
            if store.shape[1] != 1:
                raise GraphDataError(f"table {name!r} has {store.shape[1]} numbers a node, but one is needed.")
            rows = torch.empty((len(nodes), 1), dtype=store.dtype)
            store.gather(torch.arange(len(nodes)), rows)
            column[nodes.start : nodes.stop] = rows[:, 0].double().numpy()
        if not tables:
            raise GraphDataError(f"there is no table {name!r} of the nodes; these are {sorted(self.tables)}.")
        return column

    def labels_of(self, node_type: str) -> torch.Tensor | None:
        """Returns the labels of a node type's nodes, ``[N_t]`` or ``[N_t, C]``."""
        nodes = self._nodes_of(node_type, "y")
        return None if self.y is None else self.y[nodes.start : nodes.stop]

    def _nodes_of(self, node_type: str, argument: str) -> range:
        name, types = type_name(node_type, self.graph.types, argument), self.graph.types
        assert types is not None
        return types.range_of(name)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={len(self.split(name))}" for name in PHASES if name in SPLITS or len(self.predict))
        if self.tasks:
            sizes = f"task={self.task!r}, {sizes}" if self.task else f"tasks={', '.join(self.tasks)} (none chosen)"
        tables = f", tables={sorted(self.tables)}" if self.tables else ""
        tables += f", edge_tables={sorted(self.edge_tables)}" if self.edge_tables else ""
        tables += f", num_edge_features={self.edge_x.shape[1]}" if self.edge_x is not None else ""
        return f"GraphData({self.graph!r}, num_features={self.num_features}, {sizes}{tables})"


def _classes(num_classes: Any, class_names: Sequence[str] | None) -> tuple[int | None, tuple[str, ...] | None]:
    """Returns the number of classes and their names, either None where it is unknown."""
    count = None
    if num_classes is not None:
        # A plain int from 0 on: anything else could be saved to a folder, but not loaded again.
        count = (
            -1 if isinstance(num_classes, bool | np.bool_) else as_integer("num_classes", num_classes, GraphDataError)
        )
        if count < 0:
            raise GraphDataError(f"num_classes is {num_classes!r}, but must be an integer of 0 or more, or None.")
    if class_names is None:
        return count, None
    names = tuple(class_names)
    count = count or len(names)
    if len(names) != count:
        raise GraphDataError(f"class_names has {len(names)} names for {count} classes; each needs one.")
    return count, names


def _count_classes(labels: list[torch.Tensor]) -> int:
    if not labels or any(values.is_floating_point() or values.ndim != 1 for values in labels):
        raise GraphDataError("num_classes cannot be counted from these labels; give GraphData(..., num_classes=...).")
    values = torch.cat(labels)
    count = int(values.long().max()) + 1 if values.numel() else 0
    if count < 0:
        raise GraphDataError(f"all labels are negative, up to {count - 1}: classes count from 0.")
    return count


def _check_num_rows(graph: Graph, tables: Mapping[str, FeatureStore | torch.Tensor | None]) -> None:
    for name, rows in tables.items():
        if rows is not None and rows.shape[0] != graph.num_nodes:
            raise GraphDataError(
                f"{name} has {rows.shape[0]} rows, but the graph has {graph.num_nodes} nodes; one row a node is needed."
            )


def _store(table: Any) -> FeatureStore:
    return table.store if isinstance(table, NodeTable | EdgeTable) else table


def _labels(y: Any, graph: Graph) -> torch.Tensor:
    labels = flat_labels(y, graph.types) if isinstance(y, Mapping) else as_rows(y, name="labels y")
    if labels.ndim not in (1, 2):
        raise GraphDataError(f"labels y must be [N] or [N, C], but the shape is {list(labels.shape)}.")
    return labels


def _split(name: str, ids: Any, graph: Graph) -> np.ndarray:
    if ids is None:
        return np.empty(0, np.int64)
    if isinstance(ids, SeedTable):
        with naming(name):
            return np.unique(ids.nodes_in(graph))
    refuse_tables(name, ids)
    if isinstance(ids, Mapping):
        ids = flat_split(name, ids, graph.types)
    checked = as_ids(ids, name=f"{name} ids", num_nodes=graph.num_nodes)
    check_each_once(checked, name=name)
    return checked
