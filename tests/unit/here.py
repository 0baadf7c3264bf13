"""What the machines of a cluster do, done here: objects that are made of copied settings, and calls made twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import cycle
from pathlib import Path
from typing import Any


class Here:
    """Two machines of one thread each in this process, which take :class:`.Machines`' place. Each makes all calls that
    the other makes before it: what a call comes to may not depend on whether it was made before."""

    num_threads, most_threads = 2, 1

    def __init__(self, purpose: str, folders: Sequence[Path], *, num_threads: int | None = None) -> None:
        assert all(folder.is_dir() for folder in folders)

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *exception: object) -> None:
        self._objects: list[Any] = []

    def __len__(self) -> int:
        return 2

    def make(self, make: Any, *arguments: Any) -> None:
        self._objects = [make(*deepcopy(arguments)) for _ in range(2)]

    def share(self, value: Any) -> Any:
        return value

    @contextmanager
    def in_order(
        self, method: str, items: Iterable[tuple[Any, ...]], *, at_once: int | None = None
    ) -> Iterator[Iterator[Any]]:
        def results() -> Iterator[Any]:
            for item, number in zip(items, cycle((0, 1)), strict=False):
                for machine in (self._objects[1 - number], self._objects[number]):
                    result = getattr(machine, method)(*deepcopy(item))
                yield deepcopy(result)

        yield results()
