"""Lookahead and ReadAhead: what coming mini-batches will gather, and reading the next one's rows before it asks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.features import FeatureStore, Reads, TierReads, byte_rows
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.sample.workload import Workload

NEVER = np.iinfo(np.int64).max
"""The time of a node that no known mini-batch gathers again."""


class Lookahead:
    """The input nodes of the coming mini-batches, and when each node is used next.

    A mini-batch's time is ``global step * num_ranks + rank``. Of the ranks that this process announced, all coming
    steps are expected; other ranks are other processes'. Every ``steps`` steps the next ``2 * steps`` are indexed, so
    between ``steps`` and ``2 * steps`` steps are known at any time. Mini-batches are pure functions, so it does not
    matter who samples them, or when.

    One thread at a time may use it; the caller samples. It takes 4 bytes a node of the graph, and up to 16 bytes an
    input node for the mini-batches of ``3 * steps`` steps. Raises CacheConfigError below one step.

    Source: Ginex (VLDB'22), section 4.2: a superbatch is sampled ahead, so that Belady's choice can be made.
    """

    def __init__(self, workload: Workload, steps: int) -> None:
        if steps < 1:
            raise CacheConfigError(f"steps={steps}: a look ahead of one step at least is needed.")
        self.workload = workload
        self.steps = steps
        self._num_ranks = 0
        self._begin = 0  # first step of those that were indexed
        self._latest = -1  # newest time that was announced
        self._requested: dict[int, int] = {}  # by rank, one past the last step that was requested
        self._nodes: dict[int, np.ndarray] = {}  # by time
        self._next: dict[int, np.ndarray] = {}  # by time, the next time of each of these nodes
        # By node, the number of the first mini-batch that it is in, which takes half the bytes of its time.
        self._first = np.empty(workload.graph.num_nodes, np.int32)
        self._times = np.empty(0, np.int64)  # of these mini-batches, by number

    def to_sample(self, request: BatchRequest) -> list[BatchRequest]:
        """Returns what to sample and give to :meth:`add` now that ``request`` is announced: mostly one mini-batch."""
        step = self._step(request)
        # Another number of ranks, or a step farther off than threads are ever out of order: the run began anew.
        if request.num_ranks != self._num_ranks or not -self.steps <= step - self._begin < 2 * self.steps:
            self._num_ranks, self._latest = request.num_ranks, -1
            self._requested, self._nodes, self._next = {}, {}, {}
        if request.rank not in self._requested:  # the index lacks this rank's mini-batches: advance() makes it again
            self._begin = step - self.steps
        self._latest = max(self._latest, self.time(request))
        first = max(self._requested.get(request.rank, step), step)
        self._requested[request.rank] = end = max(first, step + 2 * self.steps)
        return [self._request(ahead * self._num_ranks + request.rank) for ahead in range(first, end)]

    def add(self, request: BatchRequest, nodes: np.ndarray) -> None:
        """Enters the nodes of a mini-batch that :meth:`to_sample` returned."""
        if request.num_ranks == self._num_ranks:
            small = len(self._first) <= np.iinfo(np.int32).max
            self._nodes[self.time(request)] = nodes.astype(np.int32) if small else nodes

    def advance(self, request: BatchRequest) -> bool:
        """Indexes the coming steps, where that is due; returns whether it was."""
        step = self._step(request)
        if step < self._begin + self.steps:
            return False
        self._begin = step
        oldest = (step - self.steps) * self._num_ranks  # threads that are behind still ask about these
        self._nodes = {time: nodes for time, nodes in self._nodes.items() if time >= oldest}
        self._next = {time: times for time, times in self._next.items() if time >= oldest}
        times = sorted(time for time in self._nodes if time >= step * self._num_ranks)
        # One more than there are lists: next_lists() gives that number to nodes that do not come again.
        self._times = np.array([*times, NEVER], np.int64)
        following = next_lists([self._nodes[time] for time in times], self._first)
        self._next |= {time: self._times[lists] for time, lists in zip(times, following, strict=True)}
        return True

    def next_times(self, nodes: np.ndarray) -> np.ndarray:
        """Returns when each node first comes in the steps that were indexed last, int64; :data:`NEVER` where it does
        not."""
        return self._times[self._first[nodes]] if len(self._times) else np.full(len(nodes), NEVER)

    def times_after(self, request: BatchRequest, ids: np.ndarray) -> np.ndarray | None:
        """Returns when each of these nodes of a mini-batch comes next after it, int64; None where that is not known, or
        where some are not its nodes. All its nodes in their order are looked up fastest."""
        time = self.time(request)
        if request.num_ranks != self._num_ranks or time not in self._nodes or time not in self._next:
            return None
        nodes, times = self._nodes[time], self._next[time]
        if np.array_equal(nodes, ids):  # unless a nearer cache asks for what it lacks
            return times
        # A nearer cache asks for what it lacks, in an order of its own.
        order = np.argsort(nodes)
        positions = order[np.searchsorted(nodes, ids, sorter=order).clip(max=len(nodes) - 1)]
        return times[positions] if np.array_equal(nodes[positions], ids) else None

    def coming(self) -> tuple[BatchRequest, np.ndarray] | None:
        """Returns the next mini-batch that was not announced yet, and its nodes; None where they are not known."""
        time = min((time for time in self._nodes if time > self._latest), default=None)
        return None if time is None else (self._request(time), self._nodes[time])

    def time(self, request: BatchRequest) -> int:
        """Returns the time of a mini-batch, which orders all of them."""
        return self._step(request) * request.num_ranks + request.rank

    def _request(self, time: int) -> BatchRequest:
        step, rank = divmod(time, self._num_ranks)
        return BatchRequest(*divmod(step, self.workload.plan(self._num_ranks).num_steps), rank, self._num_ranks)

    def _step(self, request: BatchRequest) -> int:
        return request.epoch * self.workload.plan(request.num_ranks).num_steps + request.step


def next_lists(lists: Sequence[np.ndarray], first: np.ndarray) -> list[np.ndarray]:
    """Finds for each entry of each list the number of the next list with the same node; one past the last for none.

    Nodes are distinct within a list. ``first``, int32 ``[N]``, is overwritten with the first list of each node.

    Example:
        >>> first = np.empty(4, np.int32)
        >>> [following.tolist() for following in next_lists([np.array([0, 2]), np.array([1]), np.array([2, 1])], first)]
        [[3, 2], [2], [3, 3]]
        >>> first.tolist()
        [0, 1, 0, 3]
    """
    first.fill(len(lists))
    following = []
    # From the end, so that ``first`` always names the nearest list that comes later.
    for number in reversed(range(len(lists))):
        following.append(first[lists[number]])
        first[lists[number]] = number
    return following[::-1]


class StagedRows:
    """Rows that were read ahead, or are being read, for one mini-batch: ids ascending, and a future of their bytes,
    uint8 ``[M, row_bytes]``, and the reads."""

    def __init__(self, ids: np.ndarray, reading: Future[tuple[np.ndarray, Reads]]) -> None:
        self.ids = ids
        self.reading = reading

    def move(self, ids: np.ndarray, out_positions: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, Reads]:
        """Copies those of the rows ``ids`` that it has to their positions in ``rows``. Returns a mask of the ids that
        it lacks, and the reads, whose bytes include those of rows that were read in vain. Raises FeatureFileError as
        the store does."""
        if len(self.ids) == 0 or self.reading.cancel():  # not begun: the caller reads them sooner itself
            return np.ones(len(ids), bool), ()
        staged, reads = self.reading.result()
        positions = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        is_staged = self.ids[positions] == ids
        ops.gather_rows(staged, positions[is_staged], rows, out_positions[is_staged])
        # Rows that nobody needed count for no tier, but their bytes were read.
        unused = len(self.ids) - int(is_staged.sum())
        counted = []
        for tier, num_rows, num_bytes in reads:
            less = min(unused, num_rows)
            unused -= less
            counted.append(TierReads(tier, num_rows - less, num_bytes))
        return ~is_staged, tuple(counted)


class ReadAhead:
    """A thread that reads rows of the next mini-batch from the store. One thread at a time may call it.

    Source: Ginex (VLDB'22), section 4.3: the rows that the cache will lack are read while others are computed with.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._thread = Threads(1, "gnnload-read-ahead")
        self._staged: tuple[BatchRequest, StagedRows] | None = None

    def begin(self, request: BatchRequest, ids: np.ndarray) -> None:
        """Starts to read rows ``ids`` for a coming mini-batch; what was read for another one is dropped."""
        if self._staged is not None:
            # Two gathers in a row may see the same next mini-batch.
            if self._staged[0] == request:
                return
            # A read under way goes on, and its rows are dropped.
            self._staged[1].reading.cancel()
        ids = np.sort(ids).astype(np.int64, copy=False)
        self._staged = request, StagedRows(ids, self._thread.submit(self._read, ids))

    def take(self, request: BatchRequest) -> StagedRows | None:
        """Hands over what was started for this mini-batch; None where nothing was."""
        if self._staged is None or self._staged[0] != request:
            return None
        self._thread.check()  # in a fork the thread does not exist, and the result would never come
        staged, self._staged = self._staged[1], None
        return staged

    def close(self) -> None:
        """Waits for the read that is under way."""
        self._thread.shutdown(cancel_futures=True)

    def _read(self, ids: np.ndarray) -> tuple[np.ndarray, Reads]:
        rows = torch.empty(len(ids), self.store.shape[1], dtype=self.store.dtype)
        reads = self.store.gather(torch.from_numpy(ids), rows)
        return byte_rows(rows), reads or (TierReads("store", len(ids), rows.nbytes),)
