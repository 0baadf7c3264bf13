"""TableScan: reads a table once, in order, in large pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np
import torch

from lightning_gnnload.cache.builder import lies_in_memory
from lightning_gnnload.cache.static import as_rows_of
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, byte_rows
from lightning_gnnload.host.direct import PAGE, DirectFile, page_buffer, whole_pages
from lightning_gnnload.host.pages import mapped_file
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.storage.disk import DiskFeatureStore

PIECE_BYTES = 1 << 20
"""Of one read: disks read at their full rate from a megabyte on, if four are under way."""
NUM_READERS = 4
_FEW = 16  # rows of a piece that are read by themselves sooner than with all between them


class TableScan:
    """Reads those parts of a table that rows are wanted of, in order, one chunk ahead of whoever works on them.

    A table in a file is read past the page cache. Others are gathered from their store, chunk by chunk. One thread uses
    it at a time.

    Args:
        store: has all rows.
        chunk_bytes: memory of one of two chunks.
    """

    def __init__(self, store: FeatureStore, chunk_bytes: int) -> None:
        self.store = store
        row_bytes = max(store.row_bytes, 1)
        self._rows_a_piece = max(min(PIECE_BYTES, chunk_bytes) // row_bytes, 1)
        self._rows_a_chunk = max(chunk_bytes // (self._rows_a_piece * row_bytes), 1) * self._rows_a_piece
        self._memory = byte_rows(store.rows) if lies_in_memory(store) else None  # type: ignore[attr-defined]
        self._file, self._offset = (None, 0) if self._memory is not None else _file_of(store)
        size = whole_pages(self._rows_a_chunk * row_bytes) + 2 * PAGE
        self._buffers = [] if self._memory is not None else [page_buffer(size), page_buffer(size)]
        self._threads = Threads(NUM_READERS, "gnnload-scan")
        self.num_bytes = 0
        """Bytes of rows that were read in order so far."""

    def __enter__(self) -> TableScan:
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        if self._file is not None:
            self._file.close()

    def chunks(self, lists: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the number of a chunk's first row, and its rows, uint8 ``[n, row_bytes]``, until the next one.

        All rows of ``lists``, each ascending, are there; of the others only some. Chunks without such rows are left
        out. Raises FeatureFileError: the table cannot be read.
        """
        num_rows, per_piece = self.store.shape[0], self._rows_a_piece
        counts = np.zeros(-(-num_rows // per_piece), np.int64)
        for ids in lists:
            counts += np.bincount(ids // per_piece, minlength=len(counts))
        pieces_a_chunk = self._rows_a_chunk // per_piece
        first_pieces = range(0, len(counts), pieces_a_chunk)
        starts = [piece for piece in first_pieces if counts[piece : piece + pieces_a_chunk].any()]
        begin = partial(self._begin, counts=counts, pieces_a_chunk=pieces_a_chunk, lists=lists)
        ahead = begin(starts[0], 0) if starts else None
        for number, piece in enumerate(starts):
            assert ahead is not None
            rows, reads = ahead
            for read in reads:
                self._threads.result(read)
            ahead = begin(starts[number + 1], number + 1) if number + 1 < len(starts) else None
            yield piece * per_piece, rows

    def _begin(
        self, piece: int, number: int, *, counts: np.ndarray, pieces_a_chunk: int, lists: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, list[Future[None]]]:
        """Begins to read a chunk; returns its rows and what is to be waited for."""
        per_piece, row_bytes = self._rows_a_piece, self.store.row_bytes
        first = piece * per_piece
        last = min(first + self._rows_a_chunk, self.store.shape[0])
        if self._memory is not None:
            return self._memory[first:last], []
        shift = (self._offset + first * row_bytes) % PAGE if self._file is not None else 0
        rows = self._buffers[number % 2][shift : shift + (last - first) * row_bytes].reshape(last - first, row_bytes)
        counts = counts[piece : piece + pieces_a_chunk]
        if self._file is None:
            every = torch.arange(first, last)
            self.num_bytes += rows.nbytes
            return rows, [self._threads.submit(self._gather, every, every - first, rows)]
        reads, few = list[Future[None]](), list[int]()
        for index in np.flatnonzero(counts).tolist():
            begin = first + index * per_piece
            if counts[index] > _FEW:
                end = min(begin + per_piece, last)
                reads.append(self._threads.submit(self._read, begin, end, first, number))
                self.num_bytes += (end - begin) * row_bytes
            else:
                few.append(begin)
        if few:
            spans = [(begin, min(begin + per_piece, last)) for begin in few]
            ids = torch.from_numpy(np.unique(np.concatenate([_within(ids, *s) for s in spans for ids in lists])))
            reads.append(self._threads.submit(self._gather, ids, ids - first, rows))
        return rows, reads

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor, rows: np.ndarray) -> None:
        self.store.gather_at(ids.long(), positions.long(), as_rows_of(self.store, rows))

    def _read(self, begin: int, end: int, first: int, number: int) -> None:
        """Reads rows ``[begin, end)`` to their places in the chunk that begins with row ``first``."""
        assert self._file is not None
        row_bytes = self.store.row_bytes
        chunk_from = (self._offset + first * row_bytes) // PAGE * PAGE
        read_from = (self._offset + begin * row_bytes) // PAGE * PAGE
        needed = self._offset + end * row_bytes - read_from
        shift = read_from - chunk_from
        self._file.read(read_from, self._buffers[number % 2][shift : shift + whole_pages(needed)], needed)


def _within(ids: np.ndarray, begin: int, end: int) -> np.ndarray:
    first, last = np.searchsorted(ids, (begin, end))
    return ids[first:last]


def _file_of(store: FeatureStore) -> tuple[DirectFile | None, int]:
    """Opens the file that a store's rows lie in, one after the other, and returns where they begin; None: no file."""
    try:
        if isinstance(store, DiskFeatureStore):
            return DirectFile(store.open_again, f"{store.folder}/{store.name}"), 0
        if type(store) is MemoryFeatureStore and store.rows.numel():
            file = mapped_file(store.rows.data_ptr())
            if file is not None and not file.is_writable:  # a private change would not be in the file
                opened = DirectFile(lambda flags: os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | flags), file.path)
                if os.fstat(opened.fd).st_ino == file.inode:  # else it was replaced since
                    return opened, file.offset
                opened.close()
    except OSError:
        pass  # a file that cannot be opened again is read through its store
    return None, 0
