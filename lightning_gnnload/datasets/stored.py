"""StoredDataset: a data set that is converted once into a graph folder and mapped ever after."""

from __future__ import annotations

import fcntl
import math
import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import DatasetError, StoreFormatError, TableError
from lightning_gnnload.storage.folders import clear_leftovers, staging_folder
from lightning_gnnload.storage.graphs import open_graph, write_graph
from lightning_gnnload.storage.open_folder import OpenFolder, read_folder
from lightning_gnnload.storage.targets import check_target


class StoredDataset(Dataset):
    """Builds a data set once and keeps it in a folder; a subclass says where, by which settings, and how.

    Processes may prepare the same folder at once: one builds while the others wait for its lock, then find
    the folder ready. A process that dies gives its lock up, and readers never see half a folder.
    """

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder that :meth:`prepare` writes to; other settings must give another folder."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """JSON values that decide the content, kept in the manifest; a folder with others is built anew."""

    def build(self, scratch: Path) -> GraphData:
        """Makes the data in memory, or in files under ``scratch``, which is removed after it was written."""
        raise NotImplementedError

    def write(self, settings: dict[str, Any]) -> None:
        """Writes the folder, with the settings in its manifest."""
        with staging_folder(self.folder) as folder:
            scratch = folder / "scratch"
            scratch.mkdir(mode=0o700)
            write_graph(self.build(scratch), self.folder, settings, overwrite=True, repair=True)

    def prepare(self) -> None:
        """Builds the folder, unless it is there and whole; removes what processes that were killed left of it."""
        try:
            if self.folder.parent.is_dir():
                clear_leftovers(self.folder)  # also where it is ready: a scratch may be many times as large
            if self._is_ready():
                return
            self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _lock(self.folder):
                if not self._is_ready():
                    check_target(self.folder, "graph", overwrite=True, repair=True)  # now, not after a download
                    self.write(self.settings)  # of the source as it is now: what changes while it is read is read again
        except OSError as error:
            raise DatasetError(
                f"{self!r} cannot be written to {self.folder}: {error}. "
                f"Give a root that you may write to, on a disk with room."
            ) from error
        except (StoreFormatError, TableError) as error:
            raise DatasetError(f"{self!r} cannot be prepared: {error}") from error

    def load(self) -> GraphData:
        """Maps the prepared data set into memory; raises DatasetError where it was not prepared, or its folder is
        damaged."""
        try:
            return read_folder(self.folder, self._open)
        except StoreFormatError as error:
            raise DatasetError(
                f"{self!r} is not ready: {error} Call prepare() first; it builds what is missing."
            ) from error

    def _open(self, folder: OpenFolder) -> GraphData:
        if folder.manifest["attributes"] != self.settings:
            raise StoreFormatError(f"{self.folder} was made with other settings.")
        return open_graph(folder)

    def _is_ready(self) -> bool:
        """Tells whether the folder has these settings and no file is missing or cut short; content is not read."""
        try:
            with OpenFolder(self.folder) as folder:
                return bool(folder.arrays.keys() and folder.manifest["attributes"] == self.settings)
        except StoreFormatError:
            return False


def scratch_array(file: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns a writable array in a new mapped file, whose pages the system can write out when memory is short.

    The space is reserved first: a full disk is then an OSError here and not a crash at some later write.
    """
    size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if size_bytes == 0:
        return np.empty(shape, dtype)
    with open(file, "xb") as out:
        os.posix_fallocate(out.fileno(), 0, size_bytes)
    return np.memmap(file, dtype, "r+", shape=shape)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Holds an advisory lock beside ``folder``. Its file stays: a third process might lock a new one."""
    descriptor = os.open(folder.parent / f".{folder.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
