"""DGLCSV: a folder that DGL reads as a CSVDataset, read without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload.data.arrays import as_single
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.datasets.description import Description
from lightning_gnnload.datasets.foreign import ForeignFolder, assemble_data, assemble_graph, can_name
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.ingest.csv_columns import CsvColumns, SortedIds
from lightning_gnnload.ingest.source import IdType
from lightning_gnnload.ingest.spec import BuildSpec
from lightning_gnnload.ingest.sql import open_database

_VERSION = "1.0.0"
_MASKS = {split: f"{split}_mask" for split in SPLITS}


@dataclass(frozen=True)
class DGLCSV(ForeignFolder):
    """Provides the graph in a folder that DGL reads as a ``CSVDataset``: ``meta.yaml`` and CSV files.

    The files are converted once, into a folder under ``root``. Node ids, of any kind, are numbered in their order, as
    DGL does: whole numbers by size, texts by the alphabet. Columns hold numbers, truth values, or lists of numbers in
    quotes; fractions become float32. The column ``feat`` is ``x``, or ``edge_x``; ``label`` of nodes is ``y``;
    ``train_mask``, ``val_mask`` and ``test_mask`` of nodes are the splits. All others are tables by their names. Where
    edges alone have masks, these are the seeds: rows of a :class:`.SeedTable` with the edges' ids and labels.

    Columns of other texts are left out, and a warning names them. Folders of several graphs are refused.

    Args:
        source: the folder.
        seed_type: the node type, or the edge type (its relation, or ``"user__buys__item"``), whose masks say which the
            seeds are; None: all types of nodes, or, where no nodes have masks, the one type of edges that has.
        feature_name: of the column that is ``x`` and ``edge_x``.
        label_name: of the column that holds labels.
        edge_weight_name: the column of edges that samplers draw by.
        time_name: the column of nodes, edges, or both, that says since when they are there.
        root: the folder to keep converted graphs in; a per-user cache folder by default.

    Raises:
        DatasetError: when prepared: a file, field, column or number is missing or broken, an edge's end is no node, or
            there are several graphs; the message names file, column and row.
        MissingExtraError: when prepared: duckdb or pyarrow is not installed.

    Example:
        >>> DGLCSV("shop", seed_type="buys").seed_type
        'buys'
    """

    KIND: ClassVar[str] = "DGLCSV"
    source: str | Path
    seed_type: str | None = None
    feature_name: str = "feat"
    label_name: str = "label"
    edge_weight_name: str | None = None
    time_name: str | None = None
    root: str | Path | None = None

    def files(self) -> list[Path]:
        meta = self._read_meta()
        entries = meta.parts("node_data") + meta.parts("edge_data")
        return [meta.file, *(entry.path("file_name") for entry in entries)]

    def converted(self, scratch: Path) -> GraphData:
        with open_database(BuildSpec(), scratch, self.home) as con:
            tables = _CsvFolder(self, self._read_meta(), con)
        data = tables.graph_data()
        self.tell(tables.left_out)
        return data

    def _read_meta(self) -> Description:
        meta = Description.read(self.home / "meta.yaml")
        meta.take("dataset_name", str)
        version = meta.take("version", str, optional=True)
        if version not in (None, _VERSION):
            raise meta.error("version", f"only {_VERSION!r} is known")
        return meta


class _CsvFolder:
    """What the files of a folder hold, each read once."""

    def __init__(self, dataset: DGLCSV, meta: Description, con: Any) -> None:
        self._dataset, self._file, self._con = dataset, meta.file, con
        self._separator = meta.take("separator", str) if meta.has("separator") else ","
        if len(self._separator) != 1 or self._separator in '"\r\n':
            raise meta.error("separator", "one character is needed, no quote and no line's end")
        self._nodes: dict[str, CsvColumns] = {}
        self._node_ids: dict[str, SortedIds] = {}
        self._edges: dict[EdgeType, CsvColumns] = {}
        self._ends: dict[EdgeType, tuple[np.ndarray, np.ndarray]] = {}
        self._graphs: set[str] = set()
        for entry in meta.parts("node_data"):
            self._read_nodes(entry)
        for entry in meta.parts("edge_data"):
            self._read_edges(entry)
        if len(self._graphs) > 1:
            raise DatasetError(
                f"{meta.file}: the files hold {len(self._graphs)} graphs, {', '.join(sorted(self._graphs)[:3])}..., by "
                "their ids of graphs. One graph is sampled here: give a folder of one, without the column of these ids."
            )
        self.left_out = meta.left_out  # fields and columns that are not read
        self.left_out += [
            f"{rows.file.name}: {name}"
            for rows in (*self._nodes.values(), *self._edges.values())
            for name in rows.left_out
        ]

    def _read(
        self, entry: Description, fields: Mapping[str, str], types: list[IdType | None]
    ) -> tuple[CsvColumns, list[str]]:
        """Reads a file, and returns its columns of ids by these fields, whose names stand in the entry or are usual."""
        names = [entry.take(field, str, optional=True) or usual for field, usual in fields.items()]
        if len({*names}) < len(names):
            raise entry.error(next(iter(fields)), f"both ends are read from {names[0]!r}; two columns are needed")
        graph_field = entry.take("graph_id_field", str, optional=True) or "graph_id"
        id_types: dict[str, IdType | None] = {graph_field: "text", **dict(zip(names, types, strict=True))}
        columns = CsvColumns(self._con, entry.path("file_name"), self._separator, id_types)
        for field, name in zip(fields, names, strict=True):
            if name not in columns.ids:
                names_there = ", ".join([*columns.ids, *columns.values])
                raise DatasetError(
                    f"{columns.file} has no column {name!r}, but {names_there}. Name the column of ids in "
                    f"{entry.file}: {entry.where}.{field}."
                )
        if graph_field not in names and graph_field in columns.ids:
            self._graphs |= {*columns.ids[graph_field].unique().to_pylist()}
        return columns, names

    def _read_nodes(self, entry: Description) -> None:
        node_type = entry.take("ntype", str, optional=True) or "_V"
        if node_type in self._nodes:
            raise entry.error("ntype", "another file holds nodes of this type; one each is needed")
        columns, [name] = self._read(entry, {"node_id_field": "node_id"}, [None])
        ids = SortedIds(columns.ids[name])  # as DGL numbers them
        row = ids.repeated()
        if row is not None and len(self._graphs) < 2:
            raise DatasetError(
                f"{columns.file}: row {row} has node {columns.ids[name][row]} again; each node once is needed."
            )
        self._node_ids[node_type] = ids
        time = self._dataset.time_name
        # Converted before they are put in order, so that errors count rows as the file does.
        columns.values = {
            key: (rows if key == time else columns.single(key, rows))[ids.order] for key, rows in columns.values.items()
        }
        self._nodes[node_type] = columns

    def _read_edges(self, entry: Description) -> None:
        edge_type = self._edge_type(entry)
        end_types = (edge_type[0], edge_type[2])
        fields = {"src_id_field": "src_id", "dst_id_field": "dst_id"}
        columns, names = self._read(entry, fields, [self._node_ids[end].id_type for end in end_types])
        self._edges[edge_type] = columns
        src, dst = (self._node_numbers(columns, name, end) for name, end in zip(names, end_types, strict=True))
        self._ends[edge_type] = src, dst
        columns.ids.clear()  # which may be most of what memory holds

    def _edge_type(self, entry: Description) -> EdgeType:
        etype = entry.take("etype", list, optional=True) or ["_V", "_E", "_V"]
        if len(etype) != 3 or not all(isinstance(part, str) for part in etype):
            raise entry.error("etype", "a source type, a relation and a target type are needed")
        src, relation, dst = etype
        for end in (src, dst):
            if end not in self._nodes:
                raise entry.error("etype", f"there are no nodes of type {end!r}; these are {', '.join(self._nodes)}")
        if (src, relation, dst) in self._edges:
            raise entry.error("etype", "another file holds edges of this type; one each is needed")
        return src, relation, dst

    def _node_numbers(self, columns: CsvColumns, name: str, node_type: str) -> np.ndarray:
        numbers = self._node_ids[node_type].find(columns.ids[name])
        strangers = np.flatnonzero(numbers < 0)
        if len(strangers):
            row = int(strangers[0])
            raise DatasetError(
                f"{columns.file}: row {row}, column {name!r}: {columns.ids[name][row]} is no node of type "
                f"{node_type!r} in {self._nodes[node_type].file.name}, and {len(strangers) - 1} more are none. Add "
                "these nodes, or leave their edges out."
            )
        return numbers

    @property
    def _is_typed(self) -> bool:
        return len(self._nodes) > 1 or len(self._edges) > 1

    def graph_data(self) -> GraphData:
        dataset = self._dataset
        edges_of = self._seed_edges()
        graph = self._graph(edges_of is not None)
        parts: dict[str, dict[Any, Any]] = {name: {} for name in ("x", "y", "edge_x", *SPLITS)}
        for node_type, rows in self._nodes.items():
            parts["x"][node_type] = rows.take(dataset.feature_name)
            parts["y"][node_type] = rows.take(dataset.label_name)
            is_seed = edges_of is None and dataset.seed_type in (None, node_type)
            for split, mask in _MASKS.items():
                nodes = rows.mask(mask)
                parts[split][node_type] = nodes if is_seed else None
        seeds = {} if edges_of is None else self._link_rows(edges_of)
        for edge_type, rows in self._edges.items():
            parts["edge_x"][edge_type] = rows.take(dataset.feature_name)
        parts["tables"] = {node_type: self._tables(rows) for node_type, rows in self._nodes.items()}
        parts["edge_tables"] = {edge_type: self._tables(rows) for edge_type, rows in self._edges.items()}
        return assemble_data(graph, **parts | seeds)

    def _graph(self, edges_are_seeds: bool) -> Graph:
        """Builds the topology; weights and times stay tables, too, as they do of DGL's graphs."""
        weight = {
            edge_type: as_single(rows.astype(float), name=f"edge weights of {edge_type}", error=DatasetError)
            for edge_type, rows in self._columns(self._edges, "edge_weight_name")
        }
        edge_time = dict(self._columns(self._edges, "time_name"))
        node_time = dict(self._columns(self._nodes, "time_name"))
        self._dataset.demand("edge_weight_name", weight)
        self._dataset.demand("time_name", edge_time | node_time)
        return assemble_graph(
            {node_type: len(ids.order) for node_type, ids in self._node_ids.items()},
            self._ends,
            typed=self._is_typed,
            keep_order=edges_are_seeds or any(rows.values for rows in self._edges.values()),
            edge_weight=weight,
            edge_time=edge_time,
            node_time=node_time,
        )

    def _columns(self, types: Mapping[Any, CsvColumns], argument: str) -> Iterator[tuple[Any, np.ndarray]]:
        name = getattr(self._dataset, argument)
        for type_, rows in types.items():
            if name is not None and name in rows.values:
                if rows.values[name].ndim != 1:
                    raise DatasetError(f"{rows.file}: {argument} is {name!r}, but it holds lists of numbers.")
                yield type_, rows.values[name]

    def _seed_edges(self) -> EdgeType | None:
        """Returns the edge type whose masks say which the seeds are; None where nodes are."""
        seed_type, masks = self._dataset.seed_type, set(_MASKS.values())
        masked = [edge_type for edge_type, rows in self._edges.items() if masks & rows.values.keys()]
        nodes_have_masks = any(masks & rows.values.keys() for rows in self._nodes.values())
        if seed_type in self._nodes or (seed_type is None and (nodes_have_masks or not masked)):
            return None
        matches = [t for t in masked if seed_type in (None, "__".join(t), ":".join(t), t[1])]
        if len(matches) != 1:
            types = ", ".join([*self._nodes, *map("__".join, self._edges)])
            raise DatasetError(
                f"{self._file}: seed_type is {seed_type!r}, which names {len(matches)} types of edges with masks; the "
                f"types are {types}. Give seed_type=, one of these."
            )
        return matches[0]

    def _link_rows(self, seed_type: EdgeType) -> dict[str, SeedTable]:
        """Returns the edges of a type that masks name, as rows by split."""
        rows, (src, dst) = self._edges[seed_type], self._ends[seed_type]
        time = rows.values.get(self._dataset.time_name or "")
        label = rows.take(self._dataset.label_name)
        edge_type = seed_type if self._is_typed else None
        tables = {}
        for split, mask in _MASKS.items():
            edges = rows.mask(mask)
            if edges is not None:
                y, times = (None if column is None else column[edges] for column in (label, time))
                tables[split] = SeedTable(
                    src=src[edges], dst=dst[edges], edge_type=edge_type, edge_ids=edges, y=y, time=times
                )
        return tables

    def _tables(self, rows: CsvColumns) -> dict[str, np.ndarray]:
        """Returns the columns that are left, by names that tables can have."""
        named = {}
        for name, column in rows.values.items():
            if can_name(name):
                named[name] = rows.single(name, column)
            else:
                self.left_out.append(f"{rows.file.name}: {name}, which names no table")
        return named
