"""GraphBolt: a folder that DGL's GraphBolt reads as an OnDiskDataset, read without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload.data.datasets.assembled import can_name, data_of, graph_of
from lightning_gnnload.data.datasets.described import Description
from lightning_gnnload.data.datasets.foreign import ForeignFolder
from lightning_gnnload.data.datasets.graphbolt_files import read_edges, read_rows
from lightning_gnnload.data.datasets.graphbolt_sets import SETS, SetReader, edge_type_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
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
        contents = _Contents(self)
        sets = [part for of_split in contents.sets.values() for each in of_split for part in each.parts("data")]
        return [self._metadata, *(each.path("path") for each in [*contents.edges.values(), *sets, *contents.drawn_by])]

    def converted(self, scratch: Path) -> GraphData:
        contents = _Contents(self)
        graph = contents.graph()
        reader = SetReader(self._metadata, graph)
        data = data_of(graph, **reader.seeds(contents.sets), num_classes=contents.num_classes)
        contents.with_features(data)  # whose errors are to be known before ranks start
        self.tell([*contents.left_out, *reader.left_out], reader.notes)
        return data

    def load(self) -> GraphData:
        return _Contents(self).with_features(super().load())

    @property
    def _metadata(self) -> Path:
        return self.home / _METADATA

    def read_metadata(self) -> Description:
        """Reads what the folder says of itself.

        Raises:
            DatasetError: it says nothing, or was preprocessed and has nothing else.
        """
        file, preprocessed = self._metadata, self.home / "preprocessed" / _METADATA
        if not file.is_file() and preprocessed.is_file():
            raise _preprocessed(preprocessed)
        found = Description.read(file)
        if not found.has("graph") and found.has("graph_topology"):
            raise _preprocessed(file)
        return found


class _Contents:
    """What a folder's metadata describe; arrays are read when they are asked for."""

    def __init__(self, dataset: GraphBolt) -> None:
        self._dataset = dataset
        self._metadata = dataset.read_metadata()
        self._metadata.take("dataset_name", str, optional=True)
        self._graph = self._metadata.part("graph")
        nodes, edges = self._graph.parts("nodes"), self._graph.parts("edges")
        self.is_typed = not len(nodes) == len(edges) == 1 or nodes[0].has("type") or edges[0].has("type")
        self.num_nodes: dict[Any, int] = {}
        self.edges: dict[Any, Description] = {}
        for each in nodes:
            name, count = self._type(each, is_edge=False), each.take("num", int)
            if name in self.num_nodes or count < 0:
                raise each.error("type" if count >= 0 else "num", "a type once, and a count of 0 or more, are needed")
            self.num_nodes[name] = count
        for each in edges:
            name = self._type(each, is_edge=True)
            unknown = [end for end in (name[0], name[2]) if end not in self.num_nodes] if self.is_typed else []
            if name in self.edges or unknown:
                known = ", ".join(map(str, self.num_nodes))
                problem = f"there is no node type {unknown[0]!r}; these are {known}" if unknown else "it is there twice"
                raise each.error("type", problem)
            self.edges[name] = each
        self._unnamed: list[str] = []
        self._features: dict[str, dict[Any, dict[str, Description]]] = {"node": {}, "edge": {}}
        for of_part in (self._graph, self._metadata):
            for each in of_part.parts("feature_data", optional=True):
                self._add_feature(each)
        weights, times = self._named(dataset.edge_weight_name, "edge"), self._named(dataset.time_name, "node", "edge")
        dataset.demand("edge_weight_name", weights)
        dataset.demand("time_name", times)
        self.drawn_by = weights + times
        task = self._task()
        self.sets = {split: self._sets_of(task, name) for split, name in SETS.items()}
        self.num_classes = task.take("num_classes", int, optional=True)
        dataset.demand("seed_type", any(self.sets.values()))

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
            self._unnamed.append(f"{entry.place} ({name!r})")
            return
        of_type = self._type(entry, is_edge=domain == "edge")
        if of_type not in (self.num_nodes if domain == "node" else self.edges):
            raise entry.error("type", f"the graph has no such type of {domain}s")
        columns = self._features[domain].setdefault(of_type, {})
        if name in columns:
            raise entry.error("name", f"{columns[name].place} has this name, too; one of each is needed")
        columns[name] = entry

    def _named(self, name: str | None, *domains: str) -> list[Description]:
        found = (columns for domain in domains for columns in self._features[domain].values())
        return [columns[name] for columns in found if name in columns]

    def _task(self) -> Description:
        """Returns the task that is read; an empty one where there is none."""
        tasks, asked = self._metadata.parts("tasks", optional=True), self._dataset.task
        names = [each.take("name", str, optional=True) for each in tasks]
        chosen = [each for each, name in zip(tasks, names, strict=True) if asked is None or name == asked]
        if len(chosen) > 1 or (asked is not None and not chosen):
            known = ", ".join(map(repr, names)) or "none"
            raise DatasetError(
                f"{self._metadata.file}: task is {asked!r}, which names {len(chosen)} tasks; the tasks are {known}. "
                "Give task=, one of these names."
            )
        for each in tasks:
            if each not in chosen:
                each.leave()
        return chosen[0] if chosen else Description({}, self._metadata.file, "tasks")

    def _sets_of(self, task: Description, name: str) -> list[Description]:
        """Returns the sets of a split that are read, one of each type."""
        asked = self._dataset.seed_type
        found: dict[str | None, Description] = {}
        for each in task.parts(name, optional=True):
            of_type = each.take("type", str, optional=True)
            if of_type in found:
                raise each.error("type", f"{found[of_type].place} is of this type, too; one of each is needed")
            found[of_type] = each
            if asked not in (None, of_type):
                each.leave()
        return [each for of_type, each in found.items() if asked in (None, of_type)]

    @property
    def left_out(self) -> list[str]:
        """The fields and features that are not read."""
        return [*self._metadata.left_out, *self._unnamed]

    def graph(self) -> Graph:
        """Builds the topology."""
        ends = {kind: read_edges(entry) for kind, entry in self.edges.items()}
        weight = self._columns("edge", self._dataset.edge_weight_name)
        return graph_of(
            self.num_nodes,
            ends,
            typed=self.is_typed,
            keep_order=bool(self._features["edge"]),
            edge_weight={k: rows if rows.dtype.kind == "f" else rows.astype(np.float32) for k, rows in weight.items()},
            edge_time=self._columns("edge", self._dataset.time_name),
            node_time=self._columns("node", self._dataset.time_name),
        )

    def _columns(self, domain: str, name: str | None) -> dict[Any, np.ndarray]:
        """Returns the feature of this name by type, one number a row."""
        found = {}
        for of_type, columns in self._features[domain].items():
            if name is not None and name in columns:
                rows = np.asarray(read_rows(columns[name]))
                if rows.size != len(rows):
                    raise columns[name].error("name", f"one number a row is needed, but it has {list(rows.shape)}")
                found[of_type] = rows.reshape(-1)
        return found

    def with_features(self, data: GraphData) -> GraphData:
        """Returns the data with the features, which are mapped.

        Raises:
            DatasetError: a file that does not have a row for each node or edge.
        """
        given: dict[str, Any] = {split: data.seed_tables.get(split, data.split(split)) for split in SPLITS}
        for domain, prefix in (("node", ""), ("edge", "edge_")):
            x, tables = given.setdefault(f"{prefix}x", {}), given.setdefault(f"{prefix}tables", {})
            for of_type, columns in self._features[domain].items():
                count = self._count(data.graph, domain, of_type)
                tables[of_type] = {key: self._rows(entry, count, domain) for key, entry in columns.items()}
                x[of_type] = tables[of_type].pop(self._dataset.feature_name, None)
        try:
            return data_of(data.graph, y=data.y, num_classes=data._num_classes, **given)
        except GraphDataError as error:
            raise DatasetError(f"{self._metadata.file}: {error}") from error

    def _count(self, graph: Graph, domain: str, of_type: Any) -> int:
        if domain == "node":
            return self.num_nodes[of_type]
        if graph.types is None:
            return graph.num_edges
        return int(graph.num_edges_by_type[graph.types.edge_type_number(of_type)])

    def _rows(self, entry: Description, count: int, domain: str) -> Any:
        rows = read_rows(entry)
        if len(rows) != count:
            raise entry.error("path", f"it has {len(rows)} rows, but there are {count} {domain}s of its type")
        return rows


def _preprocessed(file: Path) -> DatasetError:
    return DatasetError(
        f"{file}: the edges of this folder are in GraphBolt's own form alone, a pickled Python object, which may run "
        "code when it is read, and is not read here. Give the folder as it was before: metadata.yaml with the field "
        "graph, and the lists of edges that it names."
    )
