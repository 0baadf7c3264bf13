"""Tables of edges are read, their ends numbered, and written to a file by list, larger than memory as they may be."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.errors import TableError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.ids import NumberedNodes
from lightning_gnnload.ingest.rowset import RowSet
from lightning_gnnload.ingest.source import Reading, Source
from lightning_gnnload.ingest.spec import EdgeSpec, GraphSpec
from lightning_gnnload.ingest.threads import in_order
from lightning_gnnload.ingest.times import TimeSpan, nanoseconds_of
from lightning_gnnload.ops import NO_TIME, NULL, UNKNOWN, EdgeSpill, FoundRows, SpillLists

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BUCKETS = 4096  # each has a buffer
_BUCKET_RECORDS = 1 << 20
_STRETCH_NODES = 1 << 20
_EXTENT_BYTES = 1 << 17  # long enough for a disk's full speed
SORTED_BYTES = 100  # that a record takes at most while its bucket is sorted
_FLOATS = {"FLOAT": np.float32, "DOUBLE": np.float64}
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


def graph_types(spec: GraphSpec, num_nodes: Mapping[str, int]) -> GraphTypes | None:
    """Returns the types of the graph that tables make, in their order, reverse edges behind their own; None for one
    table of nodes and one of edges without reverse edges, whose graph has no types."""
    edge_types: list[EdgeType] = []
    for name, edges in spec.edges.items():
        node_types = edges.src.node_type, edges.dst.node_type
        edge_types += [
            (from_, relation, to)
            for relation, (from_, to) in zip(edges.relations(name), (node_types, node_types[::-1]), strict=False)
        ]
    if len(spec.nodes) == len(edge_types) == 1:
        return None
    return GraphTypes(tuple(num_nodes), tuple(num_nodes.values()), tuple(edge_types))


@dataclass
class EdgeCounts:
    """What was counted of a table of edges; names are keys of ``report.json``, but for ``bad_weights``."""

    rows: int = 0
    kept: int = 0
    src_unknown: int = 0
    src_null: int = 0
    dst_unknown: int = 0
    dst_null: int = 0
    self_loops: int = 0
    without_time: int = 0
    src_later: int = 0
    dst_later: int = 0
    bad_weights: int = 0
    repeats: int | None = None
    first_rows: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, number: int, first_row: int) -> None:
        """Adds to a count; ``first_row`` is the first of them."""
        setattr(self, name, getattr(self, name) + number)
        if number:
            self.first_rows.setdefault(name, first_row)

    def count_mask(self, name: str, mask: np.ndarray) -> None:
        self.count(name, int(np.count_nonzero(mask)), int(mask.argmax()))

    def merge(self, batch: EdgeCounts) -> None:
        """Adds what was counted of the next rows, whose own ``rows`` and ``kept`` are not counted yet."""
        for name in _COUNTED:
            self.count(name, getattr(batch, name), self.rows + batch.first_rows.get(name, 0))


@dataclass(frozen=True)
class _EdgeBatch:
    """A batch, whose ends are numbered; rows that are no edges have a negative source."""

    src: np.ndarray
    dst: np.ndarray
    time: np.ndarray | None
    weight: np.ndarray | None
    span: TimeSpan
    counts: EdgeCounts


@dataclass(frozen=True)
class EdgeColumns:
    """How tables of edges are read, by relation: their numbers of rows, and the readings of ends, times and weights."""

    num_rows: dict[str, int]
    readings: dict[str, list[Reading]]
    weight_dtype: Any  # of all tables together; None where none has weights

    @classmethod
    def of(cls, spec: GraphSpec, nodes: Mapping[str, NumberedNodes], sources: Mapping[str, Source]) -> EdgeColumns:
        """Looks at the columns; raises TableError for those that hold something else."""
        readings, weight_dtypes = {}, []
        for name, edges in spec.edges.items():
            source = sources[name]
            readings[name] = [
                source.key(end.column, nodes[end.node_type].id_type, cast=spec.nodes[end.node_type].id_type != "auto")
                for end in (edges.src, edges.dst)
            ]
            if edges.time is not None:
                readings[name].append(source.time(edges.time, edges.time_unit, edges.timezone))
            if edges.weight is not None:
                reading, dtype = _weight_reading(source, edges.weight)
                readings[name].append(reading)
                weight_dtypes.append(dtype)
        weight_dtype = np.result_type(np.float32, *weight_dtypes).type if weight_dtypes else None
        return cls({name: sources[name].num_rows for name in spec.edges}, readings, weight_dtype)


class EdgeReader:
    """Reads tables of edges into an :class:`.EdgeSpill`, table by table. ``scratch`` needs 12 to 32 bytes an edge;
    ``memory_bytes`` bounds buffers, and sorting later."""

    def __init__(
        self,
        spec: GraphSpec,
        nodes: Mapping[str, NumberedNodes],
        sources: Mapping[str, Source],
        scratch: Path,
        *,
        memory_bytes: int,
        num_threads: int,
        show_progress: bool = True,
        columns: EdgeColumns | None = None,
    ) -> None:
        self.spec, self.nodes, self.sources = spec, nodes, sources
        self.columns = columns or EdgeColumns.of(spec, nodes, sources)
        self.memory_bytes, self.num_threads, self.show_progress = memory_bytes, num_threads, show_progress
        num_nodes = {name: numbered.num_nodes for name, numbered in nodes.items()}
        self.types = graph_types(spec, num_nodes)
        self.num_nodes = sum(num_nodes.values())
        self.num_lists = self.num_nodes if self.types is None else int(self.types.first_run[-1])
        self.counts = {name: EdgeCounts() for name in spec.edges}
        self._edge_rows = {name: RowSet() for name in spec.edges}
        self.edge_rows: dict[str, RowSet | None] = {}  # which rows of a table are edges; None: all
        self.touched = {name: np.zeros(count, np.bool_) for name, count in num_nodes.items()}  # nodes with an edge
        self.span = _node_span(nodes)
        self.has_time = _timed_relations(spec, nodes)
        self.weight_dtype, self.num_rows = self.columns.weight_dtype, self.columns.num_rows
        self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  it has no name, and goes with this process
        self.spill = self._spill(str(scratch))

    def close(self) -> None:
        """Gives the file's room back."""
        self._file.close()

    def read_all(self) -> None:
        """Reads all tables; raises TableError for rows without an end where these are errors, for wrong weights and for
        times out of range."""
        for name in self.spec.edges:
            self._read(name)
        self.spill.finish()
        for numbered in self.nodes.values():
            numbered.rest()  # sorting needs the memory

    @property
    def most_records(self) -> int:
        """How many records are sorted at once, at most, by each of the threads, one of which may wait to be written."""
        return max(self.memory_bytes // (SORTED_BYTES * (self.num_threads + 1)), 1 << 10)

    def _spill(self, name: str) -> EdgeSpill:
        num_records = sum(
            len(edges.relations(relation)) * self.num_rows[relation] for relation, edges in self.spec.edges.items()
        )
        # A few times as many as would just do, since lists differ; a cache holds them the better, too.
        num_buckets = num_records // min(_BUCKET_RECORDS, -(-self.most_records // 4)) + 1
        shift = max((self.num_lists // min(num_buckets, MOST_BUCKETS)).bit_length(), 0)
        # A bucket holds the lists whose numbers have the same high bits: which one an edge belongs to is a shift.
        num_buckets = (self.num_lists >> min(shift, 30)) + 1
        self.spill_settings: dict[str, Any] = {
            "num_lists": self.num_lists,
            "shift": min(shift, 30),
            "extent_bytes": min(_EXTENT_BYTES, max(self.memory_bytes // 4 // num_buckets, 1 << 10)),
            "num_nodes": self.num_nodes,
            "has_time": any(self.has_time.values()),
            "most_ids": max(self.num_rows.values()),
            "weight_dtype": self.weight_dtype,
        }
        return EdgeSpill(self._file.fileno(), f"a scratch file in {name}", **self.spill_settings)

    def lists(self, name: str) -> list[SpillLists]:
        """Returns the lists that a table's edges go to, and those of its reverse edges, if there are any."""
        edges = self.spec.edges[name]
        endpoints = [self.nodes[end.node_type] for end in (edges.src, edges.dst)]
        if self.types is None:
            only = endpoints[0]
            return [SpillLists(only.num_nodes, only.num_nodes, source_time=only.time)]
        lists = []
        for relation, (source, target) in zip(edges.relations(name), (endpoints, endpoints[::-1]), strict=False):
            number = self.types.edge_type_number((source.node_type, relation, target.node_type))
            t = self.types.node_type_number(target.node_type)
            lists.append(
                SpillLists(
                    source.num_nodes,
                    target.num_nodes,
                    first_src=self.types.range_of(source.node_type).start,
                    first_list=int(self.types.first_run[t]) + self.types.slots[t].index(number),
                    step=len(self.types.slots[t]),
                    source_time=source.time,
                )
            )
        return lists

    def _read(self, name: str) -> None:
        lists, batches = self.lists(name), self.sources[name].batches(self.columns.readings[name])
        with (
            progress(f"Reading edges.{name}", self.num_rows[name], show=self.show_progress) as advance,
            in_order(partial(self.number_ends, name), batches, self.num_threads) as numbered,
        ):
            for batch in numbered:
                # One list, or two where there are reverse edges, whose ids are those of their originals.
                for to, (src, dst) in zip(lists, ((batch.src, batch.dst), (batch.dst, batch.src)), strict=False):
                    added = self.spill.add(to, src, dst, batch.time, batch.weight, first_id=self.counts[name].kept)
                self.count(name, batch.counts, (batch.src | batch.dst) >= 0, added, batch.span)
                advance(len(batch.src))
        self.end(name)

    def count(self, name: str, counts: EdgeCounts, is_edge: np.ndarray, num_kept: int, span: TimeSpan) -> None:
        """Counts the next rows of a table: which of them are edges, bool ``[n]``, and how many."""
        self.counts[name].merge(counts)
        self._edge_rows[name].append(is_edge)
        self.counts[name].kept += num_kept
        self.counts[name].rows += len(is_edge)
        self.span |= span

    def end(self, name: str) -> None:
        """Ends a table; raises TableError for rows without an end where these are errors, and for bad weights."""
        counts, edges = self.counts[name], self.spec.edges[name]
        self.edge_rows[name] = None if counts.kept == counts.rows else self._edge_rows[name]
        if edges.on_missing == "error":
            _check_ends(name, edges, counts)
        if counts.bad_weights:
            raise TableError(
                f"edges.{name}.weight: {counts.bad_weights} of {counts.rows} weights are missing, negative or not "
                f"finite, the first in row {counts.first_rows['bad_weights']}. Weights are finite numbers of 0 or "
                "more: by SQL, select * replace (coalesce(w, 1) as w) from ..."
            )

    def number_ends(self, name: str, batch: pa.RecordBatch) -> _EdgeBatch:
        """Numbers the ends of a batch; threads do so at once."""
        where, counts, edges = f"edges.{name}", EdgeCounts(), self.spec.edges[name]
        src, dst = (
            self.nodes[end.node_type].find(batch.column(number)) for number, end in enumerate((edges.src, edges.dst))
        )
        _count_unfound(counts, "src", src)
        _count_unfound(counts, "dst", dst)
        is_edge = (src.rows | dst.rows) >= 0
        if edges.src.node_type == edges.dst.node_type:
            loops = is_edge & (src.rows == dst.rows)
            counts.count_mask("self_loops", loops)
            if edges.self_loops == "drop":
                is_edge &= ~loops
                src.rows[loops] = -1
        for end, rows in ((edges.src, src.rows), (edges.dst, dst.rows)):
            self.touched[end.node_type][rows[is_edge]] = True  # alike, whichever thread is the last
        time = weight = None
        span = TimeSpan()
        if edges.time is not None:
            time = nanoseconds_of(batch.column(2), f"{where}.time")
            counts.count_mask("without_time", is_edge & (time == NO_TIME))
            span = TimeSpan.of(time[is_edge], self.span.unit)
            for name_of_count, end, rows in (("src_later", edges.src, src.rows), ("dst_later", edges.dst, dst.rows)):
                if (node_time := self.nodes[end.node_type].time) is not None:
                    older = is_edge & (time != NO_TIME)
                    older[older] = node_time[rows[older]] > time[older]
                    counts.count_mask(name_of_count, older)
        if edges.weight is not None:
            column = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
            weight = np.ascontiguousarray(column, self.weight_dtype)  # a missing one is not-a-number
            # Rows that are no edges may lack one.
            counts.count_mask("bad_weights", is_edge & ~((weight >= 0) & (weight < np.inf)))
        return _EdgeBatch(src.rows, dst.rows, time, weight, span, counts)


_COUNTED = (
    "src_unknown",
    "src_null",
    "dst_unknown",
    "dst_null",
    "self_loops",
    "without_time",
    "src_later",
    "dst_later",
    "bad_weights",
)


def _timed_relations(spec: GraphSpec, nodes: Mapping[str, NumberedNodes]) -> dict[str, bool]:
    """Returns by relation, of reverse edges, too, whether edges have times: their own, or their sources', from which on
    an edge is there that has none."""
    return {
        relation: edges.time is not None or nodes[source].time is not None
        for name, edges in spec.edges.items()
        for relation, source in zip(edges.relations(name), (edges.src.node_type, edges.dst.node_type), strict=False)
    }


def _node_span(nodes: Mapping[str, NumberedNodes]) -> TimeSpan:
    """Returns what the times of all nodes span, a stretch at a time: they are mapped, and may exceed memory."""
    span = TimeSpan()
    for numbered in nodes.values():
        if numbered.time is not None:
            for begin in range(0, numbered.num_nodes, _STRETCH_NODES):
                span |= TimeSpan.of(numbered.time[begin : begin + _STRETCH_NODES], span.unit)
    return span


def _count_unfound(counts: EdgeCounts, end: str, lookup: FoundRows) -> None:
    for problem, number, value in (("unknown", lookup.num_unknown, UNKNOWN), ("null", lookup.num_null, NULL)):
        counts.count(f"{end}_{problem}", number, int((lookup.rows == value).argmax()) if number else 0)


def _weight_reading(source: Source, column: str) -> tuple[Reading, type]:
    """Returns how a column of weights is read, and as which dtype."""
    sql, type_ = source.column(column), source.types[column]
    if type_ not in (*_FLOATS, *_WHOLE) and not re.fullmatch(r"DECIMAL\(.*\)", type_):
        raise TableError(f"{source.where}: weight {column!r} is {type_}; numbers are needed.")
    return Reading(column, sql if type_ in _FLOATS else f"{sql}::double"), _FLOATS.get(type_, np.float64)


def _check_ends(name: str, edges: EdgeSpec, counts: EdgeCounts) -> None:
    """Raises TableError: rows lack an end."""
    problems = []
    for side, end in (("src", edges.src), ("dst", edges.dst)):
        for problem, means in (("unknown", f"name no {end.node_type}"), ("null", "have none")):
            if number := getattr(counts, f"{side}_{problem}"):
                row = counts.first_rows[f"{side}_{problem}"]
                problems.append(f"{number} {side} ({end.column!r}) {means}, the first in row {row}")
    if problems:
        raise TableError(
            f"edges.{name}: of {counts.rows} rows, {'; '.join(problems)}. Complete the tables of nodes, or leave such "
            "rows out: on_missing: drop."
        )
