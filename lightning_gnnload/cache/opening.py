"""Place: the memory in which a cache is opened, as an interface; and the host's memory as such a place."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import reduce
from typing import Generic, TypeVar

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.budget import Allowance, Budget, Table, budget, rows_worth_it
from lightning_gnnload.cache.dynamic import SharedSlots
from lightning_gnnload.cache.locks import SharedLock
from lightning_gnnload.cache.peers import PeerGroup, numbers_file, numbers_in
from lightning_gnnload.cache.policy import CachePolicy, Chosen
from lightning_gnnload.cache.renewal import RenewedCache, ranking_of
from lightning_gnnload.cache.rules import Rule
from lightning_gnnload.cache.static import SharerOf, StaticCache, exchange_files, hold_alone, hold_together
from lightning_gnnload.cache.store import CacheLevels
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, byte_rows
from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.data.memory import free_bytes, in_units
from lightning_gnnload.data.pages import mapped_file
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
        sharer_of: which of them a row is to lie with, where each is there once; None: any.
        nearer: what the caches in front of it hold, nearest first.

    Attributes:
        where: in messages.
        is_thrifty: memory that a cache leaves serves others, so that rows have to be worth theirs.
        evicts_together: ranks can have one cache that evicts together.
    """

    where = ""
    is_thrifty = False
    evicts_together = False

    def __init__(
        self,
        store: FeatureStore,
        peers: PeerGroup | None,
        sharer_of: SharerOf | None = None,
        nearer: tuple[Chosen, ...] = (),
    ) -> None:
        self.store, self.peers, self.sharer_of, self.nearer = store, peers, sharer_of, nearer

    @property
    def leads(self) -> bool:
        """Whether this rank decides for all."""
        return self.peers is None or self.peers.membership.index == 0

    def part(self) -> None:
        """Parts the ranks, as they share no rows: from here on nobody waits for another."""
        self.peers = None

    def hot_rows(self, room: Chosen, workload: Workload, epoch: int, *, spare: bool) -> tuple[Chosen, str]:
        """Chooses the rows that the policy ranks highest, of those that no nearer cache holds, the same in all ranks of
        the group; and for the one that leads, tells what they are expected to give, in words.

        Args:
            room: the policy, and the rows that there is memory for.
            workload: the mini-batches to come.
            epoch: that training begins with.
            spare: leave rows out that are not worth their memory.

        Raises:
            CacheConfigError: a ranking that is none.
            CacheShareError: a peer failed, or has other rows.
        """
        policy, num_nodes, hot, said = room.policy, self.store.shape[0], None, ""
        assert policy is not None, "what evicts chooses no rows"
        if self.peers is not None:
            room = replace(room, nearer=tuple(map(self._held_by_all, room.nearer)))
        if self.leads:
            hotness = _ranked(policy, workload, epoch)
            hot = room.hottest(hotness, num_nodes)
            if len(hot) < room.num_rows:
                said = f", of which nearer caches leave {len(hot)}"
            if policy.counts_visits and (visits := float(np.sum(hotness))) > 0:
                if spare and len(hot):
                    nearer = sum(float(hotness[rows].sum()) for rows in room.left_out(hotness, num_nodes))
                    worth_it = max(rows_worth_it(hotness[hot], visits - nearer), 1)
                    said += f", of which {worth_it} are worth their memory" if worth_it < len(hot) else ""
                    hot = hot[:worth_it]
                said += f"; expected to give {float(hotness[hot].sum()) / visits:.0%} of the rows that are read"
        if self.peers is not None:
            hot = self.peers.broadcast(hot)
            self.peers.agree({"checksum of rows": _checksum(self.store, hot[:_PROBED_ROWS])}, advice=_SEED_THEM)
        assert hot is not None
        return replace(room, num_rows=len(hot), hot=hot), said

    def _held_by_all(self, chosen: Chosen) -> Chosen:
        """Returns what every rank holds nearer, where each has chosen for itself: others will ask for the rest."""
        if chosen.policy is None or not chosen.policy.is_own:
            return chosen
        assert self.peers is not None, "a rank alone has no others"
        file = numbers_file(chosen.hot)
        given = [numbers_in(each.fd) for each in self.peers.all_gather({}, file.fd)]
        file.close()
        return replace(chosen, hot=reduce(np.intersect1d, given))

    def hold(
        self, chosen: Chosen, rule: Rule | None, workload: Workload, *, epoch: int, progress: bool, tier: str
    ) -> T:
        """Opens a cache of the rows that were chosen, or of such as ``rule`` admits and evicts.

        Raises:
            CacheShareError: a peer failed.
        """
        if not chosen.num_rows:
            return self.without()
        if chosen.policy is None:
            assert rule is not None, "either a policy ranks, or a rule admits"
            return self.evicting(rule, workload, chosen.num_rows, tier, together=chosen.together)
        return self.ranked(chosen, workload, epoch=epoch, progress=progress, tier=tier)

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
    def ranked(self, chosen: Chosen, workload: Workload, *, epoch: int, progress: bool, tier: str) -> T:
        """Opens a cache of ranked rows: ranks hold each row once ``together``, or each rank holds all.

        Raises:
            CacheShareError: a peer failed.
        """


class HostPlace(Place[FeatureStore]):
    """A place in the host's memory: a rank's own, or shared by all ranks of the machine.

    Args:
        store: see :class:`Place`; likewise ``peers``, ``sharer_of`` and ``nearer``.
        left: what training leaves of the memory, if that was measured.
    """

    is_thrifty = True
    evicts_together = True

    def __init__(
        self,
        store: FeatureStore,
        peers: PeerGroup | None,
        sharer_of: SharerOf | None = None,
        left: Allowance | None = None,
        nearer: tuple[Chosen, ...] = (),
    ) -> None:
        super().__init__(store, peers, sharer_of, nearer)
        self.left = left

    def room(self) -> int | None:
        # Nearer caches are filled after those behind them.
        taken = sum(each.num_bytes for each in self.nearer)
        return max(free_bytes() - taken, 0) if taken else None

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
        table = replace(table, copies=1) if together else table
        if ratio is None and capacity_bytes is None and (there := self._why_in_memory()):
            return Budget(0, 0, f"{there}, where a cache saves nothing; ratio=... makes one all the same"), together
        return budget(table, ratio, capacity_bytes, room, self.left), together

    def _why_in_memory(self) -> str:
        """Says why the rows are in memory without a cache; empty where they are not."""
        if lies_in_memory(self.store):
            return "the table is in memory already"
        if type(self.store) is MemoryFeatureStore and self.left is not None:
            size, left = self.store.rows.nbytes, self.left.num_bytes
            if size <= left:  # the system keeps what it maps in memory that nobody needs
                return f"training leaves {in_units(left)} of memory to the table's file, which has {in_units(size)}"
        return ""

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

    def ranked(self, chosen: Chosen, workload: Workload, *, epoch: int, progress: bool, tier: str) -> FeatureStore:
        assert chosen.policy is not None, "what evicts is not ranked"
        store, peers, window = self.store, self.peers, chosen.policy.window
        if peers is not None and chosen.together:
            renewed = window is not None
            memory = hold_together(store, chosen.hot, peers, self.sharer_of, renewed=renewed, progress=progress)
        else:
            memory = hold_alone(store, chosen.hot, progress=progress)
            if peers is not None:
                peers.agree({})  # if one fails, all do
        if window is None:
            return StaticCache(store, memory.location, memory.shards, tier=tier)
        return RenewedCache(
            store,
            memory,
            lock=_lock_of(peers) if peers is not None and chosen.together else SharedLock.create(),
            first_epoch=epoch,
            window=window,
            ranking=ranking_of(chosen, workload, store.shape[0]) if self.leads else None,
            channels=None if peers is None else peers.detach(),
            tier=tier,
        )


def lies_in_memory(store: FeatureStore) -> bool:
    """Whether all rows are in memory, this process's own or shared; not those of a file, which the system keeps of what
    it has room for."""
    if type(store) is not MemoryFeatureStore:
        return False
    file = mapped_file(store.rows.data_ptr()) if store.rows.numel() else None
    return file is None or file.path.startswith(("/memfd:", "/dev/shm/", "/SYSV"))


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
    return zlib.crc32(byte_rows(rows).tobytes())


def _lock_of(peers: PeerGroup) -> SharedLock:
    """Returns the lock that all peers share, which peer 0 makes."""
    mine = SharedLock.create() if peers.membership.index == 0 else None
    try:
        first, *_ = peers.all_gather({}, -1 if mine is None else mine.fd)
    finally:
        if mine is not None:
            mine.close()  # what came back is a duplicate
    return SharedLock(first.fd)
