"""BackgroundCheck: compares a folder with its checksums while training goes on."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import threading
import time
from pathlib import Path

import numpy as np

from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.storage.damage import ReadAt, check_folder
from lightning_gnnload.storage.manifest import MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder


class BackgroundCheck:
    """Reads every file of a folder, or of a partition and its parts, in a thread of the lowest priority.

    It reads nothing if the folder no longer has the loaded ``fingerprint``. A folder without damage is noted in the
    folder ``notes``, and not read again until one of its files changes.
    """

    def __init__(self, folder: Path, fingerprint: str, notes: Path) -> None:
        self.error: StoreFormatError | None = None
        self._stopped = threading.Event()
        self._woke = time.monotonic()
        self._thread = start_thread("gnnload-verify", self._run, folder, fingerprint, notes)

    def raise_damage(self) -> None:
        """Raises StoreFormatError where damage was found so far."""
        if self.error is not None:
            raise self.error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until everything is read, or so many seconds; returns whether everything is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends the thread within milliseconds. Safe to call twice."""
        self._stopped.set()
        self._thread.join()

    def _run(self, path: Path, fingerprint: str, notes: Path) -> None:
        # Linux alone has priorities of threads.
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        # Errors of a folder that is gone by now do not matter: what is mapped of it stays.
        with contextlib.suppress(StoreFormatError, _StoppedError, OSError), OpenFolder(path) as folder:
            note = notes / _state_of(folder)
            if folder.fingerprint != fingerprint or note.exists():
                return
            for finding in check_folder(folder, self._rest, _read_aside):
                if finding.error is not None:
                    # The files of a folder that was replaced are removed.
                    self.error = None if folder.is_replaced else finding.error
                    return
            notes.mkdir(parents=True, exist_ok=True, mode=0o700)
            note.touch()

    def _rest(self, num_bytes: int) -> None:
        # Rests as long as the read took, so that half of the disk's speed is left for others.
        if self._stopped.wait(time.monotonic() - self._woke):
            raise _StoppedError
        self._woke = time.monotonic()


class _StoppedError(Exception):
    pass


def _read_aside(fd: int) -> ReadAt:
    """Returns a reader that leaves the page cache as it was: it drops the pages that it has brought in."""
    # Looked up before the first read, as each brings in pages ahead of it.
    was_there = _pages_in_memory(fd)

    def read(memory: memoryview, at: int) -> int:
        count = os.preadv(fd, [memory], at)
        first = at // mmap.PAGESIZE
        absent = ~was_there[first : -(-(at + count) // mmap.PAGESIZE)]
        for start, stop in np.flatnonzero(np.diff(absent, prepend=False, append=False)).reshape(-1, 2) + first:
            # The system keeps pages that somebody has mapped meanwhile.
            at_page, num_pages = int(start) * mmap.PAGESIZE, int(stop - start) * mmap.PAGESIZE
            os.posix_fadvise(fd, at_page, num_pages, os.POSIX_FADV_DONTNEED)
        return count

    return read


def _pages_in_memory(fd: int) -> np.ndarray:
    """Returns which pages of a file are in memory, bool; of a file that this user may not write, all."""
    size_bytes = os.fstat(fd).st_size
    pages = np.ones(-(-size_bytes // mmap.PAGESIZE), np.uint8)
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    if size_bytes and mincore is not None:
        with mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ) as mapped:  # reads nothing
            view = np.frombuffer(mapped, np.uint8)
            mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size_bytes), pages.ctypes)
            del view  # or the map could not be closed
    return (pages & 1).astype(bool)


def _state_of(folder: OpenFolder) -> str:
    """Returns a digest of a folder's fingerprint, and of its files' identities, sizes and times."""
    folders = [folder.path, *(folder.path / name for name in folder.parts)]
    stats = [os.stat(path / name) for path in folders for name in sorted(os.listdir(path)) if name != MANIFEST]
    facts = [[status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns] for status in stats]
    return hashlib.sha256(json.dumps([folder.fingerprint, facts]).encode()).hexdigest()
