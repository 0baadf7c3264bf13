"""OpenTables: all tables of a graph.yaml, open_section, and checked by their columns before any row is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lightning_gnnload.errors import GnnLoadError, GraphSpecError, TableError
from lightning_gnnload.ingest.features import unfitted_features
from lightning_gnnload.ingest.source import IdType, Source
from lightning_gnnload.ingest.spec import End, GraphSpec, TimedSpec
from lightning_gnnload.ingest.sql import is_query, matching_files

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")


class OpenTables:
    """Opens the tables of a graph, and checks their columns against graph.yaml; with ``peek`` queries are not run.
    Raises TableError for all that does not fit, a line for each."""

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: GraphSpec, home: Path, *, peek: bool = False) -> None:
        self.spec, self.home = spec, home
        self._faults: list[GnnLoadError] = []

        def open_section(section: str, specs: Mapping[str, Any], keys: Any) -> dict[str, Source]:
            opened = {
                name: self._take(
                    partial(Source, con, table.table, f"{section}.{name}", home, keys(table), peek=peek),
                )
                for name, table in specs.items()
                if table.table is not None
            }
            return {name: source for name, source in opened.items() if source is not None}

        self.nodes = open_section("nodes", spec.nodes, lambda nodes: [nodes.id])
        self.edges = open_section("edges", spec.edges, lambda edges: [edges.src.column, edges.dst.column])
        # A task without a table of its own has that of its nodes or edges.
        self.tasks = open_section("tasks", spec.tasks, lambda task: [key.column for key in task.ends])
        for name, task in spec.tasks.items():
            if task.table is None:
                owner = self.nodes.get(task.seed.node_type) if task.seed else self.edges.get(str(task.edge))
                if owner is not None:
                    self.tasks[name] = owner.at(f"tasks.{name}")
        # All descriptions are checked before any row is read: a wrong column of the last table is no news after hours.
        self._check()
        if len(self._faults) > 1:
            raise TableError("\n".join(dict.fromkeys(map(str, self._faults)))) from self._faults[0]
        for fault in self._faults:
            raise fault

    def _take(self, call: Callable[[], T]) -> T | None:
        """Returns what a call returns; None where it raises one of our errors, which are gathered."""
        try:
            return call()
        except (TableError, GraphSpecError) as error:
            self._faults.append(error)
            return None

    def id_type_of(self, node_type: str) -> IdType:
        nodes = self.spec.nodes[node_type]
        id_type: Any = nodes.id_type if self.casts(node_type) else None
        return self.nodes[node_type].key(nodes.id, id_type, cast=id_type is not None).id_type

    def casts(self, node_type: str) -> bool:
        """Whether keys of another type than the ids are converted."""
        return self.spec.nodes[node_type].id_type != "auto"

    def _check(self) -> None:
        for name, nodes in self.spec.nodes.items():
            if (source := self.nodes.get(name)) is not None:
                self._take(partial(self.id_type_of, name))
                self._check_columns(source, nodes, nodes.x)
        for name, edges in self.spec.edges.items():
            if (source := self.edges.get(name)) is not None:
                self._check_keys(source, (edges.src, edges.dst))
                self._check_columns(source, edges, edges.x, edges.weight)
        for name, task in self.spec.tasks.items():
            if (source := self.tasks.get(name)) is not None:
                self._check_keys(source, task.ends)
                split = None if task.split is None else task.split.column
                self._check_columns(source, task, (), *(task.y or ()), split)

    def _check_keys(self, source: Source, keys: tuple[End, ...]) -> None:
        for key in keys:
            id_type: IdType | None = None
            with suppress(TableError):  # which is gathered already
                id_type = self.id_type_of(key.node_type) if key.node_type in self.nodes else None
            self._take(partial(source.key, key.column, id_type, cast=self.casts(key.node_type)))

    def _check_columns(self, source: Source, spec: TimedSpec, columns: Any, *names: str | None) -> None:
        if spec.time is not None:
            self._take(partial(source.time, spec.time, spec.time_unit, spec.timezone))
        for column in columns:
            self._take(partial(unfitted_features, source, [column], timezone=spec.timezone))
        for name in names:
            if name is not None:
                self._take(partial(source.check_column, name))


def named_files(spec: GraphSpec, home: Path) -> Iterator[str]:
    """Yields the files that tables are read from by their names; what an SQL query reads is not known."""
    for section in (spec.nodes, spec.edges, spec.tasks):
        for table in (entry.table for entry in section.values()):
            if isinstance(table, str | Path | list | tuple) and not is_query(table):
                paths = [table] if isinstance(table, str | Path) else table
                yield from (file for path in paths for file in matching_files(str(path), home))
