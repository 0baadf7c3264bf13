"""OpenTables: all tables of a graph.yaml, open_section, and checked by their columns before any row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gnnload.ingest.features import unfitted_features
from lightning_gnnload.ingest.source import IdType, Source
from lightning_gnnload.ingest.spec import End, GraphSpec, TimedSpec
from lightning_gnnload.ingest.sql import is_query, matching_files

if TYPE_CHECKING:
    import duckdb


class OpenTables:
    """Opens the tables of a graph, and checks their columns against graph.yaml; with ``peek`` queries are not run."""

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: GraphSpec, home: Path, *, peek: bool = False) -> None:
        self.spec = spec

        def open_section(section: str, specs: Mapping[str, Any], keys: Any) -> dict[str, Source]:
            return {
                name: Source(con, table.table, f"{section}.{name}", home, keys(table), peek=peek)
                for name, table in specs.items()
                if table.table is not None
            }

        self.nodes = open_section("nodes", spec.nodes, lambda nodes: [nodes.id])
        self.edges = open_section("edges", spec.edges, lambda edges: [edges.src.column, edges.dst.column])
        # A task without a table of its own has that of its nodes or edges.
        self.tasks = open_section("tasks", spec.tasks, lambda task: [key.column for key in task.ends])
        for name, task in spec.tasks.items():
            if task.table is None:
                owner = self.nodes[task.seed.node_type] if task.seed else self.edges[str(task.edge)]
                self.tasks[name] = owner.at(f"tasks.{name}")
        # All descriptions are checked before any row is read: a wrong column of the last table is no news after hours.
        self._check()

    def id_type_of(self, node_type: str) -> IdType:
        nodes = self.spec.nodes[node_type]
        id_type: Any = nodes.id_type if self.casts(node_type) else None
        return self.nodes[node_type].key(nodes.id, id_type, cast=id_type is not None).id_type

    def casts(self, node_type: str) -> bool:
        """Whether keys of another type than the ids are converted."""
        return self.spec.nodes[node_type].id_type != "auto"

    def _check(self) -> None:
        for name, nodes in self.spec.nodes.items():
            self.id_type_of(name)
            self._check_columns(self.nodes[name], nodes, nodes.x)
        for name, edges in self.spec.edges.items():
            self._check_keys(self.edges[name], (edges.src, edges.dst))
            self._check_columns(self.edges[name], edges, edges.x)
            if edges.weight is not None:
                self.edges[name].check_column(edges.weight)
        for name, task in self.spec.tasks.items():
            source = self.tasks[name]
            self._check_keys(source, task.ends)
            self._check_columns(source, task, ())
            split = [] if task.split is None or task.split.column is None else [task.split.column]
            for column in (*(task.y or ()), *split):
                source.check_column(column)

    def _check_keys(self, source: Source, keys: tuple[End, ...]) -> None:
        for key in keys:
            source.key(key.column, self.id_type_of(key.node_type), cast=self.casts(key.node_type))

    def _check_columns(self, source: Source, spec: TimedSpec, columns: Any) -> None:
        if spec.time is not None:
            source.time(spec.time, spec.time_unit, spec.timezone)
        unfitted_features(source, columns, timezone=spec.timezone)


def named_files(spec: GraphSpec, home: Path) -> Iterator[str]:
    """Yields the files that tables are read from by their names; what an SQL query reads is not known."""
    for section in (spec.nodes, spec.edges, spec.tasks):
        for table in (entry.table for entry in section.values()):
            if isinstance(table, str | Path | list | tuple) and not is_query(table):
                paths = [table] if isinstance(table, str | Path) else table
                yield from (file for path in paths for file in matching_files(str(path), home))
