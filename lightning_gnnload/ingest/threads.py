"""Work that several threads do at once, whose results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from lightning_gnnload.host.threads import Threads

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def in_order(call: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Iterator[Result]]:
    """Yields an iterator of ``call(item)`` of each item in turn, while threads work on the next ones.

    Items are taken in the caller's thread, at most ``num_threads + 1`` of them before their results are, so that memory
    holds no more. When the ``with`` block ends, no thread works any more, whatever it ends by.

    Example:
        >>> with in_order(lambda number: number**2, range(5), 2) as squares:
        ...     list(squares)
        [0, 1, 4, 9, 16]
    """
    waiting: deque[Future[Result]] = deque()

    def results() -> Iterator[Result]:
        for item in items:
            waiting.append(threads.submit(call, item))
            if len(waiting) > num_threads:
                yield threads.result(waiting.popleft())
        while waiting:
            yield threads.result(waiting.popleft())

    with Threads(num_threads, "gnnload-build") as threads:
        try:
            yield results()
        finally:
            for future in waiting:
                future.cancel()
