"""RenewedCache: a cache whose rows are replaced for every window of epochs, while it serves."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.peers import PeerChannel, numbers_file, numbers_in
from lightning_gnnload.cache.policy import CachePlan
from lightning_gnnload.cache.static import CacheMemory, StaticCache, as_rows_of
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError, CacheShareError, ThreadLimitError
from lightning_gnnload.host.locks import SharedLock
from lightning_gnnload.host.sockets import readable
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.sample.workload import Workload

_log = logging.getLogger(__name__)
_POLL_S = 0.5  # close() cannot wake a thread that waits for peer 0, and waits this long at most
_LOCKED_BYTES = 1 << 20  # written under the lock while readers wait: about 0.1 ms
_SLOT_MASK = (1 << ops.SLOT_BITS) - 1

Ranking = Callable[[int, threading.Event], np.ndarray]
"""The hottest nodes of a window, int64, hottest first; ends early, by any exception, once the event is set."""


class RenewedCache(StaticCache):
    """A static cache whose rows are replaced in the background, one window of epochs after another; no batch waits for
    it.

    Peer 0 ranks the next window in the background, and sends the moves when that window's first mini-batch is
    announced. Each rank replaces the rows of its own shard, a megabyte at a time under a lock that readers share:
    evicted rows leave the location table, rows are written, then entered. So wherever a rank is killed, every entry
    names its node's row.

    ``memory`` has the rows of window 0, which begins at ``first_epoch``; ``lock`` is common to all ranks that see its
    location table. ``ranking`` is peer 0's, or that of a rank alone; None follows peer 0. ``channels`` are those of the
    peer group, detached.
    """

    def __init__(
        self,
        store: FeatureStore,
        memory: CacheMemory,
        *,
        lock: SharedLock,
        first_epoch: int,
        window: int,
        ranking: Ranking | None,
        channels: Mapping[int, PeerChannel] | None = None,
        tier: str = "cache",
    ) -> None:
        super().__init__(store, memory.location, memory.shards, tier=tier, reading=lock.reading)
        self.memory = memory
        self.first_epoch, self.window = first_epoch, window
        self.renewals = 0  # windows whose rows this rank has installed
        self._lock = lock
        self._ranking = ranking
        self._channels = dict(channels or {})
        self._announced = -1
        self._news = threading.Condition()
        self._stopping = threading.Event()
        try:
            work = self._follow if ranking is None else self._lead
            self._thread = start_thread("gnnload-cache", self._until_it_fails, work)
        except ThreadLimitError:
            self._leave()
            raise

    def announce(self, request: BatchRequest) -> None:
        window = (request.epoch - self.first_epoch) // self.window
        # Compared without the lock first: every mini-batch is announced, and few begin a window.
        if window > self._announced:
            with self._news:
                self._announced = max(window, self._announced)
                self._news.notify_all()
        super().announce(request)

    def close(self) -> None:
        """Ends the renewals. The memory lives as long as somebody gathers from it."""
        self._stopping.set()
        with self._news:
            self._news.notify_all()
        self._thread.join()
        self._leave()

    def _leave(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._lock.close()

    def _until_it_fails(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            if not self._stopping.is_set():
                _log.warning("The cache keeps its rows from here on, as renewing them failed: %r", error)

    def _lead(self) -> None:
        """Ranks and installs one window after another: the thread of peer 0, or of a rank alone."""
        assert self._ranking is not None
        installed, latest, counted = 0, -1, (0, np.empty(0, np.int64))
        while (window := self._next_window(latest)) is not None:
            latest = window
            if window > installed:
                # Ranked in advance, unless training passed a whole window while this thread was ranking.
                hot = counted[1] if counted[0] == window else self._rank(window)
                self._install(*moves(self.location, [len(shard) for shard in self.shards], hot))
                installed = window
            counted = (window + 1, self._rank(window + 1))

    def _next_window(self, latest: int) -> int | None:
        """Waits until a window after ``latest`` is announced, and returns the newest; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._stopping.is_set() or self._announced > latest)
            return None if self._stopping.is_set() else self._announced

    def _rank(self, window: int) -> np.ndarray:
        assert self._ranking is not None
        return self._ranking(self.first_epoch + window * self.window, self._stopping)

    def _install(self, nodes: np.ndarray, targets: np.ndarray) -> None:
        file = numbers_file(np.concatenate([nodes, targets]))
        # Sent before this rank replaces its own rows, so that all ranks work at the same time.
        for channel in self._channels.values():
            with contextlib.suppress(OSError):  # it is gone, and its rows stay as they are
                channel.send("moves", [file.fd])
        file.close()
        self._replace(nodes, targets)

    def _follow(self) -> None:
        """Replaces rows as peer 0 says: the thread of every other rank."""
        (channel,) = self._channels.values()
        # Not a blocking receive(), which close() could not end.
        while not self._stopping.is_set():
            if not readable([channel], _POLL_S):
                continue
            try:
                message, fds = channel.receive()
            except EOFError:
                return  # peer 0 closed the cache, or is gone: the rows stay
            if message["kind"] == "busy":
                continue  # a sign of life, sent while the cache was filled
            if message["kind"] != "moves" or not fds:
                for fd in fds:
                    os.close(fd)
                raise CacheShareError(f"sharer 0 sent {message['kind']!r} when only moves of rows were due.")
            nodes, targets = numbers_in(fds[0]).reshape(2, -1)
            self._replace(nodes, targets)

    def _replace(self, nodes: np.ndarray, targets: np.ndarray) -> None:
        """Writes the rows of those ``nodes`` whose location in ``targets`` is in this rank's shard."""
        if self.memory.own_shard < 0:  # more ranks than a location can name: this one has no shard
            return
        location, shard = self.location, self.shards[self.memory.own_shard]
        is_mine = targets >> ops.SLOT_BITS == self.memory.own_shard
        nodes, targets = nodes[is_mine], targets[is_mine].astype(np.int32)
        slots = targets & _SLOT_MASK
        # Computed once: only this thread enters nodes into this shard, and it writes no slot twice.
        node_of = nodes_in(location, self.memory.own_shard, len(shard))
        step = max(_LOCKED_BYTES // max(self.row_bytes, 1), 1)
        rows = np.empty((min(step, len(nodes)), self.row_bytes), np.uint8)
        for begin in range(0, len(nodes), step):
            if self._stopping.is_set():  # between two pieces every entry is right
                return
            now = slice(begin, begin + step)
            count = len(nodes[now])
            # Read before the lock is taken, as a disk may be slow.
            self.store.gather(torch.from_numpy(nodes[now]), as_rows_of(self.store, rows[:count]))
            evicted = node_of[slots[now]]
            evicted = evicted[evicted >= 0]
            with self._lock.writing():
                location[evicted] = -1
                shard[slots[now]] = rows[:count]
                location[nodes[now]] = targets[now]
        self.renewals += 1


def nodes_in(location: np.ndarray, shard: int, num_slots: int) -> np.ndarray:
    """Returns the node whose row each slot of a shard has, int64 ``[num_slots]``; -1: none. Meanwhile other peers may
    move nodes out of this shard's or their own slots, but none enters one here."""
    location = np.array(location)  # a snapshot: both reads below must see the same shard of a node
    nodes = np.flatnonzero((location >= 0) & (location >> ops.SLOT_BITS == shard))
    node_of = np.full(num_slots, -1, np.int64)
    node_of[location[nodes] & _SLOT_MASK] = nodes
    return node_of


def moves(location: np.ndarray, sizes: list[int], hot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Plans how the rows of ``hot`` get cached: cached ones stay, the others are dealt out, hottest first, over the
    slots of rows that are not hot any more.

    ``location`` is int32 ``[N]``, which other peers may still be changing for the window before; ``sizes`` are the
    slots of each shard, together as many as ``hot`` at least. Returns node ids and their locations, int64 ``[M]`` each.

    Example:
        >>> location = np.array([0, 1, -1, -1], np.int32)  # nodes 0 and 1 are cached in a shard of two slots
        >>> moves(location, [2], np.array([3, 1]))
        (array([3]), array([0]))
    """
    location = np.array(location)  # a snapshot: a row must not count as cached and as a newcomer
    is_hot = np.zeros(len(location), bool)
    is_hot[hot] = True
    stays = location[(location >= 0) & is_hot].astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    is_free = np.ones(begins[-1], bool)
    is_free[begins[stays >> ops.SLOT_BITS] + (stays & _SLOT_MASK)] = False
    free = np.flatnonzero(is_free)
    shard = np.searchsorted(begins, free, side="right") - 1
    # The first free slots of all shards, then their second ones: each shard gets its share of the hottest.
    turn = np.arange(len(free)) - np.searchsorted(shard, shard)
    order = np.lexsort((shard, turn))
    newcomers = hot[location[hot] < 0]
    chosen = order[: len(newcomers)]
    return newcomers, shard[chosen] << ops.SLOT_BITS | free[chosen] - begins[shard[chosen]]


def ranking_of(plan: CachePlan, workload: Workload, table_rows: int) -> Ranking:
    """Returns the function that ranks later windows: on one thread and without a bar, as mini-batches are made
    meanwhile."""
    assert plan.policy is not None, "what evicts is not renewed"
    quiet = plan.policy.quietly()

    def rank(epoch: int, stopping: threading.Event) -> np.ndarray:
        return plan.hottest(quiet.hotness(_StoppableWorkload(workload, stopping), epoch), table_rows)

    return rank


class _StoppableWorkload(Workload):
    """A workload that raises once an event is set: ranking can take minutes, but a fit must end at once."""

    def __init__(self, workload: Workload, stopping: threading.Event) -> None:
        super().__init__(**workload.settings())
        self._stopping = stopping

    def requests(self, epoch: int) -> Iterator[BatchRequest]:
        for request in super().requests(epoch):
            if self._stopping.is_set():
                raise CacheConfigError("the cache was closed while its next rows were ranked.")
            yield request
