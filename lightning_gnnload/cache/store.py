"""Stores in front of another one: the base of all caches, a chain of caches, and a cache that is opened when needed."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from lightning_gnnload.data.features import FeatureStore, Reads, TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError, CacheTooSmallError


class StoreWrapper(FeatureStore):
    """A store that wraps another one and has the same rows; a subclass defines :meth:`_gather`. Reads count as
    ``tier``."""

    def __init__(self, store: FeatureStore, tier: str) -> None:
        self.store = store
        self.tier = tier
        self._scratch = threading.local()  # threads gather at the same time, each with its own buffer

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads:
        return self._gather(ids, None, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads:
        return self._gather(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        self.store.announce(request)

    @abstractmethod
    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        """:meth:`gather`; with positions, :meth:`gather_at`."""

    def _missed(self, count: int) -> np.ndarray:
        """Returns a buffer of this thread for missed ids and their positions, int64 ``[2, count]``, reused by every
        batch."""
        buffer: np.ndarray | None = getattr(self._scratch, "missed", None)
        if buffer is None or buffer.shape[1] < count:
            # A quarter more, as the next batches may be a little larger.
            buffer = self._scratch.missed = np.empty((2, count * 5 // 4), np.int64)
        return buffer[:, :count]

    def _hits(self, count: int) -> TierReads:
        return TierReads(self.tier, count, count * self.row_bytes)

    def _ask_behind(self, missed: np.ndarray, out: torch.Tensor) -> Reads:
        """Gathers the ids ``missed[0]`` into the rows ``missed[1]`` of ``out`` from the store behind."""
        ids, positions = torch.from_numpy(missed)
        count = len(ids)
        if count == 0:
            return ()
        # A user's store need not count its reads, and may return None.
        return self.store.gather_at(ids, positions, out) or (TierReads("store", count, count * self.row_bytes),)


def check_slots(num_slots: int, store: FeatureStore) -> None:
    """Raises CacheTooSmallError for no slot, CacheConfigError for more slots than the store has rows."""
    if num_slots < 1:
        raise CacheTooSmallError(f"num_slots is {num_slots}, but a cache needs room for one row at least.")
    if num_slots > store.shape[0]:
        raise CacheConfigError(f"num_slots is {num_slots}, but the store behind has {store.shape[0]} rows only.")


class CacheLevels(FeatureStore):
    """A chain of stores, nearest first, each a cache in front of the next; ``store``, the last, stays open when it is
    closed."""

    def __init__(self, store: FeatureStore, caches: Sequence[FeatureStore]) -> None:
        self.caches = tuple(caches)
        self.nearest = self.caches[0] if caches else store

    @property
    def shape(self) -> tuple[int, int]:
        return self.nearest.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.nearest.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> Reads | None:
        return self.nearest.gather(ids, out)

    def gather_at(self, ids: torch.Tensor, positions: torch.Tensor, out: torch.Tensor) -> Reads | None:
        return self.nearest.gather_at(ids, positions, out)

    def announce(self, request: BatchRequest) -> None:
        self.nearest.announce(request)

    def close(self) -> None:
        # The nearest first, as its threads may still read from those behind.
        for cache in self.caches:
            cache.close()

    def __repr__(self) -> str:
        return repr(self.nearest)


class DeferredStore(FeatureStore):
    """A cache that is made when the first mini-batch needs it, as some loaders are made and never read.

    ``make`` is called at most once. With ``waits`` the store behind serves until :meth:`fill`. After :meth:`close`, the
    store behind serves alone. Thread-safe: all who gather wait for the one that opens, and closing waits for all who
    gather.

    Example:
        >>> from lightning_gnnload import MemoryFeatureStore
        >>> table = MemoryFeatureStore(torch.ones(3, 2))
        >>> cache = DeferredStore(table, make=lambda: table, name="none at all")
        >>> cache.gather(torch.tensor([2]), torch.empty(1, 2))
        (TierReads(tier='memory', rows=1, num_bytes=8),)
    """

    def __init__(
        self, behind: FeatureStore, make: Callable[[], FeatureStore], name: str, *, waits: bool = False
    ) -> None:
        self.behind = behind
        self._waits = waits
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
        """Makes the cache, if there is none yet; raises in every thread what making it raised."""
        # Compared without the lock first: every gather comes by here, and only the first has to open.
        if self._front is None:
            self._open_once()

    @property
    def is_waiting(self) -> bool:
        """Whether the store behind is in use until the cache is filled."""
        return self._waits and self._front is not None

    def fill(self) -> None:
        """Makes the cache that :attr:`is_waiting` announces, while others gather; otherwise does nothing."""
        if self.is_waiting:
            self._waits, self._front = False, self._make()

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
            # Whoever enters from here on gathers from the store behind, so the wait below ends.
            front, self._front = self._front, self.behind
            # A close after a failed opening ends the failure, too: later gathers come from the store behind.
            self._error, self._waits = None, False
        with self._leaving:
            self._leaving.wait_for(lambda: not self._num_inside)
        if front is not None and front is not self.behind:
            front.close()

    def _open_once(self) -> FeatureStore:
        with self._opening:
            if self._error is not None:
                raise self._error  # a new try would take as long again, once in each thread
            if self._front is None:
                try:
                    self._front = self.behind if self._waits else self._make()
                except Exception as error:
                    self._error = error
                    raise
            return self._front

    @contextmanager
    def _inside(self) -> Iterator[FeatureStore]:
        self.open()
        with self._leaving:
            self._num_inside += 1
            # Read after the count: close() swaps the front first and then waits for the count.
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
