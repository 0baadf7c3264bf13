"""Tasks: tables of seeds, nodes or links, with labels, times and the split that each row belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.data.progress import progress
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.task import Task
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.distinct import DistinctValues
from lightning_gnnload.ingest.ids import NumberedNodes
from lightning_gnnload.ingest.labels import Labels
from lightning_gnnload.ingest.source import Reading, Source
from lightning_gnnload.ingest.spec import SplitSpec, TaskSpec
from lightning_gnnload.ingest.sql import literal
from lightning_gnnload.ingest.times import times_of
from lightning_gnnload.ops import NO_TIME, NULL, UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

_ALIASES = {"valid": "val", "validation": "val", "dev": "val"}
_NO_SPLIT = -1


@dataclass(frozen=True)
class SeedEnd:
    """An end of a task's rows: the column of keys, and the nodes that they name.

    Attributes:
        nodes: that they name.
        column: of the task's table.
        cast: convert keys of another kind than the ids.
    """

    nodes: NumberedNodes
    column: str
    cast: bool

    def numbers(self, keys: pa.Array) -> np.ndarray:
        """Returns the nodes of keys, int64 ``[n]``; negative where there is none."""
        return self.nodes.find(keys).rows.astype(np.int64)


@dataclass(frozen=True)
class ReadTask:
    """A task that was read.

    Attributes:
        task: its seed tables and classes.
        rows: of its table that train, int64.
        train: the nodes that train, by node type, each once, within the type.
        report: figures, as JSON values.
        notes: what the user is to know.
    """

    task: Task
    rows: np.ndarray
    train: dict[str, np.ndarray]
    report: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeedKinds:
    """What seed tables say of their rows.

    Attributes:
        node_type: of nodes, in a graph with types.
        edge_type: of links, likewise.
        time_form: of their times.
    """

    node_type: str | None = None
    edge_type: EdgeType | None = None
    time_form: TimeForm | None = None


def read_task(
    source: Source,
    spec: TaskSpec,
    ends: Sequence[SeedEnd],
    kinds: SeedKinds,
    *,
    kept: np.ndarray | None = None,
    are_edges: bool = False,
    known: Sequence[str] | None = None,
    trains: bool = True,
    shown: bool = True,
) -> ReadTask:
    """Reads the rows of a task and deals them to splits. Rows without a label belong to none.

    Args:
        source: of its table.
        spec: as graph.yaml has it.
        ends: the nodes, or the sources and the targets.
        kinds: of the seed tables.
        kept: bool ``[R]``: which rows of a table of nodes or edges are in the graph; None: all.
        are_edges: rows that are links are those of a table of edges.
        known: names of classes that are given, as those of an earlier build; None: those of the table.
        trains: rows are needed that train.
        shown: show a bar.

    Raises:
        TableError: keys that name no node, unless they are to be dropped; times or labels that cannot be read; a split
            without rows.
    """
    keys = [source.key(end.column, end.nodes.kind, cast=end.cast) for end in ends]
    labels = None if spec.y is None else Labels.of(source, spec.y, spec.kind, known)
    wanted: dict[Any, _Column] = {
        place: (key, end.numbers) for place, (key, end) in enumerate(zip(keys, ends, strict=True))
    }
    if labels is not None:
        wanted["y"] = labels.reading, labels.values
    if spec.time is not None:
        reading = source.time(spec.time, spec.time_unit, spec.timezone)
        kinds = replace(kinds, time_form=source.time_form(spec.time, spec.time_unit, spec.timezone))
        wanted["time"] = reading, lambda column: times_of(column, source.where)
    if (of_split := _split_reading(source, spec.split, keys)) is not None:
        wanted["split"] = of_split, lambda column: _split_values(spec.split, column)
    columns = _read(source, wanted, shown)
    nodes = np.stack([columns[place] for place in range(len(ends))], axis=1)
    y, time = columns.get("y"), columns.get("time")
    report: dict[str, Any] = {"rows": len(nodes)}
    there = np.ones(len(nodes), np.bool_) if kept is None else kept
    edge_ids = np.cumsum(there) - 1 if are_edges and len(ends) == 2 else None
    keep = _kept(source, spec, ends, nodes, time, there, report)
    has_label = np.ones(len(nodes), np.bool_)
    if labels is not None and y is not None:
        has_label = labels.present(y)
        report["without_label"] = int((keep & ~has_label).sum())
    phase = _phases(source, spec, time, columns.get("split"))
    splits = {}
    for number, split in enumerate(SPLITS):
        rows = np.flatnonzero(keep & has_label & (phase == number))
        report[split] = len(rows)
        if len(rows):
            splits[split] = _table(kinds, rows, nodes, edge_ids, time, labels, y)
            if labels is not None and y is not None:
                report[f"{split}_labels"] = labels.shares(y[rows])
    _check_splits(source, spec, report, keep & has_label, trains)
    train = np.flatnonzero(keep & has_label & (phase == 0))
    by_type: dict[str, np.ndarray] = {}
    for place, end in enumerate(ends):
        before = by_type.get(end.nodes.node_type, np.empty(0, np.int64))
        by_type[end.nodes.node_type] = np.union1d(before, nodes[train, place])
    names = None if labels is None else labels.names
    notes: tuple[str, ...] = ()
    if labels is not None and names is not None and known is None:
        notes = tuple(DistinctValues.of(source, labels.reading).notes(source.where, "classes"))
    return ReadTask(Task(splits, None if names is None else len(names), names), train, by_type, report, notes)


_Column = tuple[Reading, Callable[["pa.Array"], np.ndarray]]
"""How a column is read, and what is made of each batch of it."""


def _read(source: Source, wanted: dict[Any, _Column], shown: bool) -> dict[Any, np.ndarray]:
    """Returns whole columns, ``[R]`` each."""
    found: dict[Any, list[np.ndarray]] = {name: [] for name in wanted}
    with progress(f"Reading {source.where}", source.num_rows, show=shown) as advance:
        for batch in source.batches([reading for reading, _ in wanted.values()]):
            for (name, (_, convert)), column in zip(wanted.items(), batch.columns, strict=True):
                found[name].append(convert(column))
            advance(len(batch))
    return {name: np.concatenate(pieces) if pieces else np.empty(0, np.int64) for name, pieces in found.items()}


# Which rows.


def _kept(
    source: Source,
    spec: TaskSpec,
    ends: Sequence[SeedEnd],
    nodes: np.ndarray,
    time: np.ndarray | None,
    there: np.ndarray,
    report: dict[str, Any],
) -> np.ndarray:
    """Returns which of the rows that are ``there`` name nodes, and have a time where there are times, bool ``[R]``."""
    keep, problems = there.copy(), []
    for place, end in enumerate(ends):
        for problem, code, told in (("unknown", UNKNOWN, "name no node"), ("null", NULL, "are missing")):
            wrong = there & (nodes[:, place] == code)
            report[f"{end.column}_{problem}"] = int(wrong.sum())
            problems.append((wrong, f"of column {end.column!r} {told} ({end.nodes.node_type})"))
            keep &= ~wrong
    if time is not None:
        wrong = there & (time == NO_TIME)
        report["time_missing"] = int(wrong.sum())
        problems.append((wrong, f"of time {spec.time!r} are missing"))
        keep &= ~wrong
    if spec.on_missing == "error":
        for wrong, told in problems:
            if wrong.any():
                raise TableError(
                    f"{source.where}: {int(wrong.sum())} of {len(nodes)} values {told}; the first is in row "
                    f"{int(wrong.argmax())}. Leave these rows out by on_missing: drop, or complete the table."
                )
    return keep


def _table(
    kinds: SeedKinds,
    rows: np.ndarray,
    nodes: np.ndarray,
    edge_ids: np.ndarray | None,
    time: np.ndarray | None,
    labels: Labels | None,
    y: np.ndarray | None,
) -> SeedTable:
    given: dict[str, Any] = {"columns": {"table_row": rows}}
    if time is not None:
        given |= {"time": time[rows], "time_form": kinds.time_form}
    if labels is not None and y is not None:
        given["y"] = labels.as_labels(y[rows])
    if nodes.shape[1] == 1:
        return SeedTable(nodes[rows, 0], node_type=kinds.node_type, **given)
    given["edge_ids"] = None if edge_ids is None else edge_ids[rows]
    return SeedTable(src=nodes[rows, 0], dst=nodes[rows, 1], edge_type=kinds.edge_type, **given)


# Splits.


def _split_reading(source: Source, split: SplitSpec, keys: Sequence[Reading]) -> Reading | None:
    """How a row's split is read: as its word, or as a number in [0, 1) that is a pure hash of the row's keys; None
    where it follows from the time."""
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
    words = [*SPLITS, *_ALIASES]
    found = pc.index_in(pc.utf8_lower(column), value_set=pa.array(words)).fill_null(-2)
    numbers = np.array([*range(len(SPLITS)), *map(SPLITS.index, _ALIASES.values()), -2, _NO_SPLIT])
    places = np.array(found.to_numpy(zero_copy_only=False), np.int64)
    places[places == -2] = len(words)
    places[column.is_null().to_numpy(zero_copy_only=False)] = len(words) + 1
    return numbers[places]


def _phases(source: Source, spec: TaskSpec, time: np.ndarray | None, read: np.ndarray | None) -> np.ndarray:
    """Returns the number of each row's split, ``[R]``."""
    split = spec.split
    if read is not None:
        if (read == -2).any():
            raise TableError(
                f"{source.where}: {int((read == -2).sum())} values of column {split.column!r} are none of "
                f"{', '.join(SPLITS)}; the first is in row {int((read == -2).argmax())}. Translate them in SQL, or "
                "make them null: such rows are in no split."
            )
        return read
    assert time is not None
    bounds = [None if at is None else _nanoseconds(source, at, spec.timezone) for at in (split.val, split.test)]
    if None not in bounds and bounds[0] >= bounds[1]:  # type: ignore[operator]
        raise GraphSpecError(f"{source.where}.split: val ({split.val}) must lie before test ({split.test}).")
    phase = np.zeros(len(time), np.int64)
    for number, bound in enumerate(bounds, start=1):
        if bound is not None:
            phase[time >= bound] = number
    return phase


def _nanoseconds(source: Source, moment: str, zone: str | None) -> int:
    """Returns a date of graph.yaml, which is one of the times' zone."""
    whole = f"{moment}-01" if len(moment) == len("2026-03") else moment
    at = f"epoch_ns({literal(whole)}::timestamp at time zone {literal(zone or 'UTC')})"
    import duckdb

    try:
        return int(source.con.sql(f"select {at}").fetchall()[0][0])
    except duckdb.Error as error:
        raise GraphSpecError(f"{source.where}.split: {moment!r} is no date; give one as 2026-03-01.") from error


def _check_splits(source: Source, spec: TaskSpec, report: dict[str, Any], usable: np.ndarray, trains: bool) -> None:
    """Raises TableError: a split that was asked for has no rows."""
    split = spec.split
    shares = split.share or (float(trains), float(split.val is not None), float(split.test is not None))
    for name, share in zip(SPLITS, shares, strict=True):
        if share > 0 and not report[name]:
            sizes = ", ".join(f"{each} {report[each]}" for each in SPLITS)
            raise TableError(
                f"{source.where}.split: there is nothing in {name} ({sizes}), of {int(usable.sum())} rows with a node "
                f"and a label, out of {len(usable)}. Split otherwise."
            )
