"""Edges that lie by list in a file become the arrays of a graph, bucket by bucket."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ingest.edges import EdgeCounts, EdgeReader
from lightning_gnnload.ingest.rowset import RowSet
from lightning_gnnload.ingest.threads import in_order
from lightning_gnnload.ingest.times import codes_of, merge_times
from lightning_gnnload.ops import NO_TIME, Bucket, EdgeList, Records, Runs, build_runs
from lightning_gnnload.storage.folders import ArrayWriter, array_file
from lightning_gnnload.storage.graphs import RANKED

_STRETCH_LISTS = 1 << 20


@dataclass(frozen=True)
class WrittenGraph:
    """The graph that was written, for the manifest and the report."""

    num_nodes: int  # of all types
    num_edges: int  # of all types
    types: GraphTypes | None  # or None
    clock: Clock | None  # or None
    counts: dict[str, EdgeCounts]  # of each table of edges, by relation
    isolated: dict[str, int]  # how many nodes of each type have no edge
    # which edges of each table were left out, as others have the same ends: rows of the table but for those that
    # ``edge_rows`` lacks; None: none.
    repeated: dict[str, RowSet | None]
    edge_rows: dict[str, RowSet | None]  # which rows of each table are edges, before repeats are left out; None: all
    scratch_bytes: int  # what the file of edges took

    def in_graph(self, relation: str, begin: int, end: int) -> np.ndarray | None:
        """Returns which rows of a table, from ``begin`` to ``end``, are edges of the graph, bool; None: all. These
        rows, in their order, are those that ``edge_order`` counts."""
        edge_rows, repeated = self.edge_rows[relation], self.repeated[relation]
        if edge_rows is None and repeated is None:
            return None
        mask = np.ones(end - begin, np.bool_) if edge_rows is None else edge_rows.holds(begin, end).copy()
        if repeated is not None:
            first = begin if edge_rows is None else int(edge_rows.count_below(np.array([begin]))[0])
            mask[mask] = ~repeated.holds(first, first + int(np.count_nonzero(mask)))
        return mask


class Appendable(Protocol):
    """Takes rows of an array, in turn."""

    def append(self, rows: np.ndarray) -> None: ...


class _Piece(NamedTuple):
    """Records that are sorted at once: all of a bucket, or a slice of one whose records are in order."""

    origin: Bucket  # of the spill, which it was cut from
    bucket: Bucket
    rows: slice


def write_lists(
    edges: EdgeReader, folder: Path, scratch: Path, entries: dict[str, Any], *, repeats: bool = False
) -> WrittenGraph:
    """Writes the arrays of a graph from edges that were read, as ``Graph.from_hetero(..., keep_order=True)`` or
    ``from_coo`` make them. Only where times are numbered by their rank, those of edges whose source comes later are not
    numbered, too.

    A bucket that is too large to be sorted at once is divided: by lists, and one list by time. ``repeats`` counts rows
    that repeat an earlier one of their table, also where they stay.
    """
    return ListWriter(edges, folder, scratch, entries).write(repeats)


class ListWriter:
    """Writes the arrays of a graph in passes over the spill: repeats, times, then sorted edges."""

    def __init__(self, edges: EdgeReader, folder: Path, scratch: Path, entries: dict[str, Any]) -> None:
        self.edges, self.spill, self.types = edges, edges.spill, edges.types
        self.folder, self.scratch, self.entries = folder, scratch, entries
        self.num_records = sum(bucket.num_records for bucket in self.spill.buckets)
        self.repeated: dict[str, RowSet | None] = dict.fromkeys(edges.counts)
        self.clock: Clock | None = None
        # Twice the spill: the arrays are about as large as it, and cut buckets are written anew.
        self.is_short = shutil.disk_usage(folder).free < 2 * self.num_records * self.spill.record_bytes

    def write(self, repeats: bool) -> WrittenGraph:
        self._find_repeats(repeats)
        if self.spill.has_time:
            self.clock = self.edges.span.clock(self._timed_types(), self._write_ranks)
            self._write_node_times()
        self._write_edges()
        if self.types is not None:
            self._write_begins(self.types)
        return WrittenGraph(
            self.edges.num_nodes,
            self.num_edges,
            self.types,
            self.clock,
            self.edges.counts,
            self._isolated(),
            self.repeated,
            self.edges.edge_rows,
            self.spill.num_bytes,
        )

    def _isolated(self) -> dict[str, int]:
        return {name: int(np.count_nonzero(~touched)) for name, touched in self.edges.touched.items()}

    # Buckets, and what they are cut into.

    def _pieces(self, *, by_source: bool = False, keep: bool = False) -> Iterator[_Piece]:
        for bucket in self.spill.buckets:
            yield from self._cut(bucket, bucket, by_source, keep)

    def _cut(self, origin: Bucket, bucket: Bucket, by_source: bool, keep: bool) -> Iterator[_Piece]:
        """Yields pieces of a bucket in the order of lists and of time, or source. What was cut is given up; with
        ``keep`` the bucket itself is not."""
        most = self.edges.most_records
        if bucket.num_records <= most:
            yield _Piece(origin, bucket, slice(0, bucket.num_records))
        elif parts := self.spill.split(bucket, by_source=by_source):
            if self.is_short and (not keep or bucket != origin):
                self.spill.release(bucket)
            for part in parts:
                yield from self._cut(origin, part, by_source, keep)
        else:  # of one list and one time, or source: they lie in the order that they are to have
            for begin in range(0, bucket.num_records, most):
                yield _Piece(origin, bucket, slice(begin, min(begin + most, bucket.num_records)))

    def _release(self, piece: _Piece, *, keep: bool = False) -> None:
        """Gives up a bucket that has been read, where the disk is short of room."""
        # Only there: the system writes what it has not written yet before it gives room back, and a file that goes as a
        # whole need not be written at all.
        is_done = piece.rows.stop == piece.bucket.num_records
        if self.is_short and is_done and not (keep and piece.bucket == piece.origin):
            self.spill.release(piece.bucket)

    # Repeats.

    def _find_repeats(self, counted: bool) -> None:
        """Finds the edges that have the ends of an earlier one of their table."""
        specs = self.edges.spec.edges
        dropped = {name for name, spec in specs.items() if spec.repeats == "drop"}
        looked_at = set(self.edges.counts) if counted else dropped
        if not looked_at:
            return
        repeats = {name: RowSet(self.edges.counts[name].kept) for name in self.edges.counts if name in looked_at}
        with progress("Looking for repeats", self.num_records, show=self.edges.show_progress) as advance:
            for num_records, types, ids in self.repeats():
                for number, name in enumerate(self._table_names()):
                    if name in repeats:
                        repeats[name].add(ids[types == number])
                advance(num_records)
        for name, rows in repeats.items():
            self.edges.counts[name].repeats = len(rows)
            if name in dropped and len(rows):
                self.repeated[name] = rows

    def repeats(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields how many records were looked at, and which edges repeat an earlier one: their types and ids."""
        pieces = self._pieces(by_source=True, keep=True)
        with in_order(self._repeats_in, pieces, self.edges.num_threads) as results:
            for piece, types, ids in results:
                yield piece.rows.stop - piece.rows.start, types, ids
                self._release(piece, keep=True)

    def _table_names(self) -> list[str]:
        """Returns the table of each edge type: reverse edges have that of their originals."""
        return [name for name, spec in self.edges.spec.edges.items() for _ in spec.relations(name)]

    def _repeats_in(self, piece: _Piece) -> tuple[_Piece, np.ndarray, np.ndarray]:
        """Returns the edges of a piece that repeat an earlier one: their types and ids."""
        records = self.spill.read(piece.bucket, piece.rows)
        # By list and source, and otherwise as they came: the first stays.
        order = np.lexsort((records.src, records.list))
        lists, src = records.list[order], records.src[order]
        again = np.zeros(len(order), np.bool_)
        again[1:] = (lists[1:] == lists[:-1]) & (src[1:] == src[:-1])
        again[:1] = piece.rows.start > 0  # a slice is of one list and source
        repeated = order[again]
        return piece, self._types_of(piece.bucket, records.list[repeated]), records.id[repeated]

    def _types_of(self, bucket: Bucket, lists: np.ndarray) -> np.ndarray:
        """Returns the number of the edge type of each list of a bucket."""
        if self.types is None:
            return np.zeros(len(lists), np.int32)
        return self.types.type_of_runs(bucket.first_list + lists.astype(np.int64))

    # Times.

    def _timed_types(self) -> np.ndarray:
        return np.array(list(self.edges.has_time.values()), np.bool_)

    def _write_ranks(self) -> np.ndarray:
        """Writes all times that there are, ascending, and maps them."""

        def chunks() -> Iterator[np.ndarray]:
            for nodes in self.edges.nodes.values():
                if nodes.time is not None:
                    for begin in range(0, nodes.num_nodes, self.edges.most_records):
                        yield nodes.time[begin : begin + self.edges.most_records]
            with progress("Ordering times", self.num_records, show=self.edges.show_progress) as advance:
                for times, num_records in self.times():
                    yield times
                    advance(num_records)

        file, self.entries[RANKED] = merge_times(chunks(), self.scratch, self.folder, RANKED, self.edges.most_records)
        return mapped_bytes(file).view(np.int64)

    def times(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the times of edges, and of how many records they are."""
        for bucket in self.spill.buckets:
            for begin in range(0, bucket.num_records, self.edges.most_records):
                records = self.spill.read(bucket, slice(begin, begin + self.edges.most_records))
                assert records.time is not None
                yield records.time, len(records.time)

    def _write_node_times(self) -> None:
        if all(nodes.time is None for nodes in self.edges.nodes.values()):
            return
        with ArrayWriter(self.folder, "node_time", np.int64) as writer:
            for nodes in self.edges.nodes.values():
                for begin in range(0, nodes.num_nodes, _STRETCH_LISTS):
                    end = min(begin + _STRETCH_LISTS, nodes.num_nodes)
                    writer.append(np.full(end - begin, NO_TIME) if nodes.time is None else nodes.time[begin:end])
            self.entries["node_time"] = writer.entry()

    # Edges.

    def arrays(self) -> dict[str, np.dtype]:
        """Returns the dtypes of the arrays of edges, and of where lists begin, which comes last."""
        most_edges = max((counts.kept for counts in self.edges.counts.values()), default=0)
        dtypes: dict[str, Any] = {
            "indices": self.spill.index_dtype,
            # Row numbers of one table, from 0: 2**31 of them fit.
            "edge_order": np.int32 if most_edges <= 2**31 else np.int64,
        }
        if self.spill.has_time:
            dtypes["edge_time"] = np.uint32
        if self.spill.weight_dtype is not None:
            dtypes["edge_weight"] = self.spill.weight_dtype
        narrow = self.types is not None and self.num_records < 2**32
        dtypes[self._begins] = np.uint32 if narrow else np.int64
        return {name: np.dtype(dtype) for name, dtype in dtypes.items()}

    @property
    def _begins(self) -> str:
        """The array of where lists begin. Without types a node has one list: where lists begin is where nodes begin."""
        return "indptr" if self.types is None else "run_ptr"

    def _write_edges(self) -> None:
        with ExitStack() as stack:
            files = {
                array: stack.enter_context(ArrayWriter(self.folder, array, dtype))
                for array, dtype in self.arrays().items()
            }
            files[self._begins].append(np.zeros(1, np.int64))
            with progress("Sorting edges", self.num_records, show=self.edges.show_progress) as advance:
                self.num_edges = self.write_sorted(files, advance)
            self.entries |= {array: file.entry() for array, file in files.items()}

    def write_sorted(
        self, files: Mapping[str, Appendable], advance: Callable[[int], object], *, num_edges: int = 0
    ) -> int:
        """Writes all edges, bucket by bucket, and where each list ends; returns how many edges there are, with the
        ``num_edges`` of lists before."""
        with in_order(self._sort_piece, self._pieces(), self.edges.num_threads) as results:
            for origin, group in groupby(results, key=lambda result: result[0].origin):
                sizes = np.zeros(origin.num_lists, np.int64)
                for piece, runs in group:
                    first = piece.bucket.first_list - origin.first_list
                    # A list that was cut by time comes in several pieces, so that sizes are sums.
                    sizes[first : first + piece.bucket.num_lists] += np.diff(runs.run_ptr)
                    for array, values in _columns(runs).items():
                        files[array].append(values)
                    self._release(piece)
                    advance(piece.rows.stop - piece.rows.start)
                files[self._begins].append(num_edges + np.cumsum(sizes))
                num_edges += int(sizes.sum())
        return num_edges

    def _sort_piece(self, piece: _Piece) -> tuple[_Piece, Runs]:
        """Reads a piece, and sorts it by list, time and row; threads do so at once."""
        records = self._without_repeats(piece.bucket, self.spill.read(piece.bucket, piece.rows))
        edges = EdgeList(
            "edges",
            records.src,
            records.list,
            self.edges.num_nodes,
            piece.bucket.num_lists,
            code=None if self.clock is None or records.time is None else codes_of(records.time, self.clock),
            columns=[records.id] if records.weight is None else [records.id, records.weight],
        )
        return piece, build_runs([edges], piece.bucket.num_lists, records.src.dtype)

    def _without_repeats(self, bucket: Bucket, records: Records) -> Records:
        """Leaves repeats out, and counts the ids of other edges without them."""
        if all(rows is None for rows in self.repeated.values()):
            return records
        types, ids = self._types_of(bucket, records.list), records.id.astype(np.int64)
        stays = np.ones(len(ids), np.bool_)
        for number, name in enumerate(self._table_names()):
            if (rows := self.repeated[name]) is not None:
                mine = np.flatnonzero(types == number)
                before = rows.count_below(ids[mine])
                stays[mine] = rows.count_below(ids[mine] + 1) == before
                ids[mine] -= before
        records = records._replace(id=ids.astype(records.id.dtype))
        return Records(*(None if column is None else column[stays] for column in records))  # type: ignore[arg-type]

    def _write_begins(self, types: GraphTypes) -> None:
        """Writes where the first list of each node begins."""
        begins = mapped_bytes(self.folder / array_file(self._begins)).view(self.arrays()[self._begins])
        with ArrayWriter(self.folder, "indptr", np.int64) as writer:
            for number, slots in enumerate(types.slots):
                first, step = int(types.first_run[number]), len(slots)
                for begin in range(0, types.num_nodes[number], _STRETCH_LISTS):
                    end = min(begin + _STRETCH_LISTS, types.num_nodes[number])
                    if step:
                        writer.append(begins[first + begin * step : first + end * step : step])
                    else:
                        writer.append(np.full(end - begin, begins[first], np.int64))
            writer.append(begins[-1:])
            self.entries["indptr"] = writer.entry()


def _columns(runs: Runs) -> dict[str, np.ndarray]:
    columns = {"indices": runs.indices, "edge_order": runs.columns[0]}
    if runs.edge_time is not None:
        columns["edge_time"] = runs.edge_time
    if len(runs.columns) > 1:
        columns["edge_weight"] = runs.columns[1]
    return columns
