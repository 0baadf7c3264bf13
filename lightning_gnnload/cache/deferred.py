"""DeferredStore: a store in front of another that is made when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from lightning_gnnload.data.features import FeatureStore, Reads
from lightning_gnnload.data.plan import BatchRequest


class DeferredStore(FeatureStore):
    """A cache that is filled when the first mini-batch needs it: loaders are made that nobody ever reads.

    After :meth:`close`, and where it was never opened until then, the store behind serves alone. Thread-safe: all who
    gather wait for the one who opens, and closing waits for those who gather.

    Args:
        behind: the store that the cache will stand in front of; it stays open.
        make: makes the cache; called at most once.
        name: says what it makes, for people.

    Example:
        >>> from lightning_gnnload import MemoryFeatureStore
        >>> table = MemoryFeatureStore(torch.ones(3, 2))
        >>> cache = DeferredStore(table, make=lambda: table, name="none at all")
        >>> cache.gather(torch.tensor([2]), torch.empty(1, 2))
        (TierReads(tier='memory', rows=1, num_bytes=8),)
    """

    def __init__(self, behind: FeatureStore, make: Callable[[], FeatureStore], name: str) -> None:
        self.behind = behind
        self.name = name
        self._make = make
        self._opening = threading.Lock()
        self._front: FeatureStore | None = None
        self._error: Exception | None = None
        self._leaving = threading.Condition()
        self._num_inside = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.behind.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.behind.dtype

    def open(self) -> None:
        """Raises Exception: what making the cache raised, in each thread that asks for it."""
        if self._front is None:
            self._opened()

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads | None:
        with self._inside() as front:
            return front.gather(ids, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads | None:
        with self._inside() as front:
            return front.gather_at(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        with self._inside() as front:
            front.announce(request)

    def close(self) -> None:
        with self._opening:
            front, self._front = self._front, self.behind
            self._error = None
        with self._leaving:
            self._leaving.wait_for(lambda: not self._num_inside)
        if front is not None and front is not self.behind:
            front.close()

    def _opened(self) -> FeatureStore:
        with self._opening:
            if self._error is not None:
                raise self._error  # to try again would take as long again, once for each thread
            if self._front is None:
                try:
                    self._front = self._make()
                except Exception as error:
                    self._error = error
                    raise
            return self._front

    @contextmanager
    def _inside(self) -> Iterator[FeatureStore]:
        self.open()
        with self._leaving:
            self._num_inside += 1
            front = self._front
        assert front is not None
        try:
            yield front
        finally:
            with self._leaving:
                self._num_inside -= 1
                self._leaving.notify_all()

    def __repr__(self) -> str:
        return f"{self.name} in front of {self.behind!r}"
