"""StretchReader: the packed rows of mini-batches, of which the next one's are read while this one's are gathered."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np

from lightning_gnnload.cache.packed.scan import NUM_READERS, PIECE_BYTES
from lightning_gnnload.cache.packed.window import Extent, Window, checksum_of_pages, page_sums
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
        # Of each page, summed up by the thread that reads it; None: it was packed just now.
        begin = self._extents[0].offset if self._extents else 0
        self._sums = None if number in window.fresh else np.zeros((self._end - begin) // PAGE, np.uint64)
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
        extent, at = self._extents[table], 0
        while at < extent.num_rows and extent.row_bytes:
            offset = extent.offset + at * extent.row_bytes
            if not self._begin_here <= offset <= self._end_here - extent.row_bytes:
                self._load(offset)
            count = min(extent.num_rows - at, (self._end_here - offset) // extent.row_bytes)
            begin = offset - self._begin_here
            self._wait(begin + count * extent.row_bytes)
            at += count
            # The last ones are compared before they are used; where there were others, they are of no use either.
            if self._sums is not None and at == extent.num_rows:
                self._check(extent, self._sums)
            yield at - count, self.buffer[begin : begin + count * extent.row_bytes].reshape(count, extent.row_bytes)

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
        pages = self.buffer[begin:end]
        self.window.file.read(self._begin_here + begin, pages, end - begin)
        if self._sums is not None:
            # A page that two reads have in part, as its rows are used at two times, is the same both times.
            first = (self._begin_here + begin - self._extents[0].offset) // PAGE
            self._sums[first : first + len(pages) // PAGE] = page_sums(pages)

    def _check(self, extent: Extent, sums: np.ndarray) -> None:
        self._wait(min(extent.offset + whole_pages(extent.size), self._end_here) - self._begin_here)
        first = (extent.offset - self._extents[0].offset) // PAGE
        if checksum_of_pages(sums[first : first + whole_pages(extent.size) // PAGE]) != extent.checksum:
            raise StoreFormatError(
                f"{self.window.file.name} is damaged: the rows of mini-batch {self.number} are not what was written, "
                "by their checksum."
            )

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
        self._most_buffers = num_threads + 1
        # That a thread reads from. What a thread that ended has not given back is no longer among them.
        self._in_use = weakref.WeakSet[Stretch]()
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
        return self._begin(window, number)

    def read_ahead(self, window: Window, number: int) -> None:
        """Begins to read a stretch that is to be taken next; what was read ahead and not taken is dropped."""
        with self._changed:
            ahead = self._ahead
            if ahead is not None and ahead.window is window and ahead.number == number:
                return
            self._ahead = None
            # More threads than were foreseen read without anything ahead, rather than with more memory.
            has_room = ahead is not None or self._idle or len(self._in_use) < self._most_buffers
        if ahead is not None:
            self.give_back(ahead)
        if has_room:
            stretch = self._begin(window, number)
            with self._changed:
                replaced, self._ahead = self._ahead, stretch
            if replaced is not None:  # another thread was faster
                self.give_back(replaced)

    def give_back(self, stretch: Stretch) -> None:
        """Takes a stretch's buffer for others."""
        stretch.drop()
        with self._changed:
            self._in_use.discard(stretch)
            self._idle.append(stretch.buffer)

    def close(self) -> None:
        """Ends the reads."""
        with self._changed:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, window: Window, number: int) -> Stretch:
        """Begins to read a stretch, with room for two pages and a row at least, whatever the memory."""
        most = max((extent.row_bytes for extent in window.stretches[number]), default=0)
        size = max(self._size, whole_pages(most) + 2 * PAGE)
        with self._changed:
            buffer = self._idle.pop() if self._idle else page_buffer(size)
            stretch = Stretch(window, number, buffer if len(buffer) >= size else page_buffer(size), self._threads)
            self._in_use.add(stretch)
        return stretch
