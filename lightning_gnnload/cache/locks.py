"""Readers-writer locks, which many readers or one writer hold: in one process, and between those of a machine."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """A readers-writer lock between threads of one process. A reader that comes later does not pass a writer that
    waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_reading = 0
        self._num_writers = 0  # with those that wait
        self._is_written = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
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
            except BaseException:  # an interrupt: readers must not wait for who writes no more
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


_GATE, _ROWS = 0, 1  # bytes of the file that stand for them


class SharedLock:
    """A lock between processes that is released when its holder is killed (``F_OFD_SETLKW`` on a memfd).

    A reader that comes later does not pass a writer that waits: all go through a gate, which a writer holds while it
    waits and writes, and a reader only in passing. It is not reentrant.

    Args:
        fd: a memfd that all of them have; closed by :meth:`close`.
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
        """Closes the lock, which nobody of this process holds or will take. Threads give back what they opened when
        they end."""
        self._local = threading.local()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _description(self) -> int:
        """Returns this thread's own descriptor: locks belong to an open file, and threads that share one would not
        exclude each other."""
        if not hasattr(self._local, "opened"):
            # Opened anew: a duplicate of the descriptor would share its locks.
            self._local.opened = _Opened(os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC))
        fd: int = self._local.opened.fd
        return fd


class _Opened:
    """A descriptor that is closed with the thread that it belongs to."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def _set(fd: int, byte: int, kind: int) -> None:
    # struct flock: type, whence, start, length, and a process id that must be 0
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, struct.pack("hhqqi0q", kind, os.SEEK_SET, byte, 1, 0))
