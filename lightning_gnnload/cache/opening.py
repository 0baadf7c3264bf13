"""Place: the memory in which a cache is opened, as an interface; and the host's memory as such a place."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.budget import Budget, Table, budget
from lightning_gnnload.cache.dynamic import SharedSlots
from lightning_gnnload.cache.locks import SharedLock
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.cache.policy import CachePolicy, hottest
from lightning_gnnload.cache.renewal import RenewedCache, ranking_of
from lightning_gnnload.cache.rules import Rule
from lightning_gnnload.cache.static import StaticCache, exchange_files, hold_alone, hold_together
from lightning_gnnload.cache.store import CacheLevels
from lightning_gnnload.data.features import FeatureStore, bytes_of
from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.errors import CacheConfigError, GnnLoadError
from lightning_gnnload.sample.workload import Workload

_MOVE_BYTES = 24
"""A slot that may get another row: while it does, two nodes' ids and its place lie in memory."""
_PROBED_ROWS = 64  # tables of different seeds differ in each row; more would only cost reads
_SEED_THEM = "Features that each rank draws at random need the same seed: call seed_everything(0) before."
T = TypeVar("T")


class Place(ABC, Generic[T]):
    """The memory in which a cache is opened, by one rank or by a group of peers.

    Args:
        store: has all rows.
        peers: the ranks of this machine that open the cache together; None for a rank alone.

    Attributes:
        where: in messages.
        evicts_together: ranks can have one cache that evicts together.
    """

    where = ""
    evicts_together = False

    def __init__(self, store: FeatureStore, peers: PeerGroup | None) -> None:
        self.store, self.peers = store, peers

    @property
    def leads(self) -> bool:
        """Whether this rank decides for all."""
        return self.peers is None or self.peers.membership.index == 0

    def part(self) -> None:
        """Parts the ranks, as they share no rows: from here on nobody waits for another."""
        self.peers = None

    def hot_rows(self, policy: CachePolicy, workload: Workload, num_rows: int, epoch: int) -> np.ndarray:
        """Returns the rows that ``policy`` ranks highest, hottest first, int64, the same in all ranks of the group.

        Raises:
            CacheConfigError: a ranking that is none.
            CacheShareError: a peer failed, or has other rows.
        """
        hot = None
        if self.leads:
            hot = hottest(_ranked(policy, workload, epoch), self.store.shape[0], num_rows)
        if self.peers is not None:
            hot = self.peers.broadcast(hot)
            self.peers.agree({"checksum of rows": _checksum(self.store, hot[:_PROBED_ROWS])}, advice=_SEED_THEM)
        assert hot is not None
        return hot

    def room(self) -> int | None:
        """Returns the bytes that all ranks' caches may take; None: :meth:`budget` looks. All ranks ask at once."""
        return None

    @abstractmethod
    def slot_bytes(self, rule: Rule | None, policy: CachePolicy | None) -> int:
        """Returns the bytes that a cached row takes beside itself."""

    @abstractmethod
    def budget(
        self, table: Table, ratio: float | None, capacity_bytes: int | None, share: str, room: int | None
    ) -> tuple[Budget, bool]:
        """Returns the rows that settings allow, and whether each is there once, not once a rank.

        Args:
            table: in as many copies as there are ranks.
            ratio: see :class:`.FeatureCache`; likewise ``capacity_bytes`` and ``share``.
            room: as :meth:`room` found it.
        """

    @abstractmethod
    def without(self) -> T:
        """Opens the store without a cache."""

    @abstractmethod
    def evicting(self, rule: Rule, workload: Workload, num_rows: int, tier: str, *, together: bool) -> T:
        """Opens an empty cache, which admits and evicts rows: of all ranks ``together``, or of one rank's own."""

    @abstractmethod
    def ranked(
        self,
        hot: np.ndarray,
        policy: CachePolicy,
        workload: Workload,
        *,
        together: bool,
        epoch: int,
        progress: bool,
        tier: str,
    ) -> T:
        """Opens a cache of the rows of ``hot``: ranks hold each row once ``together``, or each rank holds all.

        Raises:
            CacheShareError: a peer failed.
        """


class HostPlace(Place[FeatureStore]):
    """A place in the host's memory: a rank's own, or shared by all ranks of the machine."""

    evicts_together = True

    def part(self) -> None:
        if self.peers is not None:
            self.peers.close()
        super().part()

    def slot_bytes(self, rule: Rule | None, policy: CachePolicy | None) -> int:
        if policy is None:
            assert rule is not None, "either a policy ranks, or a rule admits"
            return rule.slot_bytes
        return 0 if policy.window is None else _MOVE_BYTES

    def budget(
        self, table: Table, ratio: float | None, capacity_bytes: int | None, share: str, room: int | None
    ) -> tuple[Budget, bool]:
        together = share != "replicated"
        # Ranks that share the rows share the table of where they are, too: one copy of both.
        return budget(replace(table, copies=1) if together else table, ratio, capacity_bytes, room), together

    def without(self) -> FeatureStore:
        return CacheLevels(self.store, ())

    def evicting(self, rule: Rule, workload: Workload, num_rows: int, tier: str, *, together: bool) -> FeatureStore:
        assert rule.admit is not None, "a rule that ranks opens no cache"
        slots = None
        if self.peers is not None and together:
            num_bytes = ops.DynamicCache.block_bytes(self.store.shape[0], num_rows, self.store.row_bytes, rule.name)
            file = MemoryFile.create("cache", num_bytes, open_to_all=True) if self.leads else None
            (file,) = exchange_files(self.peers, file, [num_bytes], open_to_all=True)
            slots = SharedSlots(file.array, _lock_of(self.peers))
        return rule.admit(self.store, num_rows, workload, tier, slots)

    def ranked(
        self,
        hot: np.ndarray,
        policy: CachePolicy,
        workload: Workload,
        *,
        together: bool,
        epoch: int,
        progress: bool,
        tier: str,
    ) -> FeatureStore:
        store, peers = self.store, self.peers
        if peers is not None and together:
            memory = hold_together(store, hot, peers, renewed=policy.window is not None, progress=progress)
        else:
            memory = hold_alone(store, hot, progress=progress)
            if peers is not None:
                peers.agree({})  # if one fails, all do
        if policy.window is None:
            return StaticCache(store, memory.location, memory.shards, tier=tier)
        return RenewedCache(
            store,
            memory,
            lock=_lock_of(peers) if peers is not None and together else SharedLock.create(),
            first_epoch=epoch,
            window=policy.window,
            ranking=ranking_of(policy, workload, store.shape[0], len(hot)) if self.leads else None,
            channels=None if peers is None else peers.detach(),
            tier=tier,
        )


def print_line(text: str) -> None:
    """Prints a line on stderr, where progress bars are shown as well."""
    from rich.console import Console

    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


def _ranked(policy: CachePolicy, workload: Workload, epoch: int) -> np.ndarray:
    """Ranks all rows. Raises CacheConfigError: a policy of the user's own raised."""
    try:
        return policy.hotness(workload, epoch)
    except GnnLoadError:
        raise
    except Exception as error:
        raise CacheConfigError(
            f"the policy {policy!r} cannot rank the rows: {type(error).__name__}: {error}."
        ) from error


def _checksum(store: FeatureStore, ids: np.ndarray) -> int:
    """Computes a checksum of a few rows; tables of one shape that were drawn with different seeds differ in each."""
    rows = torch.zeros(len(ids), store.shape[1], dtype=store.dtype)
    store.gather(torch.from_numpy(ids.copy()), rows)
    return zlib.crc32(bytes_of(rows).tobytes())


def _lock_of(peers: PeerGroup) -> SharedLock:
    """Returns the lock that all peers share, which peer 0 makes."""
    mine = SharedLock.create() if peers.membership.index == 0 else None
    try:
        first, *_ = peers.all_gather({}, -1 if mine is None else mine.fd)
    finally:
        if mine is not None:
            mine.close()  # what came back is a duplicate
    return SharedLock(first.fd)
