"""OpenTables: all tables of a graph.yaml, opened, and checked by their columns before any row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gnnload.ingest.features import check_columns
from lightning_gnnload.ingest.source import Kind, Source
from lightning_gnnload.ingest.spec import End, GraphSpec, TimedSpec
from lightning_gnnload.ingest.sql import is_query, matching_files

if TYPE_CHECKING:
    import duckdb


class OpenTables:
    """Opens the tables of a graph.

    Args:
        con: of :func:`.connect`.
        spec: of the graph.
        home: the folder that paths count from.
        peek: look at columns alone: queries are not run.

    Attributes:
        nodes: by node type.
        edges: by name.
        tasks: by name; those without a table of their own have that of their nodes or edges.

    Raises:
        TableError: a table that cannot be read, a column that is not there, or that cannot be what graph.yaml says.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: GraphSpec, home: Path, *, peek: bool = False) -> None:
        self.spec = spec

        def opened(section: str, specs: Mapping[str, Any], keys: Any) -> dict[str, Source]:
            return {
                name: Source(con, each.table, f"{section}.{name}", home, keys(each), peek=peek)
                for name, each in specs.items()
                if each.table is not None
            }

        self.nodes = opened("nodes", spec.nodes, lambda each: [each.id])
        self.edges = opened("edges", spec.edges, lambda each: [each.src.column, each.dst.column])
        self.tasks = opened("tasks", spec.tasks, lambda each: [end.column for end in each.ends])
        for name, task in spec.tasks.items():
            if task.table is None:
                owner = self.nodes[task.seed.node_type] if task.seed else self.edges[str(task.edge)]
                self.tasks[name] = owner.at(f"tasks.{name}")
        self._check()

    def kind_of(self, node_type: str) -> Kind:
        """Returns what the ids of a node type are."""
        nodes = self.spec.nodes[node_type]
        wanted: Any = None if nodes.id_type == "auto" else nodes.id_type
        return self.nodes[node_type].key(nodes.id, wanted, cast=wanted is not None).kind

    def casts(self, node_type: str) -> bool:
        """Whether keys of another kind than the ids are converted."""
        return self.spec.nodes[node_type].id_type != "auto"

    def _check(self) -> None:
        for name, nodes in self.spec.nodes.items():
            self.kind_of(name)
            self._check_columns(self.nodes[name], nodes, nodes.x)
        for name, edges in self.spec.edges.items():
            self._check_keys(self.edges[name], (edges.src, edges.dst))
            self._check_columns(self.edges[name], edges, edges.x)
            if edges.weight is not None:
                self.edges[name].named(edges.weight)
        for name, task in self.spec.tasks.items():
            source = self.tasks[name]
            self._check_keys(source, task.ends)
            self._check_columns(source, task, ())
            for column in (task.y, task.split.column):
                if column is not None:
                    source.named(column)

    def _check_keys(self, source: Source, ends: tuple[End, ...]) -> None:
        for end in ends:
            source.key(end.column, self.kind_of(end.node_type), cast=self.casts(end.node_type))

    def _check_columns(self, source: Source, spec: TimedSpec, columns: Any) -> None:
        if spec.time is not None:
            source.time(spec.time, spec.time_unit, spec.timezone)
        check_columns(source, columns, timezone=spec.timezone)


def named_files(spec: GraphSpec, home: Path) -> Iterator[str]:
    """Yields the files that tables are read from by their names; what an SQL query reads is not known."""
    for section in (spec.nodes, spec.edges, spec.tasks):
        for each in section.values():
            if isinstance(each.table, str | Path | list | tuple) and not is_query(each.table):
                paths = [each.table] if isinstance(each.table, str | Path) else each.table
                yield from (file for path in paths for file in matching_files(str(path), home))
