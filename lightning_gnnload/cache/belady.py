"""BeladyCache: the rows that are wanted again soonest, in front of the store that has all."""

from __future__ import annotations

import threading

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.cache.locks import ReadWriteLock
from lightning_gnnload.cache.lookahead import NEVER, Lookahead
from lightning_gnnload.cache.readahead import ReadAhead, Staged
from lightning_gnnload.cache.store import StoreWrapper, check_slots
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, Reads, byte_rows, summed_reads
from lightning_gnnload.data.pages import buffer_memory
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import Workload


class BeladyCache(StoreWrapper):
    """A cache that keeps, after each mini-batch, the rows whose next use comes soonest.

    That is Belady's choice, which needs the future: the mini-batches of the coming steps are sampled ahead of their
    making, once each (:class:`.Lookahead`). No cache of its size hits more, as far as the look ahead reaches, when
    mini-batches are gathered in the order of their steps; threads that do so slightly out of order, one after the
    other, lose a little of that and never a right value. Only mini-batches that were announced change what is kept.

    Each announcement samples one mini-batch in the thread that announces, which adds the time of sampling once more
    to that of making mini-batches. Where several sampler processes share a trainer's steps, each of them looks at
    all of these.

    Of the next mini-batch that nobody has begun to make, the rows that it will lack are read ahead by a thread of the
    cache's own, while others are trained on. So it takes the memory of these rows besides that of its slots.

    Args:
        store: has all rows.
        num_slots: rows that there is room for, 1 to N.
        workload: the mini-batches to come.
        steps: the look ahead: between so many steps and twice as many are known.
        read_ahead: whether rows are read ahead; None: where ``store`` does not have them in memory.
        tier: what :class:`.TierReads` calls it.

    Raises:
        CacheTooSmallError: no slot.
        CacheConfigError: more slots than rows, rows that are not one a node, or a look ahead of no step.

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
        self._latest = -1  # time of what was gathered
        self._reading = ReadWriteLock()  # rows and locations change while nobody reads them,
        self._deciding = threading.Lock()  # and one thread at a time decides how.
        # A mini-batch finds what the one before it has left: the rows that come soonest are often the next one's.
        self._one_at_a_time = threading.Lock()
        self._num_gathering = 0
        if read_ahead is None:
            read_ahead = not isinstance(store, MemoryFeatureStore)
        self._reader = ReadAhead(store) if read_ahead else None
        self._here = threading.local()  # a thread gathers what it has announced

    @property
    def num_bytes(self) -> int:
        """Memory of rows and tables, once all slots are filled; that of the look ahead is not in it."""
        return sum(array.nbytes for array in (self._rows, self._location, self._nodes, self._next))

    def announce(self, request: BatchRequest) -> None:
        """Samples what comes ``2 * steps`` steps later; the first time, all before it, too."""
        with self._deciding:
            wanted = self._ahead.wanted(request)
            staged = self._reader.take(request) if self._reader is not None else None
        self._here.announced = request, staged
        # Sampled without the lock: other threads announce, sample and gather meanwhile.
        for coming in wanted:
            nodes = self.workload.nodes_of(coming)
            with self._deciding:
                self._ahead.add(coming, nodes)
        with self._deciding:
            if self._ahead.advance(request):
                self._next[: self._num_used] = self._ahead.next_times(self._nodes[: self._num_used])
        self.store.announce(request)

    def close(self) -> None:
        """Ends its thread; the store behind stays open."""
        if self._reader is not None:
            self._reader.close()

    def _gather(self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor) -> Reads:
        request, staged = self._announced()
        if request is None:
            return self._read(ids, positions, out, None)
        with self._deciding:
            self._num_gathering += 1
        try:
            with self._one_at_a_time:
                reads = self._read(ids, positions, out, staged)
                with self._deciding:
                    places = None if positions is None else positions.numpy()
                    self._keep(request, ids.numpy(), places, byte_rows(out))
                    # A nearer cache would ask for some of the next mini-batch alone; and what the next one lacks is
                    # not known while another changes what is kept.
                    if positions is None and self._num_gathering == 1:
                        self._begin_next()
        finally:
            with self._deciding:
                self._num_gathering -= 1
        return reads

    def _read(
        self, ids: torch.Tensor, positions: torch.Tensor | None, out: torch.Tensor, staged: Staged | None
    ) -> Reads:
        wanted, rows = ids.numpy(), byte_rows(out)
        places = None if positions is None else positions.numpy()
        missed = self._missed(len(ids))
        with self._reading.reading():
            (num_hits,), num_missed = ops.gather_tiered(
                self._location, [self._rows], None, wanted, rows, missed[0], missed[1], positions=places
            )
        return self._hits(num_hits), *self._gather_missed(missed[:, :num_missed], staged, out)

    def _announced(self) -> tuple[BatchRequest, Staged | None] | tuple[None, None]:
        """What this thread announced for the gather that begins, and for no other."""
        announced: tuple[BatchRequest, Staged | None] | None = getattr(self._here, "announced", None)
        self._here.announced = None
        return announced or (None, None)

    def _gather_missed(self, missed: np.ndarray, staged: Staged | None, out: torch.Tensor) -> Reads:
        before: Reads = ()
        if staged is not None and missed.shape[1]:
            left, before = staged.move(missed[0], missed[1], byte_rows(out))
            missed = np.ascontiguousarray(missed[:, left])
        return summed_reads([before, self._ask_behind(missed, out)])

    def _begin_next(self) -> None:
        """Begins to read what the next mini-batch will lack, which follows from what is kept."""
        coming = self._ahead.coming() if self._reader is not None else None
        if self._reader is not None and coming is not None:
            request, nodes = coming
            self._reader.begin(request, nodes[self._location[nodes] < 0])

    def _keep(self, request: BatchRequest, ids: np.ndarray, places: np.ndarray | None, rows: np.ndarray) -> None:
        """Keeps those of the cached rows and these whose next use comes soonest."""
        times = self._ahead.times_after(request, ids)
        if times is None:
            return
        slots = self._location[ids]
        held = slots >= 0
        # Where a later mini-batch was gathered before this one, that is when it said that it needs a row again.
        self._next[slots[held]] = np.maximum(times[held], self._next[slots[held]])
        time = self._ahead.time(request)
        # Earlier by more than threads are ever out of order: the steps begin anew, as in another fit.
        begun_anew = self._latest - time > self._ahead.steps * request.num_ranks
        self._latest = time if begun_anew else max(time, self._latest)
        # A row whose next use is over, as that mini-batch was gathered before this one, is not worth a slot.
        new = np.flatnonzero(~held & (times > self._latest) & (times < NEVER))
        free = np.arange(self._num_used, min(self._num_used + len(new), len(self._nodes)))
        self._num_used += len(free)
        slots, new = self._choose(free, new, times[new])
        gone = self._nodes[slots]
        with self._reading.writing():
            self._location[gone[gone >= 0]] = -1
            ops.gather_rows(rows, new if places is None else places[new], self._rows, slots)
            self._location[ids[new]] = slots
        self._nodes[slots], self._next[slots] = ids[new], times[new]

    def _choose(self, free: np.ndarray, new: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots, and which of the new rows they get: free ones first, then those of rows that come later than these."""
        if len(new) <= len(free):
            return free, new
        soonest = np.argsort(times, kind="stable")
        new, times = new[soonest], times[soonest]
        count = min(len(new) - len(free), len(self._nodes) - len(free))
        # Free slots are as good as never wanted, but taken already: they must not be found once more.
        self._next[free] = -1
        latest = np.argpartition(self._next, len(self._next) - count)[len(self._next) - count :] if count else free[:0]
        latest = latest[np.argsort(-self._next[latest], kind="stable")]
        later = self._next[latest] > times[len(free) : len(free) + count]
        latest = latest[later]  # times rise and slots' fall: those that are exchanged come first
        return np.concatenate([free, latest]), new[: len(free) + len(latest)]
