"""Tasks: tables of seeds, nodes or links, with labels, times and the split that each row belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.data.graphdata import PHASES, PREDICT, SPLITS
from lightning_gnnload.data.moment import date_of
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.task import Task
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.ids import NumberedNodes
from lightning_gnnload.ingest.labels import DistinctValues, Labels
from lightning_gnnload.ingest.many_labels import ManyLabels
from lightning_gnnload.ingest.source import Reading, Source, is_list
from lightning_gnnload.ingest.spec import SplitSpec, TaskSpec
from lightning_gnnload.ingest.sql import literal
from lightning_gnnload.ingest.times import nanoseconds_of
from lightning_gnnload.ops import NO_TIME, NULL, UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

_ALIASES = {"valid": "val", "validation": "val", "dev": "val", "infer": PREDICT, "inference": PREDICT}
_NO_SPLIT, _TO_PREDICT = -1, PHASES.index(PREDICT)
AnyLabels = Labels | ManyLabels


@dataclass(frozen=True)
class SeedEnd:
    """An end of a task's rows: the column of keys, and the nodes that they name."""

    nodes: NumberedNodes  # that they name
    column: str  # of the task's table
    cast: bool  # convert keys of another kind than the ids

    def numbers(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Returns the nodes of a column of keys, int64 ``[n]``; negative where there is none."""
        [keys] = columns
        return self.nodes.find(keys).rows.astype(np.int64)


@dataclass(frozen=True)
class ReadTask:
    """A task that was read."""

    task: Task  # its seed tables and classes
    rows: np.ndarray  # of its table that train, int64
    train: dict[str, np.ndarray]  # the nodes that train, by node type, each once, within the type
    report: dict[str, Any]  # figures, as JSON values
    notes: tuple[str, ...] = ()  # what the user is to know


@dataclass(frozen=True)
class SeedTypes:
    """What seed tables say of their rows: the type of nodes or links, in a graph with types, and the form of times."""

    node_type: str | None = None
    edge_type: EdgeType | None = None
    time_form: TimeForm | None = None


def read_task(
    source: Source,
    spec: TaskSpec,
    endpoints: Sequence[SeedEnd],
    seed_types: SeedTypes,
    *,
    in_graph: np.ndarray | None = None,
    are_edges: bool = False,
    class_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    trains: bool = True,
    show_progress: bool = True,
) -> ReadTask:
    """Reads the rows of a task and deals them to splits; rows without a label are to be predicted, unless a column says
    their split.

    ``endpoints`` are the nodes, or the sources and the targets. ``in_graph``, bool ``[R]``, says which rows of a table
    of nodes or edges are in the graph; None: all. With ``are_edges`` links are rows of a table of edges.
    ``class_names`` and ``label_names`` are those of an earlier build; None: those of the table. ``trains`` needs rows
    that train. Raises
    TableError for keys that name no node, unless they are to be dropped, values that cannot be read, and empty splits.
    """
    keys = [source.key(end.column, end.nodes.id_type, cast=end.cast) for end in endpoints]
    labels = _labels_of(source, spec, class_names, label_names)
    if spec.time is not None:
        seed_types = replace(seed_types, time_form=source.time_form(spec.time, spec.time_unit, spec.timezone))
    elif spec.as_of is not None:
        seed_types = replace(seed_types, time_form=TimeForm("us", None if spec.timezone == "UTC" else spec.timezone))
    columns = _read(source, _conversions(source, spec, endpoints, keys, labels), show_progress)
    nodes = np.stack([columns[side] for side in range(len(endpoints))], axis=1)
    if in_graph is None:
        in_graph = np.ones(len(nodes), np.bool_)
    # An edge's id is the number of its row among those that are in the graph.
    edge_ids = np.cumsum(in_graph) - 1 if are_edges and len(endpoints) == 2 else None
    rows = _TaskRows(nodes, edge_ids, columns.get("time"), None if labels is None else (labels, columns["y"]))
    report: dict[str, Any] = {"rows": len(nodes)}
    usable = _usable(source, spec, endpoints, rows, in_graph, report)
    phase = np.where(usable, _phases(source, spec, rows, columns.get("split"), usable, report), _NO_SPLIT)
    splits = _deal(rows, phase, spec, seed_types, report)
    _check_splits(source, spec, report, usable, trains)
    train = np.flatnonzero(phase == 0)
    by_type = _nodes_by_type(endpoints, nodes[train]) if len(train) or spec.split is not None else {}
    if labels is not None:
        class_names, label_names = labels.names, labels.label_names
    task = Task(
        splits,
        None if class_names is None else len(class_names),
        None if class_names is None else tuple(class_names),
        None if label_names is None else tuple(label_names),
        None if spec.as_of is None else _nanoseconds(source, spec.as_of, spec.timezone, "as_of"),
    )
    if spec.as_of is not None:
        report |= {"as_of": spec.as_of, "seeds": " to ".join(end.nodes.node_type for end in endpoints)}
    notes: tuple[str, ...] = ()
    if isinstance(labels, Labels) and labels.names is not None and trains:
        notes = tuple(DistinctValues.of(source, labels.reading).notes(source.where, "classes"))
    return ReadTask(task, train, by_type, report, notes)


def _labels_of(
    source: Source, spec: TaskSpec, class_names: Sequence[str] | None, label_names: Sequence[str] | None
) -> AnyLabels | None:
    if spec.y is None:
        return None
    if len(spec.y) > 1 or is_list(source.types[source.check_column(spec.y[0])]):
        return ManyLabels.of(source, spec.y, spec.kind, label_names)
    return Labels.of(source, spec.y[0], spec.kind, class_names)


def _deal(
    rows: _TaskRows, phase: np.ndarray, spec: TaskSpec, types: SeedTypes, report: dict[str, Any]
) -> dict[str, SeedTable]:
    splits = {}
    for number, split in enumerate(PHASES):
        chosen = np.flatnonzero(phase == number)
        if split == PREDICT or spec.split is not None:
            report[split] = len(chosen)
        if split == PREDICT:
            # Without labels, which nobody is to see; without rows it says of which type they would be.
            if len(chosen) or spec.as_of is not None:
                splits[split] = rows._replace(labels=None).table(chosen, types)
        elif len(chosen):
            splits[split] = rows.table(chosen, types)
            report |= rows.label_shares(chosen, split)
    return splits


class _TaskRows(NamedTuple):
    """All rows of a task's table, R, before they are dealt to splits."""

    nodes: np.ndarray  # int64 [R, 1], or sources and targets [R, 2]
    edge_ids: np.ndarray | None
    time: np.ndarray | None
    labels: tuple[AnyLabels, np.ndarray] | None  # and what their values() made of them

    def table(self, chosen: np.ndarray, types: SeedTypes) -> SeedTable:
        columns: dict[str, Any] = {"columns": {"table_row": chosen}, "time_form": types.time_form}
        if self.time is not None:
            columns["time"] = self.time[chosen]
        if self.labels is not None:
            columns["y"] = self.labels[0].as_labels(self.labels[1][chosen])
        nodes = self.nodes[chosen]
        if nodes.shape[1] == 1:
            return SeedTable(nodes[:, 0], node_type=types.node_type, **columns)
        columns["edge_ids"] = None if self.edge_ids is None else self.edge_ids[chosen]
        return SeedTable(src=nodes[:, 0], dst=nodes[:, 1], edge_type=types.edge_type, **columns)

    def label_shares(self, chosen: np.ndarray, split: str) -> dict[str, Any]:
        return {} if self.labels is None else {f"{split}_labels": self.labels[0].shares(self.labels[1][chosen])}


def _nodes_by_type(endpoints: Sequence[SeedEnd], nodes: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the nodes of rows by their type, each once: both ends of links may be of one type."""
    by_type: dict[str, np.ndarray] = {}
    for end, column in zip(endpoints, nodes.T, strict=True):
        before = by_type.get(end.nodes.node_type, np.empty(0, np.int64))
        by_type[end.nodes.node_type] = np.union1d(before, column)
    return by_type


# How columns are read, and what each batch of them becomes.
_Conversion = tuple[Sequence[Reading], Callable[[Sequence["pa.Array"]], np.ndarray]]


def _conversions(
    source: Source, spec: TaskSpec, endpoints: Sequence[SeedEnd], keys: Sequence[Reading], labels: AnyLabels | None
) -> dict[Any, _Conversion]:
    """Returns how the columns are read: ``0``, ``1`` of the endpoints, and ``y``, ``time`` and ``split`` as needed."""
    conversions: dict[Any, _Conversion] = {
        side: ((key,), end.numbers) for side, (key, end) in enumerate(zip(keys, endpoints, strict=True))
    }
    if labels is not None:
        conversions["y"] = labels.readings, labels.values
    if spec.time is not None:
        reading = source.time(spec.time, spec.time_unit, spec.timezone)
        conversions["time"] = (reading,), lambda columns: nanoseconds_of(columns[0], source.where)
    if spec.split is not None and (split := _split_reading(source, spec.split, keys)) is not None:
        how = spec.split
        conversions["split"] = (split,), lambda columns: _split_values(how, columns[0])
    return conversions


def _read(source: Source, conversions: dict[Any, _Conversion], show_progress: bool) -> dict[Any, np.ndarray]:
    """Returns what whole columns become, ``[R]`` or ``[R, C]`` each."""
    readings = [reading for part, _ in conversions.values() for reading in part]
    pieces_of: dict[Any, list[np.ndarray]] = {name: [] for name in conversions}
    with progress(f"Reading {source.where}", source.num_rows, show=show_progress) as advance:
        for batch in source.batches(readings):
            columns = iter(batch.columns)
            for name, (part, convert) in conversions.items():
                pieces_of[name].append(convert([next(columns) for _ in part]))
            advance(len(batch))
    return {name: np.concatenate(pieces) if pieces else np.empty(0, np.int64) for name, pieces in pieces_of.items()}


# Which rows.


def _usable(
    source: Source,
    spec: TaskSpec,
    endpoints: Sequence[SeedEnd],
    rows: _TaskRows,
    in_graph: np.ndarray,
    report: dict[str, Any],
) -> np.ndarray:
    """Returns which rows ``in_graph`` name nodes, and have a time where there is one, bool ``[R]``."""
    usable, problems = in_graph.copy(), []
    for end, column in zip(endpoints, rows.nodes.T, strict=True):
        for name, code, problem in (("unknown", UNKNOWN, "name no node"), ("null", NULL, "are missing")):
            wrong = in_graph & (column == code)
            report[f"{end.column}_{name}"] = int(wrong.sum())
            problems.append((wrong, f"of column {end.column!r} {problem} ({end.nodes.node_type})"))
            usable &= ~wrong
    if rows.time is not None:
        wrong = in_graph & (rows.time == NO_TIME)
        report["time_missing"] = int(wrong.sum())
        problems.append((wrong, f"of time {spec.time!r} are missing"))
        usable &= ~wrong
    if spec.on_missing == "error":
        for wrong, problem in problems:
            if wrong.any():
                raise TableError(
                    f"{source.where}: {int(wrong.sum())} of {len(usable)} values {problem}; the first is in row "
                    f"{int(wrong.argmax())}. Leave these rows out by on_missing: drop, or complete the table."
                )
    return usable


# Splits.


def _split_reading(source: Source, split: SplitSpec, keys: Sequence[Reading]) -> Reading | None:
    """Returns how a row's split is read: as its word, or as a number in [0, 1) that is a pure hash of the row's keys;
    None where it follows from the time."""
    if split.column is not None:
        return Reading(split.column, f"{source.column(split.column)}::varchar")
    if split.share is not None:
        key = ", ".join(f"({reading.sql})::varchar" for reading in keys)
        # MD5 is the same in every release, unlike DuckDB's own hash.
        return Reading("", f"md5_number_lower(concat_ws(chr(31), {literal(str(split.seed))}, {key}))::double / 2.0**64")
    return None


def _split_values(split: SplitSpec, column: pa.Array) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if split.share is not None:
        return np.searchsorted(np.cumsum(split.share)[:-1], column.to_numpy(zero_copy_only=False), side="right")
    words = [*PHASES, *_ALIASES]
    index = pc.index_in(pc.utf8_lower(column), value_set=pa.array(words)).fill_null(-2)
    numbers = np.array([*range(len(PHASES)), *map(PHASES.index, _ALIASES.values()), -2, _NO_SPLIT])
    positions = np.array(index.to_numpy(zero_copy_only=False), np.int64)
    # Two more entries of numbers: a word that is unknown, and a row without one, which belongs to no split.
    positions[positions == -2] = len(words)
    positions[column.is_null().to_numpy(zero_copy_only=False)] = len(words) + 1
    return numbers[positions]


def _phases(
    source: Source,
    spec: TaskSpec,
    rows: _TaskRows,
    read: np.ndarray | None,
    usable: np.ndarray,
    report: dict[str, Any],
) -> np.ndarray:
    """Returns the number of each row's split, ``[R]``: of rows without a label, which nothing can be trained on, that
    of rows to predict, unless a column names their split."""
    if spec.split is None:
        return np.full(len(rows.nodes), _TO_PREDICT)
    phase = _dealt(source, spec, spec.split, rows.time, read)
    if rows.labels is None:
        return phase
    lacks = ~rows.labels[0].present(rows.labels[1]) & (phase != _TO_PREDICT)
    is_named = spec.split.column is not None
    report["left_out" if is_named else "unlabelled"] = int((usable & lacks).sum())
    return np.where(lacks, _NO_SPLIT if is_named else _TO_PREDICT, phase)


def _dealt(
    source: Source, spec: TaskSpec, split: SplitSpec, time: np.ndarray | None, read: np.ndarray | None
) -> np.ndarray:
    if read is not None:
        if (read == -2).any():
            raise TableError(
                f"{source.where}: {int((read == -2).sum())} values of column {split.column!r} are none of "
                f"{', '.join(PHASES)}; the first is in row {int((read == -2).argmax())}. Translate them in SQL, or "
                "make them null: such rows are in no split."
            )
        return read
    assert time is not None
    bounds = [
        None if at is None else _nanoseconds(source, at, spec.timezone, "split") for at in (split.val, split.test)
    ]
    if None not in bounds and bounds[0] >= bounds[1]:  # type: ignore[operator]
        raise GraphSpecError(f"{source.where}.split: val ({split.val}) must lie before test ({split.test}).")
    phase = np.zeros(len(time), np.int64)
    for number, bound in enumerate(bounds, start=1):
        if bound is not None:
            phase[time >= bound] = number
    return phase


def _nanoseconds(source: Source, moment: str, zone: str | None, key: str) -> int:
    """Returns a date of graph.yaml, which is one of the times' zone, unless it names an offset from UTC itself."""
    import duckdb

    try:
        at = date_of(moment)
        if at.tzinfo is not None:
            at, zone = at.astimezone(timezone.utc).replace(tzinfo=None), None
        sql = f"epoch_ns({literal(at.isoformat(' '))}::timestamp at time zone {literal(zone or 'UTC')})"
        return int(source.con.sql(f"select {sql}").fetchall()[0][0])
    except (ValueError, OverflowError, duckdb.Error) as error:
        raise GraphSpecError(f"{source.where}.{key}: {moment!r} is no date; give one as 2026-03-01.") from error


def _check_splits(source: Source, spec: TaskSpec, report: dict[str, Any], usable: np.ndarray, trains: bool) -> None:
    """Raises TableError: a split that was asked for has no rows."""
    split = spec.split
    # With earlier transforms, a table may hold nothing but rows to predict.
    if split is None or (not trains and report[PREDICT]):
        return
    shares = split.share or (float(trains), float(split.val is not None), float(split.test is not None))
    for name, share in zip(SPLITS, shares, strict=True):
        if share > 0 and not report[name]:
            sizes = ", ".join(f"{name_} {report[name_]}" for name_ in SPLITS)
            raise TableError(
                f"{source.where}.split: there is nothing in {name} ({sizes}), of {int(usable.sum())} rows with a node "
                f"and a label, out of {len(usable)}. Split otherwise."
            )
