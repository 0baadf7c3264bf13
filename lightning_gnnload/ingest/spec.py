"""graph.yaml: which tables hold the nodes, the edges and the labels of a graph, read as checked dataclasses."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from lightning_gnnload.datasets.description import load_yaml
from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.ingest.settings import (
    ByName,
    Faults,
    SettingCheck,
    a_count,
    a_flag,
    a_moment,
    a_name,
    a_reverse,
    a_seed,
    a_table,
    a_text,
    an_amount,
    did_you_mean,
    fault_lines,
    fits,
    one_of,
    or_none,
    read_settings,
    section,
    setting,
    some_threads,
    spec_error,
    three_shares,
    wrong,
)
from lightning_gnnload.settings import amount_of

S = TypeVar("S")


@dataclass(frozen=True)
class End:
    """One end of edges or seeds: ``TYPE.COLUMN``, a node type and the column that holds its ids."""

    node_type: str
    column: str

    def __str__(self) -> str:
        return f"{self.node_type}.{self.column}"


@fits({"type": "string", "pattern": r"^[^.]+\..+"})
def _end(value: Any, where: str) -> End:
    node_type, dot, column = a_text(value, where).partition(".")
    if not (node_type and dot and column):
        raise wrong(where, value, "a node type and a column of this table are needed, TYPE.COLUMN")
    return End(node_type, column)


@dataclass(frozen=True, kw_only=True)
class TimedSpec:
    """What the sections share that have times."""

    time: str | None = field(default=None, metadata=setting(or_none(a_text)))
    time_unit: str | None = field(default=None, metadata=setting(or_none(one_of("s", "ms", "us", "ns"))))
    timezone: str | None = field(default=None, metadata=setting(or_none(a_text)))


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """One column of features, and how it becomes numbers."""

    column: str = field(metadata=setting(a_text))
    kind: str = field(
        default="auto", metadata=setting(one_of("auto", "number", "category", "vector", "time", "text_length"), "as")
    )
    scale: str = field(default="standard", metadata=setting(one_of("standard", "log", "minmax", "none")))
    impute: str = field(default="mean", metadata=setting(one_of("mean", "median", "zero")))
    flag_missing: str | bool = field(default="auto", metadata=setting(one_of("auto", True, False)))
    min_count: int = field(default=10, metadata=setting(a_count))
    max_values: int = field(default=100_000, metadata=setting(a_count))
    vocabulary: str | None = field(default=None, metadata=setting(or_none(a_text)))
    text: str | None = field(default=None, metadata=setting(or_none(a_text)))
    width: int = field(default=256, metadata=setting(a_count))
    time_unit: str | None = field(default=None, metadata=setting(or_none(one_of("s", "ms", "us", "ns"))))
    timezone: str | None = field(default=None, metadata=setting(or_none(a_text)))


@fits({"type": "array", "items": {"anyOf": [{"type": "string"}, ColumnSpec]}})
def _columns(value: Any, where: str) -> tuple[ColumnSpec, ...]:
    if not isinstance(value, (list, tuple)):
        raise wrong(where, value, "a list of columns is needed, as [age, {column: country, as: category}]")
    faults = Faults()
    read = (
        faults.take(_column, {"column": entry} if isinstance(entry, str) else entry, f"{where}[{n}]")
        for n, entry in enumerate(value)
    )
    columns = tuple(column for column in read if column is not None)
    names = [column.column for column in columns if column.column is not None]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        faults.add(where, f"{where}: the column {name!r} is listed twice. List each once.")
    return faults.result(columns)


def _column(entry: Any, where: str) -> ColumnSpec:
    column = read_settings(ColumnSpec, entry, where)
    for key, value, kind in (("text", column.text, "auto"), ("vocabulary", column.vocabulary, "category")):
        if value is not None and column.kind not in ("auto", kind):
            say = "leave as out" if kind == "auto" else f"it is for as: {kind}"
            raise GraphSpecError(f"{where}.{key}: the column is to be read as: {column.kind}; {say}.")
    if column.text is not None and column.vocabulary is not None:
        raise GraphSpecError(f"{where}: text: makes numbers of a column, vocabulary: categories. Say one of them.")
    if column.width > 1 << 16:
        raise wrong(f"{where}.width", column.width, "a width of 65536 columns or less is needed")
    return column


@dataclass(frozen=True, kw_only=True)
class NodeSpec(TimedSpec):
    """The table of the nodes of one type: a row each."""

    table: Any = field(metadata=setting(a_table, "from"))
    id: str = field(metadata=setting(a_text))
    id_type: str = field(default="auto", metadata=setting(one_of("auto", "text", "integer")))
    on_duplicate: str = field(default="error", metadata=setting(one_of("error", "first")))
    x: tuple[ColumnSpec, ...] = field(default=(), metadata=setting(_columns))


@dataclass(frozen=True, kw_only=True)
class EdgeSpec(TimedSpec):
    """The table of the edges of one type: a row each."""

    table: Any = field(metadata=setting(a_table, "from"))
    src: End = field(metadata=setting(_end))
    dst: End = field(metadata=setting(_end))
    x: tuple[ColumnSpec, ...] = field(default=(), metadata=setting(_columns))
    weight: str | None = field(default=None, metadata=setting(or_none(a_text)))
    reverse: bool | str = field(default=False, metadata=setting(a_reverse))
    on_missing: str = field(default="error", metadata=setting(one_of("error", "drop")))
    self_loops: str = field(default="keep", metadata=setting(one_of("keep", "drop")))
    repeats: str = field(default="keep", metadata=setting(one_of("keep", "drop")))

    def relations(self, name: str) -> tuple[str, ...]:
        """Returns the names of the edge types that the table makes: its own, and that of the reverse edges."""
        if self.reverse is False:
            return (name,)
        return (name, f"rev_{name}" if self.reverse is True else str(self.reverse))


@dataclass(frozen=True, kw_only=True)
class SplitSpec:
    """How rows of a task are dealt to train, val and test: by time, by shares or by a column, which may say predict."""

    val: str | None = field(default=None, metadata=setting(or_none(a_moment)))
    test: str | None = field(default=None, metadata=setting(or_none(a_moment)))
    column: str | None = field(default=None, metadata=setting(or_none(a_text)))
    share: tuple[float, ...] | None = field(default=None, metadata=setting(or_none(three_shares)))
    seed: int = field(default=0, metadata=setting(a_seed))


@fits(SplitSpec)
def _split(value: Any, where: str) -> SplitSpec:
    split = read_settings(SplitSpec, value, where)
    ways = (split.val is not None or split.test is not None, split.column is not None, split.share is not None)
    if sum(ways) != 1:
        raise wrong(
            where, value, "one way to split is needed: {val: DATE, test: DATE}, {column: NAME} or {share: [..]}"
        )
    if split.share is None and "seed" in value:
        raise GraphSpecError(f"{where}.seed: a seed belongs to share; leave it out.")
    return split


@fits({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
def _labels(value: Any, where: str) -> tuple[str, ...]:
    """The column of labels, or several."""
    if not isinstance(value, (list, tuple)):
        return (a_text(value, where),)
    columns = tuple(a_text(column, f"{where}[{number}]") for number, column in enumerate(value))
    if not columns or len(set(columns)) < len(columns):
        raise wrong(where, value, "a column of labels is needed, or a list of several, each once")
    return columns


@dataclass(frozen=True, kw_only=True)
class TaskSpec(TimedSpec):
    """The seeds of a task, nodes or links, with labels and splits. Without a table, it is that of the nodes."""

    table: Any = field(default=None, metadata=setting(or_none(a_table), "from"))
    seed: End | None = field(default=None, metadata=setting(or_none(_end)))
    src: End | None = field(default=None, metadata=setting(or_none(_end)))
    dst: End | None = field(default=None, metadata=setting(or_none(_end)))
    edge: str | None = field(default=None, metadata=setting(or_none(a_text)))
    y: tuple[str, ...] | None = field(default=None, metadata=setting(or_none(_labels)))
    kind: str = field(default="auto", metadata=setting(one_of("auto", "class", "number")))
    on_missing: str = field(default="error", metadata=setting(one_of("error", "drop")))
    split: SplitSpec | None = field(default=None, metadata=setting(or_none(_split)))
    as_of: str | None = field(default=None, metadata=setting(or_none(a_moment)))
    fit: bool = field(default=True, metadata=setting(a_flag))

    @property
    def is_links(self) -> bool:
        """Whether rows are links."""
        return self.seed is None

    @property
    def ends(self) -> tuple[End, ...]:
        """The node of each row, or its source and target."""
        return tuple(end for end in (self.seed, self.src, self.dst) if end is not None)


@dataclass(frozen=True, kw_only=True)
class BuildSpec:
    """How the graph is built: what the machine gives, and what else is counted."""

    memory: str = field(default="4GB", metadata=setting(an_amount))
    threads: int | None = field(default=None, metadata=setting(some_threads))
    scratch: str | None = field(default=None, metadata=setting(or_none(a_text)))
    repeats: bool = field(default=False, metadata=setting(a_flag))
    transforms: str | None = field(default=None, metadata=setting(or_none(a_text)))

    @property
    def memory_bytes(self) -> int:
        """What the build may take."""
        number, unit = amount_of(self.memory)
        return int(number * unit)

    @property
    def num_threads(self) -> int:
        """That work at once: as said, or one for each core that this process may use."""
        return self.threads or len(os.sched_getaffinity(0))


def _by_name(cls: type[S]) -> SettingCheck:
    @fits(ByName(cls))
    def check(value: Any, where: str) -> dict[str, S]:
        if not isinstance(value, Mapping):
            raise wrong(where, value, "a mapping is needed, NAME: {KEY: VALUE}")
        faults = Faults()
        read = {
            name: faults.take(read_settings, cls, entry, f"{where}.{name}")
            for name, entry in value.items()
            if faults.take(a_name, name, where) is not None
        }
        return faults.result({name: entry for name, entry in read.items() if entry is not None})

    return check


@fits({"const": 1})
def _version(value: Any, where: str) -> int:
    if value != 1 or isinstance(value, bool):
        raise wrong(where, value, "this version of the package reads version: 1")
    return 1


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """All of graph.yaml: the tables of a graph's nodes and edges, its tasks, and how to build it.

    Example:
        >>> spec = GraphSpec.of(
        ...     {
        ...         "version": 1,
        ...         "nodes": {"paper": {"from": "papers.parquet", "id": "doi"}},
        ...         "edges": {"cites": {"from": "cites.parquet", "src": "paper.citing", "dst": "paper.cited"}},
        ...     }
        ... )
        >>> spec.edges["cites"].src
        End(node_type='paper', column='citing')
    """

    version: int = field(metadata=setting(_version))
    nodes: dict[str, NodeSpec] = field(metadata=setting(_by_name(NodeSpec)))
    edges: dict[str, EdgeSpec] = field(metadata=setting(_by_name(EdgeSpec)))
    tasks: dict[str, TaskSpec] = field(default_factory=dict, metadata=setting(_by_name(TaskSpec)))
    build: BuildSpec = field(default_factory=BuildSpec, metadata=setting(section(BuildSpec)))

    @classmethod
    def of(cls, values: Any) -> GraphSpec:
        """Checks what YAML says, or dicts of the same form, whose ``from`` may be tables in memory; raises
        GraphSpecError for all wrong keys and values, with their paths and, of unknown names, the nearest that is
        known."""
        faults = Faults()
        spec: Any = faults.take(read_settings, cls, values, "")
        if spec is None or not isinstance(spec.nodes, dict) or not isinstance(spec.edges, dict):
            faults.result(None)  # which raises
        # Names that are there, whatever is wrong below them.
        names = {section: values[section] for section in ("nodes", "edges")}
        if not all(names.values()):
            faults.add("", f"{'edges' if names['nodes'] else 'nodes'}: there are none. A graph needs both.")
        for name, edges in spec.edges.items():
            faults.take(_check_timed, edges, f"edges.{name}")
            for key, end in (("src", edges.src), ("dst", edges.dst)):
                faults.take(spec._check_end, end, f"edges.{name}.{key}", names["nodes"])
        for name, nodes in spec.nodes.items():
            faults.take(_check_timed, nodes, f"nodes.{name}")
        faults.take(spec._check_relations)
        faults.take(spec._check_vocabularies)
        spec = replace(spec, tasks={name: spec._with_zone(spec._with_ends(task)) for name, task in spec.tasks.items()})
        for name, task in spec.tasks.items():
            faults.take(spec._check_task, task, f"tasks.{name}", names, values["tasks"][name])
        checked: GraphSpec = faults.result(spec)
        return checked

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> GraphSpec:
        """Reads and checks a file, as :meth:`of` does; raises GraphSpecError where it is missing, no YAML, or holds a
        key twice."""
        import yaml  # comes with jsonargparse

        try:
            text = Path(file).read_text(encoding="utf-8")
            values = load_yaml(text)
        except OSError as error:
            raise GraphSpecError(
                f"{file} cannot be opened: {error.strerror}. Give the path of a graph.yaml, which describes tables."
            ) from error
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise GraphSpecError(f"{file} cannot be read as YAML: {error}.") from error
        try:
            return cls.of(values)
        except GraphSpecError as error:
            lines = [f"{file}:{line}: {sentence}" for line, sentence in fault_lines(error, text)]
            raise spec_error(error.faults, "\n".join(lines)) from error

    def _check_end(self, end: End | None, where: str, node_types: Iterable[str]) -> None:
        """Raises GraphSpecError: there are no nodes of an end's type."""
        if end is not None and end.node_type not in node_types:
            raise GraphSpecError(
                f"{where}: {str(end)!r} names the node type {end.node_type!r}, which is not there"
                f"{did_you_mean(end.node_type, node_types)} There are: {', '.join(map(str, node_types))}. An end is "
                "written TYPE.COLUMN."
            )

    def _with_zone(self, task: TaskSpec) -> TaskSpec:
        """A date to predict for, of rows without times, is in the zone that all tables' times have."""
        if task.as_of is None or task.time is not None or task.timezone is not None:
            return task
        tables: tuple[TimedSpec, ...] = (*self.nodes.values(), *self.edges.values())
        zones = {table.timezone for table in tables if table.time is not None}
        return replace(task, timezone=zones.pop()) if len(zones) == 1 else task

    def _with_ends(self, task: TaskSpec) -> TaskSpec:
        """Links that are a table of edges have its ends."""
        if task.edge not in self.edges or task.table is not None or task.seed or task.src or task.dst:
            return task
        return replace(task, src=self.edges[task.edge].src, dst=self.edges[task.edge].dst)

    def _check_relations(self) -> None:
        relations = [relation for name, edges in self.edges.items() for relation in edges.relations(name)]
        if twice := [name for name in relations if relations.count(name) > 1]:
            raise GraphSpecError(
                f"edges: {twice[0]!r} names two edge types, one of them by reverse. Name the reverse edges otherwise: "
                "reverse: NAME."
            )

    def _check_vocabularies(self) -> None:
        settings: dict[str, tuple[str, tuple[int, int]]] = {}
        for heading, tables in (("nodes", self.nodes), ("edges", self.edges)):
            for name, table in tables.items():
                for column in table.x:
                    if column.vocabulary is None:
                        continue
                    where, counts = f"{heading}.{name}.x: {column.column!r}", (column.min_count, column.max_values)
                    first, first_counts = settings.setdefault(column.vocabulary, (where, counts))
                    if counts != first_counts:
                        raise GraphSpecError(
                            f"{where} has min_count and max_values {counts}, but {first} of the same vocabulary "
                            f"{column.vocabulary!r} {first_counts}. They share their values: say the same at both."
                        )

    def _check_task(
        self, task: TaskSpec, where: str, names: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]
    ) -> None:
        _check_timed(task, where)
        if task.edge not in {None, *names["edges"]}:
            raise GraphSpecError(
                f"{where}.edge: there are no edges {task.edge!r}{did_you_mean(task.edge, names['edges'])} There are: "
                f"{', '.join(names['edges'])}."
            )
        if task.edge is not None and None in (task.src, task.dst) and task.edge not in self.edges:
            return  # whose ends could not be read, which is told there
        if (task.seed is None) == (task.src is None) or (task.src is None) != (task.dst is None):
            raise GraphSpecError(f"{where}: seeds are nodes or links. Give seed: TYPE.COLUMN, or both src: and dst:.")
        for end in task.ends:
            self._check_end(end, where, names["nodes"])
        if task.is_links:
            self._check_links(task, where)
        elif task.edge is not None:
            raise GraphSpecError(f"{where}.edge: it is for links alone. Leave it out, or give src: and dst:.")
        self._check_what_is_predicted(task, where, values)

    def _check_what_is_predicted(self, task: TaskSpec, where: str, values: Mapping[str, Any]) -> None:
        has_y, has_split = (values.get(key) is not None for key in ("y", "split"))  # though they may be wrong
        if has_y and not has_split:
            raise GraphSpecError(
                f"{where}: the key 'split' is missing, which says what to train and to test on. Needed is {{val: DATE, "
                "test: DATE}, {column: NAME} or {share: [..]}; or leave y out, so that all rows are predicted."
            )
        if has_split and not has_y and not task.is_links:
            raise GraphSpecError(
                f"{where}: without y: COLUMN, its labels, a task of nodes has nothing to train on. Say y; or leave "
                "split out, so that all rows are predicted."
            )
        if task.split is not None and (task.split.val or task.split.test) and task.time is None:
            raise GraphSpecError(f"{where}.split: val and test are dates, but the task has no time: COLUMN.")
        tables: tuple[TimedSpec, ...] = (*self.nodes.values(), *self.edges.values())
        if task.as_of is not None and all(table.time is None for table in tables):
            raise GraphSpecError(
                f"{where}.as_of: no table of nodes or edges has a time: COLUMN, so that the graph is the same at any "
                "time. Say their times, or leave as_of out."
            )

    def _check_links(self, task: TaskSpec, where: str) -> None:
        if task.edge is None:
            if task.table is None:
                raise GraphSpecError(
                    f"{where}: links need a table, from: PATH, or edge: NAME for those of an edge table."
                )
            return
        edges = self.edges.get(task.edge)
        if edges is None or edges.src is None or edges.dst is None:
            return
        needed, actual = (edges.src.node_type, edges.dst.node_type), tuple(end.node_type for end in task.ends)
        if needed != actual:
            raise GraphSpecError(
                f"{where}: its links lead from {actual[0]} to {actual[1]}, but edges {task.edge!r} from {needed[0]} "
                f"to {needed[1]}."
            )


def _check_timed(timed: TimedSpec, where: str) -> None:
    is_dated = isinstance(timed, TaskSpec) and timed.as_of is not None  # in that zone
    for key in ("time_unit", "timezone"):
        if timed.time is None and getattr(timed, key) is not None and not (is_dated and key == "timezone"):
            raise GraphSpecError(f"{where}.{key}: it says how times are read, but there is no time: COLUMN.")
