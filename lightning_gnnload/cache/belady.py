"""BeladyCache: keeps the rows that are needed again soonest, in front of the store that has all."""

from __future__ import annotations

import threading

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.lookahead import NEVER, Lookahead, ReadAhead, StagedRows
from lightning_gnnload.cache.store import StoreWrapper, check_slots
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, Reads, byte_rows, summed_reads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.host.locks import ReadWriteLock
from lightning_gnnload.host.pages import buffer_memory
from lightning_gnnload.sample.workload import Workload


class BeladyCache(StoreWrapper):
    """A cache that keeps, after each mini-batch, the rows whose next use comes soonest.

    That is Belady's choice, which needs the future: coming mini-batches are sampled ahead, once each
    (:class:`.Lookahead`). Within its horizon no cache of the same size hits more, provided that mini-batches are
    gathered in the order of their steps; slightly out of order, it loses some hits but never returns a wrong row. Only
    announced mini-batches change what is cached.

    Each announcement samples one mini-batch in the calling thread, so sampling costs twice. Where several sampler
    processes share a trainer's steps, each looks at all of them. A thread reads ahead the rows that the next mini-batch
    will miss, which takes the memory of these rows besides that of the slots.

    ``steps`` is the horizon: between ``steps`` and ``2 * steps`` steps are known. ``read_ahead`` None reads ahead where
    the store is not in memory. Raises CacheTooSmallError without a slot, CacheConfigError for more slots than rows, or
    for a table without one row a node.

    Source: Ginex (VLDB'22), section 4.2; Belady, IBM Systems Journal 5(2), 1966.
    """

    def __init__(
        self,
        store: FeatureStore,
        num_slots: int,
        workload: Workload,
        *,
        steps: int = 16,
        read_ahead: bool | None = None,
        tier: str = "cache",
    ) -> None:
        num_nodes = store.shape[0]
        check_slots(num_slots, store)
        if num_nodes != workload.graph.num_nodes:
            raise CacheConfigError(
                f"the store behind has {num_nodes} rows, but the graph {workload.graph.num_nodes} nodes: a look ahead "
                f"needs a row for each node. Give tables of edges, or of some nodes, another policy."
            )
        super().__init__(store, tier)
        self.workload = workload
        self._ahead = Lookahead(workload, steps)
        # Pages of slots that are never filled take no memory.
        memory = np.frombuffer(buffer_memory(num_slots * store.row_bytes), np.uint8)
        self._rows = memory[: num_slots * store.row_bytes].reshape(num_slots, store.row_bytes)
        self._location = np.full(num_nodes, -1, np.int32)
        self._nodes = np.full(num_slots, -1, np.int64)
        self._next = np.full(num_slots, NEVER)
        self._num_used = 0
        self._latest = -1  # time of the newest mini-batch that was gathered
        self._reading = ReadWriteLock()  # rows and locations change while nobody reads them,
        self._deciding = threading.Lock()  # and one thread at a time decides how.
        # Gathers take turns, so that a mini-batch finds what the one before it cached: those rows are often its own.
        self._one_at_a_time = threading.Lock()
        self._num_gathering = 0
        if read_ahead is None:
            read_ahead = not isinstance(store, MemoryFeatureStore)
        self._reader = ReadAhead(store) if read_ahead else None
        self._here = threading.local()  # a thread gathers the mini-batch that it announced last

    @property
    def num_bytes(self) -> int:
        """Memory of rows and tables once all slots are filled, without that of the look ahead."""
        return sum(array.nbytes for array in (self._rows, self._location, self._nodes, self._next))

    def announce(self, request: BatchRequest) -> None:
        """Samples the mini-batch ``2 * steps`` steps later; the first time, all before it as well."""
        with self._deciding:
            due = self._ahead.to_sample(request)
            staged = self._reader.take(request) if self._reader is not None else None
        self._here.announced = request, staged
        # Sampled without the lock: other threads announce, sample and gather meanwhile.
        for coming in due:
            nodes = self.workload.nodes_of(coming)
            with self._deciding:
                self._ahead.add(coming, nodes)
        with self._deciding:
            if self._ahead.advance(request):
                self._next[: self._num_used] = self._ahead.next_times(self._nodes[: self._num_used])
        self.store.announce(request)

    def close(self) -> None:
        """Ends the reading thread; the store behind stays open."""
        if self._reader is not None:
            self._reader.close()

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        request, staged = self._announced()
        # Not announced, as in validation: such a gather leaves the cache as it is.
        if request is None:
            return self._read(ids, positions, out, None)
        with self._deciding:
            self._num_gathering += 1
        try:
            with self._one_at_a_time:
                reads = self._read(ids, positions, out, staged)
                with self._deciding:
                    out_positions = None if positions is None else positions.numpy()
                    self._keep(request, ids.numpy(), out_positions, byte_rows(out))
                    # A nearer cache would ask for some of the next mini-batch alone; and what the next one lacks is
                    # not known while another changes what is kept.
                    if positions is None and self._num_gathering == 1:
                        self._begin_next()
        finally:
            with self._deciding:
                self._num_gathering -= 1
        return reads

    def _read(
        self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor, staged: StagedRows | None
    ) -> Reads:
        nodes, rows = ids.numpy(), byte_rows(out)
        out_positions = None if positions is None else positions.numpy()
        missed = self._missed(len(ids))
        with self._reading.reading():
            (num_hits,), num_missed = ops.gather_tiered(
                self._location, [self._rows], None, nodes, rows, missed[0], missed[1], positions=out_positions
            )
        return self._hits(num_hits), *self._gather_missed(missed[:, :num_missed], staged, out)

    def _announced(self) -> tuple[BatchRequest, StagedRows | None] | tuple[None, None]:
        """Returns what this thread announced, once: a second gather without an announcement gets None."""
        announced: tuple[BatchRequest, StagedRows | None] | None = getattr(self._here, "announced", None)
        self._here.announced = None
        return announced or (None, None)

    def _gather_missed(self, missed: np.ndarray, staged: StagedRows | None, out: torch.Tensor) -> Reads:
        before: Reads = ()
        if staged is not None and missed.shape[1]:
            is_missing, before = staged.move(missed[0], missed[1], byte_rows(out))
            missed = np.ascontiguousarray(missed[:, is_missing])
        return summed_reads([before, self._ask_behind(missed, out)])

    def _begin_next(self) -> None:
        """Starts to read what the next mini-batch will miss, which is certain once this one's rows are cached."""
        coming = self._ahead.coming() if self._reader is not None else None
        if self._reader is not None and coming is not None:
            request, nodes = coming
            self._reader.begin(request, nodes[self._location[nodes] < 0])

    def _keep(self, request: BatchRequest, ids: np.ndarray, out_positions: np.ndarray | None, rows: np.ndarray) -> None:
        """Caches those rows, of the cached ones and of this mini-batch's, whose next use comes soonest."""
        times = self._ahead.times_after(request, ids)
        # Gathered without being sampled ahead, so that nobody knows when its rows come again.
        if times is None:
            return
        slots = self._location[ids]
        is_cached = slots >= 0
        # A later mini-batch may have been gathered before this one: then its time for a row is the newer knowledge.
        self._next[slots[is_cached]] = np.maximum(times[is_cached], self._next[slots[is_cached]])
        time = self._ahead.time(request)
        # Earlier than threads are ever out of order: the steps began anew, as in another fit.
        begun_anew = self._latest - time > self._ahead.steps * request.num_ranks
        self._latest = time if begun_anew else max(time, self._latest)
        # A row whose next use is over already, because that mini-batch overtook this one, is not worth a slot.
        new = np.flatnonzero(~is_cached & (times > self._latest) & (times < NEVER))
        free = np.arange(self._num_used, min(self._num_used + len(new), len(self._nodes)))
        self._num_used += len(free)
        slots, new = self._choose(free, new, times[new])
        gone = self._nodes[slots]
        with self._reading.writing():
            self._location[gone[gone >= 0]] = -1
            # Evicted, copied, entered: in this order no reader finds a node whose slot has another node's row.
            ops.gather_rows(rows, new if out_positions is None else out_positions[new], self._rows, slots)
            self._location[ids[new]] = slots
        self._nodes[slots], self._next[slots] = ids[new], times[new]

    def _choose(self, free: np.ndarray, new: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns slots, and the new rows that get them: free slots first, then those of rows that are needed later."""
        if len(new) <= len(free):
            return free, new
        soonest = np.argsort(times, kind="stable")
        new, times = new[soonest], times[soonest]
        count = min(len(new) - len(free), len(self._nodes) - len(free))
        # Free slots are given out already; their time must not make them candidates for eviction as well.
        self._next[free] = -1
        latest = np.argpartition(self._next, len(self._next) - count)[len(self._next) - count :] if count else free[:0]
        latest = latest[np.argsort(-self._next[latest], kind="stable")]
        later = self._next[latest] > times[len(free) : len(free) + count]
        latest = latest[later]  # times rise and slots' fall: those that are exchanged come first
        return np.concatenate([free, latest]), new[: len(free) + len(latest)]
