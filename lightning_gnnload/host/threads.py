"""Threads: errors where the system gives none, and an executor that is safe in forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar

from lightning_gnnload.errors import ForkError, ThreadLimitError

Result = TypeVar("Result")


def check_process(pid: int, name: str) -> None:
    """Raises ForkError in a fork of process ``pid``, where ``name`` has neither its threads nor its connections."""
    if pid != os.getpid():
        raise ForkError(
            f"{name} works in process {pid}, but is used in process {os.getpid()}, a fork of it: a fork has neither "
            "the threads nor the connections of its parent. Let the parent go on with it. Start processes that load by "
            "spawn, and make a loader, or a Trainer, in each."
        )


@contextmanager
def explain_thread_limit(name: str) -> Iterator[None]:
    """Raises ThreadLimitError in place of Python's RuntimeError where ``name`` gets no thread within the block."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):  # Python's words; it has no class for this
            raise
        raise ThreadLimitError(
            f"{name} cannot start: the system gives this process no further thread ({error}). Set fewer "
            "(num_threads of a data module or cache, num_workers of a loader of PyG's name, sampler_threads of "
            "FactoredStrategy, threads of a build), or raise the limit: of processes and threads (ulimit -u, a "
            "container's --pids-limit), or of memory (ulimit -v)."
        ) from error


def start_thread(name: str, work: Callable[..., object], *args: object) -> threading.Thread:
    """Starts a daemon thread that calls ``work``. Raises ThreadLimitError: the system gives none."""
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    with explain_thread_limit(f"The thread {name}"):
        thread.start()
    return thread


def let_others_first() -> None:
    """Has this thread interrupt no other when it wakes (``SCHED_BATCH``); its share of busy cores stays the same.

    Torch's threads wait for the last of them at each operation, so a thread that takes a core in its midst stops all.
    Where the system refuses, and for a thread whose policy was chosen by whoever started the process, nothing changes.
    """
    with suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def set_up_first(call: Callable[..., Result], begin: Callable[[int], object] | None = None) -> Callable[..., Result]:
    """Returns ``call`` for threads, each of which first lets others go before, and calls ``begin`` with its number.

    An executor's own initializer would break the pool where that raises, instead of passing the error on.
    """
    numbers, thread = count(), threading.local()

    def begin_and_call(*args: Any) -> Result:
        if not hasattr(thread, "has_begun"):
            let_others_first()
            if begin is not None:
                begin(next(numbers))
            thread.has_begun = True
        return call(*args)

    return begin_and_call


class Threads(ThreadPoolExecutor):
    """A thread pool that raises in a fork instead of waiting for ever, and that any thread may shut down.

    Example:
        >>> with Threads(2, "doc") as threads:
        ...     threads.result(threads.submit(sum, [1, 2]))
        3
    """

    def __init__(self, num_threads: int, name: str, initializer: Callable[[], object] | None = None) -> None:
        # ThreadPoolExecutor adds a thread to _threads when it may be at its first call already: no way to tell.
        self._inside = inside = threading.local()

        def begin() -> None:
            inside.is_here = True
            if initializer is not None:
                initializer()

        super().__init__(num_threads, name, begin)
        self._pid = os.getpid()
        self._name = name

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Submits a call. Raises ForkError in a fork.

        Raises ThreadLimitError where the system gives no further thread; those that run may still make the call.
        """
        self.check()
        with explain_thread_limit(f"Thread {len(self._threads) + 1} of {self._max_workers} ({self._name})"):
            return super().submit(fn, *args, **kwargs)

    def result(self, future: Future[Result]) -> Result:
        """Waits for a call. Raises ForkError in a fork, even if the call has returned: the result is the parent's."""
        self.check()
        return future.result()

    def check(self) -> None:
        check_process(self._pid, f"What threads make ({self._name})")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads after their present calls, and waits for them, except in one of these threads or a fork."""
        # A thread cannot wait for itself, and others may wait for a lock that it has. It comes here because garbage is
        # collected in any thread, and with it iterators that shut their pool down.
        if self._pid == os.getpid():
            is_inside = getattr(self._inside, "is_here", False)
            super().shutdown(wait and not is_inside, cancel_futures=cancel_futures)
