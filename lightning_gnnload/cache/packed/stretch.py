"""StretchReader: the packed rows of mini-batches, of which the next one's are read while this one's are gathered."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np

from lightning_gnnload.cache.packed.scan import NUM_READERS, PIECE_BYTES
from lightning_gnnload.cache.packed.window import Extent, Window
from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.host.direct import PAGE, page_buffer, whole_pages
from lightning_gnnload.host.threads import Threads


class Stretch:
    """The packed rows of one mini-batch, of which a part is in memory. One thread reads it.

    ``buffer`` takes as much of it as it has room for; more is read as the rows before it are used.
    """

    def __init__(self, window: Window, number: int, buffer: np.ndarray, threads: Threads) -> None:
        self.window = window
        self.number = number
        self.buffer = buffer
        self._threads = threads
        self._extents = window.stretches[number]
        self._end = max((extent.offset + whole_pages(extent.size) for extent in self._extents), default=0)
        self._begin_here = self._end_here = 0  # of what is in the buffer
        self._reads: list[tuple[int, Future[None]]] = []
        if self._extents:
            self._load(self._extents[0].offset)

    def extent(self, table: int) -> Extent:
        """Returns where the rows of a table lie."""
        return self._extents[table]

    def rows(self, table: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields all rows of a table, uint8 ``[n, row_bytes]``, some at a time, each time with the number of the first;
        the next ones overwrite them.

        Raises StoreFormatError: they are not those that were written. FeatureFileError: they cannot be read.
        """
        extent, at, checksum = self._extents[table], 0, 0
        checks = self.number not in self.window.checked
        while at < extent.num_rows and extent.row_bytes:
            offset = extent.offset + at * extent.row_bytes
            if not self._begin_here <= offset <= self._end_here - extent.row_bytes:
                self._load(offset)
            count = min(extent.num_rows - at, (self._end_here - offset) // extent.row_bytes)
            begin = offset - self._begin_here
            self._wait(begin + count * extent.row_bytes)
            part = self.buffer[begin : begin + count * extent.row_bytes]
            if checks:
                checksum = zlib.crc32(part.data, checksum)
            at += count
            # The last ones are compared before they are used; where there were others, they are of no use either.
            if checks and at == extent.num_rows and checksum != extent.checksum:
                raise StoreFormatError(
                    f"{self.window.file.name} is damaged: the rows of mini-batch {self.number} are not what was "
                    "written, by their checksum."
                )
            yield at - count, part.reshape(count, extent.row_bytes)

    def drop(self) -> None:
        """Waits for the reads that are under way, so that the buffer can be used for something else."""
        for _, read in self._reads:
            if not read.cancel():
                read.exception()
        self._reads = []

    def _load(self, offset: int) -> None:
        """Begins to read as much as fits, from the page that an offset is in."""
        self.drop()
        self._begin_here = offset // PAGE * PAGE
        self._end_here = min(self._begin_here + len(self.buffer), self._end)
        for begin in range(0, self._end_here - self._begin_here, PIECE_BYTES):
            end = min(begin + PIECE_BYTES, self._end_here - self._begin_here)
            self._reads.append((begin, self._threads.submit(self._read, begin, end)))

    def _read(self, begin: int, end: int) -> None:
        self.window.file.read(self._begin_here + begin, self.buffer[begin:end], end - begin)

    def _wait(self, end: int) -> None:
        """Waits for the first ``end`` bytes of the buffer."""
        while self._reads and self._reads[0][0] < end:
            self._threads.result(self._reads.pop(0)[1])


class StretchReader:
    """Reads the stretches that threads ask for, and ahead of them the one that comes next. Thread-safe.

    Args:
        num_bytes: memory of all buffers.
        num_threads: that gather at once.
    """

    def __init__(self, num_bytes: int, num_threads: int) -> None:
        self._size = max(num_bytes // (num_threads + 1) // PAGE * PAGE, PAGE)
        self._idle: list[np.ndarray] = []
        self._num_buffers, self._most_buffers = 0, num_threads + 1
        self._threads = Threads(NUM_READERS, "gnnload-packed")
        self._changed = threading.Lock()
        self._ahead: Stretch | None = None

    def take(self, window: Window, number: int) -> Stretch:
        """Returns the stretch of a mini-batch, which may have been read ahead; to be given back."""
        with self._changed:
            ahead = self._ahead
            if ahead is not None and ahead.window is window and ahead.number == number:
                self._ahead = None
                return ahead
        return Stretch(window, number, self._buffer(window, number), self._threads)

    def read_ahead(self, window: Window, number: int) -> None:
        """Begins to read a stretch that is to be taken next; what was read ahead and not taken is dropped."""
        with self._changed:
            ahead = self._ahead
            if ahead is not None and ahead.window is window and ahead.number == number:
                return
            self._ahead = None
            # More threads than were foreseen read without anything ahead, rather than with more memory.
            has_room = ahead is not None or self._idle or self._num_buffers < self._most_buffers
        if ahead is not None:
            self.give_back(ahead)
        if has_room:
            stretch = Stretch(window, number, self._buffer(window, number), self._threads)
            with self._changed:
                stretch, self._ahead = self._ahead, stretch  # type: ignore[assignment]
            if stretch is not None:  # another thread was faster
                self.give_back(stretch)

    def give_back(self, stretch: Stretch) -> None:
        """Takes a stretch's buffer for others."""
        stretch.drop()
        with self._changed:
            self._idle.append(stretch.buffer)

    def close(self) -> None:
        """Ends the reads."""
        with self._changed:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()
        self._threads.shutdown(cancel_futures=True)

    def _buffer(self, window: Window, number: int) -> np.ndarray:
        """Returns a buffer with room for two pages and a row at least, whatever the memory."""
        most = max((extent.row_bytes for extent in window.stretches[number]), default=0)
        size = max(self._size, whole_pages(most) + 2 * PAGE)
        with self._changed:
            buffer = self._idle.pop() if self._idle else None
            if buffer is None:
                self._num_buffers += 1
        return buffer if buffer is not None and len(buffer) >= size else page_buffer(size)
