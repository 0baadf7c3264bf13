"""A graph folder, built from the tables that graph.yaml names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.by_type import table_of_type
from lightning_gnnload.data.pages import mapped_bytes
from lightning_gnnload.data.progress import progress
from lightning_gnnload.data.storage.folders import (
    ArrayWriter,
    array_entry,
    array_file,
    byte_chunks,
    clear_leftovers,
    new_folder,
    staging_folder,
    write_chunks,
    write_manifest,
)
from lightning_gnnload.data.storage.graphs import ids_name, table_name
from lightning_gnnload.data.storage.seeds import described_tasks, task_arrays
from lightning_gnnload.data.storage.targets import BUILD_REPORT
from lightning_gnnload.data.tables import EDGE_PREFIX
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.edges import EdgeReader, graph_types
from lightning_gnnload.ingest.features import Feature, Seen, check_columns, code_rows, fit, x_rows
from lightning_gnnload.ingest.ids import NumberedNodes, number_nodes
from lightning_gnnload.ingest.lists import WrittenGraph, write_lists
from lightning_gnnload.ingest.opened import OpenTables, named_files
from lightning_gnnload.ingest.report import Report, degrees
from lightning_gnnload.ingest.seeds import describe_seeds
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import GraphSpec, TaskSpec
from lightning_gnnload.ingest.sql import EVERYWHERE, connect
from lightning_gnnload.ingest.tasks import ReadTask, SeedEnd, SeedKinds, read_task
from lightning_gnnload.ingest.transforms import Transforms

X, CODES = "x", "codes"
"""The tables of numbers and of categories of a node or edge type."""
_OF_DUCKDB, _OF_SORTING = 0.5, 0.25
"""Shares of the memory that a build may take; the rest is left to the index of ids."""
Kept = Callable[[int, int], np.ndarray | None]
"""Says which rows of a stretch of a table are there, bool ``[end - begin]``; None: all."""


def build_graph(
    spec: GraphSpec,
    folder: Path,
    *,
    home: Path = Path(),
    reads: Sequence[Path] = EVERYWHERE,
    overwrite: bool = False,
    transforms: Path | None = None,
    attributes: Mapping[str, Any] | None = None,
    keep: bool = True,
    shown: bool = True,
) -> dict[str, Any]:
    """Builds the graph folder of tables, atomically: a build that fails, or is killed, leaves none.

    Args:
        spec: of the tables.
        folder: to write, which :func:`.load_graph_data` reads.
        home: the folder that the tables' paths count from.
        reads: further folders below which SQL may read files; all, for a description that is the caller's own.
        overwrite: replace the folder, if it is one of a graph and holds nothing else.
        transforms: a folder that was built before, whose features and classes are applied; ``build.transforms`` else.
        attributes: further JSON values that the manifest keeps.
        keep: write the folder; else all is done beside it and removed, to see whether it could be.
        shown: show bars.

    Returns:
        The report, whose values are in ``report.json``, too.

    Raises:
        MissingExtraError: duckdb or pyarrow is not installed.
        GraphSpecError: ``spec`` does not fit the tables, or the transforms.
        TableError: a table cannot be read, or does not hold what ``spec`` says.
        StoreFormatError: ``folder`` cannot be written, or is not replaced.
        FeatureFileError: no room, or the disk fails.
    """
    with (
        new_folder(folder, "graph", overwrite=overwrite, alone=True, keep=keep) as made,
        _scratch(spec, made, home, folder) as scratch,
    ):
        con = connect(
            spec.build, scratch / "duckdb", home, files=[*named_files(spec, home)], reads=reads, share=_OF_DUCKDB
        )
        try:
            tables = OpenTables(con, spec, home)
            return _Build(tables, made, scratch, _known(tables, home, transforms), shown).run(attributes or {})
        finally:
            con.close()


def peek_tables(
    spec: GraphSpec, *, home: Path = Path(), reads: Sequence[Path] = EVERYWHERE, transforms: Path | None = None
) -> OpenTables:
    """Opens the tables, and checks all that their columns tell, as :func:`build_graph` does before it reads rows."""
    con = connect(spec.build, home, home, files=[*named_files(spec, home)], reads=reads)
    tables = OpenTables(con, spec, home, peek=True)
    _known(tables, home, transforms)
    return tables


def _known(tables: OpenTables, home: Path, transforms: Path | None) -> Transforms | None:
    """Reads the transforms that are to be applied, if any are.

    Raises:
        GraphSpecError: the tables' columns are others.
        TableError: a column is of another kind than it was.
    """
    of_spec = tables.spec.build.transforms
    given = transforms or (None if of_spec is None else home / of_spec)
    if given is None:
        return None
    known = Transforms.read(given)
    for section, sources in (("nodes", tables.nodes), ("edges", tables.edges)):
        for name, source in sources.items():
            spec = getattr(tables.spec, section)[name]
            columns = check_columns(source, spec.x, timezone=spec.timezone)
            for old, new in zip(known.of(section, name, spec.x), columns, strict=True):
                if old.kind != new.kind:
                    raise TableError(
                        f"{source.where}.x: column {new.column!r} is {source.types[new.column]}, to be read as "
                        f"{new.kind}, but it was fitted as {old.kind}. Say as: {old.kind}, or cast it in SQL."
                    )
    return known


@contextmanager
def _scratch(spec: GraphSpec, made: Path, home: Path, folder: Path) -> Iterator[Path]:
    """Gives a folder that is removed in the end: beside the one that is made, or where graph.yaml says. What builds of
    the same name that were killed have left there is removed first."""
    if spec.build.scratch is None:
        scratch = made.parent / "scratch"
        scratch.mkdir(mode=0o700)
        yield scratch
        return
    place = home / spec.build.scratch
    if not place.is_dir():
        raise GraphSpecError(f"build.scratch: there is no folder {place}. Make it, or leave scratch out.")
    clear_leftovers(place / folder.name)
    with staging_folder(place / folder.name) as scratch:
        yield scratch


class _Build:
    """A build under way.

    Args:
        tables: that it reads.
        made: the folder that it writes.
        scratch: a folder for what does not stay.
        known: transforms to apply; None: they are fitted.
        shown: show bars.
    """

    def __init__(self, tables: OpenTables, made: Path, scratch: Path, known: Transforms | None, shown: bool) -> None:
        self.tables, self.spec, self.made, self.scratch, self.shown = tables, tables.spec, made, scratch, shown
        self.known, self.fitted = known, Transforms()
        self.report = Report()
        self.entries: dict[str, Any] = {}
        self.nodes: dict[str, NumberedNodes] = {}
        self.is_typed = graph_types(self.spec, dict.fromkeys(self.spec.nodes, 0)) is not None

    def run(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        with self.report.stage("ids"):
            self._number_nodes()
        self.graph = self._read_edges()
        with self.report.stage("tasks"):
            tasks = {name: self._read_task(name, task) for name, task in self.spec.tasks.items()}
        with self.report.stage("features"):
            tables = {name: self._node_features(name, tasks) for name in self.spec.nodes}
            edge_tables = [each for name in self.spec.edges for each in self._edge_features(name, tasks)]
        with self.report.stage("finish"):
            self._describe_nodes()
            for name, read in tasks.items():
                describe_seeds(self.report, name, self.spec.tasks[name], read, self.graph, self.nodes, self._mapped)
            self._write_tasks(tasks)
        self._write_manifest(tasks, tables, edge_tables, attributes)
        self.fitted.write(self.made)
        values = self.report.finish()
        (self.made / BUILD_REPORT).write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
        return values

    # Nodes and edges.

    def _number_nodes(self) -> None:
        for name, nodes in self.spec.nodes.items():
            numbered = number_nodes(
                name,
                nodes,
                self.tables.nodes[name],
                self.made,
                self.scratch,
                self.entries,
                is_typed=self.is_typed,
                shown=self.shown,
            )
            self.nodes[name] = numbered
            figures = {"rows": numbered.num_rows, "nodes": numbered.num_nodes, "ids": numbered.kind}
            figures |= {"repeated": len(numbered.repeated), "without_time": numbered.num_without_time}
            self.report.add("nodes", name, figures)

    def _read_edges(self) -> WrittenGraph:
        build = self.spec.build
        with ExitStack() as held:
            with self.report.stage("edges"):
                reader = EdgeReader(
                    self.spec,
                    self.nodes,
                    self.tables.edges,
                    self.scratch,
                    memory_bytes=int(build.memory_bytes * _OF_SORTING),
                    num_threads=build.num_threads,
                    shown=self.shown,
                )
                held.callback(reader.close)
                reader.read_all()
            with self.report.stage("sort"):
                graph = write_lists(reader, self.made, self.scratch, self.entries, repeats=build.repeats)
        for name, counts in graph.counts.items():
            figures = {key: value for key, value in vars(counts).items() if key != "first_rows" and value is not None}
            self.report.add("edges", name, figures)
        return graph

    def _describe_nodes(self) -> None:
        """Reports degrees and nodes without edges."""
        indptr = self._mapped("indptr")
        first = 0
        for name, nodes in self.nodes.items():
            begins = indptr[first : first + nodes.num_nodes + 1]
            first += nodes.num_nodes
            found = {"isolated": self.graph.isolated[name], "in_degree": degrees(begins, self._user_ids(name).take)}
            self.report.add("nodes", name, found)
            if nodes.time is not None and self.graph.clock is None:
                self.report.note(
                    f"nodes {name}: time {self.spec.nodes[name].time!r} bounds nothing and is not kept, as no edge "
                    "leads from these nodes or has a time of its own."
                )

    def _user_ids(self, node_type: str) -> UserIds:
        name = ids_name(node_type if self.is_typed else "")
        offsets = self._mapped(f"{name}.offsets") if self.nodes[node_type].kind == "text" else None
        return UserIds(self._mapped(name), offsets=offsets, column=self.nodes[node_type].column)

    def _mapped(self, name: str) -> np.ndarray:
        """Maps an array that was written."""
        entry = self.entries[name]
        if 0 in entry["shape"]:
            return np.empty(entry["shape"], entry["dtype"])
        return mapped_bytes(self.made / entry["file"]).view(entry["dtype"]).reshape(entry["shape"])

    def _edge_type(self, name: str, *, relation: str | None = None) -> EdgeType:
        """Returns the type of a table's edges, or of its reverse edges by their relation."""
        edges = self.spec.edges[name]
        ends = edges.src.node_type, edges.dst.node_type
        return (ends[0], name, ends[1]) if relation in (None, name) else (ends[1], str(relation), ends[0])

    # Tasks.

    def _read_task(self, name: str, task: TaskSpec) -> ReadTask:
        source = self.tables.tasks[name]
        ends = [SeedEnd(self.nodes[end.node_type], end.column, self.tables.casts(end.node_type)) for end in task.ends]
        kept, kinds = None, SeedKinds()
        if self.is_typed:
            of_type = self._link_type(name, task) if task.is_links else None
            kinds = SeedKinds(None if task.is_links else ends[0].nodes.node_type, of_type)
        if task.table is None:
            of_table = self._kept_edges(str(task.edge)) if task.is_links else ends[0].nodes.rows_kept
            kept = of_table(0, source.num_rows)
        known = None if self.known is None else self.known.classes.get(name)
        read = read_task(
            source,
            task,
            ends,
            kinds,
            kept=kept,
            are_edges=task.table is None,
            known=known,
            trains=self.known is None,
            shown=self.shown,
        )
        if read.task.class_names is not None:
            self.fitted.classes[name] = read.task.class_names
        self.report.add("tasks", name, read.report)
        for sentence in read.notes:
            self.report.note(sentence)
        return read

    def _link_type(self, name: str, task: TaskSpec) -> EdgeType:
        """Returns the type of links: that of the named edges, or the only one between such nodes."""
        if task.edge is not None:
            return self._edge_type(task.edge)
        ends = [end.node_type for end in task.ends]
        found = [each for each in map(self._edge_type, self.spec.edges) if [each[0], each[2]] == ends]
        if len(found) != 1:
            raise GraphSpecError(
                f"tasks.{name}: {len(found)} tables of edges lead from {ends[0]} to {ends[1]}. Say whose links these "
                "are: edge: NAME."
            )
        return found[0]

    def _kept_edges(self, name: str) -> Kept:
        return lambda begin, end: self.graph.rows_kept(name, begin, end)

    def _write_tasks(self, tasks: dict[str, ReadTask]) -> None:
        for name, tensor in task_arrays({name: each.task for name, each in tasks.items()}).items():
            file = self.made / array_file(name)
            checksums = write_chunks(file, byte_chunks(tensor))
            self.entries[name] = array_entry(file, tensor.dtype, tensor.shape, checksums)

    # Features.

    def _features(self, section: str, name: str, source: Source, training: dict[str, np.ndarray]) -> list[Feature]:
        """Returns the features of a table: those of earlier transforms, or fitted on the rows of tasks' training
        seeds, by task."""
        spec = getattr(self.spec, section)[name]
        fitted: list[Feature]
        if self.known is not None:
            fitted, on = self.known.of(section, name, spec.x), str(self.known.origin)
        elif not spec.x:
            return []
        else:
            rows = np.unique(np.concatenate(list(training.values()))) if training else None
            fitted = fit(source, spec.x, rows, timezone=spec.timezone, note=self.report.note)
            on = "all rows, as no task trains on them"
            if rows is not None:
                on = f"{len(rows):,} rows, which train {', '.join(training)}"
        getattr(self.fitted, section)[name] = fitted
        if fitted:
            self.report.add(section, name, {"fitted_on": on})
        return fitted

    def _node_features(self, name: str, tasks: dict[str, ReadTask]) -> list[str]:
        """Writes the features of a node type, and returns the names of its tables."""
        nodes, source = self.nodes[name], self.tables.nodes[name]
        training = {
            key: each.train[name] for key, each in tasks.items() if self.spec.tasks[key].fit and name in each.train
        }
        if len(nodes.repeated):  # nodes are not rows of the table then
            kept = nodes.rows_kept(0, nodes.num_rows)
            assert kept is not None
            training = {key: np.flatnonzero(kept)[each] for key, each in training.items()}
        features = self._features("nodes", name, source, training)

        def array_of(table: str) -> tuple[str, str]:
            if not self.is_typed:
                return table, X if table == X else table_name(table)
            named = table_of_type(table, name)
            return named, table_name(named)

        return self._write_features("nodes", name, source, features, nodes.rows_kept, array_of)

    def _edge_features(self, name: str, tasks: dict[str, ReadTask]) -> list[str]:
        """Writes the features of a table of edges, and returns the names of their tables. Reverse edges have the same
        files."""
        training = {
            key: each.rows
            for key, each in tasks.items()
            if self.spec.tasks[key].fit and self.spec.tasks[key].edge == name and self.spec.tasks[key].table is None
        }
        source = self.tables.edges[name]
        features = self._features("edges", name, source, training)

        def array_of(table: str) -> tuple[str, str]:
            if not self.is_typed:
                return table, "edge_x" if table == X else EDGE_PREFIX + table
            named = table_of_type(table, self._edge_type(name))
            return named, EDGE_PREFIX + named

        tables = self._write_features("edges", name, source, features, self._kept_edges(name), array_of)
        for relation in self.spec.edges[name].relations(name)[1:]:
            for table in list(tables):
                of_reverse = table_of_type(table.partition(".")[0], self._edge_type(name, relation=relation))
                self.entries[EDGE_PREFIX + of_reverse] = self.entries[EDGE_PREFIX + table]
                tables.append(of_reverse)
        return tables

    def _write_features(
        self,
        section: str,
        name: str,
        source: Source,
        features: Sequence[Feature],
        kept: Kept,
        array_of: Callable[[str], tuple[str, str]],
    ) -> list[str]:
        seen, tables = Seen(), []
        width = sum(each.num_columns for each in features)
        num_codes = sum(each.kind == "category" for each in features)
        for table, dtype, columns, rows_of in (
            (X, np.float32, width, x_rows),
            (CODES, np.int32, num_codes, code_rows),
        ):
            if not columns:
                continue
            named, array = array_of(table)
            tables.append(named)
            with (
                ArrayWriter(self.made, array, dtype, (columns,)) as writer,
                progress(f"Writing {named}", source.num_rows, show=self.shown) as advance,
            ):
                begin = 0
                for rows in rows_of(source, features, seen):
                    mask = kept(begin, begin + len(rows))
                    begin += len(rows)
                    writer.append(rows if mask is None else rows[mask])
                    advance(len(rows))
                self.entries[array] = writer.entry()
        if features:
            figures = {
                each.column: {"as": each.kind, "missing": seen.missing.get(each.column, 0)}
                | (
                    {"values": len(each.values), "unknown": seen.unknown.get(each.column, 0)}
                    if each.kind == "category"
                    else {}
                )
                for each in features
            }
            x_columns = [column for each in features for column in each.names]
            self.report.add(
                section, name, {"x_width": width, "x_columns": x_columns, "num_codes": num_codes, "features": figures}
            )
        return tables

    # The manifest.

    def _write_manifest(
        self,
        tasks: dict[str, ReadTask],
        tables: dict[str, list[str]],
        edge_tables: list[str],
        attributes: Mapping[str, Any],
    ) -> None:
        types, clock = self.graph.types, self.graph.clock
        of_nodes: dict[str, int | None] = {}
        for node_type, names in tables.items():
            first = None if types is None else types.range_of(node_type).start
            of_nodes |= {name: first for name in names if name != X}
        own = [name for name in edge_tables if name.partition(".")[0] != X]
        write_manifest(
            self.made,
            self.entries,
            num_nodes=self.graph.num_nodes,
            attributes={"built_from": "tables", **attributes},
            tables=of_nodes,
            edge_tables=own or None,
            types=None if types is None else types.to_json(),
            clock=None if clock is None else clock.to_json(),
            user_ids={
                name if self.is_typed else "": {"kind": each.kind, "column": each.column}
                for name, each in self.nodes.items()
            },
            tasks=described_tasks({name: each.task for name, each in tasks.items()}),
        )
