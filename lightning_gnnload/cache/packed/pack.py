"""Packer: samples a window, reads each table once, in order, and writes the rows of each mini-batch to its stretch."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.packed.scan import TableScan
from lightning_gnnload.cache.packed.window import (
    Extent,
    Timeline,
    checksum_of_pages,
    extents,
    page_sums,
    rows_path,
    window_path,
    write_window_manifest,
)
from lightning_gnnload.cache.trace import sampled_ahead
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import FeatureFileError, PackingConfigError
from lightning_gnnload.host.direct import PAGE, DirectFile, page_buffer, whole_pages
from lightning_gnnload.host.pages import drop_page_cache
from lightning_gnnload.host.progress import progress as progress_bar
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.storage.folders import NO_ROOM, staging_folder

RowsOf = Callable[[BatchRequest], Mapping[str, np.ndarray]]
"""Samples a mini-batch and returns the rows that it gathers from each table: distinct, ascending, int64."""
_WRITERS = 4
"""So many writes of 64 KiB at once went at 1.2 GB/s, two at 1.0, of 128 KiB at 1.8: ext4 on a virtual disk."""


class NoRoomError(Exception):
    """The disk has no room for a window."""


class StoppedError(Exception):
    """Packing was broken off because nobody needs it any more."""


@dataclass(frozen=True)
class PackedTable:
    """A table whose cold rows are packed.

    Attributes:
        name: in :attr:`.GraphData.stores`.
        store: of all rows.
        location: where memory keeps a row, int32 ``[N]``; negative where it does not.
        shards: the rows that memory keeps, uint8 ``[slots, row_bytes]`` each.
        halves: rows are rounded to half precision, wherever they come from, and packed so.
    """

    name: str
    store: FeatureStore
    location: np.ndarray
    shards: tuple[np.ndarray, ...] = ()
    halves: bool = False

    @property
    def packed_bytes(self) -> int:
        """Bytes of a packed row."""
        return 2 * self.store.shape[1] if self.halves else self.store.row_bytes

    def cold(self, ids: np.ndarray) -> np.ndarray:
        """Returns those of these rows that memory does not keep, in the smallest dtype."""
        rows = ids[self.location[ids] < 0]
        return rows.astype(np.int32) if len(self.location) < 2**31 else rows

    def packed(self, rows: np.ndarray) -> np.ndarray:
        """Returns rows as they are packed, in bytes."""
        if not self.halves or not rows.size:
            return rows
        # A copy, as rows begin anywhere in a chunk, where torch wants an address that its numbers can have.
        return torch.from_numpy(rows.copy()).view(self.store.dtype).half().view(torch.uint8).numpy()

    def round(self, rows: np.ndarray) -> None:
        """Rounds rows, in bytes and contiguous, as packing them would; otherwise does nothing."""
        if self.halves and rows.size:
            numbers = torch.from_numpy(rows.reshape(-1)).view(self.store.dtype)
            halves = numbers.half()
            if halves.isinf().any():
                raise _too_large(self.name)
            numbers.copy_(halves)


class Packer:
    """Packs windows into a folder.

    Args:
        folder: of the windows.
        key: names the run; windows of another one are not read.
        tables: in the order in which mini-batches gather from them.
        rows_of: samples a mini-batch.
        timeline: which mini-batches a window has.
        chunk_bytes: memory of one of two chunks of a table.
        staging_bytes: memory of what is to be written next.
        stays: windows are not to be removed after use.

    Attributes:
        should_stop: asked now and then; packing ends with StoppedError once it says so.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        tables: tuple[PackedTable, ...],
        rows_of: RowsOf,
        timeline: Timeline,
        *,
        chunk_bytes: int,
        staging_bytes: int,
        stays: bool = False,
    ) -> None:
        self.folder = folder
        self.key = key
        self.tables = tables
        self.rows_of = rows_of
        self.timeline = timeline
        self.chunk_bytes = chunk_bytes
        self.staging_bytes = staging_bytes
        self.stays = stays
        self.should_stop: Callable[[], bool] = lambda: False

    def pack(self, number: int, *, num_threads: int | None = 1, progress: bool = False) -> int:
        """Packs a window, of which nobody sees a part before it is whole. Returns the bytes that it takes.

        Raises:
            NoRoomError: the disk has no room for it, and nothing is left behind; or the folder was removed.
            StoppedError: as :attr:`should_stop` said.
            FeatureFileError: a table cannot be read, or the folder not be written to.
        """
        steps, target = self.timeline.span(number), window_path(self.folder, number)
        title = f"Packing steps {steps.start} to {steps.stop - 1}"
        cold = self._sample(steps, title, num_threads, progress)
        counts = [[len(rows) for rows in batch] for batch in cold]
        row_bytes = [table.packed_bytes for table in self.tables]
        stretches, end = extents(counts, row_bytes)
        try:
            with staging_folder(target) as staging:
                new = staging / "new"
                new.mkdir(mode=0o700)
                checksums = self._write(rows_path(new), cold, stretches, end, title, progress)
                ids = [[zlib.crc32(rows.astype(np.int64).data) for rows in batch] for batch in cold]
                write_window_manifest(new, self.key, steps, row_bytes, counts, checksums, ids, stays=self.stays)
                os.rename(new, target)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoomError(str(error)) from error
            if not self.folder.is_dir():
                raise NoRoomError("the folder was removed") from error
            if isinstance(error, FeatureFileError):
                raise
            raise FeatureFileError(
                f"{self.folder} cannot be written to: {error}. Give Packing another folder, on a disk that works."
            ) from error
        return end

    def _sample(self, steps: range, title: str, num_threads: int | None, progress: bool) -> list[list[np.ndarray]]:
        """Samples a window; returns the cold rows of each mini-batch and table."""
        requests, cold = self.timeline.requests(steps), list[list[np.ndarray]]()
        with progress_bar(f"{title}: sampling", len(requests), show=progress) as advance:
            for _, rows in sampled_ahead(self.rows_of, requests, num_threads=num_threads):
                self._check_stop()
                cold.append([table.cold(rows[table.name]) for table in self.tables])
                advance(1)
        return cold

    def _write(
        self, path: Path, cold: list[list[np.ndarray]], stretches: list[list[Extent]], end: int, title: str, show: bool
    ) -> list[list[int]]:
        """Writes all rows through to the disk; returns their checksums."""

        def opened(flags: int) -> int:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)

        checksums = [[0] * len(self.tables) for _ in cold]
        file = DirectFile(opened, str(path))
        try:
            if end:
                os.posix_fallocate(file.fd, 0, end)  # no room is an error now, not after minutes
            total = sum(table.store.shape[0] * table.store.row_bytes for table in self.tables)
            with (
                progress_bar(f"{title}: reading", total, show=show) as advance,
                Threads(_WRITERS, "gnnload-pack-write") as threads,
            ):
                # One table after the other, so that all of the staging memory serves each.
                for number, table in enumerate(self.tables):
                    lists = [batch[number] for batch in cold]
                    extents_of_table = [stretch[number] for stretch in stretches]
                    stages = _Stages(file, extents_of_table, self.staging_bytes, threads, are_halves=table.halves)
                    self._distribute(table, lists, stages, advance)
                    for batch, checksum in enumerate(stages.finish()):
                        checksums[batch][number] = checksum
                    if table.halves and stages.have_infinite_halves:
                        raise _too_large(table.name)
            os.fsync(file.fd)
            if not file.is_direct:
                drop_page_cache(file.fd)
        finally:
            file.close()
        return checksums

    def _distribute(
        self, table: PackedTable, lists: list[np.ndarray], stages: _Stages, advance: Callable[[int], None]
    ) -> None:
        """Reads a table in order, and deals its rows out to the mini-batches."""
        positions, at = [0] * len(lists), 0
        with TableScan(table.store, self.chunk_bytes) as scan:
            for first, rows in scan.chunks(lists):
                self._check_stop()
                packed = table.packed(rows)
                for batch, ids in enumerate(lists):
                    begin = positions[batch]
                    end = begin + int(np.searchsorted(ids[begin:], first + len(rows)))
                    if begin < end:
                        positions[batch] = end
                        stages.append(batch, packed, ids[begin:end].astype(np.int64) - first)
                stages.flush()
                advance((first + len(rows) - at) * table.store.row_bytes)
                at = first + len(rows)

    def _check_stop(self) -> None:
        if self.should_stop():
            raise StoppedError


class _Stages:
    """Collects the rows of many mini-batches, and writes each one's in pieces of whole pages, in the background."""

    def __init__(
        self, file: DirectFile, extents_of_table: list[Extent], num_bytes: int, threads: Threads, *, are_halves: bool
    ) -> None:
        self._file = file
        self._looks_for_infinity = are_halves
        self._threads = threads
        num_batches = len(extents_of_table)
        self._begins = [extent.offset for extent in extents_of_table]
        self._offsets = list(self._begins)
        self._checksums = [0] * num_batches
        self._row_bytes = extents_of_table[0].row_bytes if num_batches else 0
        # Whole pages, and one more row than the rest of a page that an earlier piece left.
        least = whole_pages(self._row_bytes + PAGE)
        self._size = max(num_bytes // max(num_batches, 1) // PAGE * PAGE, least)
        self._stages = list(page_buffer(self._size * num_batches)[: self._size * num_batches].reshape(-1, self._size))
        self._fill = [0] * num_batches
        # As mini-batches grow alike, the first pieces differ in size, so that later ones are not full all at once.
        self._limits = [max(self._size * (batch + 1) // num_batches, least) for batch in range(num_batches)]
        self._full: list[int] = []  # mini-batches whose stages are to be written
        self._writes: list[Future[None] | None] = [None] * num_batches
        self.have_infinite_halves = False
        """Whether some row, taken for numbers of half precision, has an infinite one."""

    def append(self, batch: int, rows: np.ndarray, ids: np.ndarray) -> None:
        """Adds rows ``ids`` of ``rows`` to a mini-batch's."""
        stage, row_bytes, at = self._stages[batch], self._row_bytes, 0
        if not row_bytes:
            return
        while at < len(ids):
            self._settle(batch)
            fill = self._fill[batch]
            count = min((self._limits[batch] - fill) // row_bytes, len(ids) - at)
            room = stage[fill : fill + count * row_bytes].reshape(count, row_bytes)
            ops.gather_rows(rows, ids[at : at + count], room)
            self._fill[batch], at = fill + count * row_bytes, at + count
            if self._limits[batch] - self._fill[batch] < row_bytes:
                self._limits[batch] = self._size
                self._full.append(batch)

    def flush(self) -> None:
        """Begins to write the stages that are full: several a call, as a call of a thread takes as long as a write."""
        full, self._full = self._full, []
        for batches in (full[first::_WRITERS] for first in range(_WRITERS)):
            if batches:
                write = self._threads.submit(self._write, batches)
                for batch in batches:
                    self._writes[batch] = write

    def finish(self) -> list[int]:
        """Writes what is left, and waits for all; returns the checksum of each mini-batch's pages."""
        every = range(len(self._stages))
        for batch in every:
            self._settle(batch)
            end = whole_pages(self._fill[batch])
            self._stages[batch][self._fill[batch] : end] = 0
            self._fill[batch] = end
        self._full = list(every)
        self.flush()
        for batch in every:
            self._settle(batch)
        return self._checksums

    def _write(self, batches: list[int]) -> None:
        """Writes the whole pages of these mini-batches' stages, and keeps what is left over."""
        for batch in batches:
            stage, fill, offset = self._stages[batch], self._fill[batch], self._offsets[batch]
            end = fill // PAGE * PAGE
            piece = stage[:end]
            if self._looks_for_infinity:
                self.have_infinite_halves |= bool(((piece.view(np.uint16) & 0x7FFF) == 0x7C00).any())
            first = (offset - self._begins[batch]) // PAGE
            self._checksums[batch] = (self._checksums[batch] + checksum_of_pages(page_sums(piece), first)) % (1 << 64)
            self._file.write(offset, piece)
            self._offsets[batch] = offset + end
            stage[: fill - end] = stage[end:fill]
            self._fill[batch] = fill - end

    def _settle(self, batch: int) -> None:
        """Waits until a mini-batch's stage is free again."""
        if self._writes[batch] is None and batch in self._full:
            self.flush()
        write, self._writes[batch] = self._writes[batch], None
        if write is not None:
            self._threads.result(write)


def _too_large(name: str) -> PackingConfigError:
    return PackingConfigError(
        f"the table {name!r} has numbers beyond 65,504, or infinite ones, which dtype='float16' cannot hold. Leave "
        "dtype out, or scale the table."
    )
