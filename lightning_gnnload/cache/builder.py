"""CacheBuilder: opens caches in one kind of memory; HostBuilder, in the host's."""

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
from lightning_gnnload.cache.copies import ReadCosts, rows_to_copy
from lightning_gnnload.cache.dynamic import SharedSlots
from lightning_gnnload.cache.peers import PeerGroup, numbers_file, numbers_in
from lightning_gnnload.cache.policy import CachePlan, CachePolicy
from lightning_gnnload.cache.renewal import RenewedCache, ranking_of
from lightning_gnnload.cache.rules import Rule
from lightning_gnnload.cache.static import (
    SharerOf,
    StaticCache,
    exchange_files,
    fill_private_memory,
    fill_shared_memory,
)
from lightning_gnnload.cache.store import CacheLevels
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, byte_rows
from lightning_gnnload.errors import CacheConfigError, GnnLoadError
from lightning_gnnload.host.locks import SharedLock
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.host.pages import mapped_file
from lightning_gnnload.sample.workload import Workload

_MOVE_BYTES = 24  # of a row that is replaced: two node ids and a location, int64 each
_PROBED_ROWS = 64  # tables of different seeds differ in each row; more would only cost reads
_SEED_ADVICE = "Features that each rank draws at random need the same seed: call seed_everything(0) before."
T = TypeVar("T")


class CacheBuilder(ABC, Generic[T]):
    """Opens caches in one kind of memory, for one rank or for a group of peers.

    ``peers`` are the ranks of this machine that open the cache together, None for a rank alone; ``sharer_of`` says
    which of them should hold each row that is there once, None: any; ``nearer`` are the plans of the caches in front,
    nearest first.
    """

    where = ""  # in messages
    is_thrifty = False  # memory that a cache leaves serves others, so that rows must be worth theirs
    evicts_together = False  # ranks can share a cache that evicts

    def __init__(
        self,
        store: FeatureStore,
        peers: PeerGroup | None,
        sharer_of: SharerOf | None = None,
        nearer: tuple[CachePlan, ...] = (),
    ) -> None:
        self.store, self.peers, self.sharer_of, self.nearer = store, peers, sharer_of, nearer

    @property
    def leads(self) -> bool:
        """Whether this rank decides for all."""
        return self.peers is None or self.peers.membership.index == 0

    def leave_peers(self) -> None:
        """Leaves the group, since the ranks share no rows; from here on nobody waits for another."""
        self.peers = None

    def hot_rows(
        self, plan: CachePlan, workload: Workload, epoch: int, *, spare: bool, copied: float | None = 0.0
    ) -> tuple[CachePlan, str]:
        """Fills in the rows that the policy ranks highest and no nearer cache has, the same in all ranks of the group;
        the rank that leads also gets, in words, what they are expected to serve. ``spare`` leaves out rows that are not
        worth their memory. ``copied`` is the share of the rows that each rank is to have, where they share the others;
        None: as many as make reads cheapest in the same memory (:func:`.rows_to_copy`).

        Raises CacheConfigError for a ranking that is none, CacheShareError where a peer failed or has other rows.
        """
        costs = self.read_costs() if copied is None else None
        numbers, note = None, ""
        if self.peers is not None:
            plan = replace(plan, nearer=tuple(map(self._in_all_ranks, plan.nearer)))
        if self.leads:
            hot, num_copied, note = self._ranked_rows(plan, workload, epoch, spare, copied or 0.0, costs)
            numbers = np.append(num_copied, hot)
        if self.peers is not None:
            numbers = self.peers.broadcast(numbers)
        assert numbers is not None
        hot = numbers[1:]
        if self.peers is not None:
            # A few rows suffice: they catch ranks whose features were drawn with different seeds.
            self.peers.agree(
                {"checksum of rows": checksum_of_rows(self.store, hot[:_PROBED_ROWS])}, advice=_SEED_ADVICE
            )
        return replace(plan, num_rows=len(hot), hot=hot, num_copied=int(numbers[0])), note

    def read_costs(self) -> ReadCosts | None:
        """Returns what it takes to gather a row from where it may be; None where copies save nothing. All ranks call
        it."""
        return None

    def _ranked_rows(
        self, plan: CachePlan, workload: Workload, epoch: int, spare: bool, copied: float, costs: ReadCosts | None
    ) -> tuple[np.ndarray, int, str]:
        """Returns the rows, how many of them to copy, and what they are expected to serve."""
        assert plan.policy is not None, "what evicts chooses no rows"
        num_nodes = self.store.shape[0]
        hotness = _rank_rows(plan.policy, workload, epoch)
        hot = plan.hottest(hotness, num_nodes)
        note = f", of which nearer caches leave {len(hot)}" if len(hot) < plan.num_rows else ""
        visits = float(np.sum(hotness)) if plan.policy.counts_visits else 0.0
        if visits <= 0:
            return hot, int(copied * len(hot)), note
        if spare and len(hot):
            nearer = sum(float(hotness[rows].sum()) for rows in plan.left_out(hotness, num_nodes))
            worth_it = max(rows_worth_it(hotness[hot], visits - nearer), 1)
            note += f", of which {worth_it} are worth their memory" if worth_it < len(hot) else ""
            hot = hot[:worth_it]
        num_copied = int(copied * len(hot))
        if costs is not None and self.peers is not None:
            num_ranks = self.peers.membership.count
            num_copied = rows_to_copy(hotness[hot], num_ranks, costs)
            hot = hot[: len(hot) - num_copied * (num_ranks - 1)]
            note += f", {len(hot)} with {num_copied} that each rank copies"
        note += f"; expected to give {float(hotness[hot].sum()) / visits:.0%} of the rows that are read"
        return hot, num_copied, note

    def _in_all_ranks(self, plan: CachePlan) -> CachePlan:
        """Returns a plan of the rows that every rank has nearer, where each chose its own: the caches behind serve the
        rest."""
        if plan.policy is None or not plan.policy.is_own:
            return plan
        assert self.peers is not None, "a rank alone shares with nobody"
        file = numbers_file(plan.hot)
        row_lists = [numbers_in(value.fd) for value in self.peers.all_gather({}, file.fd)]
        file.close()
        return replace(plan, hot=reduce(np.intersect1d, row_lists))

    def open(
        self, plan: CachePlan, rule: Rule | None, workload: Workload, *, epoch: int, progress: bool, tier: str
    ) -> T:
        """Opens the cache of a plan: its ranked rows, or an empty cache whose rows ``rule`` admits and evicts. Raises
        CacheShareError where a peer failed."""
        if not plan.num_rows:
            return self.open_uncached()
        if plan.policy is None:
            assert rule is not None, "either a policy ranks, or a rule admits"
            return self.open_evicting(rule, workload, plan.num_rows, tier, together=plan.together)
        return self.open_ranked(plan, workload, epoch=epoch, progress=progress, tier=tier)

    def room(self) -> int | None:
        """Returns the bytes that all ranks' caches may take; None: :meth:`budget` looks at the machine. All ranks call
        it."""
        return None

    @abstractmethod
    def slot_bytes(self, rule: Rule | None, policy: CachePolicy | None) -> int:
        """Returns the bytes that a cached row takes beside itself."""

    @abstractmethod
    def budget(
        self,
        table: Table,
        ratio: float | None,
        capacity_bytes: int | None,
        share: str,
        room: int | None,
        copied: float = 0.0,
    ) -> tuple[Budget, bool]:
        """Returns the rows that :class:`.FeatureCache`'s settings allow, and whether each is there once instead of once
        a rank. ``table`` counts one copy a rank, ``copied`` is the share of rows with as many where they share the
        others; ``room`` is what :meth:`room` returned."""

    @abstractmethod
    def open_uncached(self) -> T:
        """Opens the store without a cache."""

    @abstractmethod
    def open_evicting(self, rule: Rule, workload: Workload, num_rows: int, tier: str, *, together: bool) -> T:
        """Opens an empty cache that admits and evicts rows: one of all ranks ``together``, or this rank's alone."""

    @abstractmethod
    def open_ranked(self, plan: CachePlan, workload: Workload, *, epoch: int, progress: bool, tier: str) -> T:
        """Opens a cache of the plan's rows, once for all ranks or once a rank. Raises CacheShareError where a peer
        failed."""


class HostBuilder(CacheBuilder[FeatureStore]):
    """Opens caches in the host's memory: a rank's own, or shared by all ranks of the machine. ``allowance`` is the
    memory that training leaves, if that was measured."""

    is_thrifty = True
    evicts_together = True

    def __init__(
        self,
        store: FeatureStore,
        peers: PeerGroup | None,
        sharer_of: SharerOf | None = None,
        allowance: Allowance | None = None,
        nearer: tuple[CachePlan, ...] = (),
    ) -> None:
        super().__init__(store, peers, sharer_of, nearer)
        self.allowance = allowance

    def room(self) -> int | None:
        # Caches are filled from the farthest to the nearest, so free memory still includes what nearer ones will take.
        nearer_bytes = sum(plan.num_bytes for plan in self.nearer)
        return max(free_bytes() - nearer_bytes, 0) if nearer_bytes else None

    def leave_peers(self) -> None:
        if self.peers is not None:
            self.peers.close()
        super().leave_peers()

    def slot_bytes(self, rule: Rule | None, policy: CachePolicy | None) -> int:
        if policy is None:
            assert rule is not None, "either a policy ranks, or a rule admits"
            return rule.slot_bytes
        return 0 if policy.window is None else _MOVE_BYTES

    def budget(
        self,
        table: Table,
        ratio: float | None,
        capacity_bytes: int | None,
        share: str,
        room: int | None,
        copied: float = 0.0,
    ) -> tuple[Budget, bool]:
        together = share != "replicated"
        if together:
            # Ranks that share the rows share the location table, too; of what each copies it has one of its own.
            indices = 1 + int(table.copies) if copied else 1
            table = replace(table, copies=1 + copied * (table.copies - 1), indices=indices)
        if ratio is None and capacity_bytes is None and (reason := self._why_in_memory()):
            return Budget(0, 0, f"{reason}, where a cache saves nothing; ratio=... makes one all the same"), together
        return budget(table, ratio, capacity_bytes, room, self.allowance), together

    def _why_in_memory(self) -> str:
        """Says why the rows are in memory without a cache; empty where they are not."""
        if lies_in_memory(self.store):
            return "the table is in memory already"
        if type(self.store) is MemoryFeatureStore and self.allowance is not None:
            size, available = self.store.rows.nbytes, self.allowance.num_bytes
            if size <= available:  # the page cache then keeps the whole file
                return (
                    f"training leaves {in_units(available)} of memory to the table's file, which has {in_units(size)}"
                )
        return ""

    def open_uncached(self) -> FeatureStore:
        return CacheLevels(self.store, ())

    def open_evicting(
        self, rule: Rule, workload: Workload, num_rows: int, tier: str, *, together: bool
    ) -> FeatureStore:
        assert rule.admit is not None, "a rule that ranks opens no cache"
        slots = None
        if self.peers is not None and together:
            num_bytes = ops.EvictingSlots.block_bytes(self.store.shape[0], num_rows, self.store.row_bytes, rule.name)
            file = MemoryFile.create("cache", num_bytes, open_to_all=True) if self.leads else None
            (file,) = exchange_files(self.peers, file, [num_bytes], open_to_all=True)
            slots = SharedSlots(file.array, _lock_of(self.peers))
        return rule.admit(self.store, num_rows, workload, tier, slots)

    def open_ranked(
        self, plan: CachePlan, workload: Workload, *, epoch: int, progress: bool, tier: str
    ) -> FeatureStore:
        assert plan.policy is not None, "what evicts is not ranked"
        store, peers, window = self.store, self.peers, plan.policy.window
        if peers is not None and plan.together:
            renewed, shared = window is not None, plan.hot[plan.num_copied :]
            memory = fill_shared_memory(store, shared, peers, self.sharer_of, renewed=renewed, progress=progress)
        else:
            memory = fill_private_memory(store, plan.hot, progress=progress)
            if peers is not None:
                peers.agree({})  # if one fails, all do
        if window is None:
            opened = StaticCache(store, memory.location, memory.shards, tier=tier)
            if not plan.num_copied:
                return opened
            copied = fill_private_memory(store, plan.hot[: plan.num_copied], progress=progress)
            if peers is not None:
                peers.agree({})  # as above
            return CacheLevels(store, [StaticCache(opened, copied.location, copied.shards, tier=tier), opened])
        return RenewedCache(
            store,
            memory,
            lock=_lock_of(peers) if peers is not None and plan.together else SharedLock.create(),
            first_epoch=epoch,
            window=window,
            ranking=ranking_of(plan, workload, store.shape[0]) if self.leads else None,
            channels=None if peers is None else peers.detach(),
            tier=tier,
        )


def lies_in_memory(store: FeatureStore) -> bool:
    """Whether all rows are in memory, private or shared; of a mapped file the system keeps only what it has room
    for."""
    if type(store) is not MemoryFeatureStore:
        return False
    file = mapped_file(store.rows.data_ptr()) if store.rows.numel() else None
    return file is None or file.path.startswith(("/memfd:", "/dev/shm/", "/SYSV"))


def print_line(text: str) -> None:
    """Prints a line on stderr by rich, as progress bars there are rich's and would overwrite others."""
    from rich.console import Console

    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


def _rank_rows(policy: CachePolicy, workload: Workload, epoch: int) -> np.ndarray:
    """Ranks all rows. Raises CacheConfigError where a user's policy raised."""
    try:
        return policy.hotness(workload, epoch)
    except GnnLoadError:
        raise
    except Exception as error:
        raise CacheConfigError(
            f"the policy {policy!r} cannot rank the rows: {type(error).__name__}: {error}."
        ) from error


def checksum_of_rows(store: FeatureStore, ids: np.ndarray) -> int:
    """Computes a checksum of a few rows."""
    rows = torch.zeros(len(ids), store.shape[1], dtype=store.dtype)
    store.gather(torch.from_numpy(ids.copy()), rows)
    return zlib.crc32(byte_rows(rows).tobytes())


def _lock_of(peers: PeerGroup) -> SharedLock:
    """Returns a lock that all peers share; peer 0 creates it."""
    mine = SharedLock.create() if peers.membership.index == 0 else None
    try:
        first, *_ = peers.all_gather({}, -1 if mine is None else mine.fd)
    finally:
        if mine is not None:
            mine.close()  # what came back is a duplicate
    return SharedLock(first.fd)
