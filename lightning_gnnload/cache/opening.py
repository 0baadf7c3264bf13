"""How a cache that ranks rows beforehand comes about, by one rank or by all of a machine together."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator

import numpy as np
import torch

from lightning_gnnload.cache.holding import hold_alone, hold_together
from lightning_gnnload.cache.levels import CacheLevels
from lightning_gnnload.cache.lock import SharedLock
from lightning_gnnload.cache.policy import CachePolicy, hottest
from lightning_gnnload.cache.renewal import Ranking, RenewedCache
from lightning_gnnload.cache.sharers import Meeting
from lightning_gnnload.cache.static import StaticCache
from lightning_gnnload.data.features import FeatureStore, bytes_of
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError, GnnLoadError
from lightning_gnnload.sample.workload import Workload

_PROBED_ROWS = 64
_SEED_THEM = "Features that each rank draws at random need the same seed: call seed_everything(0) before."


def open_ranked(
    store: FeatureStore,
    workload: Workload,
    policy: CachePolicy,
    num_rows: int,
    *,
    meeting: Meeting | None,
    together: bool,
    epoch: int,
    progress: bool,
    tier: str,
) -> FeatureStore:
    """A static cache of the rows that ``policy`` ranks highest.

    Args:
        store: has all rows.
        workload: the mini-batches to come.
        policy: ranks rows, in sharer 0 or a rank alone.
        num_rows: how many.
        meeting: of the ranks that open the cache; None for one alone.
        together: they hold each row once; otherwise each has all.
        epoch: that training begins with.
        progress: show bars on stderr.
        tier: what reads are counted as.

    Raises:
        CacheConfigError: a ranking that is none.
        CacheShareError: a sharer failed, or has other rows.
    """
    hot = hot_rows(store, workload, policy, num_rows, meeting=meeting, epoch=epoch)
    if not len(hot):
        return CacheLevels(store, ())
    renewed = policy.window is not None
    if meeting is not None and together:
        holding = hold_together(store, hot, meeting, renewed=renewed, progress=progress)
    else:
        holding = hold_alone(store, hot, progress=progress)
        if meeting is not None:
            meeting.agree({})  # if one fails, all do
    if policy.window is None:
        return StaticCache(store, holding.location, holding.shards, tier=tier)
    lock = _lock_of(meeting) if meeting is not None and together else SharedLock.create()
    return RenewedCache(
        store,
        holding,
        lock=lock,
        first_epoch=epoch,
        window=policy.window,
        ranking=_ranking_of(policy, workload, store.shape[0], len(hot)) if _leads(meeting) else None,
        channels=None if meeting is None else meeting.keep(),
        tier=tier,
    )


def hot_rows(
    store: FeatureStore,
    workload: Workload,
    policy: CachePolicy,
    num_rows: int,
    *,
    meeting: Meeting | None,
    epoch: int,
) -> np.ndarray:
    """The rows that ``policy`` ranks highest, hottest first, int64, the same in all ranks that meet.

    Raises:
        CacheConfigError: a ranking that is none.
        CacheShareError: a sharer failed, or has other rows.
    """
    hot = np.empty(0, np.int64)
    if num_rows and _leads(meeting):
        hot = hottest(_ranked(policy, workload, epoch), store.shape[0], num_rows)
    if meeting is not None:
        hot = meeting.publish(hot if _leads(meeting) else None)
        meeting.agree({"checksum of rows": _checksum(store, hot[:_PROBED_ROWS])}, advice=_SEED_THEM)
    return hot


def _leads(meeting: Meeting | None) -> bool:
    return meeting is None or meeting.sharers.index == 0


def _ranked(policy: CachePolicy, workload: Workload, epoch: int) -> np.ndarray:
    """Raises CacheConfigError: a policy of the user's own raised."""
    try:
        return policy.hotness(workload, epoch)
    except GnnLoadError:
        raise
    except Exception as error:
        raise CacheConfigError(
            f"the policy {policy!r} cannot rank the rows: {type(error).__name__}: {error}."
        ) from error


def say(text: str) -> None:
    """One line on stderr, where bars are shown as well."""
    from rich.console import Console

    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


def _checksum(store: FeatureStore, ids: np.ndarray) -> int:
    """Of a few rows: tables of one shape that were drawn with different seeds differ in each."""
    rows = torch.zeros(len(ids), store.shape[1], dtype=store.dtype)
    store.gather(torch.from_numpy(ids.copy()), rows)
    return zlib.crc32(bytes_of(rows).tobytes())


def _lock_of(meeting: Meeting) -> SharedLock:
    """One for all sharers, made by sharer 0."""
    mine = SharedLock.create() if meeting.sharers.index == 0 else None
    try:
        first, *_ = meeting.exchange({}, -1 if mine is None else mine.fd)
    finally:
        if mine is not None:
            mine.close()
    return SharedLock(first.fd)


def _ranking_of(policy: CachePolicy, workload: Workload, table_rows: int, num_rows: int) -> Ranking:
    """Ranks later windows: on one thread, in silence, as mini-batches are made meanwhile."""
    quiet = policy.quietly()

    def rank(epoch: int, stopping: threading.Event) -> np.ndarray:
        return hottest(quiet.hotness(_Stoppable(workload, stopping), epoch), table_rows, num_rows)

    return rank


class _Stoppable(Workload):
    """The same mini-batches, until an event is set: a ranking of an epoch can take minutes, a fit ends at once."""

    def __init__(self, workload: Workload, stopping: threading.Event) -> None:
        super().__init__(**workload.settings())
        self._stopping = stopping

    def requests(self, epoch: int) -> Iterator[BatchRequest]:
        for request in super().requests(epoch):
            if self._stopping.is_set():
                raise CacheConfigError("the cache was closed while its next rows were ranked.")
            yield request
