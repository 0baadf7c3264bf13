"""Edges on their way through a file: from the order of tables to that of lists.

Shapes: E edges of a batch, n records of a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphFormatError
from .checks import as_integer, check_array
from .dispatch import as_bytes, kernels

NO_TIME: int = kernels.NO_TIME
"""In place of the time of an edge or node that has none: it lies before all times."""
_MOST_NODES = 2**32


@dataclass(frozen=True)
class SpillLists:
    """Which lists edges go to, and where their sources are numbered from.

    Attributes:
        num_src: how many nodes of the sources' type there are.
        num_dst: of the targets' type.
        first_src: the number in the graph of source 0.
        first_list: the list of target 0; that of target ``v`` is ``first_list + v * step``.
        step: how many lists a target has.
        source_time: int64 ``[num_src]``: no edge is there before its source; None: sources always are.
    """

    num_src: int
    num_dst: int
    first_src: int = 0
    first_list: int = 0
    step: int = 1
    source_time: np.ndarray | None = None


class Bucket(NamedTuple):
    """Records of consecutive lists; ``number`` is what :class:`EdgeSpill` knows it by."""

    number: int
    first_list: int
    num_lists: int
    num_records: int


class Records(NamedTuple):
    """Records of a bucket, in the order in which their edges were added.

    Attributes:
        list: ``[n]``, of the index dtype; counted from the bucket's first.
        src: ``[n]``, likewise: numbers in the graph.
        time: int64 ``[n]``, :data:`NO_TIME` where there is none; None where no edge has one.
        id: ``[n]`` of the id dtype.
        weight: ``[n]`` of the weight dtype, or None.
    """

    list: np.ndarray
    src: np.ndarray
    time: np.ndarray | None
    id: np.ndarray
    weight: np.ndarray | None


class EdgeSpill:
    """Writes edges to buckets of consecutive lists in a file, and reads bucket by bucket.

    Args:
        fd: a file that is empty, open to read and write, and nobody else's. It stays open as long as this.
        name: of the file, for errors.
        num_lists: of the graph.
        shift: a bucket has ``2**shift`` lists.
        extent_bytes: a bucket's part of the file is written so much at a time; each bucket has as much memory until
            :meth:`finish`.
        num_nodes: of the graph; less than ``2**32``.
        has_time: whether edges have times.
        most_ids: edge ids lie below it.
        weight_dtype: float32 or float64; None: edges have no weights.

    Raises:
        GraphFormatError: more nodes or lists than records can number.

    Example:
        >>> import tempfile
        >>> file = tempfile.TemporaryFile()
        >>> sizes = {"num_lists": 3, "shift": 1, "extent_bytes": 4096, "num_nodes": 3, "most_ids": 9}
        >>> spill = EdgeSpill(file.fileno(), "scratch", has_time=False, **sizes)
        >>> ends = np.array([[0, 1, -1], [2, 1, 0]], np.int32)  # the third edge is left out
        >>> spill.add(SpillLists(3, 3), *ends, first_id=0)
        2
        >>> spill.finish()
        >>> [spill.read(each).src.tolist() for each in spill.buckets]
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
        self._num_given = self._native.num_buckets

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
        """Takes edges of one type in; one thread at a time. Those with a negative end are left out.

        Args:
            to: their lists.
            src: int32 ``[E]``, within its node type; ``dst`` likewise.
            time: int64 ``[E]``, or None: they have none.
            weight: ``[E]`` of the weight dtype, or None: 1.
            first_id: the id of the first edge that is not left out; the others count on.

        Returns:
            How many edges are not left out.

        Raises:
            GraphFormatError: arrays of other dtypes or lengths; ends that are no nodes, or lists that are none.
            FeatureFileError: the file cannot be written.
        """
        if self._is_written:
            raise GraphFormatError("all edges are written: none can be added any more.")
        first_id = as_integer("first_id", first_id, GraphFormatError)
        for name, ids, num_nodes in (("src", src, to.num_src), ("dst", dst, to.num_dst)):
            check_array(name, ids, (np.int32,), 1, GraphFormatError)
            if len(ids) and int(ids.max()) >= num_nodes:
                place = int(ids.argmax())
                raise GraphFormatError(f"{name}[{place}] is {ids[place]}, but there are {num_nodes} such nodes.")
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
        if not 0 <= first_id <= self.most_ids - len(src):
            raise GraphFormatError(f"edge ids from {first_id} on do not lie below {self.most_ids}.")
        return self._native.add(
            src,
            dst,
            time,
            None if weight is None else as_bytes(weight),
            to.source_time,
            to.first_src,
            to.first_list,
            to.step,
            first_id,
        )

    def finish(self) -> None:
        """Writes what is left in memory: all edges are there. Raises FeatureFileError: the file cannot be written."""
        self._native.finish()
        self._is_written = True

    @property
    def buckets(self) -> list[Bucket]:
        """All buckets, in the order of their lists."""
        return [self._bucket(number) for number in range(self._num_given)]

    @property
    def num_bytes(self) -> int:
        """The size of the file."""
        return self._native.num_bytes

    def split(self, bucket: Bucket, *, by_source: bool = False) -> list[Bucket]:
        """Divides a bucket into up to 64, which hold the same records together; the bucket itself stays.

        It is divided by lists; one list by time, or by source. Their order is that of lists and times, or sources, and
        in each that of adding. One thread at a time.

        Returns:
            The buckets that are not empty; none where all records have one list and time, or source.

        Raises:
            FeatureFileError: the file cannot be read or written.
        """
        self._check(bucket)
        return [self._bucket(number) for number in self._native.split(bucket.number, by_source)]

    def read(self, bucket: Bucket, rows: slice | None = None) -> Records:
        """Reads records of a bucket: all, or a slice of them. Threads may read at once.

        Raises:
            GraphFormatError: a bucket that was released.
            FeatureFileError: the file cannot be read.
        """
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
        weight = None if records.weight is None else as_bytes(records.weight)
        self._native.read(bucket.number, first, *records[:4], weight)
        return records

    def release(self, bucket: Bucket) -> None:
        """Gives the bucket's room on the disk back; it cannot be read any more."""
        self._check(bucket)
        self._released.add(bucket.number)
        self._native.release(bucket.number)

    def _bucket(self, number: int) -> Bucket:
        return Bucket(number, *self._native.bucket(number))

    def _check(self, bucket: Bucket) -> None:
        """Raises GraphFormatError: it cannot be read: edges are still added, or it is released or none."""
        if not self._is_written:
            raise GraphFormatError("edges are still added: call finish() first.")
        known = 0 <= bucket.number < self._native.num_buckets and bucket.number not in self._released
        if not known or bucket != self._bucket(bucket.number):
            raise GraphFormatError(f"{bucket} is none of this spill's, or was released.")
