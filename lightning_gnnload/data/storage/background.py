"""BackgroundCheck: all of a folder is read once and compared with its checksums while training goes on."""

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

from lightning_gnnload.data.storage.damage import ReadAt, check_folder
from lightning_gnnload.data.storage.manifest import MANIFEST
from lightning_gnnload.data.storage.open_folder import OpenFolder
from lightning_gnnload.data.threads import start_thread
from lightning_gnnload.errors import StoreFormatError


class BackgroundCheck:
    """Reads every file of a folder once, in a thread that takes what others leave, and tells of damage later.

    The thread has the lowest priority, and rests as long as each read took: a disk keeps half of its speed for others.
    Pages that were not in memory before are let go, so that nothing is driven out of it. A folder that was found whole
    is noted in ``notes`` with the times of its files, and not read again until one of these changes.

    Args:
        folder: that is loaded; of a partition with all parts.
        fingerprint: of what was loaded. Another version that has come meanwhile is not read.
        notes: a folder of this user's, which need not be there.
    """

    def __init__(self, folder: Path, fingerprint: str, notes: Path) -> None:
        self.error: StoreFormatError | None = None
        self._ended = threading.Event()
        self._woke = time.monotonic()
        self._thread = start_thread("gnnload-verify", self._run, folder, fingerprint, notes)

    def raise_damage(self) -> None:
        """Raises StoreFormatError: damage was found so far; the message says where."""
        if self.error is not None:
            raise self.error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all is read, or so many seconds; returns whether all is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends the thread, in some milliseconds, whatever it has read. Safe to call twice."""
        self._ended.set()
        self._thread.join()

    def _run(self, path: Path, fingerprint: str, notes: Path) -> None:
        with contextlib.suppress(OSError, AttributeError):  # Linux alone has priorities of threads
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        # Where the folder is gone by now, what is mapped of it stays as it is.
        with contextlib.suppress(StoreFormatError, _EndedError, OSError), OpenFolder(path) as folder:
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
        if self._ended.wait(time.monotonic() - self._woke):
            raise _EndedError
        self._woke = time.monotonic()


class _EndedError(Exception):
    pass


def _read_aside(fd: int) -> ReadAt:
    """Reads a file and lets go of the pages that were not in memory before, so that the page cache stays as it was."""
    # Once for all of it, as reads bring in what lies ahead.
    was_there = _pages_in_memory(fd)

    def read(memory: memoryview, at: int) -> int:
        count = os.preadv(fd, [memory], at)
        first = at // mmap.PAGESIZE
        strange = ~was_there[first : -(-(at + count) // mmap.PAGESIZE)]
        for start, stop in np.flatnonzero(np.diff(strange, prepend=False, append=False)).reshape(-1, 2) + first:
            # Pages that somebody has mapped by now stay.
            at_page, num_pages = int(start) * mmap.PAGESIZE, int(stop - start) * mmap.PAGESIZE
            os.posix_fadvise(fd, at_page, num_pages, os.POSIX_FADV_DONTNEED)
        return count

    return read


def _pages_in_memory(fd: int) -> np.ndarray:
    """Returns which pages of a file are in memory, bool; of a file that one may not write, the system says all."""
    size_bytes = os.fstat(fd).st_size
    pages = np.ones(-(-size_bytes // mmap.PAGESIZE), np.uint8)
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    if size_bytes and mincore is not None:
        with mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ) as mapped:  # none of which is touched
            view = np.frombuffer(mapped, np.uint8)
            mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size_bytes), pages.ctypes)
            del view
    return (pages & 1).astype(bool)


def _state_of(folder: OpenFolder) -> str:
    """Returns hexadecimal digits for a folder's content and its files: which, of which size, and changed when."""
    folders = [folder.path, *(folder.path / name for name in folder.parts)]
    stats = [os.stat(path / name) for path in folders for name in sorted(os.listdir(path)) if name != MANIFEST]
    facts = [[status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns] for status in stats]
    return hashlib.sha256(json.dumps([folder.fingerprint, facts]).encode()).hexdigest()
