"""Threads that work for one process: how they start, and where they may be waited for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from lightning_gnnload.errors import ForkError, ThreadLimitError

Result = TypeVar("Result")


def check_process(pid: int, what: str) -> None:
    """Raises ForkError where this is another process than ``pid``, which ``what`` is of: a fork of it."""
    if pid != os.getpid():
        raise ForkError(
            f"{what} works in process {pid}, but is used in process {os.getpid()}, a fork of it: a fork has neither "
            "the threads nor the connections of its parent. Let the parent go on with it. Start processes that load by "
            "spawn, and make a loader, or a Trainer, in each."
        )


@contextmanager
def starting(what: str) -> Iterator[None]:
    """Raises ThreadLimitError where a thread cannot be started within: ``what`` needs it."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):  # Python's words; it has no class for this
            raise
        raise ThreadLimitError(
            f"{what} cannot start: the system gives this process no further thread ({error}). Set fewer "
            "(num_threads of a data module or cache, num_workers of a loader of PyG's name, sampler_threads of "
            "FactoredStrategy, threads of a build), or raise the limit: of processes and threads (ulimit -u, a "
            "container's --pids-limit), or of memory (ulimit -v)."
        ) from error


def start_thread(name: str, work: Callable[..., object], *args: object) -> threading.Thread:
    """Starts a daemon thread, which calls ``work``.

    Raises:
        ThreadLimitError: the system gives none.
    """
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    with starting(f"The thread {name}"):
        thread.start()
    return thread


class Threads(ThreadPoolExecutor):
    """An executor whose results a fork of its process does not wait for, and which any thread may shut down.

    Args:
        num_threads: at most.
        name: of the threads, before their numbers.
        initializer: called by each thread when it begins.

    Example:
        >>> with Threads(2, "doc") as threads:
        ...     threads.result(threads.submit(sum, [1, 2]))
        3
    """

    def __init__(self, num_threads: int, name: str, initializer: Callable[[], object] | None = None) -> None:
        # Not by _threads, to which a thread is added when it may be at its first call already.
        self._inside = inside = threading.local()

        def begin() -> None:
            inside.is_here = True
            if initializer is not None:
                initializer()

        super().__init__(num_threads, name, begin)
        self._pid = os.getpid()
        self._name = name

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Raises ForkError: in a fork of the process that made the executor. Raises ThreadLimitError: it takes another
        thread, which the system does not give; those that there are may still take what was submitted."""
        self.check()
        with starting(f"Thread {len(self._threads) + 1} of {self._max_workers} ({self._name})"):
            return super().submit(fn, *args, **kwargs)

    def result(self, future: Future[Result]) -> Result:
        """Waits for what was submitted. Raises ForkError: in a fork, also for what is done, which the parent takes."""
        self.check()
        return future.result()

    def check(self) -> None:
        """Raises ForkError in a fork of the process that made the executor."""
        check_process(self._pid, f"What threads make ({self._name})")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads when each has done what it is at, and waits for them; nothing in a fork, which has none.

        One of these threads does not wait: it cannot for itself, and others may wait for a lock of its own. Garbage is
        collected in any thread, and with it iterators that end their threads.
        """
        if self._pid == os.getpid():
            is_inside = getattr(self._inside, "is_here", False)
            super().shutdown(wait and not is_inside, cancel_futures=cancel_futures)
