"""Leases keep mapped arrays as they were checked, even if somebody writes to their files.

Kernels trust the arrays of a graph, which are checked once: an id that changes afterwards can be a write to anywhere.
So this process takes a read lease of each file (``fcntl(2)``). The system makes whoever opens the file to write to it
wait, while a thread copies the mapped pages to private memory at the same addresses. Until then a lease costs nothing.

Where the system gives no lease, the pages are copied at once: the file is another user's, is open for writing already,
or lies in a file system that others change without this machine's knowledge (NFS, FUSE).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import mmap
import os
import signal
import struct
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from lightning_gnnload.errors import ThreadLimitError, warn
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.host.pages import HUGE_PAGE_BYTES, MappedFile, mapped_file
from lightning_gnnload.host.threads import start_thread

_log = logging.getLogger(__name__)
_F_SETSIG, _F_SETOWN_EX, _F_OWNER_TID = 10, 15, 0  # linux/fcntl.h; Python names none of them
_MOVE_TO = 3  # MREMAP_MAYMOVE | MREMAP_FIXED, linux/mman.h
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
"""File systems whose files change only with the knowledge of this machine's kernel."""


class LeasedPages:
    """The pages of one mapped array, and the lease of their file."""

    def __init__(self, file: MappedFile, array: np.ndarray) -> None:
        self.file = file
        self.signature: tuple[int, ...] = ()
        """The file's size and time when the lease was taken; other times change with its name, too."""
        self._array: np.ndarray | None = array
        self._fd = -1

    @property
    def has_lease(self) -> bool:
        return self._fd >= 0

    @property
    def is_breaking(self) -> bool:
        """Whether somebody waits to write to the file, which the system calls breaking the lease."""
        with contextlib.suppress(OSError):
            return self.has_lease and fcntl.fcntl(self._fd, fcntl.F_GETLEASE) != fcntl.F_RDLCK
        return False

    @property
    def num_bytes(self) -> int:
        return 0 if self._array is None else self._array.nbytes

    def take_lease(self, thread_id: int, number: int, path: str = "") -> bool:
        """Takes a lease, whose break the system signals to a thread by ``number``; returns whether it got one.
        ``path`` is the file's, if it is no longer what it was mapped by."""
        with contextlib.suppress(OSError):
            self._fd = os.open(path or self.file.path, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(self._fd)
            # The path may belong to another file by now, whose lease would protect nothing.
            if status.st_ino == self.file.inode and _file_system(status.st_dev) in _LOCAL:
                # To the thread that blocks the signal, as it would end the process in any other.
                fcntl.fcntl(self._fd, _F_SETSIG, number)
                fcntl.fcntl(self._fd, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, thread_id))
                fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                self.signature = status.st_size, status.st_mtime_ns
                return True
        self.release()
        return False

    def renew_lease(self, thread_id: int, number: int) -> bool:
        """Takes a lease of this process's own in a fork, which has its parent's; returns whether it got one."""
        parents = self._fd
        try:
            # By the descriptor, as the file may have another name by now: folders are written aside, and renamed.
            return self.take_lease(thread_id, number, f"/proc/self/fd/{parents}")
        finally:
            os.close(parents)

    def release(self) -> None:
        """Ends the lease, if there is one, and so lets a waiting writer go on."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def copy(self) -> bool:
        """Exchanges the pages for copies in private memory; returns whether there is room for these."""
        # Other threads may read them meanwhile: mremap exchanges them at once, and both have the same bytes.
        array = self._array  # keeps them mapped until the exchange, even if the owner is collected
        if array is None:
            return True
        begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
        size = -(-(array.ctypes.data + array.nbytes - begin) // mmap.PAGESIZE) * mmap.PAGESIZE
        # Half of it, as a system without memory left may kill any process.
        if size > free_bytes() // 2:
            return False
        libc = _libc()
        advice = getattr(mmap, "MADV_HUGEPAGE", 0)
        writable, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        reserved = libc.mmap(None, size + HUGE_PAGE_BYTES, writable, private, -1, 0)
        if reserved == _NOWHERE:
            return False
        # At the same offset within a huge page as where it goes, so that the copy can lie on huge pages there.
        address = reserved + (begin - reserved) % HUGE_PAGE_BYTES
        libc.madvise(address, size, advice)
        libc.memcpy(address, begin, size)
        libc.mprotect(address, size, mmap.PROT_READ)
        moved = libc.mremap(address, size, size, _MOVE_TO, begin) == begin
        libc.munmap(reserved, address - reserved)
        libc.munmap(address + size, reserved + HUGE_PAGE_BYTES - address)
        return moved

    def forget(self) -> None:
        """Ends the lease, and no longer keeps the array."""
        self.release()
        self._array = None


class LeaseKeeper:
    """Keeps this process's leases, each until its owner is collected, and watches them in a thread."""

    def __init__(self) -> None:
        # Sent to that thread alone, which blocks it: any signal will do.
        self._signal = getattr(signal, "SIGRTMAX", 0) - 5
        # Reentrant: an owner can be collected in any thread, and so in one that is in here.
        self._lock = threading.RLock()
        self._leased: list[LeasedPages] = []
        self._thread_id = 0

    def protect(self, owner: Any, leased: list[LeasedPages]) -> None:
        """Takes leases that last until ``owner`` is collected; where it gets none, copies the pages, or warns."""
        with self._lock:
            self._start()
            for pages in leased:
                if not pages.take_lease(self._thread_id, self._signal) and not pages.copy():
                    warn(
                        f"{pages.file.path} is mapped, and nothing keeps others from changing it in use, which may end "
                        f"this process: the system gives no lease of it, and there is no room for a copy of "
                        f"{in_units(pages.num_bytes)}. Do not write to it, or copy it to a local disk of yours."
                    )
            self._leased = [pages for pages in (*self._leased, *leased) if pages.has_lease]
        # Not at exit, when threads may still read the pages.
        weakref.finalize(owner, self._forget, leased).atexit = False

    def after_fork(self) -> None:
        """Takes leases for the child: the system signals breaks of the parent's to the parent alone."""
        leased = [pages for pages in self._leased if pages.has_lease]
        self._lock, self._thread_id = threading.RLock(), 0  # the parent's thread may have had the lock
        if leased:
            with contextlib.suppress(ThreadLimitError):  # without a thread there are no leases
                self._start()
        for pages in leased:
            signature = pages.signature
            if not self._thread_id:
                pages.release()
            if not self._thread_id or not pages.renew_lease(self._thread_id, self._signal):
                self._copy_or_end(pages)
            elif pages.signature != signature:
                _end_process(f"{pages.file.path} was changed in the moment of a fork, and is mapped here")
        self._leased = [pages for pages in leased if pages.has_lease]

    def _start(self) -> None:
        if self._thread_id:
            return
        started = threading.Event()
        start_thread("gnnload-leases", self._keep, started)
        started.wait()

    def _keep(self, started: threading.Event) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {self._signal})
        self._thread_id = threading.get_native_id()
        started.set()
        while True:
            signal.sigwaitinfo({self._signal})
            with self._lock:
                for pages in [pages for pages in self._leased if pages.is_breaking]:
                    self._copy_or_end(pages)
                    pages.release()
                self._leased = [pages for pages in self._leased if pages.has_lease]

    def _copy_or_end(self, pages: LeasedPages) -> None:
        path, size = pages.file.path, in_units(pages.num_bytes)
        if not pages.copy():
            _end_process(f"{path} is being written to, and this process, which maps {size} of it, has no room for them")
        _log.warning(
            "%s is being written to while it is mapped: %s of it were copied to memory as they were, and this process "
            "goes on with those. Write a new folder instead, which takes the old one's place when it is whole.",
            path,
            size,
        )

    def _forget(self, leased: list[LeasedPages]) -> None:
        with self._lock:
            for pages in leased:
                pages.forget()


_keeper = LeaseKeeper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keeper.after_fork)


def protect_mapped(owner: Any, arrays: Iterable[np.ndarray | None]) -> None:
    """Keeps arrays that lie in mapped files as they are now until ``owner`` is collected. Linux only."""
    if sys.platform != "linux":
        return
    mapped = [(array, file) for array in arrays if array is not None and (file := _file_of(array)) is not None]
    if mapped:
        _keeper.protect(owner, [LeasedPages(file, array) for array, file in mapped])


def _file_of(array: np.ndarray) -> MappedFile | None:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not array.nbytes or root.flags.owndata:  # as most arrays do, which spares looking
        return None
    file = mapped_file(array.ctypes.data)
    # Of a file that was deleted, nobody has the name.
    if (
        file is None
        or file.is_writable
        or file.path.startswith(("/dev/", "/memfd:"))
        or file.path.endswith(" (deleted)")
    ):
        return None
    return file


def _file_system(device: int) -> str:
    device_id = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        for fields in map(str.split, file):
            if fields[2] == device_id:
                return fields[fields.index("-") + 1]
    return ""


def _end_process(reason: str) -> None:
    _log.critical("%s. The process ends before its mini-batches are wrong.", reason)
    # Not by an exception, which would not stop the kernels that read the pages in other threads.
    os.abort()


_NOWHERE = ctypes.c_void_p(-1).value


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = libc.mremap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.mremap.argtypes = [pointer, size, size, number, pointer]
    libc.memcpy.argtypes = [pointer, pointer, size]
    libc.mprotect.argtypes = libc.madvise.argtypes = [pointer, size, number]
    libc.munmap.argtypes = [pointer, size]
    return libc
