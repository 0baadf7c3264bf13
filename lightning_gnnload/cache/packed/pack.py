"""Packer: samples a window, reads each table once, in order, and writes the rows of each mini-batch to its stretch."""

from __future__ import annotations

import os
import zlib
from collections import deque
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
        at, begins = 0, np.zeros(len(lists), np.int64)
        with TableScan(table.store, self.chunk_bytes) as scan:
            for first, rows in scan.chunks(lists):
                self._check_stop()
                stop = first + len(rows)
                stops = np.array([np.searchsorted(ids, stop) for ids in lists], np.int64)
                stages.append(table.packed(rows), first, lists, begins, stops)
                begins = stops
                advance((stop - at) * table.store.row_bytes)
                at = stop

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
        self._memory = page_buffer(self._size * num_batches)[: self._size * num_batches]
        self._fill = np.zeros(num_batches, np.int64)
        # As mini-batches grow alike, the first pieces differ in size, so that later ones are not full all at once.
        pages = self._size // PAGE * np.arange(1, num_batches + 1) // max(num_batches, 1)
        self._limits = np.maximum(pages * PAGE, least)
        self._writes: deque[tuple[Future[None], np.ndarray]] = deque()
        self._is_busy = np.zeros(num_batches, bool)  # the stage is being written
        self.have_infinite_halves = False
        """Whether some row, taken for numbers of half precision, has an infinite one."""

    def append(
        self, rows: np.ndarray, first: int, lists: list[np.ndarray], begins: np.ndarray, stops: np.ndarray
    ) -> None:
        """Adds rows ``lists[n][begins[n]:stops[n]]`` of a table, of which ``rows`` are those from ``first`` on, to
        those of each mini-batch ``n``."""
        at = begins.copy()
        while self._row_bytes and len(waiting := np.flatnonzero(at < stops)):
            ready = waiting[~self._is_busy[waiting]]
            if not len(ready):
                self._settle()
                continue
            counts = np.minimum((self._limits[ready] - self._fill[ready]) // self._row_bytes, (stops - at)[ready])
            pairs = zip(ready.tolist(), at[ready].tolist(), (at[ready] + counts).tolist(), strict=True)
            ids = np.concatenate([lists[batch][begin:end] for batch, begin, end in pairs]).astype(np.int64) - first
            self._gather(rows, ids, ready, counts)
            self._fill[ready] += counts * self._row_bytes
            at[ready] += counts
            self._flush(ready[self._limits[ready] - self._fill[ready] < self._row_bytes])

    def finish(self) -> list[int]:
        """Writes what is left, and waits for all; returns the checksum of each mini-batch's pages."""
        while self._writes:
            self._settle()
        for batch, fill in enumerate(self._fill.tolist()):
            self._stage(batch)[fill : whole_pages(fill)] = 0
            self._fill[batch] = whole_pages(fill)
        self._flush(np.arange(len(self._fill)))
        while self._writes:
            self._settle()
        return self._checksums

    def _stage(self, batch: int) -> np.ndarray:
        return self._memory[batch * self._size : (batch + 1) * self._size]

    def _gather(self, rows: np.ndarray, ids: np.ndarray, batches: np.ndarray, counts: np.ndarray) -> None:
        """Writes ``counts`` of the rows, for one mini-batch after the other, behind what their stages have."""
        begins, row_bytes, stops = batches * self._size + self._fill[batches], self._row_bytes, np.cumsum(counts)
        if PAGE % row_bytes == 0:
            # Each stage begins at a multiple of a row: one call for all, which else are hundreds for each chunk.
            slots = np.arange(len(ids)) + np.repeat(begins // row_bytes - (stops - counts), counts)
            ops.gather_rows(rows, ids, self._memory.reshape(-1, row_bytes), slots)
            return
        for begin, end, count in zip(begins.tolist(), stops.tolist(), counts.tolist(), strict=True):
            room = self._memory[begin : begin + count * row_bytes].reshape(count, row_bytes)
            ops.gather_rows(rows, ids[end - count : end], room)

    def _flush(self, batches: np.ndarray) -> None:
        """Begins to write these stages: several a call, as a call of a thread takes as long as a write."""
        self._limits[batches] = self._size
        self._is_busy[batches] = True
        for part in (batches[first::_WRITERS] for first in range(_WRITERS)):
            if len(part):
                self._writes.append((self._threads.submit(self._write, part.tolist()), part))

    def _write(self, batches: list[int]) -> None:
        """Writes the whole pages of these mini-batches' stages, and keeps what is left over."""
        for batch in batches:
            stage, fill, offset = self._stage(batch), int(self._fill[batch]), self._offsets[batch]
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

    def _settle(self) -> None:
        """Waits until the stages that have been written for the longest time are free again."""
        write, batches = self._writes.popleft()
        self._threads.result(write)
        self._is_busy[batches] = False


def _too_large(name: str) -> PackingConfigError:
    return PackingConfigError(
        f"the table {name!r} has numbers beyond 65,504, or infinite ones, which dtype='float16' cannot hold. Leave "
        "dtype out, or scale the table."
    )
