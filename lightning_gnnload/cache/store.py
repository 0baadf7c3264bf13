"""Stores in front of another: what every cache has in common, caches in a row, and one that is opened when needed."""

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
    """A store that wraps another one and has the same rows. A subclass has :meth:`_gather`.

    Args:
        store: has all rows.
        tier: what :class:`.TierReads` calls this one.
    """

    def __init__(self, store: FeatureStore, tier: str) -> None:
        self.store = store
        self.tier = tier
        self._scratch = threading.local()  # threads gather at once, each into memory of its own

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
        """Returns room for ids and positions of this thread, int64 ``[2, count]``, kept from one batch to the next."""
        kept: np.ndarray | None = getattr(self._scratch, "missed", None)
        if kept is None or kept.shape[1] < count:
            # A quarter more, as the next batches may be a little larger.
            kept = self._scratch.missed = np.empty((2, count * 5 // 4), np.int64)
        return kept[:, :count]

    def _hits(self, count: int) -> TierReads:
        return TierReads(self.tier, count, count * self.row_bytes)

    def _ask_behind(self, missed: np.ndarray, out: torch.Tensor) -> Reads:
        """Gathers the ids of ``missed[0]`` to the rows ``missed[1]`` of ``out``."""
        ids, positions = torch.from_numpy(missed)
        count = len(ids)
        if count == 0:
            return ()
        # A user's own store may return None, as it need not count.
        return self.store.gather_at(ids, positions, out) or (TierReads("store", count, count * self.row_bytes),)


def check_slots(num_slots: int, store: FeatureStore) -> None:
    """Checks a number of slots. Raises CacheTooSmallError, CacheConfigError: none, or more than the store has rows."""
    if num_slots < 1:
        raise CacheTooSmallError(f"num_slots is {num_slots}, but a cache needs room for one row at least.")
    if num_slots > store.shape[0]:
        raise CacheConfigError(f"num_slots is {num_slots}, but the store behind has {store.shape[0]} rows only.")


class CacheLevels(FeatureStore):
    """A chain of stores, nearest first, each a cache in front of the next; it closes those that are caches.

    Args:
        store: the last, which has all rows; it stays open.
        caches: nearest first; none: ``store`` alone.
    """

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
        # The nearest first: its threads may still read from those behind it.
        for cache in self.caches:
            cache.close()

    def __repr__(self) -> str:
        return repr(self.nearest)


class DeferredStore(FeatureStore):
    """A cache that is filled when the first mini-batch needs it, as some loaders are made and never read.

    After :meth:`close`, and where it was never opened until then, the store behind serves alone. Thread-safe: all who
    gather wait for the one who opens, and closing waits for those who gather.

    Args:
        behind: the store that the cache will stand in front of; it stays open.
        make: makes the cache; called at most once.
        name: says what it makes, for people.
        waits: the store behind serves until :meth:`fill`, which makes the cache.

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
        """Makes the cache, if there is none yet. Raises Exception: what making it raised, in each thread that asks."""
        # Asked without the lock first: each gather comes by here, and only the first has to open.
        if self._front is None:
            self._opened()

    @property
    def is_waiting(self) -> bool:
        """Whether somebody gathers from the store behind until the cache is filled."""
        return self._waits and self._front is not None

    def fill(self) -> None:
        """Makes the cache that is waited for, while others gather. Where none is, or not any more, it makes none."""
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
            # Who enters from here on gathers from the store behind, so that nobody new keeps the front open.
            front, self._front = self._front, self.behind
            self._error, self._waits = None, False
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
            # Read after it is counted: close() waits for whoever has this front.
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
