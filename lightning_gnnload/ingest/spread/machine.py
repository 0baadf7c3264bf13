"""BuildMachine: what one machine does of a build. Each call writes files, and comes to the same if it is made twice."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_gnnload.data.clock import Clock
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.ingest.edges import EdgeColumns, EdgeCounts, EdgeReader
from lightning_gnnload.ingest.features import Feature, MissingCounts, code_rows, x_rows
from lightning_gnnload.ingest.ids import NodeFiles, NumberedNodes
from lightning_gnnload.ingest.lists import ListWriter
from lightning_gnnload.ingest.rowset import RowSet
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.spread.segments import Cut, SegmentColumns, SegmentSpill, write_segment
from lightning_gnnload.ingest.spread.stretches import TableStretch
from lightning_gnnload.ingest.sql import open_database
from lightning_gnnload.ingest.times import TimeSpan, merge_times
from lightning_gnnload.storage.folders import array_file
from lightning_gnnload.storage.graphs import RANKED
from lightning_gnnload.storage.pieces import Piece, PieceWriter

if TYPE_CHECKING:
    import pyarrow as pa

DUCKDB_SHARE, SORTING_SHARE = 0.5, 0.25
"""Shares of the memory that a build may take on a machine; the rest is left to the index of ids."""
ROWS_OF = {"x": x_rows, "codes": code_rows}
"""What makes the rows of a table of features."""


@dataclass(frozen=True)
class BuildPlan:
    """What machines are told of a build: the description without its tables, and the files of these and of the nodes
    that were numbered already."""

    spec: GraphSpec
    home: Path
    folder: Path
    scratch: Path
    files: Mapping[str, list[str]]  # of Parquet, by where their table stands in graph.yaml
    nodes: Mapping[str, tuple[dict[str, Any], NodeFiles]]
    columns: EdgeColumns
    spill_settings: dict[str, Any]


class NumberedRows(NamedTuple):
    """What was found in a stretch of a table of edges, whose edges are in segments by now."""

    counts: EdgeCounts
    is_edge: np.ndarray  # bits
    num_rows: int
    num_kept: int
    span: TimeSpan
    offsets: list[np.ndarray]  # of each segment
    dtypes: tuple[Any, ...]  # of their columns


class BucketRange(NamedTuple):
    """Buckets ``begin`` to ``end``, which are sorted together, and where their edges are."""

    begin: int
    end: int
    cuts: list[Cut]

    @property
    def num_records(self) -> int:
        return sum(cut.end - cut.begin for cut in self.cuts)


class BuildMachine:
    """Reads stretches of tables, and sorts ranges of buckets, for a build that another machine directs.

    It has an index of all nodes' ids, which its threads share: 12 bytes an id.
    """

    def __init__(self, plan: BuildPlan) -> None:
        self.plan, self._lock = plan, Lock()
        self._con = open_database(
            plan.spec.build,
            plan.scratch / f"duckdb-{secrets.token_hex(8)}",
            plan.home,
            files=[file for files in plan.files.values() for file in files],
            share=DUCKDB_SHARE,
        )

    def _source(self, where: str) -> Source:
        # Each thread has a connection of its own to the database.
        return Source(self._con.cursor(), self.plan.files[where], where, self.plan.home)

    @property
    def _edges(self) -> EdgeReader:
        with self._lock:  # of two threads that ask first, one makes it
            return self._reader

    @cached_property
    def _reader(self) -> EdgeReader:
        build = self.plan.spec.build
        return EdgeReader(
            self.plan.spec,
            {name: NumberedNodes.of_files(*nodes) for name, nodes in self.plan.nodes.items()},
            {},
            self.plan.scratch,
            memory_bytes=int(build.memory_bytes * SORTING_SHARE),
            num_threads=build.num_threads,
            show_progress=False,
            columns=self.plan.columns,
        )

    # Stretches of edges.

    def number(
        self, sequence: int, name: str, stretch: TableStretch | None, batches: list[pa.RecordBatch]
    ) -> NumberedRows:
        """Numbers the ends of a stretch's rows, or of ``batches`` that were read for it, and writes a segment for its
        edges, and one for their reverse edges."""
        edges = self._edges
        if stretch is not None:
            batches = stretch.of(self._source(f"edges.{name}")).batches(self.plan.columns.readings[name])  # type: ignore[assignment]
        counts, span = EdgeCounts(), TimeSpan()
        masks, columns = [np.empty(0, np.bool_)], []
        for batch in batches:
            numbered = edges.number_ends(name, batch)
            is_edge = (numbered.src | numbered.dst) >= 0
            counts.merge(numbered.counts)
            counts.rows += len(is_edge)
            span |= numbered.span
            masks.append(is_edge)
            edge_columns = numbered.src, numbered.dst, numbered.time, numbered.weight
            columns.append([None if column is None else column[is_edge] for column in edge_columns])
        is_edge = np.concatenate(masks)
        src, dst, time, weight = (
            None if parts[0] is None else np.concatenate(parts) for parts in zip(*columns, strict=True)
        )
        assert src is not None
        assert dst is not None
        ids = np.arange(len(src), dtype=np.int32)
        offsets = []
        for direction, lists in enumerate(edges.lists(name)):
            endpoints = (src, dst) if direction == 0 else (dst, src)
            rows = SegmentColumns(*endpoints, ids, time, weight)
            file = segment_file(self.plan.scratch, sequence, direction)
            offsets.append(write_segment(file, rows, lists, self.plan.spill_settings["shift"], num_buckets(self.plan)))
        dtypes = tuple(None if column is None else column.dtype for column in rows)
        return NumberedRows(counts, np.packbits(is_edge), len(is_edge), len(src), span, offsets, dtypes)

    # Ranges of buckets.

    def repeats(self, range_: BucketRange) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Returns the edges that repeat an earlier one, as :meth:`.ListWriter.repeats` does."""
        with self._lists(range_) as lists:
            return list(lists.repeats())

    def times(self, range_: BucketRange) -> Path:
        """Writes the times of edges, each once and ascending, to a file."""
        with self._lists(range_) as lists:
            most = self._edges.most_records
            chunks, name = (times for times, _ in lists.times()), f"times-{secrets.token_hex(8)}"
            return merge_times(chunks, self.plan.scratch, self.plan.scratch, name, most)[0]

    def sort(
        self,
        range_: BucketRange,
        num_edges: int,
        arrays: Mapping[str, np.dtype],
        clock: Clock | None,
        is_ranked: bool,
        repeated: dict[str, RowSet | None],
    ) -> dict[str, list[Piece]]:
        """Writes the sorted edges of a range, behind ``num_edges`` of those before, to each of ``arrays``, of which the
        last says where lists begin. Repeated ones are left out; of ranked times the clock has no array, but the folder
        has."""
        if clock is not None and is_ranked:
            clock = replace(clock, ranked=mapped_bytes(self.plan.folder / array_file(RANKED)).view(np.int64))
        *_, begins = arrays  # of which there is one more than there are lists
        first_list = range_.begin << self.plan.spill_settings["shift"]
        with self._lists(range_) as lists, ExitStack() as stack:
            lists.clock, lists.repeated = clock, repeated
            files = {
                name: stack.enter_context(
                    PieceWriter(self.plan.folder, name, dtype, first=first_list + 1 if name == begins else num_edges)
                )
                for name, dtype in arrays.items()
            }
            lists.write_sorted(files, lambda num_records: None, num_edges=num_edges)
            return {name: file.finish() for name, file in files.items()}

    @contextmanager
    def _lists(self, range_: BucketRange) -> Iterator[ListWriter]:
        """Yields what sorts the edges of a range, which have been read into a file of its own."""
        edges = copy(self._edges)
        lists = {
            (name, direction == 1): to for name in edges.spec.edges for direction, to in enumerate(edges.lists(name))
        }
        with tempfile.TemporaryFile(dir=self.plan.scratch) as file:
            spill = SegmentSpill(file, range_.begin, range_.end, range_.cuts, self.plan.spill_settings)
            spill.fill(lists)
            edges.spill = spill
            yield ListWriter(edges, self.plan.folder, self.plan.scratch, {})

    def touched(self, dtype: np.dtype, begin: int, end: int) -> np.ndarray:
        """Returns which nodes are sources of edges ``begin`` to ``end``, in bits."""
        mask = np.zeros(self.plan.spill_settings["num_nodes"], np.bool_)
        if begin < end:
            mask[mapped_bytes(self.plan.folder / array_file("indices")).view(dtype)[begin:end]] = True
        return np.packbits(mask)

    # Features.

    def rows(
        self,
        where: str,
        stretch: TableStretch,
        table: str,
        features: Sequence[Feature],
        mask: np.ndarray | None,
        array: str,
        dtype: Any,
        width: int,
        first: int,
    ) -> tuple[MissingCounts, list[Piece]]:
        """Writes the features of a stretch, of the rows that are in the ``mask``, from row ``first`` of their array
        on."""
        missing, at = MissingCounts(), 0
        with PieceWriter(self.plan.folder, array, dtype, (width,), first=first) as writer:
            for rows in ROWS_OF[table](stretch.of(self._source(where)), features, missing):
                writer.append(rows if mask is None else rows[mask[at : at + len(rows)]])
                at += len(rows)
            return missing, writer.finish()


def segment_file(scratch: Path, sequence: int, direction: int) -> Path:
    """Returns the file of a stretch's edges, or with ``direction`` 1 of their reverse edges."""
    return scratch / f"segment-{sequence}-{direction}"


def num_buckets(plan: BuildPlan) -> int:
    """Returns how many buckets all lists are in."""
    return -(-plan.spill_settings["num_lists"] >> plan.spill_settings["shift"])
