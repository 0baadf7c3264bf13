"""Segments: the numbered edges of a stretch in a file, by bucket, from which a machine reads the buckets it sorts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from lightning_gnnload.errors import FeatureFileError
from lightning_gnnload.ops import Bucket, EdgeSpill, Records, SpillLists


class SegmentColumns(NamedTuple):
    """Edges of one type, ``[n]``: their ends within their node types, the place of each among the edges of its stretch,
    and what else they have."""

    src: np.ndarray  # int32
    dst: np.ndarray  # int32
    id: np.ndarray  # int32
    time: np.ndarray | None  # int64
    weight: np.ndarray | None


class Segment(NamedTuple):
    """A file of edges of one type, sorted by bucket, and as they came within each."""

    file: Path
    relation: str
    is_reverse: bool
    first_id: int  # of the stretch's first edge
    offsets: np.ndarray  # int64 [B + 1]: where buckets begin
    dtypes: tuple[Any, ...]  # of the columns that there are, None for others

    def cut(self, begin: int, end: int) -> Cut:
        """Returns what it holds of buckets ``begin`` to ``end``."""
        low, high, num_edges = (int(self.offsets[at]) for at in (begin, end, -1))
        return Cut(self.file, self.relation, self.is_reverse, self.first_id, low, high, num_edges, self.dtypes)


class Cut(NamedTuple):
    """Edges ``begin`` to ``end`` of a segment of ``num_edges``."""

    file: Path
    relation: str
    is_reverse: bool
    first_id: int
    begin: int
    end: int
    num_edges: int
    dtypes: tuple[Any, ...]

    def read(self) -> SegmentColumns:
        """Raises FeatureFileError: the file cannot be read, or ends early."""
        columns: list[np.ndarray | None] = []
        at = 0
        try:
            for dtype in self.dtypes:
                if dtype is None:
                    columns.append(None)
                    continue
                size, count = np.dtype(dtype).itemsize, self.end - self.begin
                column = np.fromfile(self.file, dtype, count, offset=at + self.begin * size)
                columns.append(column)
                if len(column) != count:
                    raise OSError("it was cut off")
                at += self.num_edges * size
        except OSError as error:
            raise FeatureFileError(f"{self.file} cannot be read: {error}. Build again.") from error
        return SegmentColumns(*columns)  # type: ignore[arg-type]


def write_segment(file: Path, rows: SegmentColumns, lists: SpillLists, shift: int, num_buckets: int) -> np.ndarray:
    """Writes edges by bucket of ``2**shift`` lists, and returns where buckets begin, int64 ``[B + 1]``."""
    buckets = (lists.first_list + rows.dst.astype(np.int64) * lists.step) >> shift
    # Of 16 bits, NumPy sorts by radix.
    order = np.argsort(buckets.astype(np.min_scalar_type(num_buckets)), kind="stable")
    part = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    with open(part, "xb") as out:
        for column in rows:
            if column is not None:
                column[order].tofile(out)
    os.replace(part, file)  # whole, whoever else writes it again
    return np.concatenate([[0], np.cumsum(np.bincount(buckets, minlength=num_buckets))]).astype(np.int64)


class SegmentSpill(EdgeSpill):
    """Sorts the edges of some buckets, from ``begin`` to ``end``, that are read from segments, and have ids of their
    own."""

    def __init__(self, file: IO[bytes], begin: int, end: int, cuts: Sequence[Cut], settings: dict[str, Any]) -> None:
        num_edges = sum(cut.end - cut.begin for cut in cuts)
        # Here edges are numbered as they are read: a range may hold more of them than any table has rows.
        settings = settings | {"most_ids": max(settings["most_ids"], num_edges)}
        super().__init__(file.fileno(), f"a scratch file for buckets {begin} to {end}", **settings)
        self._range, self._cuts, self._ids = slice(begin, end), cuts, np.empty(num_edges, self.id_dtype)

    def fill(self, lists: dict[tuple[str, bool], SpillLists]) -> None:
        """Reads all segments, whose lists are given by relation and direction."""
        at = 0
        for cut in self._cuts:
            if cut.end > cut.begin:
                rows = cut.read()
                self.add(lists[cut.relation, cut.is_reverse], *rows[:2], rows.time, rows.weight, first_id=at)
                self._ids[at : at + len(rows.id)] = rows.id + np.int64(cut.first_id)
                at += len(rows.id)
        self.finish()

    @property
    def buckets(self) -> list[Bucket]:
        return super().buckets[self._range]

    def read(self, bucket: Bucket, rows: slice | None = None) -> Records:
        records = super().read(bucket, rows)
        return records._replace(id=self._ids[records.id])
