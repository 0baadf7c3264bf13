"""Sorts edges through a file: from the order of tables to that of lists.

Shapes: E edges of a batch, n records of a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphFormatError
from .checks import as_integer, check_array
from .dispatch import bytes_view, kernels

NO_TIME: int = kernels.NO_TIME  # in place of a missing time: it is before all times
_MOST_NODES = 2**32


@dataclass(frozen=True)
class SpillLists:
    """The lists that edges of one type go to, and the numbering of their sources."""

    num_src: int  # nodes of the sources' type
    num_dst: int  # nodes of the targets' type
    first_src: int = 0  # number in the graph of source 0
    first_list: int = 0  # of target 0; that of target v is first_list + v * step
    step: int = 1
    source_time: np.ndarray | None = None  # int64 [num_src]: an edge is not there before its source


class Bucket(NamedTuple):
    """Records of consecutive lists; ``number`` is :class:`EdgeSpill`'s."""

    number: int
    first_list: int
    num_lists: int
    num_records: int


class Records(NamedTuple):
    """Records of a bucket, in the order in which their edges were added."""

    list: np.ndarray  # [n] of the index dtype, counted from the bucket's first
    src: np.ndarray  # [n] of the index dtype, numbers in the graph
    time: np.ndarray | None  # int64 [n], NO_TIME where there is none; None where no edge has one
    id: np.ndarray  # [n] of the id dtype
    weight: np.ndarray | None  # [n] of the weight dtype


class EdgeSpill:
    """Writes edges to buckets of consecutive lists in a file, and reads bucket by bucket.

    ``fd`` is an empty file, open to read and write, nobody else's, and open as long as this; ``name`` is for errors. A
    bucket has ``2**shift`` lists, and until :meth:`finish` a buffer of ``extent_bytes``, which its part of the file is
    written by. Edge ids are below ``most_ids``. Raises GraphFormatError for more nodes or lists than records can
    number.

    Example:
        >>> import tempfile
        >>> file = tempfile.TemporaryFile()
        >>> sizes = {"num_lists": 3, "shift": 1, "extent_bytes": 4096, "num_nodes": 3, "most_ids": 9}
        >>> spill = EdgeSpill(file.fileno(), "scratch", has_time=False, **sizes)
        >>> endpoints = np.array([[0, 1, -1], [2, 1, 0]], np.int32)  # the third edge is left out
        >>> spill.add(SpillLists(3, 3), *endpoints, first_id=0)
        2
        >>> spill.finish()
        >>> [spill.read(bucket).src.tolist() for bucket in spill.buckets]
        [[1], [0]]
    """

    def __init__(
        self,
        fd: int,
        name: str,
        *,
        num_lists: int,
        shift: int,
        extent_bytes: int,
        num_nodes: int,
        has_time: bool,
        most_ids: int,
        weight_dtype: type | None = None,
    ) -> None:
        if not 0 <= shift < 31 or not 0 <= num_lists < 2**47 or not 0 < extent_bytes < 2**30:
            raise GraphFormatError(
                f"{num_lists} lists in buckets of 2**{shift}, with {extent_bytes} bytes each, cannot be: at most 2**47 "
                "lists, 2**30 in a bucket, and 1 GB."
            )
        if not 0 <= num_nodes <= _MOST_NODES:
            raise GraphFormatError(f"{num_nodes} nodes are too many: edges are sorted of up to {_MOST_NODES} nodes.")
        if weight_dtype not in (None, np.float32, np.float64):
            raise GraphFormatError(f"weights are {weight_dtype}, but must be float32 or float64.")
        self.num_lists, self.num_nodes, self.has_time = num_lists, num_nodes, bool(has_time)
        self.index_dtype = np.int32 if max(num_nodes, 2**shift) <= 2**31 else np.int64
        self.id_dtype = np.int32 if most_ids <= 2**31 else np.int64
        self.most_ids = 2**32 if most_ids <= 2**32 else 2**63
        self.weight_dtype = None if weight_dtype is None else np.dtype(weight_dtype)
        weight_bytes = 0 if self.weight_dtype is None else self.weight_dtype.itemsize
        id_bytes = 4 if most_ids <= 2**32 else 8
        self.record_bytes = 8 + 8 * self.has_time + id_bytes + weight_bytes
        self._is_written = False
        self._released: set[int] = set()
        self._native = kernels.EdgeSpill(
            fd, name, num_lists, shift, extent_bytes, self.has_time, id_bytes, weight_bytes
        )
        self._num_first = self._native.num_buckets  # split() adds more

    def add(
        self,
        to: SpillLists,
        src: np.ndarray,
        dst: np.ndarray,
        time: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        *,
        first_id: int,
    ) -> int:
        """Adds edges of one type, ``src`` and ``dst`` int32 ``[E]`` within their node types, ``time`` int64 ``[E]``,
        ``weight`` ``[E]``; None: no times, and weights of 1. Edges with a negative endpoint are left out; the others
        get ids from ``first_id`` on. Returns how many these are. One thread at a time.

        Raises GraphFormatError for arrays of other dtypes or lengths, endpoints that are no nodes, or lists that do not
        exist; FeatureFileError where the file cannot be written.
        """
        if self._is_written:
            raise GraphFormatError("all edges are written: none can be added any more.")
        first_id = as_integer("first_id", first_id, GraphFormatError)
        for name, ids, num_nodes in (("src", src, to.num_src), ("dst", dst, to.num_dst)):
            check_array(name, ids, (np.int32,), 1, GraphFormatError)
            if len(ids) and int(ids.max()) >= num_nodes:
                position = int(ids.argmax())
                raise GraphFormatError(f"{name}[{position}] is {ids[position]}, but there are {num_nodes} such nodes.")
        self._check_columns(src, dst, time, weight)
        self._check_lists(to)
        if not 0 <= first_id <= self.most_ids - len(src):
            raise GraphFormatError(f"edge ids from {first_id} on do not lie below {self.most_ids}.")
        return self._native.add(
            src,
            dst,
            time,
            None if weight is None else bytes_view(weight),
            to.source_time,
            to.first_src,
            to.first_list,
            to.step,
            first_id,
        )

    def _check_columns(
        self, src: np.ndarray, dst: np.ndarray, time: np.ndarray | None, weight: np.ndarray | None
    ) -> None:
        columns: dict[str, tuple[np.ndarray, Any]] = {"dst": (dst, np.int32)}
        if time is not None:
            columns["time"] = time, np.int64
        if weight is not None:
            columns["weight"] = weight, self.weight_dtype
        for name, (values, dtype) in columns.items():
            if dtype is None or (name == "time" and not self.has_time):
                raise GraphFormatError(f"{name} was given, but the edges here have none.")
            check_array(name, values, (dtype,), 1, GraphFormatError)
            if len(values) != len(src):
                raise GraphFormatError(f"{name} has {len(values)} entries for {len(src)} edges; one each is needed.")

    def _check_lists(self, to: SpillLists) -> None:
        if to.source_time is not None:
            check_array("source_time", to.source_time, (np.int64,), 1, GraphFormatError)
            if len(to.source_time) != to.num_src or not self.has_time:
                raise GraphFormatError(
                    f"source_time has {len(to.source_time)} entries for {to.num_src} nodes, in a graph "
                    f"{'with' if self.has_time else 'without'} times; one each, with times."
                )
        if not 0 <= to.first_src <= self.num_nodes - to.num_src:
            raise GraphFormatError(
                f"{to.num_src} sources from {to.first_src} on are not all of {self.num_nodes} nodes."
            )
        last = to.first_list + (to.num_dst - 1) * to.step
        if to.num_dst and not (to.first_list >= 0 and 0 < to.step < 2**31 and last < self.num_lists):
            raise GraphFormatError(f"lists {to.first_list} to {last} are not all of {self.num_lists}.")

    def finish(self) -> None:
        """Writes what is still in memory; no edge can be added any more. Raises FeatureFileError where the file cannot
        be written."""
        self._native.finish()
        self._is_written = True

    @property
    def buckets(self) -> list[Bucket]:
        """All buckets, in the order of their lists."""
        return [self._bucket(number) for number in range(self._num_first)]

    @property
    def num_bytes(self) -> int:
        """The size of the file."""
        return self._native.num_bytes

    def split(self, bucket: Bucket, *, by_source: bool = False) -> list[Bucket]:
        """Divides a bucket into up to 64, which hold the same records together; the bucket itself stays. One thread at
        a time.

        It is divided by lists; a bucket of one list by time, or by source. Their order is that of lists and times, or
        sources, and within them that of adding. Returns the buckets that are not empty; none where all records have one
        list and time, or source. Raises FeatureFileError where the file cannot be read or written.
        """
        self._check(bucket)
        return [self._bucket(number) for number in self._native.split(bucket.number, by_source)]

    def read(self, bucket: Bucket, rows: slice | None = None) -> Records:
        """Reads records of a bucket, all or a slice. Threads may read at once. Raises GraphFormatError for a bucket
        that was released, FeatureFileError where the file cannot be read."""
        self._check(bucket)
        first, stop, _ = (rows or slice(None)).indices(bucket.num_records)
        count = max(stop - first, 0)
        records = Records(
            np.empty(count, self.index_dtype),
            np.empty(count, self.index_dtype),
            np.empty(count, np.int64) if self.has_time else None,
            np.empty(count, self.id_dtype),
            None if self.weight_dtype is None else np.empty(count, self.weight_dtype),
        )
        weight = None if records.weight is None else bytes_view(records.weight)
        self._native.read(bucket.number, first, *records[:4], weight)
        return records

    def release(self, bucket: Bucket) -> None:
        """Gives the bucket's disk space back; it cannot be read any more."""
        self._check(bucket)
        self._released.add(bucket.number)
        self._native.release(bucket.number)

    def _bucket(self, number: int) -> Bucket:
        return Bucket(number, *self._native.bucket(number))

    def _check(self, bucket: Bucket) -> None:
        """Raises GraphFormatError where the bucket cannot be read: edges are still being added, or it is released or
        none."""
        if not self._is_written:
            raise GraphFormatError("edges are still added: call finish() first.")
        is_readable = 0 <= bucket.number < self._native.num_buckets and bucket.number not in self._released
        if not is_readable or bucket != self._bucket(bucket.number):
            raise GraphFormatError(f"{bucket} is none of this spill's, or was released.")
