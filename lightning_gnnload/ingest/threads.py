"""Work that several threads do at once, whose results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(call: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Result]:
    """Yields ``call(item)`` of each item in turn, while threads work on the next ones.

    Items are taken in the caller's thread, at most ``num_threads + 1`` of them before their results are, so that memory
    holds no more.
    """
    with ThreadPoolExecutor(num_threads, "gnnload-build") as threads:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(threads.submit(call, item))
                if len(waiting) > num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()
