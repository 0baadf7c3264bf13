"""Lookahead: what the coming mini-batches will gather, and so when each row is wanted again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import Workload

NEVER = np.iinfo(np.int64).max
"""The time of what is not wanted again, as far as is known."""


class Lookahead:
    """The input nodes of the next mini-batches, and when each node is used next.

    A mini-batch's time is ``global step * num_ranks + rank``. Those of every coming step are expected, of the ranks
    that were announced; others are not this process's. Every ``steps`` steps, those of the next ``2 * steps`` are
    gone through; so between ``steps`` and ``2 * steps`` steps ahead are known at any time. As mini-batches are pure
    functions, it does not matter who samples them, nor when.

    One thread at a time may use it. The caller samples, which takes the time.

    Args:
        workload: whose mini-batches.
        steps: that are gone through at once.

    Raises:
        CacheConfigError: fewer than one step.

    Memory: 4 bytes a node of the graph; and for each mini-batch of ``3 * steps`` steps, up to 16 bytes an input node.

    Source: Ginex (VLDB'22), section 4.2: a superbatch is sampled ahead, so that Belady's choice can be made.
    """

    def __init__(self, workload: Workload, steps: int) -> None:
        if steps < 1:
            raise CacheConfigError(f"steps={steps}: a look ahead of one step at least is needed.")
        self.workload = workload
        self.steps = steps
        self._num_ranks = 0
        self._begin = 0  # first of the steps that were gone through
        self._latest = -1  # time that was announced
        self._ends: dict[int, int] = {}  # of each rank, the first step that is not asked for
        self._nodes: dict[int, np.ndarray] = {}  # by time
        self._next: dict[int, np.ndarray] = {}  # by time: of these nodes
        # Of each node, the number of the mini-batch that it comes in: half the bytes of its time.
        self._first = np.empty(workload.graph.num_nodes, np.int32)
        self._times = np.empty(0, np.int64)  # by number, of these mini-batches

    def wanted(self, request: BatchRequest) -> list[BatchRequest]:
        """Returns what to sample and give to :meth:`add` now that ``request`` is announced: mostly one mini-batch."""
        step = self._step(request)
        # Other ranks, or a step too far off for threads that are out of order: the run begins anew.
        if request.num_ranks != self._num_ranks or not -self.steps <= step - self._begin < 2 * self.steps:
            self._num_ranks, self._latest = request.num_ranks, -1
            self._ends, self._nodes, self._next = {}, {}, {}
        if request.rank not in self._ends:  # what was gone through lacks its mini-batches: advance() does it again
            self._begin = step - self.steps
        self._latest = max(self._latest, self.time(request))
        first = max(self._ends.get(request.rank, step), step)
        self._ends[request.rank] = end = max(first, step + 2 * self.steps)
        return [self._request(ahead * self._num_ranks + request.rank) for ahead in range(first, end)]

    def add(self, request: BatchRequest, nodes: np.ndarray) -> None:
        """Enters the nodes of a mini-batch that was wanted."""
        if request.num_ranks == self._num_ranks:
            small = len(self._first) <= np.iinfo(np.int32).max
            self._nodes[self.time(request)] = nodes.astype(np.int32) if small else nodes

    def advance(self, request: BatchRequest) -> bool:
        """Goes through the coming steps, where it is time to; returns whether it was."""
        step = self._step(request)
        if step < self._begin + self.steps:
            return False
        self._begin = step
        oldest = (step - self.steps) * self._num_ranks  # threads may be behind a little
        self._nodes = {time: nodes for time, nodes in self._nodes.items() if time >= oldest}
        self._next = {time: times for time, times in self._next.items() if time >= oldest}
        times = sorted(time for time in self._nodes if time >= step * self._num_ranks)
        # One more than there are lists: next_lists() gives that number to nodes that do not come again.
        self._times = np.array([*times, NEVER], np.int64)
        following = next_lists([self._nodes[time] for time in times], self._first)
        self._next |= {time: self._times[lists] for time, lists in zip(times, following, strict=True)}
        return True

    def next_times(self, nodes: np.ndarray) -> np.ndarray:
        """Returns when each node first comes, int64, in the steps that were gone through last; :data:`NEVER` where it
        does not."""
        return self._times[self._first[nodes]] if len(self._times) else np.full(len(nodes), NEVER)

    def times_after(self, request: BatchRequest, ids: np.ndarray) -> np.ndarray | None:
        """Returns when each of these nodes of a mini-batch comes next after it, int64; None where that is not known,
        or they are not of it.

        Args:
            request: the mini-batch.
            ids: its nodes, int64 ``[B]``; or some of them, which takes longer.
        """
        time = self.time(request)
        if request.num_ranks != self._num_ranks or time not in self._nodes or time not in self._next:
            return None
        nodes, times = self._nodes[time], self._next[time]
        if np.array_equal(nodes, ids):  # unless a nearer cache asks for what it lacks
            return times
        order = np.argsort(nodes)
        places = order[np.searchsorted(nodes, ids, sorter=order).clip(max=len(nodes) - 1)]
        return times[places] if np.array_equal(nodes[places], ids) else None

    def coming(self) -> tuple[BatchRequest, np.ndarray] | None:
        """Returns the next mini-batch that was not announced yet, and its nodes; None where they are not known."""
        time = min((time for time in self._nodes if time > self._latest), default=None)
        return None if time is None else (self._request(time), self._nodes[time])

    def time(self, request: BatchRequest) -> int:
        """Returns the time of a mini-batch, which is greater for what comes later."""
        return self._step(request) * request.num_ranks + request.rank

    def _request(self, time: int) -> BatchRequest:
        step, rank = divmod(time, self._num_ranks)
        return BatchRequest(*divmod(step, self.workload.plan(self._num_ranks).num_steps), rank, self._num_ranks)

    def _step(self, request: BatchRequest) -> int:
        return request.epoch * self.workload.plan(request.num_ranks).num_steps + request.step


def next_lists(lists: Sequence[np.ndarray], first: np.ndarray) -> list[np.ndarray]:
    """Finds for each entry of each list the number of the next list that has the same node; one past the last for none.

    Args:
        lists: node ids, distinct within a list.
        first: int32 ``[N]``, overwritten: of each node, the number of the first list that has it.

    Example:
        >>> first = np.empty(4, np.int32)
        >>> [following.tolist() for following in next_lists([np.array([0, 2]), np.array([1]), np.array([2, 1])], first)]
        [[3, 2], [2], [3, 3]]
        >>> first.tolist()
        [0, 1, 0, 3]
    """
    first.fill(len(lists))
    following = []
    for number in reversed(range(len(lists))):
        following.append(first[lists[number]])
        first[lists[number]] = number
    return following[::-1]
