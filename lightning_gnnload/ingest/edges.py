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

from lightning_gnnload.data.progress import progress
from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.errors import TableError
from lightning_gnnload.ingest.ids import NumberedNodes
from lightning_gnnload.ingest.rowset import RowSet
from lightning_gnnload.ingest.source import Reading, Source
from lightning_gnnload.ingest.spec import EdgeSpec, GraphSpec
from lightning_gnnload.ingest.threads import in_order
from lightning_gnnload.ingest.times import TimeSpan, times_of
from lightning_gnnload.ops import NO_TIME, NULL, UNKNOWN, EdgeSpill, FoundRows, SpillLists

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BUCKETS = 4096
_BUCKET_RECORDS = 1 << 20
_STRETCH_NODES = 1 << 20
_EXTENT_BYTES = 1 << 17  # long enough for a disk's full speed
SORTED_BYTES = 100  # that a record takes at most while its bucket is sorted
_FLOATS = {"FLOAT": np.float32, "DOUBLE": np.float64}
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


def graph_types(spec: GraphSpec, num_nodes: Mapping[str, int]) -> GraphTypes | None:
    """Returns the types of the graph that tables make; None for one table of nodes and one of edges, without reverse
    edges: that is a graph without types.

    Edge types follow the tables, that of reverse edges its own.
    """
    edge_types: list[EdgeType] = []
    for name, edges in spec.edges.items():
        ends = edges.src.node_type, edges.dst.node_type
        edge_types += [
            (from_, relation, to)
            for relation, (from_, to) in zip(edges.relations(name), (ends, ends[::-1]), strict=False)
        ]
    if len(spec.nodes) == len(edge_types) == 1:
        return None
    return GraphTypes(tuple(num_nodes), tuple(num_nodes.values()), tuple(edge_types))


@dataclass
class EdgeCounts:
    """What was counted of a table of edges.

    Attributes:
        rows: that it has.
        kept: those that are edges.
        src_unknown: rows whose source is none of the nodes; ``dst_unknown``: whose target.
        src_null: rows without a source; ``dst_null``: without a target.
        self_loops: edges from a node to itself, kept or not.
        without_time: edges that lack a time, which are there from the beginning.
        src_later: edges older than their source, which are there from its time on; ``dst_later``: than their target.
        repeats: rows with the ends of an earlier one, kept or not; None: they were not counted.
        first_rows: of each of these that is there, the first row.
    """

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
    repeats: int | None = None
    first_rows: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, number: int, first_row: int) -> None:
        """Adds to a count; ``first_row`` is the first of them."""
        setattr(self, name, getattr(self, name) + number)
        if number:
            self.first_rows.setdefault(name, first_row)


@dataclass(frozen=True)
class _Edges:
    """A batch, whose ends are numbered; rows that are no edges have a negative source."""

    src: np.ndarray
    dst: np.ndarray
    time: np.ndarray | None
    weight: np.ndarray | None
    span: TimeSpan
    counts: EdgeCounts


class EdgeReader:
    """Reads tables of edges into an :class:`.EdgeSpill`, table by table.

    Args:
        spec: of the graph.
        nodes: by their types.
        sources: the tables of edges, by relation.
        scratch: a folder on a disk with room for 12 to 32 bytes an edge.
        memory_bytes: what buffers, and sorting later, may take.
        num_threads: that look ends up.
        shown: show a bar.

    Attributes:
        types: of the graph, or None.
        spill: the edges, by list.
        span: of all times.
        counts: by relation.
        kept: which rows of each table are edges, by relation; None: all.
        touched: by node type, which nodes have an edge, bool ``[N_t]``.
        has_time: by relation, of reverse edges, too, whether its edges have times: their own, or their sources'.

    Raises:
        TableError: a column of weights that are no numbers.
        FeatureFileError: no room for the file.
    """

    def __init__(
        self,
        spec: GraphSpec,
        nodes: Mapping[str, NumberedNodes],
        sources: Mapping[str, Source],
        scratch: Path,
        *,
        memory_bytes: int,
        num_threads: int,
        shown: bool = True,
    ) -> None:
        self.spec, self.nodes, self.sources = spec, nodes, sources
        self.memory_bytes, self.num_threads, self.shown = memory_bytes, num_threads, shown
        num_nodes = {name: each.num_nodes for name, each in nodes.items()}
        self.types = graph_types(spec, num_nodes)
        self.num_nodes = sum(num_nodes.values())
        self.num_lists = self.num_nodes if self.types is None else int(self.types.first_run[-1])
        self.counts: dict[str, EdgeCounts] = {}
        self.kept: dict[str, RowSet | None] = {}
        self.touched = {name: np.zeros(count, np.bool_) for name, count in num_nodes.items()}
        self.span = TimeSpan()
        for each in nodes.values():
            for begin in range(0, 0 if each.time is None else each.num_nodes, _STRETCH_NODES):
                assert each.time is not None
                self.span |= TimeSpan.of(each.time[begin : begin + _STRETCH_NODES], self.span.unit)
        self.has_time = {
            relation: edges.time is not None or nodes[source].time is not None
            for name, edges in spec.edges.items()
            for relation, source in zip(edges.relations(name), (edges.src.node_type, edges.dst.node_type), strict=False)
        }
        weights = {
            name: _weight_reading(sources[name], edges.weight)
            for name, edges in spec.edges.items()
            if edges.weight is not None
        }
        self._weights = {name: reading for name, (reading, _) in weights.items()}
        self.weight_dtype = (
            np.result_type(np.float32, *(dtype for _, dtype in weights.values())).type if weights else None
        )
        self.num_rows = {name: source.num_rows for name, source in sources.items()}
        self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  it has no name, and goes with this process
        self.spill = self._spill(str(scratch))

    def close(self) -> None:
        """Gives the file's room back."""
        self._file.close()

    def read_all(self) -> None:
        """Reads all tables.

        Raises:
            TableError: rows that lack an end, which are to be an error; weights that are none; times out of range.
            FeatureFileError: the disk is full, or fails.
        """
        for name, edges in self.spec.edges.items():
            self._read(name, edges)
        self.spill.finish()
        for each in self.nodes.values():
            each.rest()  # sorting needs the memory

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
        num_buckets = (self.num_lists >> min(shift, 30)) + 1
        return EdgeSpill(
            self._file.fileno(),
            f"a scratch file in {name}",
            num_lists=self.num_lists,
            shift=min(shift, 30),
            extent_bytes=min(_EXTENT_BYTES, max(self.memory_bytes // 4 // num_buckets, 1 << 10)),
            num_nodes=self.num_nodes,
            has_time=any(self.has_time.values()),
            most_ids=max(self.num_rows.values()),
            weight_dtype=self.weight_dtype,
        )

    def _lists(self, name: str, edges: EdgeSpec) -> list[SpillLists]:
        """Returns the lists of a table's edges, and of the reverse ones."""
        ends = [self.nodes[end.node_type] for end in (edges.src, edges.dst)]
        if self.types is None:
            only = ends[0]
            return [SpillLists(only.num_nodes, only.num_nodes, source_time=only.time)]
        found = []
        for relation, (source, target) in zip(edges.relations(name), (ends, ends[::-1]), strict=False):
            number = self.types.edge_type_number((source.node_type, relation, target.node_type))
            t = self.types.node_type_number(target.node_type)
            found.append(
                SpillLists(
                    source.num_nodes,
                    target.num_nodes,
                    first_src=self.types.range_of(source.node_type).start,
                    first_list=int(self.types.first_run[t]) + self.types.slots[t].index(number),
                    step=len(self.types.slots[t]),
                    source_time=source.time,
                )
            )
        return found

    def _read(self, name: str, edges: EdgeSpec) -> None:
        source, where = self.sources[name], f"edges.{name}"
        readings = [
            source.key(
                end.column, self.nodes[end.node_type].kind, cast=self.spec.nodes[end.node_type].id_type != "auto"
            )
            for end in (edges.src, edges.dst)
        ]
        if edges.time is not None:
            readings.append(source.time(edges.time, edges.time_unit, edges.timezone))
        if edges.weight is not None:
            readings.append(self._weights[name])
        lists, counts, kept = self._lists(name, edges), EdgeCounts(), RowSet()
        self.counts[name] = counts
        with (
            progress(f"Reading {where}", self.num_rows[name], show=self.shown) as advance,
            in_order(partial(self._numbered, name, edges), source.batches(readings), self.num_threads) as batches,
        ):
            for batch in batches:
                for to, (src, dst) in zip(lists, ((batch.src, batch.dst), (batch.dst, batch.src)), strict=False):
                    added = self.spill.add(to, src, dst, batch.time, batch.weight, first_id=counts.kept)
                for what in _COUNTED:
                    first = batch.counts.first_rows.get(what, 0)
                    counts.count(what, getattr(batch.counts, what), counts.rows + first)
                kept.append((batch.src | batch.dst) >= 0)
                counts.kept += added
                counts.rows += len(batch.src)
                self.span |= batch.span
                advance(len(batch.src))
        self.kept[name] = None if counts.kept == counts.rows else kept
        if edges.on_missing == "error":
            _check_ends(name, edges, counts)

    def _numbered(self, name: str, edges: EdgeSpec, batch: pa.RecordBatch) -> _Edges:
        """Numbers the ends of a batch; threads do so at once."""
        where, counts = f"edges.{name}", EdgeCounts()
        src, dst = (
            self.nodes[end.node_type].find(batch.column(number)) for number, end in enumerate((edges.src, edges.dst))
        )
        _count_unfound(counts, "src", src)
        _count_unfound(counts, "dst", dst)
        is_edge = (src.rows | dst.rows) >= 0
        if edges.src.node_type == edges.dst.node_type:
            loops = is_edge & (src.rows == dst.rows)
            counts.count("self_loops", int(np.count_nonzero(loops)), int(loops.argmax()))
            if edges.self_loops == "drop":
                is_edge &= ~loops
                src.rows[loops] = -1
        for end, rows in ((edges.src, src.rows), (edges.dst, dst.rows)):
            self.touched[end.node_type][rows[is_edge]] = True  # alike, whichever thread is the last
        time = weight = None
        span = TimeSpan()
        if edges.time is not None:
            time = times_of(batch.column(2), f"{where}.time")
            without = is_edge & (time == NO_TIME)
            counts.count("without_time", int(np.count_nonzero(without)), int(without.argmax()))
            span = TimeSpan.of(time[is_edge], self.span.unit)
            for what, end, rows in (("src_later", edges.src, src.rows), ("dst_later", edges.dst, dst.rows)):
                if (of_nodes := self.nodes[end.node_type].time) is not None:
                    older = is_edge & (time != NO_TIME)
                    older[older] = of_nodes[rows[older]] > time[older]
                    counts.count(what, int(np.count_nonzero(older)), int(older.argmax()))
        if edges.weight is not None:
            weight = _weights_of(batch.column(batch.num_columns - 1), is_edge, self.weight_dtype, f"{where}.weight")
        return _Edges(src.rows, dst.rows, time, weight, span, counts)


_COUNTED = (
    "src_unknown",
    "src_null",
    "dst_unknown",
    "dst_null",
    "self_loops",
    "without_time",
    "src_later",
    "dst_later",
)


def _count_unfound(counts: EdgeCounts, end: str, found: FoundRows) -> None:
    for what, number, value in (("unknown", found.num_unknown, UNKNOWN), ("null", found.num_null, NULL)):
        counts.count(f"{end}_{what}", number, int((found.rows == value).argmax()) if number else 0)


def _weight_reading(source: Source, column: str) -> tuple[Reading, type]:
    """Returns how a column of weights is read, and what it then holds."""
    sql, type_ = source.column(column), source.types[column]
    if type_ not in (*_FLOATS, *_WHOLE) and not re.fullmatch(r"DECIMAL\(.*\)", type_):
        raise TableError(f"{source.where}: weight {column!r} is {type_}; numbers are needed.")
    return Reading(column, sql if type_ in _FLOATS else f"{sql}::double"), _FLOATS.get(type_, np.float64)


def _weights_of(column: pa.Array, is_edge: np.ndarray, dtype: Any, where: str) -> np.ndarray:
    """Raises TableError: the weight of an edge is missing, negative, or no number."""
    weight = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)  # a missing one is not-a-number
    bad = is_edge & ~((weight >= 0) & (weight < np.inf))
    if bad.any():
        first = int(bad.argmax())
        raise TableError(
            f"{where}: {int(bad.sum())} of {len(bad)} weights are missing, negative or not finite; the first is "
            f"{column[first].as_py()}. Weights are finite numbers of 0 or more: by SQL, select * replace "
            "(coalesce(w, 1) as w) from ..."
        )
    return np.ascontiguousarray(weight)


def _check_ends(name: str, edges: EdgeSpec, counts: EdgeCounts) -> None:
    """Raises TableError: rows lack an end."""
    problems = []
    for what, end in (("src", edges.src), ("dst", edges.dst)):
        for kind, means in (("unknown", f"name no {end.node_type}"), ("null", "have none")):
            if number := getattr(counts, f"{what}_{kind}"):
                row = counts.first_rows[f"{what}_{kind}"]
                problems.append(f"{number} {what} ({end.column!r}) {means}, the first in row {row}")
    if problems:
        raise TableError(
            f"edges.{name}: of {counts.rows} rows, {'; '.join(problems)}. Complete the tables of nodes, or leave such "
            "rows out: on_missing: drop."
        )
