"""A graph folder, built from the tables that graph.yaml names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.by_type import table_of_type
from lightning_gnnload.data.tables import EDGE_PREFIX
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.host.machines import ENGINES, Machines
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.edges import EdgeReader, graph_types
from lightning_gnnload.ingest.features import Feature, MissingCounts, fit, unfitted_features
from lightning_gnnload.ingest.ids import NumberedNodes, write_node_ids
from lightning_gnnload.ingest.lists import WrittenGraph, write_lists
from lightning_gnnload.ingest.open_tables import OpenTables, named_files
from lightning_gnnload.ingest.report import Report, degree_figures
from lightning_gnnload.ingest.seeds import describe_seeds
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import GraphSpec, TaskSpec
from lightning_gnnload.ingest.spread.machine import DUCKDB_SHARE, ROWS_OF, SORTING_SHARE
from lightning_gnnload.ingest.spread.passes import MachinePasses, SpreadListWriter
from lightning_gnnload.ingest.spread.stretches import has_stretches
from lightning_gnnload.ingest.sql import EVERYWHERE, open_database
from lightning_gnnload.ingest.tasks import ReadTask, SeedEnd, SeedTypes, read_task
from lightning_gnnload.ingest.transforms import Transforms
from lightning_gnnload.ingest.vocabularies import SharedColumn, fit_vocabulary
from lightning_gnnload.settings import check_one_of
from lightning_gnnload.storage.folders import (
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
from lightning_gnnload.storage.graphs import ids_name
from lightning_gnnload.storage.seeds import described_tasks, task_arrays
from lightning_gnnload.storage.tables import table_name
from lightning_gnnload.storage.targets import BUILD_REPORT

# The tables of numbers and of categories of a node or edge type.
X, CODES = "x", "codes"
_PURPOSE = "gnnload build --engine ray"
# Which rows of a table, from begin to end, are in the graph: bool [end - begin], or None for all.
RowMask = Callable[[int, int], np.ndarray | None]


def build_graph_folder(
    spec: GraphSpec,
    folder: Path,
    *,
    home: Path = Path(),
    reads: Sequence[Path] = EVERYWHERE,
    overwrite: bool = False,
    transforms: Path | None = None,
    attributes: Mapping[str, Any] | None = None,
    keep: bool = True,
    show_progress: bool = True,
    engine: str = "local",
) -> dict[str, Any]:
    """Builds the graph folder of tables, atomically: a build that fails, or is killed, leaves none.

    Paths of tables count from ``home``; SQL may read what lies below it and below ``reads``. ``transforms`` is a folder
    that was built before, whose features and classes are applied. With ``keep=False`` all is built beside ``folder``
    and removed, to see whether it could be. With the ``engine`` ``"ray"``, the machines of a Ray cluster read tables of
    edges, sort edges and write features; the folder is the same, byte for byte, but for the report. Returns the report,
    which is in ``report.json``, too. Raises GraphSpecError and TableError where ``spec`` and the tables do not fit,
    StoreFormatError where ``folder`` cannot be written or replaced, LaunchError and MissingExtraError as
    :class:`.Machines` does.
    """
    check_one_of("engine", engine, ENGINES, GraphSpecError)
    with (
        new_folder(folder, "graph", overwrite=overwrite, alone=True, keep=keep) as draft,
        _scratch(spec, draft, home, folder) as scratch,
        ExitStack() as stack,
    ):
        machines = None
        if engine == "ray":  # first, as it may fail
            machines = stack.enter_context(Machines(_PURPOSE, [draft, scratch], num_threads=spec.build.threads))
        con = open_database(
            spec.build, scratch / "duckdb", home, files=[*named_files(spec, home)], reads=reads, share=DUCKDB_SHARE
        )
        try:
            tables = OpenTables(con, spec, home)
            fitted = _read_transforms(tables, home, transforms)
            return _GraphBuilder(tables, draft, scratch, fitted, machines, show_progress).run(attributes or {})
        finally:
            con.close()


def peek_tables(
    spec: GraphSpec, *, home: Path = Path(), reads: Sequence[Path] = EVERYWHERE, transforms: Path | None = None
) -> OpenTables:
    """Opens the tables and checks what their columns tell, as :func:`build_graph_folder` does before it reads rows."""
    con = open_database(spec.build, home, home, files=[*named_files(spec, home)], reads=reads)
    # The connection stays open: who looks at the tables asks it for their types.
    tables = OpenTables(con, spec, home, peek=True)
    _read_transforms(tables, home, transforms)
    return tables


def _read_transforms(tables: OpenTables, home: Path, path: Path | None) -> Transforms | None:
    """Reads the transforms to apply, if any; refuses tables whose columns are not those that they were fitted on."""
    if path is None and tables.spec.build.transforms is not None:
        path = home / tables.spec.build.transforms
    if path is None:
        return None
    transforms = Transforms.read(path)
    for section, sources in (("nodes", tables.nodes), ("edges", tables.edges)):
        for name, source in sources.items():
            spec = getattr(tables.spec, section)[name]
            columns = unfitted_features(source, spec.x, timezone=spec.timezone)
            for old, new in zip(transforms.of(section, name, spec.x), columns, strict=True):
                if (old.encoder, old.vocabulary) != (new.encoder, new.vocabulary):
                    raise TableError(
                        f"{source.where}.x: column {new.column!r} has text: {new.encoder} and vocabulary: "
                        f"{new.vocabulary}, but was fitted with {old.encoder} and {old.vocabulary}. Say the same."
                    )
                if old.kind != new.kind:
                    raise TableError(
                        f"{source.where}.x: column {new.column!r} is {source.types[new.column]}, to be read as "
                        f"{new.kind}, but it was fitted as {old.kind}. Say as: {old.kind}, or cast it in SQL."
                    )
    return transforms


@contextmanager
def _scratch(spec: GraphSpec, draft: Path, home: Path, folder: Path) -> Iterator[Path]:
    """Yields a folder that is removed in the end: beside the draft, or where graph.yaml says. What builds of the same
    name that were killed have left there is removed first."""
    if spec.build.scratch is None:
        scratch = draft.parent / "scratch"
        scratch.mkdir(mode=0o700)
        yield scratch
        return
    parent = home / spec.build.scratch
    if not parent.is_dir():
        raise GraphSpecError(f"build.scratch: there is no folder {parent}. Make it, or leave scratch out.")
    clear_leftovers(parent / folder.name)
    with staging_folder(parent / folder.name) as scratch:
        yield scratch


class _GraphBuilder:
    """Builds a graph in stages (ids, edges, tasks, features), each of which adds arrays to the folder and figures to
    the report."""

    def __init__(
        self,
        tables: OpenTables,
        folder: Path,
        scratch: Path,
        transforms: Transforms | None,
        machines: Machines | None,
        show_progress: bool,
    ) -> None:
        self.tables, self.spec, self.folder, self.scratch = tables, tables.spec, folder, scratch
        self.transforms, self.fitted, self.show_progress = transforms, Transforms(), show_progress
        self.machines = machines
        self.passes: MachinePasses | None = None  # of machines
        self.report = Report()
        self.entries: dict[str, Any] = {}
        self.vocabularies: dict[str, list[str | None]] = {}
        self.nodes: dict[str, NumberedNodes] = {}
        # By names alone: the numbers of nodes are known once their tables have been read.
        self.is_typed = graph_types(self.spec, dict.fromkeys(self.spec.nodes, 0)) is not None

    def run(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        with self.report.stage("ids"):
            self._number_nodes()
        self.graph = self._read_edges()
        # Tasks come before features, as these are fitted on the rows that train alone: no value of a validation or test
        # row leaks into what a model sees.
        with self.report.stage("tasks"):
            tasks = {name: self._read_task(name, task) for name, task in self.spec.tasks.items()}
        with self.report.stage("features"):
            self._fit_features(tasks)
            tables = {name: self._node_features(name) for name in self.spec.nodes}
            edge_tables = [table for name in self.spec.edges for table in self._edge_features(name)]
        with self.report.stage("finish"):
            self._describe_nodes()
            for name, read in tasks.items():
                describe_seeds(self.report, name, self.spec.tasks[name], read, self.graph, self.nodes, self._map_array)
            self._write_tasks(tasks)
        self._write_manifest(tasks, tables, edge_tables, attributes)
        self.fitted.write(self.folder)
        values = self.report.finish()
        (self.folder / BUILD_REPORT).write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
        return values

    # Nodes and edges.

    def _number_nodes(self) -> None:
        for name, nodes in self.spec.nodes.items():
            numbered = write_node_ids(
                name,
                nodes,
                self.tables.nodes[name],
                self.folder,
                self.scratch,
                self.entries,
                is_typed=self.is_typed,
                show_progress=self.show_progress,
            )
            self.nodes[name] = numbered
            figures = {"rows": numbered.num_rows, "nodes": numbered.num_nodes, "ids": numbered.id_type}
            figures |= {"repeated": len(numbered.repeated), "without_time": numbered.num_without_time}
            self.report.add("nodes", name, figures)

    def _read_edges(self) -> WrittenGraph:
        build = self.spec.build
        with ExitStack() as stack:
            with self.report.stage("edges"):
                reader = EdgeReader(
                    self.spec,
                    self.nodes,
                    self.tables.edges,
                    self.scratch,
                    memory_bytes=int(build.memory_bytes * SORTING_SHARE),
                    num_threads=build.num_threads,
                    show_progress=self.show_progress,
                )
                stack.callback(reader.close)
                if self.machines is None:
                    reader.read_all()
                else:
                    self.passes = MachinePasses(
                        self.machines, self.tables, reader, self.folder, self.scratch, show_progress=self.show_progress
                    )
                    segments = self.passes.read_edges()
            with self.report.stage("sort"):
                if self.passes is None:
                    graph = write_lists(reader, self.folder, self.scratch, self.entries, repeats=build.repeats)
                else:
                    graph = SpreadListWriter(self.passes, segments, self.entries).write(build.repeats)
        for name, counts in graph.counts.items():
            left_out = ("first_rows", "bad_weights")  # of which there are none by now
            figures = {key: value for key, value in vars(counts).items() if key not in left_out and value is not None}
            self.report.add("edges", name, figures)
        return graph

    def _describe_nodes(self) -> None:
        """Reports degrees and nodes without edges."""
        indptr = self._map_array("indptr")
        first = 0
        for name, nodes in self.nodes.items():
            begins = indptr[first : first + nodes.num_nodes + 1]
            first += nodes.num_nodes
            in_degree = degree_figures(begins, self._user_ids(name).take)
            figures = {"isolated": self.graph.isolated[name], "in_degree": in_degree}
            self.report.add("nodes", name, figures)
            if nodes.time is not None and self.graph.clock is None:
                self.report.note(
                    f"nodes {name}: time {self.spec.nodes[name].time!r} bounds nothing and is not kept, as no edge "
                    "leads from these nodes or has a time of its own."
                )

    def _user_ids(self, node_type: str) -> UserIds:
        name = ids_name(node_type if self.is_typed else "")
        offsets = self._map_array(f"{name}.offsets") if self.nodes[node_type].id_type == "text" else None
        return UserIds(self._map_array(name), offsets=offsets, column=self.nodes[node_type].column)

    def _map_array(self, name: str) -> np.ndarray:
        entry = self.entries[name]
        if 0 in entry["shape"]:
            return np.empty(entry["shape"], entry["dtype"])
        return mapped_bytes(self.folder / entry["file"]).view(entry["dtype"]).reshape(entry["shape"])

    def _edge_type(self, name: str, *, relation: str | None = None) -> EdgeType:
        """Returns the type of a table's edges, or of its reverse edges by their relation."""
        edges = self.spec.edges[name]
        src, dst = edges.src.node_type, edges.dst.node_type
        return (src, name, dst) if relation in (None, name) else (dst, str(relation), src)

    # Tasks.

    def _read_task(self, name: str, task: TaskSpec) -> ReadTask:
        source = self.tables.tasks[name]
        endpoints = [SeedEnd(self.nodes[e.node_type], e.column, self.tables.casts(e.node_type)) for e in task.ends]
        in_graph, seed_types = None, SeedTypes()
        if self.is_typed:
            edge_type = self._link_type(name, task) if task.is_links else None
            seed_types = SeedTypes(None if task.is_links else endpoints[0].nodes.node_type, edge_type)
        if task.table is None:
            row_mask = self._edge_mask(str(task.edge)) if task.is_links else endpoints[0].nodes.in_graph
            in_graph = row_mask(0, source.num_rows)
        read = read_task(
            source,
            task,
            endpoints,
            seed_types,
            in_graph=in_graph,
            are_edges=task.table is None,
            class_names=None if self.transforms is None else self.transforms.classes.get(name),
            label_names=None if self.transforms is None else self.transforms.labels.get(name),
            trains=self.transforms is None,
            show_progress=self.show_progress,
        )
        if read.task.class_names is not None:
            self.fitted.classes[name] = read.task.class_names
        if read.task.label_names is not None:
            self.fitted.labels[name] = read.task.label_names
        self.report.add("tasks", name, read.report)
        for sentence in read.notes:
            self.report.note(sentence)
        return read

    def _link_type(self, name: str, task: TaskSpec) -> EdgeType:
        """Returns the type of links: that of the named edges, or the only one between such nodes."""
        if task.edge is not None:
            return self._edge_type(task.edge)
        node_types = [end.node_type for end in task.ends]
        matches = [t for t in map(self._edge_type, self.spec.edges) if [t[0], t[2]] == node_types]
        if len(matches) != 1:
            raise GraphSpecError(
                f"tasks.{name}: {len(matches)} tables of edges lead from {' to '.join(node_types)}. Say whose links "
                "these are: edge: NAME."
            )
        return matches[0]

    def _edge_mask(self, name: str) -> RowMask:
        return lambda begin, end: self.graph.in_graph(name, begin, end)

    def _write_tasks(self, tasks: dict[str, ReadTask]) -> None:
        for name, tensor in task_arrays({name: read.task for name, read in tasks.items()}).items():
            file = self.folder / array_file(name)
            checksums = write_chunks(file, byte_chunks(tensor))
            self.entries[name] = array_entry(file, tensor.dtype, tensor.shape, checksums)

    # Features.

    def _fit_features(self, tasks: dict[str, ReadTask]) -> None:
        """Fits the features of all tables on the rows that train, or takes those of earlier transforms."""
        shared: dict[str, list[tuple[SharedColumn, list[Feature], int]]] = {}
        for section, sources in (("nodes", self.tables.nodes), ("edges", self.tables.edges)):
            for name, source in sources.items():
                training = self._node_training(name, tasks) if section == "nodes" else self._edge_training(name, tasks)
                rows = np.unique(np.concatenate(list(training.values()))) if training else None
                features = self._features(section, name, source, rows, list(training))
                for k, spec in enumerate(getattr(self.spec, section)[name].x):
                    if spec.vocabulary is not None and self.transforms is None:
                        entry = SharedColumn(source, rows, spec), features, k
                        shared.setdefault(spec.vocabulary, []).append(entry)
        for columns in shared.values():
            values = fit_vocabulary([column for column, _, _ in columns])
            for _, features, k in columns:
                features[k] = replace(features[k], values=values)

    def _features(
        self, section: str, name: str, source: Source, rows: np.ndarray | None, tasks: Sequence[str]
    ) -> list[Feature]:
        """Returns the features of a table: those of earlier transforms, or fitted on the rows that train tasks."""
        spec = getattr(self.spec, section)[name]
        fitted: list[Feature]
        if self.transforms is not None:
            fitted, on = self.transforms.of(section, name, spec.x), str(self.transforms.origin)
        else:
            fitted = fit(source, spec.x, rows, timezone=spec.timezone, note=self.report.note)
            on = "all rows, as no task trains on them"
            if rows is not None:
                on = f"{len(rows):,} rows, which train {', '.join(tasks)}"
        getattr(self.fitted, section)[name] = fitted
        if fitted:
            self.report.add(section, name, {"fitted_on": on})
        return fitted

    def _node_training(self, name: str, tasks: dict[str, ReadTask]) -> dict[str, np.ndarray]:
        """Returns the rows of a table of nodes that train, by task."""
        nodes = self.nodes[name]
        training = {
            key: read.train[name] for key, read in tasks.items() if self.spec.tasks[key].fit and name in read.train
        }
        if len(nodes.repeated):  # nodes are not rows of the table then
            is_node = nodes.in_graph(0, nodes.num_rows)
            assert is_node is not None
            training = {key: np.flatnonzero(is_node)[rows] for key, rows in training.items()}
        return training

    def _edge_training(self, name: str, tasks: dict[str, ReadTask]) -> dict[str, np.ndarray]:
        """Likewise, of a table of edges, whose rows are those of tasks that ask about them."""
        return {
            key: read.rows
            for key, read in tasks.items()
            if self.spec.tasks[key].fit
            and self.spec.tasks[key].split is not None
            and self.spec.tasks[key].edge == name
            and self.spec.tasks[key].table is None
        }

    def _node_features(self, name: str) -> list[str]:
        """Writes the features of a node type, and returns the names of its tables."""
        nodes, source = self.nodes[name], self.tables.nodes[name]
        features = self.fitted.nodes[name]

        def array_of(table: str) -> tuple[str, str]:
            if not self.is_typed:
                return table, X if table == X else table_name(table)
            named = table_of_type(table, name)
            return named, table_name(named)

        return self._write_features("nodes", name, source, features, nodes.in_graph, array_of)

    def _edge_features(self, name: str) -> list[str]:
        """Writes the features of a table of edges, and returns the names of their tables; reverse edges share the
        files."""
        source, features = self.tables.edges[name], self.fitted.edges[name]

        def array_of(table: str) -> tuple[str, str]:
            if not self.is_typed:
                return table, "edge_x" if table == X else EDGE_PREFIX + table
            named = table_of_type(table, self._edge_type(name))
            return named, EDGE_PREFIX + named

        tables = self._write_features("edges", name, source, features, self._edge_mask(name), array_of)
        for relation in self.spec.edges[name].relations(name)[1:]:
            for table in list(tables):
                reverse_table = table_of_type(table.partition(".")[0], self._edge_type(name, relation=relation))
                # The same file under a second name: edge_order leads a reverse edge to its original's row.
                self.entries[EDGE_PREFIX + reverse_table] = self.entries[EDGE_PREFIX + table]
                tables.append(reverse_table)
                if (names := self.vocabularies.get(EDGE_PREFIX + table)) is not None:
                    self.vocabularies[EDGE_PREFIX + reverse_table] = names
        return tables

    def _write_features(
        self,
        section: str,
        name: str,
        source: Source,
        features: Sequence[Feature],
        row_mask: RowMask,
        array_of: Callable[[str], tuple[str, str]],
    ) -> list[str]:
        """Writes ``x`` and codes, and returns the names of these tables; ``array_of`` names a table and its array."""
        missing, tables = MissingCounts(), []
        width = sum(feature.num_columns for feature in features)
        num_codes = sum(feature.kind == "category" for feature in features)
        for table, dtype, num_columns in ((X, np.float32, width), (CODES, np.int32, num_codes)):
            if not num_columns:
                continue
            named, array = array_of(table)
            tables.append(named)
            if self.passes is not None and has_stretches(source):
                self.entries[array] = self.passes.write_rows(
                    source, table, features, missing, row_mask, array, dtype, num_columns
                )
                continue
            with (
                ArrayWriter(self.folder, array, dtype, (num_columns,)) as writer,
                progress(f"Writing {named}", source.num_rows, show=self.show_progress) as advance,
            ):
                begin = 0
                for rows in ROWS_OF[table](source, features, missing):
                    mask = row_mask(begin, begin + len(rows))
                    begin += len(rows)
                    writer.append(rows if mask is None else rows[mask])
                    advance(len(rows))
                self.entries[array] = writer.entry()
        if features:
            self._report_features(section, name, features, missing)
        if num_codes and any(feature.vocabulary for feature in features):
            names = [feature.vocabulary for feature in features if feature.kind == "category"]
            self.vocabularies[array_of(CODES)[0] if section == "nodes" else EDGE_PREFIX + array_of(CODES)[0]] = names
        return tables

    def _report_features(self, section: str, name: str, features: Sequence[Feature], missing: MissingCounts) -> None:
        x_columns = [column for feature in features for column in feature.names]
        figures = {feature.column: missing.figures(feature) for feature in features}
        num_codes = sum(feature.kind == "category" for feature in features)
        self.report.add(
            section,
            name,
            {"x_width": len(x_columns), "x_columns": x_columns, "num_codes": num_codes, "features": figures},
        )

    # The manifest.

    def _write_manifest(
        self,
        tasks: dict[str, ReadTask],
        tables: dict[str, list[str]],
        edge_tables: list[str],
        attributes: Mapping[str, Any],
    ) -> None:
        types, clock = self.graph.types, self.graph.clock
        first_rows: dict[str, int | None] = {}
        for node_type, names in tables.items():
            # Nodes lie by type, so that the rows of a type's tables begin at its first node.
            first = None if types is None else types.range_of(node_type).start
            first_rows |= {name: first for name in names if name != X}
        code_tables = [name for name in edge_tables if name.partition(".")[0] != X]
        write_manifest(
            self.folder,
            self.entries,
            num_nodes=self.graph.num_nodes,
            attributes={"built_from": "tables", **attributes},
            tables=first_rows,
            edge_tables=code_tables or None,
            vocabularies=self.vocabularies,
            types=None if types is None else types.to_json(),
            clock=None if clock is None else clock.to_json(),
            user_ids={
                name if self.is_typed else "": {"kind": nodes.id_type, "column": nodes.column}
                for name, nodes in self.nodes.items()
            },
            tasks=described_tasks({name: read.task for name, read in tasks.items()}),
        )
