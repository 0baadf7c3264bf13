"""GraphBolt: a folder that DGL's GraphBolt reads as an OnDiskDataset, read without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.datasets.description import Description
from lightning_gnnload.datasets.foreign import ForeignFolder, assemble_data, assemble_graph, can_name
from lightning_gnnload.datasets.graphbolt_files import map_array, read_edges
from lightning_gnnload.datasets.graphbolt_sets import SETS, SetReader, edge_type_of
from lightning_gnnload.errors import DatasetError, GraphDataError

_METADATA = "metadata.yaml"


@dataclass(frozen=True)
class GraphBolt(ForeignFolder):
    """Provides the data set in a folder that DGL's GraphBolt reads as an ``OnDiskDataset``: as it was before GraphBolt
    preprocessed it, with ``metadata.yaml``.

    Edges and the sets of a task are converted once, into a folder under ``root``. Features are mapped where they lie,
    and never copied, so that the folder has to stay. Nothing is written into it, and no code in it is run. Files of
    ``torch.save`` need torch 2.6 or newer.

    The feature ``feat`` is ``x``, or ``edge_x``; all others are tables by their names. Sets of nodes are splits and
    labels ``y``, NaN or -1 where a node has none; sets of links, and of nodes with more than a label, are rows of a
    :class:`.SeedTable`. Data named ``timestamp`` are their times, ``weight`` their weights; other names are columns.
    Negatives, given as ``negative_dsts`` or ``negative_srcs``, or as rows of label 0 that have the index of a true one
    in ``indexes``, are the column ``"negatives"``, for :class:`.Negatives` of mode ``"hard"``.

    Args:
        source: the folder.
        task: the name of the task whose sets are read; None where there is one, or none.
        seed_type: the node type or edge type (``"user:buys:item"``) whose sets are read; None: all of the task.
        feature_name: of the feature that is ``x`` and ``edge_x``.
        edge_weight_name: the feature of edges that samplers draw by.
        time_name: the feature of nodes, edges, or both, that says since when they are there.
        root: the folder to keep converted graphs in; a per-user cache folder by default.

    Raises:
        DatasetError: when prepared: the folder was preprocessed and has nothing else, a field or file is missing,
            broken, lies elsewhere, or does not fit the others.

    Example:
        >>> GraphBolt("ogbn-products-seeds", task="node_classification").source
        'ogbn-products-seeds'
    """

    KIND: ClassVar[str] = "GraphBolt"
    source: str | Path
    task: str | None = None
    seed_type: str | None = None
    feature_name: str = "feat"
    edge_weight_name: str | None = None
    time_name: str | None = None
    root: str | Path | None = None

    def files(self) -> list[Path]:
        contents = _BoltFolder(self)
        sets = [part for entries in contents.sets.values() for entry in entries for part in entry.parts("data")]
        entries = [*contents.edges.values(), *sets, *contents.graph_features]
        return [self._metadata, *(entry.path("path") for entry in entries)]

    def converted(self, scratch: Path) -> GraphData:
        contents = _BoltFolder(self)
        graph = contents.graph()
        reader = SetReader(self._metadata, graph)
        data = assemble_data(graph, **reader.seeds(contents.sets), num_classes=contents.num_classes)
        contents.with_features(data)  # whose errors are to be known before ranks start
        self.tell([*contents.left_out, *reader.left_out], reader.notes)
        return data

    def load(self) -> GraphData:
        return _BoltFolder(self).with_features(super().load())

    @property
    def _metadata(self) -> Path:
        return self.home / _METADATA

    def read_metadata(self) -> Description:
        """Reads what the folder says of itself; refuses one that was preprocessed and has nothing else."""
        file, preprocessed = self._metadata, self.home / "preprocessed" / _METADATA
        if not file.is_file() and preprocessed.is_file():
            raise _preprocessed_error(preprocessed)
        metadata = Description.read(file)
        if not metadata.has("graph") and metadata.has("graph_topology"):
            raise _preprocessed_error(file)
        return metadata


class _BoltFolder:
    """What a folder's metadata describe; arrays are read when they are needed."""

    def __init__(self, dataset: GraphBolt) -> None:
        self._dataset = dataset
        self._metadata = dataset.read_metadata()
        self._metadata.take("dataset_name", str, optional=True)
        self._graph = self._metadata.part("graph")
        nodes, edges = self._graph.parts("nodes"), self._graph.parts("edges")
        self.is_typed = not len(nodes) == len(edges) == 1 or nodes[0].has("type") or edges[0].has("type")
        self.num_nodes = self._read_nodes(nodes)
        self.edges = self._read_edges(edges)
        self._unnamed: list[str] = []
        self._features: dict[str, dict[Any, dict[str, Description]]] = {"node": {}, "edge": {}}
        for part in (self._graph, self._metadata):
            for entry in part.parts("feature_data", optional=True):
                self._add_feature(entry)
        weights, times = (
            self._features_named(dataset.edge_weight_name, "edge"),
            self._features_named(dataset.time_name, "node", "edge"),
        )
        dataset.demand("edge_weight_name", weights)
        dataset.demand("time_name", times)
        self.graph_features = weights + times  # converted with the edges, not mapped
        task = self._task()
        self.sets = {split: self._sets_of(task, name) for split, name in SETS.items()}
        self.num_classes = task.take("num_classes", int, optional=True)
        dataset.demand("seed_type", any(self.sets.values()))

    def _read_nodes(self, entries: list[Description]) -> dict[Any, int]:
        num_nodes: dict[Any, int] = {}
        for entry in entries:
            name, count = self._type(entry, is_edge=False), entry.take("num", int)
            if name in num_nodes or count < 0:
                raise entry.error("type" if count >= 0 else "num", "a type once, and a count of 0 or more, are needed")
            num_nodes[name] = count
        return num_nodes

    def _read_edges(self, entries: list[Description]) -> dict[Any, Description]:
        edges: dict[Any, Description] = {}
        for entry in entries:
            name = self._type(entry, is_edge=True)
            if name in edges:
                raise entry.error("type", "it is there twice")
            for node_type in (name[0], name[2]) if self.is_typed else ():
                if node_type not in self.num_nodes:
                    types = ", ".join(map(str, self.num_nodes))
                    raise entry.error("type", f"there is no node type {node_type!r}; these are {types}")
            edges[name] = entry
        return edges

    def _type(self, entry: Description, *, is_edge: bool) -> Any:
        if not self.is_typed:
            if entry.has("type"):
                raise entry.error("type", "the graph has no types of nodes and edges. Leave it out")
            entry.take("type", str, optional=True)
            return None
        return edge_type_of(entry, "type") if is_edge else entry.take("type", str)

    def _add_feature(self, entry: Description) -> None:
        domain, name = entry.choose("domain", ("node", "edge", "graph")), entry.take("name", str)
        if domain == "graph" or not (name == self._dataset.feature_name or can_name(name)):
            entry.leave()
            self._unnamed.append(f"{entry.where} ({name!r})")
            return
        type_ = self._type(entry, is_edge=domain == "edge")
        if type_ not in (self.num_nodes if domain == "node" else self.edges):
            raise entry.error("type", f"the graph has no such type of {domain}s")
        columns = self._features[domain].setdefault(type_, {})
        if name in columns:
            raise entry.error("name", f"{columns[name].where} has this name, too; one of each is needed")
        columns[name] = entry

    def _features_named(self, name: str | None, *domains: str) -> list[Description]:
        by_type = (columns for domain in domains for columns in self._features[domain].values())
        return [columns[name] for columns in by_type if name in columns]

    def _task(self) -> Description:
        """Returns the task that is read; an empty one where there is none."""
        tasks, wish = self._metadata.parts("tasks", optional=True), self._dataset.task
        names = [task.take("name", str, optional=True) for task in tasks]
        chosen = [task for task, name in zip(tasks, names, strict=True) if wish in (None, name)]
        if len(chosen) > 1 or (wish is not None and not chosen):
            raise DatasetError(
                f"{self._metadata.file}: task is {wish!r}, which names {len(chosen)} tasks; the tasks are "
                f"{', '.join(map(repr, names)) or 'none'}. Give task=, one of these names."
            )
        for task in tasks:
            if task not in chosen:
                task.leave()
        return chosen[0] if chosen else Description({}, self._metadata.file, "tasks")

    def _sets_of(self, task: Description, name: str) -> list[Description]:
        """Returns the sets of a split that are read, one of each type."""
        seed_type = self._dataset.seed_type
        sets: dict[str | None, Description] = {}
        for entry in task.parts(name, optional=True):
            type_ = entry.take("type", str, optional=True)
            if type_ in sets:
                raise entry.error("type", f"{sets[type_].where} is of this type, too; one of each is needed")
            sets[type_] = entry
            if seed_type not in (None, type_):
                entry.leave()
        return [entry for type_, entry in sets.items() if seed_type in (None, type_)]

    @property
    def left_out(self) -> list[str]:
        """The fields and features that are not read."""
        return [*self._metadata.left_out, *self._unnamed]

    def graph(self) -> Graph:
        """Builds the topology."""
        edges = {edge_type: read_edges(entry) for edge_type, entry in self.edges.items()}
        weight = self._columns("edge", self._dataset.edge_weight_name)
        return assemble_graph(
            self.num_nodes,
            edges,
            typed=self.is_typed,
            keep_order=bool(self._features["edge"]),
            edge_weight={k: rows if rows.dtype.kind == "f" else rows.astype(np.float32) for k, rows in weight.items()},
            edge_time=self._columns("edge", self._dataset.time_name),
            node_time=self._columns("node", self._dataset.time_name),
        )

    def _columns(self, domain: str, name: str | None) -> dict[Any, np.ndarray]:
        """Returns the feature of this name by type, one number a row."""
        columns_by_type = {}
        for type_, columns in self._features[domain].items():
            if name is not None and name in columns:
                rows = np.asarray(map_array(columns[name]))
                if rows.size != len(rows):
                    raise columns[name].error("name", f"one number a row is needed, but it has {list(rows.shape)}")
                columns_by_type[type_] = rows.reshape(-1)
        return columns_by_type

    def with_features(self, data: GraphData) -> GraphData:
        """Returns the data with the features, which are mapped; raises DatasetError where a file has not a row for each
        node or edge."""
        arguments: dict[str, Any] = {split: data.seed_tables.get(split, data.split(split)) for split in SPLITS}
        for domain, prefix in (("node", ""), ("edge", "edge_")):
            x, tables = arguments.setdefault(f"{prefix}x", {}), arguments.setdefault(f"{prefix}tables", {})
            for type_, columns in self._features[domain].items():
                count = self._count(data.graph, domain, type_)
                tables[type_] = {key: self._rows(entry, count, domain) for key, entry in columns.items()}
                x[type_] = tables[type_].pop(self._dataset.feature_name, None)
        try:
            return assemble_data(data.graph, y=data.y, num_classes=data._num_classes, **arguments)
        except GraphDataError as error:
            raise DatasetError(f"{self._metadata.file}: {error}") from error

    def _count(self, graph: Graph, domain: str, type_: Any) -> int:
        if domain == "node":
            return self.num_nodes[type_]
        if graph.types is None:
            return graph.num_edges
        return int(graph.num_edges_by_type[graph.types.edge_type_number(type_)])

    def _rows(self, entry: Description, count: int, domain: str) -> Any:
        rows = map_array(entry)
        if len(rows) != count:
            raise entry.error("path", f"it has {len(rows)} rows, but there are {count} {domain}s of its type")
        return rows


def _preprocessed_error(file: Path) -> DatasetError:
    return DatasetError(
        f"{file}: the edges of this folder are in GraphBolt's own form alone, a pickled Python object, which may run "
        "code when it is read, and is not read here. Give the folder as it was before: metadata.yaml with the field "
        "graph, and the lists of edges that it names."
    )
