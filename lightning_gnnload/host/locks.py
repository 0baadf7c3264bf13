"""Readers-writer locks, held by many readers or one writer: between threads, and between processes of a machine."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """A readers-writer lock between threads of one process; new readers queue behind a waiting writer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_reading = 0
        self._num_writers = 0  # with those that wait
        self._is_written = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            # Waiting writers count as well, or a steady stream of readers would starve them.
            self._changed.wait_for(lambda: not self._num_writers)
            self._num_reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_reading -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._num_writers += 1
            try:
                self._changed.wait_for(lambda: not self._num_reading and not self._is_written)
            except BaseException:  # an interrupt: readers must not wait for a writer that gave up
                self._num_writers -= 1
                self._changed.notify_all()
                raise
            self._is_written = True
        try:
            yield
        finally:
            with self._changed:
                self._num_writers -= 1
                self._is_written = False
                self._changed.notify_all()


_GATE, _ROWS = 0, 1  # bytes of the file: a lock of a range is one of the byte, which need not exist


class SharedLock:
    """A readers-writer lock between processes, released by the kernel when its holder is killed (``F_OFD_SETLKW`` on a
    memfd).

    New readers queue behind a waiting writer: everyone passes a gate, which a writer holds while it waits and writes, a
    reader only in passing. It is not reentrant. ``fd`` is a memfd that all processes have; :meth:`close` closes it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._local = threading.local()

    @classmethod
    def create(cls) -> SharedLock:
        return cls(os.memfd_create("gnnload-lock", os.MFD_CLOEXEC))

    @contextmanager
    def reading(self) -> Iterator[None]:
        fd = self._description()
        _set(fd, _GATE, fcntl.F_RDLCK)
        try:
            _set(fd, _ROWS, fcntl.F_RDLCK)
        finally:
            _set(fd, _GATE, fcntl.F_UNLCK)
        try:
            yield
        finally:
            _set(fd, _ROWS, fcntl.F_UNLCK)

    @contextmanager
    def writing(self) -> Iterator[None]:
        fd = self._description()
        _set(fd, _GATE, fcntl.F_WRLCK)
        try:
            _set(fd, _ROWS, fcntl.F_WRLCK)
            yield
        finally:
            _set(fd, _ROWS, fcntl.F_UNLCK)  # does nothing where it was interrupted before it had them
            _set(fd, _GATE, fcntl.F_UNLCK)

    def close(self) -> None:
        """Closes the lock, which nobody of this process may hold or take any more; threads close their descriptors as
        they end."""
        self._local = threading.local()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _description(self) -> int:
        """Returns this thread's own open file: such locks belong to the open file, so threads that share one exclude
        nobody."""
        if not hasattr(self._local, "descriptor"):
            # Opened anew: a duplicate of the descriptor would be the same open file, and share its locks.
            self._local.descriptor = _Descriptor(os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC))
        fd: int = self._local.descriptor.fd
        return fd


class _Descriptor:
    """A descriptor that is closed when its thread ends."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def _set(fd: int, byte: int, lock_type: int) -> None:
    # struct flock: type, whence, start, length, and a process id that must be 0
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, struct.pack("hhqqi0q", lock_type, os.SEEK_SET, byte, 1, 0))
