"""RenewedCache: a cache whose rows are chosen anew for every window of epochs, while it serves."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.locks import SharedLock
from lightning_gnnload.cache.peers import PeerChannel, numbers_file, numbers_in
from lightning_gnnload.cache.policy import Chosen
from lightning_gnnload.cache.static import CacheMemory, StaticCache, as_rows_of
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.sockets import readable
from lightning_gnnload.data.threads import start_thread
from lightning_gnnload.errors import CacheConfigError, CacheShareError, ThreadLimitError
from lightning_gnnload.sample.workload import Workload

_log = logging.getLogger(__name__)
_POLL_S = 0.5  # close() does not wake a thread that waits for peer 0, and so may wait as long for it
_LOCKED_BYTES = 1 << 20
"""Written while readers wait: about 0.1 ms."""
_SLOT_MASK = (1 << ops.SLOT_BITS) - 1

Ranking = Callable[[int, threading.Event], np.ndarray]
"""The hottest nodes of a window, int64, hottest first; ends early, by any exception, once the event is set."""


class RenewedCache(StaticCache):
    """A static cache whose rows are replaced in the background, one window of epochs after another; no batch waits for
    it.

    Peer 0 ranks the next window in the background, and tells all when its first mini-batch is announced. Each rank
    then replaces rows in its own shard, a megabyte at a time under a lock that readers share: first it takes what
    will be evicted out of the location table, then it writes the rows, then it enters them. So wherever it is killed,
    each entry that there is names its node's row.

    Args:
        store: see :class:`StaticCache`; likewise ``tier``.
        memory: location table and shards, with the rows of window 0.
        lock: of all ranks that see this location table.
        first_epoch: of window 0.
        window: epochs a window has.
        ranking: for peer 0, and for a rank alone; None: follow peer 0.
        channels: kept from the peer group: peer 0's to all others, another's to peer 0.
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
        self.renewals = 0
        """Windows whose rows this rank has put in."""
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
        # Compared without the lock first: each mini-batch comes by here, and few begin a window.
        if window > self._announced:
            with self._news:
                self._announced = max(window, self._announced)
                self._news.notify_all()
        super().announce(request)

    def close(self) -> None:
        """Ends the renewals; the rows that are there go with the last who gathers from them."""
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
        """Ranks and installs one window after another: in the thread of peer 0, or of a rank alone."""
        assert self._ranking is not None
        installed, seen, counted = 0, -1, (0, np.empty(0, np.int64))
        while (window := self._next_window(seen)) is not None:
            seen = window
            if window > installed:
                # Ranked in advance, unless training passed over a window while this thread was still ranking.
                hot = counted[1] if counted[0] == window else self._rank(window)
                self._install(*moves(self.location, [len(shard) for shard in self.shards], hot))
                installed = window
            counted = (window + 1, self._rank(window + 1))

    def _next_window(self, seen: int) -> int | None:
        """Waits for a window after ``seen`` to be announced, and returns the newest; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._stopping.is_set() or self._announced > seen)
            return None if self._stopping.is_set() else self._announced

    def _rank(self, window: int) -> np.ndarray:
        assert self._ranking is not None
        return self._ranking(self.first_epoch + window * self.window, self._stopping)

    def _install(self, nodes: np.ndarray, places: np.ndarray) -> None:
        file = numbers_file(np.concatenate([nodes, places]))
        # Sent before this rank replaces its own rows, so that all do so at the same time.
        for channel in self._channels.values():
            with contextlib.suppress(OSError):  # it is gone: its rows stay as they are
                channel.send("moves", [file.fd])
        file.close()
        self._replace(nodes, places)

    def _follow(self) -> None:
        """Replaces rows as peer 0 tells: in the thread of every other rank."""
        (channel,) = self._channels.values()
        while not self._stopping.is_set():
            if not readable([channel], _POLL_S):
                continue
            try:
                message, fds = channel.receive()
            except EOFError:
                return  # peer 0 has parted, or is gone: the rows stay
            if message["kind"] == "busy":
                continue  # said while the cache was filled
            if message["kind"] != "moves" or not fds:
                for fd in fds:
                    os.close(fd)
                raise CacheShareError(f"sharer 0 sent {message['kind']!r} when only moves of rows were due.")
            nodes, places = numbers_in(fds[0]).reshape(2, -1)
            self._replace(nodes, places)

    def _replace(self, nodes: np.ndarray, places: np.ndarray) -> None:
        """Puts rows of ``nodes`` into this rank's shard: those whose ``places`` are in it."""
        if self.memory.own < 0:  # more ranks than a location can name: this one has no shard
            return
        location, shard = self.location, self.shards[self.memory.own]
        is_mine = places >> ops.SLOT_BITS == self.memory.own
        nodes, places = nodes[is_mine], places[is_mine].astype(np.int32)
        slots = places & _SLOT_MASK
        # Looked up once: only this thread enters nodes into this shard, and no slot is written twice.
        node_of = nodes_in(location, self.memory.own, len(shard))
        step = max(_LOCKED_BYTES // max(self.row_bytes, 1), 1)
        rows = np.empty((min(step, len(nodes)), self.row_bytes), np.uint8)
        for begin in range(0, len(nodes), step):
            if self._stopping.is_set():  # between two pieces all entries are right
                return
            now = slice(begin, begin + step)
            count = len(nodes[now])
            # Asked of the store before the lock is taken: a disk may take its time.
            self.store.gather(torch.from_numpy(nodes[now]), as_rows_of(self.store, rows[:count]))
            evicted = node_of[slots[now]]
            evicted = evicted[evicted >= 0]
            with self._lock.writing():
                location[evicted] = -1
                shard[slots[now]] = rows[:count]
                location[nodes[now]] = places[now]
        self.renewals += 1


def nodes_in(location: np.ndarray, shard: int, num_slots: int) -> np.ndarray:
    """Returns the node whose row each slot of a shard has, int64 ``[num_slots]``; -1: nobody's.

    Args:
        location: int32 ``[N]``, as it is now. Other peers may at this moment take nodes over from this shard, or
            away from theirs; none enters a node into this one.
    """
    location = np.array(location)  # of one moment: else a slot of another shard could be taken for one of this
    nodes = np.flatnonzero((location >= 0) & (location >> ops.SLOT_BITS == shard))
    node_of = np.full(num_slots, -1, np.int64)
    node_of[location[nodes] & _SLOT_MASK] = nodes
    return node_of


def moves(location: np.ndarray, sizes: list[int], hot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Plans how the rows of ``hot`` come to be cached: those that are stay where they are, the others are dealt
    out, hottest first, over the slots of rows that are hot no more.

    Args:
        location: int32 ``[N]``, as it is now. Other peers may still be busy with the moves before.
        sizes: slots of each shard.
        hot: node ids, int64, hottest first; no more than there are slots.

    Returns:
        Node ids, int64 ``[M]``, and the place of each, int64 ``[M]``.

    Example:
        >>> location = np.array([0, 1, -1, -1], np.int32)  # nodes 0 and 1 are cached in a shard of two slots
        >>> moves(location, [2], np.array([3, 1]))
        (array([3]), array([0]))
    """
    location = np.array(location)  # of one moment: else a row could count as cached first and as a newcomer then
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


def ranking_of(chosen: Chosen, workload: Workload, table_rows: int) -> Ranking:
    """Makes the ranking of later windows: on one thread and without a bar, as mini-batches are made meanwhile."""
    assert chosen.policy is not None, "what evicts is not renewed"
    quiet = chosen.policy.quietly()

    def rank(epoch: int, stopping: threading.Event) -> np.ndarray:
        return chosen.hottest(quiet.hotness(_StoppableWorkload(workload, stopping), epoch), table_rows)

    return rank


class _StoppableWorkload(Workload):
    """A workload whose mini-batches raise once an event is set: ranking can take minutes, but a fit ends at once."""

    def __init__(self, workload: Workload, stopping: threading.Event) -> None:
        super().__init__(**workload.settings())
        self._stopping = stopping

    def requests(self, epoch: int) -> Iterator[BatchRequest]:
        for request in super().requests(epoch):
            if self._stopping.is_set():
                raise CacheConfigError("the cache was closed while its next rows were ranked.")
            yield request
