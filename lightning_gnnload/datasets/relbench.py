"""RelBench: a relational database whose tables are node types, whose foreign keys are edges, and its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload.data.arrays import as_single
from lightning_gnnload.data.clock import are_dates, as_times
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.datasets.foreign import ForeignFolder, can_name
from lightning_gnnload.datasets.relational import (
    Relation,
    arrow_to_numbers,
    as_relation,
    filtered,
    lists_of,
    read_relation,
    without_column,
)
from lightning_gnnload.errors import DatasetError

LINKS = "links"  # the relation of the edge type, without edges, that a recommendation task's links have


@dataclass(frozen=True)
class RelBench(ForeignFolder):
    """Provides a relational database as a graph with types and times, and the rows of a task as seeds.

    Tables are node types, their rows nodes in their order. A foreign key ``col`` of a table ``a`` that names rows of
    ``b`` makes the edge types ``(a, "f2p_col", b)`` and ``(b, "rev_f2p_col", a)``. Times of rows are those of nodes:
    int64, whole seconds since 1970, rounded down. All other columns are tables of their node type, by their names, as
    :func:`.arrow_to_numbers` converts them.

    Splits are :class:`.SeedTable`. Rows of an entity task are nodes with a time and a target, int64 where it is
    whole, float32 else; of a recommendation task links, each row with all its targets, of the edge type
    ``(src, "links", dst)``, which has no edges. A table without the target gives nodes with a time alone.

    What is left out is said in one warning. Needs pyarrow, which the extra ``relbench`` brings; not RelBench itself.

    Args:
        source: a folder as RelBench keeps it, with ``db/<table>.parquet`` and
            ``tasks/<name>/{train,val,test}.parquet``, converted once; or a ``relbench.base.Database``, converted when
            it is loaded.
        task: its name in the folder, or a RelBench task; None: the graph alone.
        until: a date (or a number, where times are): later rows are left out of the graph. None: the earliest time of
            the task's test, as RelBench does; nothing is without a task, nor where rows are asked about at their own
            time, to complete a column of theirs. That column is never in the graph.
        hidden: further columns that are not in the graph, as they would give targets away: ``"results.points"``. Those
            of a RelBench task that says some (``remove_columns``) are hidden, too; its folder does not say them.
        target: the column of the task's targets; None: the only one that is neither key nor time.
        max_categories: of a column of texts, which has more if it is none of categories.
        root: the folder to keep converted graphs in; a per-user cache folder by default.

    Raises:
        DatasetError: a source or task of another kind.

    Example:
        >>> RelBench("rel-f1", task="driver-dnf").task
        'driver-dnf'
    """

    KIND: ClassVar[str] = "RelBench"
    source: Any
    task: Any = None
    until: Any = None
    target: str | None = None
    max_categories: int = 256
    hidden: Sequence[str] = ()
    root: str | Path | None = None

    def __post_init__(self) -> None:
        if self._reads_files:
            super().__post_init__()
        elif not isinstance(getattr(self.source, "table_dict", None), Mapping):
            raise DatasetError(
                f"RelBench: source is a {type(self.source).__name__}; give the path of a folder with db/ and tasks/, "
                "or a relbench.base.Database, such as dataset.get_db()."
            )
        if isinstance(self.task, str) and not self._reads_files:
            raise DatasetError(
                f"RelBench: the task {self.task!r} is a name, but a database has no tasks by name. Give the task "
                "itself, from relbench.tasks.get_task, or a folder as source."
            )
        if not (self.task is None or isinstance(self.task, str) or hasattr(self.task, "get_table")):
            raise DatasetError(
                f"RelBench: task is a {type(self.task).__name__}; give its name, or a RelBench task, which has "
                "get_table."
            )
        if isinstance(self.hidden, str):
            raise DatasetError(f"RelBench: hidden is {self.hidden!r}; give a list of such names.")
        if type(self.max_categories) is not int or self.max_categories < 0:
            raise DatasetError(f"RelBench: max_categories is {self.max_categories!r}; a number of 0 or more is needed.")

    def files(self) -> list[Path]:
        return sorted([*(self.home / "db").glob("*.parquet"), *self._task_folder.glob("*.parquet")])

    def prepare(self) -> None:
        """Converts the folder, unless that is done; objects are converted when they are loaded."""
        if self._is_stored:
            super().prepare()

    def load(self) -> GraphData:
        """Maps the folder, or converts the database, in this process's own memory; raises DatasetError where it was not
        prepared, or cannot be converted."""
        return super().load() if self._is_stored else self.build(Path())

    def converted(self, scratch: Path) -> GraphData:
        left_out: list[str] = []
        relations = {relation.name: relation for relation in self._relations(left_out)}
        self._hide(relations)
        seeds: dict[str, SeedTable] = {}
        if self.task is None:
            relations, links = _cut(relations, self._until, left_out), None
        else:
            splits = self._splits(left_out)
            task = _Task.of(splits, self.target)
            completes = task.target_table is None and task.completes(relations, splits, left_out)
            # A row that is completed at its own time would be cut by the earliest test time, and could not be a seed.
            relations = _cut(relations, self._until if completes else self._last_time(splits), left_out)
            seeds = {name: task.seeds(name, table, relations, left_out) for name, table in splits.items()}
            links = task.edge_type
        graph = _graph(relations, links, left_out)
        tables = {name: _columns(table, self.max_categories, left_out) for name, table in relations.items()}
        self.tell((), [f"Left out: {'; '.join(left_out)}."] if left_out else ())
        return GraphData(
            graph,
            train=seeds.get("train"),
            val=seeds.get("val"),
            test=seeds.get("test"),
            tables={name: columns for name, columns in tables.items() if columns},
        )

    def _relations(self, left_out: list[str]) -> list[Relation]:
        if not self._reads_files:
            return [as_relation(name, table, left_out) for name, table in sorted(self.source.table_dict.items())]
        files = sorted((self.home / "db").glob("*.parquet"))
        if not files:
            raise DatasetError(
                f"RelBench: {self.home / 'db'} has no Parquet files. Give the folder that has db/ and tasks/ in it."
            )
        return [read_relation(file) for file in files]

    def _hide(self, relations: dict[str, Relation]) -> None:
        for name in self.hidden:
            table, _, column = name.rpartition(".")
            if table not in relations or column not in relations[table].plain_columns:
                raise DatasetError(
                    f"RelBench: hidden has {name!r}, but 'table.column' is needed, neither key nor time; "
                    f"the tables are {', '.join(relations)}."
                )
            relations[table] = without_column(relations[table], column)
        for table, column in getattr(self.task, "remove_columns", ()):
            if table in relations:
                relations[table] = without_column(relations[table], column)

    def _splits(self, left_out: list[str]) -> dict[str, Relation]:
        # mask_input_cols=False: the targets of the test rows, which RelBench hides by default.
        if not isinstance(self.task, str):
            tables = {split: self.task.get_table(split, mask_input_cols=False) for split in SPLITS}
            return {name: as_relation(name, table, left_out) for name, table in tables.items() if table is not None}
        files = {split: self._task_folder / f"{split}.parquet" for split in SPLITS}
        splits = {split: read_relation(file) for split, file in files.items() if file.is_file()}
        if not splits:
            tasks = self.home / "tasks"
            task_names = sorted(path.name for path in tasks.iterdir() if path.is_dir()) if tasks.is_dir() else []
            raise DatasetError(
                f"RelBench: {self._task_folder} has none of {', '.join(files[name].name for name in files)}. "
                f"The tasks there are: {', '.join(task_names) or 'none'}."
            )
        return splits

    def _last_time(self, splits: Mapping[str, Relation]) -> float | None:
        test = splits.get("test")
        if self.until is not None or test is None or test.time_column is None or not test.num_rows:
            return self._until
        times, present = test.times()
        return times[present].min() if present.any() else None

    @property
    def _until(self) -> float | None:
        if self.until is None:
            return None
        time = as_times(np.array([self.until]), name="RelBench: until", error=DatasetError)
        return int(time[0]) // 10**9 if are_dates([self.until]) else time[0]

    @property
    def _is_stored(self) -> bool:
        """Whether what is converted has a name to be kept by: objects have none."""
        return self._reads_files and isinstance(self.task, str | None)

    @property
    def _reads_files(self) -> bool:
        return isinstance(self.source, str | Path)

    @property
    def _task_folder(self) -> Path:
        return self.home / "tasks" / str(self.task)


@dataclass(frozen=True)
class _Task:
    """Says what the columns of a task's tables are: of its entity or source, of its targets."""

    entity: str  # a foreign key
    entity_table: str
    target: str
    target_table: str | None  # which a recommendation's targets are rows of

    @classmethod
    def of(cls, splits: Mapping[str, Relation], target: str | None) -> _Task:
        split, table = next(iter(splits.items()))
        return cls._node_task(split, table, target) if len(table.foreign_keys) == 1 else cls._link_task(split, table)

    @classmethod
    def _node_task(cls, split: str, table: Relation, target: str | None) -> _Task:
        [(entity, entity_table)], plain = table.foreign_keys.items(), list(table.plain_columns)
        if target is None and len(plain) != 1:
            raise DatasetError(
                f"RelBench: the task's {split} table has the columns {', '.join(plain) or 'of no target'} beside "
                "its key and time; which of them is the target is not known. Say it: target=..."
            )
        if target is not None and target not in plain:
            raise DatasetError(f"RelBench: target={target!r} is none of the task's columns: {', '.join(plain)}.")
        return cls(entity, entity_table, target or plain[0], None)

    @classmethod
    def _link_task(cls, split: str, table: Relation) -> _Task:
        keys = table.foreign_keys
        lists = [name for name in keys if lists_of(table.columns[name]) is not None]
        if len(keys) != 2 or len(lists) != 1:
            raise DatasetError(
                f"RelBench: the task's {split} table has the foreign keys {', '.join(keys) or 'none'}, of which "
                f"{', '.join(lists) or 'none'} hold lists. An entity task has one key; a recommendation has two, and "
                "its targets are lists."
            )
        (dst,) = lists
        (src,) = set(keys) - {dst}
        return cls(src, keys[src], dst, keys[dst])

    @property
    def edge_type(self) -> EdgeType | None:
        return None if self.target_table is None else (self.entity_table, LINKS, self.target_table)

    def completes(self, relations: dict[str, Relation], splits: Mapping[str, Relation], left_out: list[str]) -> bool:
        """Returns whether the targets are a column of the entities themselves, asked about at their own time; takes
        that column out of ``relations``."""
        entities = _table_named(relations, self.entity_table)
        if self.target in entities.columns:
            relations[entities.name] = without_column(entities, self.target)
            left_out.append(f"{entities.name}.{self.target}, which is the target")
        table = next(iter(splits.values()))
        if entities.time_column is None or table.time_column is None or not table.num_rows:
            return False
        rows = entities.rows_named(table.columns[self.entity], "rows of the task")
        query_times, since = table.times()[0], entities.times()[0]
        return bool((rows >= 0).all()) and np.array_equal(since[rows], query_times)

    def seeds(self, split: str, table: Relation, relations: Mapping[str, Relation], left_out: list[str]) -> SeedTable:
        """Makes the seed table of a split, without the rows that have no entity, time or target."""
        if self.entity not in table.columns:
            raise DatasetError(f"RelBench: the task's {split} table has no {self.entity!r}, as others of its have.")
        nodes = _table_named(relations, self.entity_table).rows_named(table.columns[self.entity], f"{split} rows")
        times, good = None, nodes >= 0
        if table.time_column is not None:
            times, present = table.times()
            good &= present
        column = table.columns.get(self.target)
        rows: dict[str, Any] = {"nodes": nodes, "node_type": self.entity_table}
        if column is not None and self.target_table is None:
            rows["y"], labelled = self._labels(column, split)
            good &= labelled
        elif column is not None:
            to = _table_named(relations, str(self.target_table))
            targets, counts = self._targets(column, to, split, left_out)
            good &= counts > 0
            rows = {"src": nodes, "edge_type": self.edge_type}
        _count(left_out, f"{split} rows without an entity, a time or a target", good)
        if len(good) and not good.any():
            raise DatasetError(
                f"RelBench: no row of the task's {split} table has an entity, a time and a target. Are its ids those "
                f"of {self.entity_table!r}, as RelBench's reindex_pkeys_and_fkeys makes them?"
            )
        rows = {name: value[good] if isinstance(value, np.ndarray) else value for name, value in rows.items()}
        if "nodes" not in rows:
            rows["dst"] = targets[np.repeat(good, counts)]
            rows["dst_ptr"] = np.concatenate([[0], np.cumsum(counts[good])])
        return SeedTable(**rows, time=None if times is None else times[good])

    def _labels(self, column: Any, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the labels of the rows, ``[R, ...]``, and which have one, bool ``[R]``."""
        y = arrow_to_numbers(column, 0)
        if isinstance(y, str):
            raise DatasetError(
                f"RelBench: the target {self.target!r} of the {split} table {y}; numbers are needed, one a row, or "
                "lists of as many in each."
            )
        labelled = column.is_valid().to_numpy()
        if y.dtype.kind != "f":
            return y.astype(np.int64), labelled
        where = f"RelBench: the target {self.target!r} of the {split} table"
        single = as_single(y.astype(np.float64), name=where, error=DatasetError)
        return single, labelled & ~np.isnan(y.reshape(len(y), -1)).all(1)

    def _targets(self, column: Any, to: Relation, split: str, left_out: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns all targets that there are, int64 ``[P]``, and how many each row has, ``[R]``."""
        lists = lists_of(column)
        if lists is None:
            raise DatasetError(f"RelBench: targets {self.target!r} of the {split} table are no lists, as others are.")
        counts, entries = lists
        targets = to.rows_named(entries, f"targets of {split} rows")
        is_known = targets >= 0
        _count(left_out, f"targets of {split} rows, which name no row of {to.name!r}", is_known)
        row = np.repeat(np.arange(len(counts)), counts)
        return targets[is_known], np.bincount(row[is_known], minlength=len(counts))


def _table_named(relations: Mapping[str, Relation], name: str) -> Relation:
    if name not in relations:
        raise DatasetError(f"RelBench: a foreign key names rows of {name!r}; the tables are {', '.join(relations)}.")
    return relations[name]


def _count(left_out: list[str], subject: str, good: np.ndarray) -> None:
    if not good.all():
        left_out.append(f"{int((~good).sum())} of {len(good)} {subject}")


def _cut(relations: Mapping[str, Relation], last: float | None, left_out: list[str]) -> dict[str, Relation]:
    """Returns the tables without rows that have no time, or one after ``last``."""
    cut = {}
    for name, relation in relations.items():
        cut[name] = relation
        if relation.time_column is None:
            continue
        times, present = relation.times()
        _count(left_out, f"rows of {name!r} without a time", present)
        early = present if last is None else present & (times <= last)
        late = int((present & ~early).sum())
        if late:
            left_out.append(f"{late} of {len(times)} rows of {name!r} later than {last}")
        if not early.all():
            cut[name] = filtered(relation, early)
    return cut


def _graph(relations: Mapping[str, Relation], links: EdgeType | None, left_out: list[str]) -> Graph:
    edges: dict[EdgeType, tuple[np.ndarray, np.ndarray]] = {}
    for name, relation in relations.items():
        for key, to in relation.foreign_keys.items():
            column = relation.columns[key]
            rows = _table_named(relations, to).rows_named(column, f"{name}.{key}")
            named = rows >= 0
            empty = int(column.null_count)
            unknown = int((~named).sum()) - empty
            for count, why in ((empty, "empty"), (unknown, f"of no row of {to!r}")):
                if count:
                    left_out.append(f"{count} of {len(rows)} keys {name}.{key}, {why}")
            # Both directions, as RelBench has them: messages go from rows to what they refer to, and back.
            src, dst = np.flatnonzero(named), rows[named]
            edges[name, f"f2p_{key}", to] = src, dst
            edges[to, f"rev_f2p_{key}", name] = dst, src
    if links is not None:
        edges[links] = np.empty(0, np.int64), np.empty(0, np.int64)
    times = {name: table.times()[0] for name, table in relations.items() if table.time_column is not None}
    num_nodes = {name: table.num_rows for name, table in relations.items()}
    return Graph.from_hetero(num_nodes, edges, node_time=times or None, keep_order=True)


def _columns(relation: Relation, max_categories: int, left_out: list[str]) -> dict[str, np.ndarray]:
    numbers = {}
    for name, column in relation.plain_columns.items():
        values = arrow_to_numbers(column, max_categories)
        if isinstance(values, str):
            left_out.append(f"{relation.name}.{name}, which {values}")
            continue
        if not can_name(name, reserved=()):
            left_out.append(f"{relation.name}.{name}, whose name is no identifier of ASCII letters")
            continue
        numbers[name] = values
    return numbers
