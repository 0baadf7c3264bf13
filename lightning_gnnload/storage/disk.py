"""DiskFeatureStore: feature rows that stay on disk, for tables larger than memory."""

from __future__ import annotations

import errno
import math
import mmap
import os
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads, byte_rows
from lightning_gnnload.errors import FeatureFileError, StoreFormatError, warn
from lightning_gnnload.host.pages import encodable, mapped_bytes
from lightning_gnnload.storage.open_folder import OpenFolder, StoredArray, read_folder

_UNITS = (512, 1024, 2048, 4096)  # a disk's logical block size, which only trying tells


class DiskFeatureStore(FeatureStore):
    """Keeps feature rows in a file on disk; memory holds none of them, or what the system chooses to keep.

    Direct reads go past the system's page cache: a gather sorts its rows by position, joins those whose sectors touch,
    and keeps ``in_flight`` reads going at once, so that the disk always has work and other programs keep their memory.
    Which rows stay in memory is then for a cache in front to decide, which knows what will be read.

    Without direct reads, the file is mapped. That is faster where memory has room for all of it; where it has not,
    each page that is missing costs a wait of its own.

    Args:
        folder: written by :func:`.save_features` or :func:`.save_graph_data`. The file that is opened stays readable
            when the folder is replaced.
        name: the array of that folder.
        direct: read past the page cache. A file system that refuses it (Linux's before 6.6 refused it in tmpfs) is
            read through it, and a warning says so.
        in_flight: reads at once, of each thread that gathers; each takes a buffer of 32 KiB.

    Reads come as tier ``"disk"``; bytes of direct reads are those of whole sectors, others those of the rows.

    Shapes: N graph nodes, F feature width.

    Raises:
        StoreFormatError: the folder is missing or broken, or has no such table.
        FeatureFileError: the file cannot be opened; later, when it is cut off or cannot be read.

    Example:
        >>> from lightning_gnnload import save_features
        >>> save_features(torch.arange(6.0).view(3, 2), "features", progress=False)
        >>> store, out = DiskFeatureStore("features"), torch.empty(2, 2)
        >>> [from_disk] = store.gather(torch.tensor([2, 0]), out)
        >>> from_disk.tier, from_disk.rows, out.tolist()
        ('disk', 2, [[4.0, 5.0], [0.0, 1.0]])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | OpenFolder,
        *,
        name: str = "x",
        direct: bool = True,
        in_flight: int = 128,
    ) -> None:
        self._fd = -1
        self.name, self.in_flight = name, in_flight
        if isinstance(folder, OpenFolder):
            self.folder = folder.path
            self._open(folder, direct)
        else:
            self.folder = Path(folder)
            read_folder(folder, lambda opened: self._open(opened, direct))

    def _open(self, folder: OpenFolder, direct: bool) -> None:
        self._array = _stored_table(folder, self.name)
        self._fd, unit = _open(self._array, direct)
        self.direct = unit > 1
        try:
            self._file = ops.RowFile(self._fd, encodable(self._array.file), 0, self.shape[0], self.row_bytes, unit)
            self._map = None if direct else _mapped_rows(self._array, self._fd)
            # A reader for each thread that gathers at the same time; more are made as they are needed.
            self._idle = [ops.RowReader(self.row_bytes, unit, self.in_flight)]
        except BaseException:
            self.close()
            raise
        self._pid = os.getpid()

    @property
    def shape(self) -> tuple[int, int]:
        return self._array.shape[0], math.prod(self.row_shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self._array.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self.gather_at(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        if self._fd < 0:
            raise FeatureFileError(f"{self!r} was closed: it gathers no more. Open the folder again.")
        out_rows = None if positions is None else positions.numpy()
        if self._map is not None:
            self._gather_mapped(self._map, ids.numpy(), out_rows, byte_rows(out))
            return (TierReads("disk", len(ids), len(ids) * self.row_bytes),)
        reader = self._reader()
        tally = ops.read_rows(reader, self._file, ids.numpy(), out_rows, byte_rows(out))
        self._idle.append(reader)  # not after an error: a reader that failed may have failed for good
        return (TierReads("disk", len(ids), tally.num_bytes),)

    def open_again(self, flags: int) -> int:
        """Opens the same file once more, with these flags of ``os.open`` in place of its own; returns the descriptor.
        Its rows begin at byte 0."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC | flags)

    @property
    def checksums(self) -> tuple[int, ...]:
        """The file's checksums, as the manifest of its folder has them."""
        return self._array.checksums

    def close(self) -> None:
        """Closes the file. No other thread may be gathering."""
        fd, self._fd = self._fd, -1
        self._idle = []
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DiskFeatureStore({str(self.folder)!r}, name={self.name!r}, shape={self.shape}, dtype={self.dtype})"

    def _reader(self) -> ops.RowReader:
        if self._pid != os.getpid():  # after a fork, the parent goes on with these rings
            self._pid, self._idle = os.getpid(), []
        try:
            return self._idle.pop()  # needs no lock: pop and append of a list are atomic
        except IndexError:
            return ops.RowReader(self.row_bytes, self._file.unit, self.in_flight)

    def _gather_mapped(self, rows: np.ndarray, ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray) -> None:
        # The size is checked first, as catching the fault of a read beyond the end costs more.
        if os.fstat(self._fd).st_size >= self._array.size_bytes and ops.gather_mapped(rows, ids, positions, out):
            return
        raise FeatureFileError(
            f"{self._array.file} was truncated while in use, or its disk fails: it has {os.fstat(self._fd).st_size} "
            f"bytes, but {self._array.size_bytes} were there. Prepare it again."
        )


def _stored_table(folder: OpenFolder, name: str) -> StoredArray:
    arrays = folder.arrays
    if name not in arrays:
        raise StoreFormatError(
            f"{folder.path} has no array {name!r}, but {', '.join(sorted(arrays)) or 'none at all'}. "
            f"Write one with save_features, or give its name."
        )
    if len(arrays[name].shape) < 1:
        raise StoreFormatError(
            f"{arrays[name].file}: array {name!r} is a single number, but must be [N, F]. Prepare it again."
        )
    return arrays[name]


def _open(array: StoredArray, direct: bool) -> tuple[int, int]:
    """Opens the file; returns its descriptor and the unit of direct reads, 1 where they go through the page cache."""
    file = array.file
    try:
        fd = array.open()
    except OSError as error:
        raise FeatureFileError(f"{file} cannot be opened: {error}. Prepare it again.") from error
    if not direct:
        return fd, 1
    # EINVAL says that a file system has no direct reads; other errors are those of a disk.
    direct_fd = -1
    try:
        direct_fd = array.open(getattr(os, "O_DIRECT", 0))
        if hasattr(os, "O_DIRECT"):
            for unit in _UNITS:
                if _reads_in(direct_fd, unit):
                    fd, direct_fd = direct_fd, fd  # the other one is closed
                    return fd, unit
    except OSError as error:
        if error.errno != errno.EINVAL:
            os.close(fd)
            raise FeatureFileError(f"{file} cannot be opened: {error}. Prepare it again.") from error
    finally:
        if direct_fd >= 0:
            os.close(direct_fd)
    warn(f"{file}: its file system refuses direct reads, so they go through the page cache, which takes memory.")
    return fd, 1


def _reads_in(fd: int, unit: int) -> bool:
    """Returns whether direct reads may start and end at multiples of ``unit``, by trying."""
    with mmap.mmap(-1, unit) as page:
        try:
            for offset in (0, unit):  # the second read proves nothing where the file ends before it
                os.preadv(fd, [page], offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
    return True


def _mapped_rows(array: StoredArray, fd: int) -> np.ndarray:
    num_rows, row_bytes = array.shape[0], math.prod(array.shape[1:]) * array.dtype.itemsize
    if array.size_bytes == 0:
        return np.empty((num_rows, row_bytes), np.uint8)
    return mapped_bytes(array.file, fd).reshape(num_rows, row_bytes)
