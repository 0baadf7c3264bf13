"""Rows of all nodes that lie on disk: written in turn, read at random, or in turn where they exceed memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, gather
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.host.pages import mapped_file
from lightning_gnnload.storage.output import explain_write_errors

_CHUNK_BYTES = 1 << 26
_PAGE_BYTES = 4096
_SCAN_IS_FASTER = 16  # reading a page in turn over reading it at random, of a file that memory cannot hold


class StoredRows:
    """Rows of N nodes, one each, in a file of NumPy's ``.npy`` format. Rows that are never written take no room on
    disk.

    ``row_shape`` and ``dtype`` are those of the model's rows; ``half`` keeps floats as float16; ``memory_bytes`` is how
    much of the file may be expected to stay in memory. A full disk raises OutputError, here or on :meth:`write`.
    """

    def __init__(
        self,
        path: Path,
        num_rows: int,
        row_shape: tuple[int, ...],
        dtype: torch.dtype,
        *,
        half: bool = False,
        memory_bytes: int,
    ) -> None:
        self.path, self.dtype, self.memory_bytes = path, dtype, memory_bytes
        self._allocated = np.zeros(0, np.bool_)
        stored_dtype = torch.float16 if half and dtype.is_floating_point else dtype
        stored_dtype = torch.float32 if stored_dtype is torch.bfloat16 else stored_dtype  # NumPy has none
        np_dtype = torch.empty(0, dtype=stored_dtype).numpy().dtype
        # NumPy maps no empty file.
        shape = (num_rows, *row_shape)
        with explain_write_errors(path):
            # Nobody else may read what a model computes of its data, and no link is followed.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            mapped = (
                np.lib.format.open_memmap(path, "w+", np_dtype, shape) if 0 not in shape else np.empty(shape, np_dtype)
            )
        if isinstance(mapped, np.memmap):
            self._first, self._row_bytes = mapped.offset, mapped.nbytes // num_rows
            self._allocated = np.zeros((self._first + mapped.nbytes) // _PAGE_BYTES + 1, np.bool_)
        self.rows = torch.from_numpy(mapped)

    def write(self, ids: np.ndarray, rows: torch.Tensor) -> None:
        """Writes one row for each of the nodes ``ids``, int64 ``[S]``; raises InferenceError for a number beyond
        float16."""
        self._allocate(ids)
        original = rows.detach().cpu()
        rows = original.to(self.rows.dtype)
        if rows.dtype is torch.float16 and bool((rows.isinf() & original.isfinite()).any()):
            raise InferenceError(
                f"rows between layers go up to {original.abs().max():.5g}, but float16 holds numbers up to 65504. Give "
                "dtype=torch.float32, --dtype float32."
            )
        # Most blocks are of nodes in a row: a slice is copied at once, not row by row.
        if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
            self.rows[ids[0] : ids[0] + len(ids)] = rows
        else:
            self.rows[torch.from_numpy(ids)] = rows

    def _allocate(self, ids: np.ndarray) -> None:
        """Has the disk give the room for rows."""
        # To write to a mapped file whose disk is full would end the process by a signal, not an error.
        if not len(ids) or not len(self._allocated):
            return
        first = self._first + np.asarray(ids) * self._row_bytes
        steps = np.arange(-(-self._row_bytes // _PAGE_BYTES) + 1) * _PAGE_BYTES
        within = np.minimum(first[:, None] + steps, first[:, None] + self._row_bytes - 1)
        pages = np.unique(within // _PAGE_BYTES)
        pages = pages[~self._allocated[pages]]
        if not len(pages):
            return
        with explain_write_errors(self.path), open(self.path, "r+b") as file:
            end = os.fstat(file.fileno()).st_size
            for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
                start, stop = int(run[0]) * _PAGE_BYTES, min(int(run[-1] + 1) * _PAGE_BYTES, end)
                os.posix_fallocate(file.fileno(), start, stop - start)
        self._allocated[pages] = True

    def take(self, ids: np.ndarray) -> torch.Tensor:
        return rows_at(self.rows, torch.from_numpy(ids), self.memory_bytes).to(self.dtype)

    def remove(self) -> None:
        """Gives the disk's room back, once the rows are no longer mapped."""
        self.path.unlink()


def rows_at(table: torch.Tensor | FeatureStore, ids: torch.Tensor, memory_bytes: int) -> torch.Tensor:
    """Returns rows ``ids``, int64 ``[V]``, of a table or a store.

    A mapped file that memory cannot hold is read from its beginning to its end where many of its pages are needed: a
    disk gives them several times as fast in turn as at random.
    """
    if isinstance(table, FeatureStore):
        shape, dtype = (len(ids), *table.row_shape), table.dtype
        if not isinstance(table, MemoryFeatureStore):
            out = torch.empty(shape, dtype=dtype)
            table.gather(ids, out.view(len(ids), table.shape[1]))
            return out
        table = table.rows
    else:
        shape, dtype = (len(ids), *table.shape[1:]), table.dtype
    out = torch.empty((len(ids), *table.shape[1:]), dtype=dtype)
    needed_bytes = len(ids) * max(out[:1].nbytes, _PAGE_BYTES)
    if (
        table.nbytes > memory_bytes
        and needed_bytes * _SCAN_IS_FASTER > table.nbytes
        and mapped_file(table.data_ptr()) is not None
    ):
        _scan(table, ids, out)
    else:
        gather(table, ids, out)
    return out.view(shape)


def _scan(table: torch.Tensor, ids: torch.Tensor, out: torch.Tensor) -> None:
    # Only ids are sorted: rows go straight to their positions in the output.
    ids, positions = ids.sort()
    chunk_rows = max(_CHUNK_BYTES // max(table[:1].nbytes, 1), 1)
    firsts = torch.arange(0, len(table) + chunk_rows, chunk_rows)
    bounds = torch.searchsorted(ids, firsts).tolist()
    for first, begin, end in zip(firsts.tolist(), bounds, bounds[1:], strict=False):
        if begin < end:
            chunk = table[first : first + chunk_rows].clone()  # which reads it in turn
            gather(chunk, ids[begin:end] - first, out, positions[begin:end])
