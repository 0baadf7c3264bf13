"""Passes over tables and edges that the machines of a cluster make; what they find comes together here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_gnnload.host.machines import Machines
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.edges import SORTED_BYTES, EdgeReader
from lightning_gnnload.ingest.features import Feature, MissingCounts
from lightning_gnnload.ingest.ids import NumberedNodes
from lightning_gnnload.ingest.lists import ListWriter
from lightning_gnnload.ingest.open_tables import OpenTables
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spread.machine import (
    SORTING_SHARE,
    BucketRange,
    BuildMachine,
    BuildPlan,
    NumberedRows,
    num_buckets,
    segment_file,
)
from lightning_gnnload.ingest.spread.segments import Segment
from lightning_gnnload.ingest.spread.stretches import TableStretch, has_stretches, stretches
from lightning_gnnload.storage.folders import array_file
from lightning_gnnload.storage.pieces import Piece, joined_entry, reserve

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST_ROWS = 1 << 16  # of a stretch: a call takes some milliseconds
_FEWEST_ROWS = 1 << 10  # however little memory there is
_CALLS = 4  # for each thread, so that none waits long for the last
_STRETCH_NODES = 1 << 20


class MachinePasses:
    """Directs a build's passes over tables of nodes and edges; ``nodes`` are numbered already."""

    def __init__(
        self,
        machines: Machines,
        tables: OpenTables,
        reader: EdgeReader,
        folder: Path,
        scratch: Path,
        *,
        show_progress: bool,
    ) -> None:
        self.machines, self.tables, self.reader = machines, tables, reader
        self.folder, self.scratch, self.show_progress = folder, scratch, show_progress
        files = {
            source.where: source.files
            for source in (*tables.nodes.values(), *tables.edges.values())
            if source.files is not None and has_stretches(source)
        }
        self.plan = BuildPlan(
            _without_tables(tables.spec),
            tables.home.absolute(),
            folder.absolute(),
            scratch.absolute(),
            files,
            {name: _described(nodes) for name, nodes in reader.nodes.items()},
            reader.columns,
            reader.spill_settings,
        )
        machines.make(BuildMachine, self.plan)

    def read_edges(self) -> list[Segment]:
        """Reads all tables of edges into segments, as :meth:`.EdgeReader.read_all` does into its spill."""
        segments: list[Segment] = []
        for name in self.reader.spec.edges:
            first, counts = len(segments), self.reader.counts[name]
            with (
                progress(f"Reading edges.{name}", self.reader.num_rows[name], show=self.show_progress) as advance,
                self.machines.in_order("number", self._stretches_of(name, first)) as results,
            ):
                numbered: NumberedRows
                for sequence, numbered in enumerate(results, start=first):
                    for direction, offsets in enumerate(numbered.offsets):
                        file = segment_file(self.plan.scratch, sequence, direction)
                        segments.append(Segment(file, name, direction == 1, counts.kept, offsets, numbered.dtypes))
                    is_edge = np.unpackbits(numbered.is_edge, count=numbered.num_rows).view(np.bool_)
                    self.reader.count(name, numbered.counts, is_edge, numbered.num_kept, numbered.span)
                    advance(numbered.num_rows)
            self.reader.end(name)
        return segments

    def _stretches_of(
        self, name: str, sequence: int
    ) -> Iterator[tuple[int, str, TableStretch | None, Sequence[pa.RecordBatch]]]:
        """Yields the arguments of :meth:`.BuildMachine.number`: machines read Parquet themselves, and are sent what is
        read here of other tables."""
        source, most = self.tables.edges[name], self._rows_of(self.reader.num_rows[name])
        if has_stretches(source):
            for number, stretch in enumerate(stretches(source, most), start=sequence):
                yield number, name, stretch, ()
            return
        batches: list[pa.RecordBatch] = []
        for batch in source.batches(self.reader.columns.readings[name]):
            batches.append(batch)
            if sum(map(len, batches)) >= most:
                yield sequence, name, None, batches
                sequence, batches = sequence + 1, []
        if batches:
            yield sequence, name, None, batches

    def _rows_of(self, num_rows: int) -> int:
        """Returns how many rows a stretch has at most: each thread of a machine has one in memory."""
        fitting = self.reader.memory_bytes // (SORTED_BYTES * (self.machines.most_threads + 1))
        return min(max(num_rows // (_CALLS * self.machines.num_threads), _LEAST_ROWS), max(fitting, _FEWEST_ROWS))

    def write_rows(
        self,
        source: Source,
        table: str,
        features: Sequence[Feature],
        missing: MissingCounts,
        row_mask: Callable[[int, int], np.ndarray | None],
        array: str,
        dtype: Any,
        width: int,
    ) -> dict[str, Any]:
        """Writes a table of features, ``"x"`` or ``"codes"``, and returns its entry in the manifest."""
        parts = list(stretches(source, self._rows_of(source.num_rows)))
        counts = [_count(row_mask(part.begin, part.end), part) for part in parts]
        firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        shape = (int(firsts[-1]), width)
        reserve(self.folder, array, shape[0] * width * np.dtype(dtype).itemsize)
        shared = self.machines.share(features)
        calls = (
            (source.where, part, table, shared, row_mask(part.begin, part.end), array, dtype, width, int(first))
            for part, first in zip(parts, firsts, strict=False)
        )
        pieces: list[Piece] = []
        with (
            progress(f"Writing {array}", source.num_rows, show=self.show_progress) as advance,
            self.machines.in_order("rows", calls) as results,
        ):
            for part, (counted, written) in zip(parts, results, strict=True):
                missing.merge(counted)
                pieces += written
                advance(part.end - part.begin)
        return joined_entry(self.folder, array, dtype, shape, pieces)


class SpreadListWriter(ListWriter):
    """Writes the arrays of a graph from segments, range by range of buckets, which machines sort."""

    def __init__(self, passes: MachinePasses, segments: Sequence[Segment], entries: dict[str, Any]) -> None:
        super().__init__(passes.reader, passes.folder, passes.scratch, entries)
        self.machines, self.plan = passes.machines, passes.plan
        sizes = sum((np.diff(segment.offsets) for segment in segments), np.zeros(num_buckets(self.plan), np.int64))
        self.num_records = int(sizes.sum())
        self.ranges = [
            BucketRange(begin, end, [segment.cut(begin, end) for segment in segments])
            for begin, end in _ranges(sizes, self._most_together())
        ]
        self._num_repeats = np.zeros(len(self.ranges), np.int64)

    def _most_together(self) -> int:
        """Returns how many records a range shall have: so few that each machine gets some, and memory holds their
        ids."""
        build = self.edges.spec.build
        fitting = int(build.memory_bytes * SORTING_SHARE) // self.spill.record_bytes
        return max(min(self.num_records // (_CALLS * len(self.machines)), fitting), 1)

    def repeats(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        specs = self.edges.spec.edges
        is_dropped = np.array([specs[name].repeats == "drop" for name in self._table_names()])
        with self.machines.in_order("repeats", ((range_,) for range_ in self.ranges), at_once=1) as results:
            for number, pieces in enumerate(results):
                for num_records, types, ids in pieces:
                    self._num_repeats[number] += np.count_nonzero(is_dropped[types])
                    yield num_records, types, ids

    def times(self) -> Iterator[tuple[np.ndarray, int]]:
        with self.machines.in_order("times", ((range_,) for range_ in self.ranges), at_once=1) as results:
            for range_, file in zip(self.ranges, results, strict=True):
                times = mapped_bytes(file).view(np.int64) if file.stat().st_size else np.empty(0, np.int64)
                for begin in range(0, len(times), self.edges.most_records):
                    yield times[begin : begin + self.edges.most_records], 0
                yield times[:0], range_.num_records

    def _write_edges(self) -> None:
        arrays = self.arrays()
        *columns, begins = arrays
        counts = np.array([range_.num_records for range_ in self.ranges], np.int64) - self._num_repeats
        firsts = np.cumsum(counts) - counts
        self.num_edges = int(counts.sum())
        lengths = dict.fromkeys(columns, self.num_edges) | {begins: self.edges.num_lists + 1}
        for name, dtype in arrays.items():
            reserve(self.folder, name, lengths[name] * dtype.itemsize)
        pieces: dict[str, list[Piece]] = {name: [] for name in arrays}
        zero = bytes(arrays[begins].itemsize)
        pieces[begins].append(Piece(len(zero), zlib.crc32(zero)))  # where the first list begins
        is_ranked = self.clock is not None and self.clock.ranked is not None
        clock = None if self.clock is None else replace(self.clock, ranked=None)
        shared = self.machines.share(self.repeated)
        calls = (
            (range_, int(first), arrays, clock, is_ranked, shared)
            for range_, first in zip(self.ranges, firsts, strict=True)
        )
        with (
            progress("Sorting edges", self.num_records, show=self.edges.show_progress) as advance,
            self.machines.in_order("sort", calls, at_once=1) as results,
        ):
            for range_, written in zip(self.ranges, results, strict=True):
                for name, range_pieces in written.items():
                    pieces[name] += range_pieces
                advance(range_.num_records)
        self.entries |= {
            name: joined_entry(self.folder, name, dtype, (lengths[name],), pieces[name])
            for name, dtype in arrays.items()
        }

    def _isolated(self) -> dict[str, int]:
        has_edge = np.zeros(self.edges.num_nodes, np.bool_)
        bounds = np.linspace(0, self.num_edges, len(self.machines) + 1).astype(np.int64).tolist()
        calls = ((self.arrays()["indices"], begin, end) for begin, end in pairwise(bounds))
        with self.machines.in_order("touched", calls, at_once=1) as results:
            for bits in results:
                has_edge |= np.unpackbits(bits, count=len(has_edge)).view(np.bool_)
        indptr = mapped_bytes(self.folder / array_file("indptr")).view(np.int64)
        for begin in range(0, len(has_edge), _STRETCH_NODES):
            end = min(begin + _STRETCH_NODES, len(has_edge))
            has_edge[begin:end] |= np.diff(indptr[begin : end + 1]) > 0
        isolated, first = {}, 0
        for name, nodes in self.edges.nodes.items():
            isolated[name] = int(np.count_nonzero(~has_edge[first : first + nodes.num_nodes]))
            first += nodes.num_nodes
        return isolated


def _without_tables(spec: Any) -> Any:
    """Returns a description without its tables, which may lie in memory, and without tasks."""
    sections: dict[str, Any] = {
        section: {name: replace(table, table=None) for name, table in getattr(spec, section).items()}
        for section in ("nodes", "edges")
    }
    return replace(spec, **sections, tasks={})


def _described(nodes: NumberedNodes) -> tuple[dict[str, Any], Any]:
    """Returns what another process makes the same nodes of."""
    opened = ("time", "index", "files")
    return {name: value for name, value in vars(nodes).items() if name not in opened}, nodes.files


def _ranges(sizes: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yields the bounds of consecutive buckets that hold about ``most`` records together, or one bucket that holds
    more; all buckets are in one."""
    begin, together = 0, 0
    for number, size in enumerate(sizes.tolist()):
        if together and together + size > most:
            yield begin, number
            begin, together = number, 0
        together += size
    if begin < len(sizes):
        yield begin, len(sizes)


def _count(mask: np.ndarray | None, part: TableStretch) -> int:
    return part.end - part.begin if mask is None else int(np.count_nonzero(mask))
