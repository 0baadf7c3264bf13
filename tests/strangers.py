"""Processes of another user of the machine, who wishes a job ill."""

from __future__ import annotations

import encodings.idna  # noqa: F401  what a socket's address needs: this user may not read Python's own folder
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.forked import in_child

UID = 65534
"""Nobody's, which owns nothing that a test makes."""


def as_stranger(work: Callable[[], Any]) -> tuple[int, str]:
    """Runs it to its end in a process of another user; returns what :func:`in_child` does."""
    return in_child(lambda: (_become_stranger(), work()))


@contextmanager
def beside_stranger(work: Callable[[], Any]) -> Iterator[None]:
    """Lets a process of another user do something over and over meanwhile."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            _become_stranger()
            os.write(write, b"\n")
            while True:
                work()
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert os.read(read, 1), "the stranger ended before it began"
        yield
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_stranger() -> None:
    os.setgroups([])
    os.setgid(UID)
    os.setuid(UID)
