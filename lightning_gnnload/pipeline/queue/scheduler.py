"""Scheduler: assigns the steps of one stream to samplers by demand, each to the one that will have made it in time."""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from lightning_gnnload.pipeline.queue.streams import StreamSpec

_NEW_WEIGHT = 0.25  # what the last mini-batch counts for in a batch_time
_MIN_GAIN_S = 0.01  # what must be won for a step to be made twice; less may be the system's doing
Who = TypeVar("Who", bound=Hashable)


class BatchTime:
    """The seconds that a thread of a sampler takes for a mini-batch of one loader, as a moving average; 0 before the
    first."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def add(self, seconds: float) -> None:
        self.seconds += (seconds - self.seconds) * (_NEW_WEIGHT if self.seconds else 1)


@dataclass(eq=False)
class WorkerState:
    """What a sampler still has to make of a stream, and how fast it is.

    ``due`` has the moment (monotonic seconds) at which each outstanding step was asked for, ``made_s`` that of its last
    mini-batch. Until it ``has_opened`` the stream, it may be filling a cache. ``owner`` names the steps that are drawn
    from its part of the graph.
    """

    batch_time: BatchTime
    num_threads: int = 1
    due: dict[int, float] = field(default_factory=dict)
    made_s: float = -math.inf
    has_opened: bool = False
    owner: int = -1


class Scheduler(Generic[Who]):
    """Assigns the steps of a stream to samplers: knows which step each was asked for, and which are unassigned.

    A sampler is asked for as much as keeps it busy until the trainer looks again. Trainers take steps in order, so a
    slow sampler gets a step that is needed when it will be ready, and leaves those before it to faster ones; how long
    mini-batches took so far decides. Where that proves wrong, an idle sampler also makes the awaited step, and the
    second copy is dropped: time is lost, but no step.

    ``owners`` has the owner of each step of the epoch (None: all samplers make it alike). Steps with an owner are made
    there, in order, while that sampler lives and is in time. ``num_trainers`` trainers share the samplers.

    Example:
        >>> scheduler = Scheduler(StreamSpec("train", loader=0, reload=0, epoch=0, start=0, stop=100))
        >>> scheduler.workers = {"fast": WorkerState(BatchTime(0.02)), "slow": WorkerState(BatchTime(0.1))}
        >>> scheduler.deal({"fast": 4, "slow": 4}, now=0.0, blind_s=0.01)
        [('fast', 0), ('fast', 1), ('slow', 4), ('slow', 10)]

    Source: GNNLab (EuroSys'22), section 5.2: mini-batches are assigned dynamically, to balance samplers; BGL (NSDI'23),
    section 3.1: samplers beside their parts.
    """

    def __init__(self, spec: StreamSpec, num_trainers: int = 1, owners: np.ndarray | None = None) -> None:
        self.spec = spec
        self.num_trainers = num_trainers
        self._owners = np.empty(0, np.int64) if owners is None else owners
        self._steps_at = {owner: np.flatnonzero(owners == owner) for owner in np.unique(self._owners).tolist()}
        self.workers: dict[Who, WorkerState] = {}
        self.next_step = spec.start
        self._begin = spec.start  # nobody was ever asked for the steps from here on
        self._skipped: list[int] = []  # steps before that which are nobody's, in order

    def came(self, who: Who, step: int, *, began_s: float, made_s: float) -> None:
        """Notes that a sampler has made a step, from when to when."""
        worker = self.workers.get(who)
        if worker is not None and worker.due.pop(step, None) is not None:
            worker.batch_time.add(made_s - began_s)
            worker.made_s = max(worker.made_s, made_s)

    def give_back(self, step: int) -> None:
        """Notes that a step that was asked for will not come, or is lost."""
        if not any(step in worker.due for worker in self.workers.values()):
            bisect.insort(self._skipped, step)

    def deal(
        self, room: Mapping[Who, int], *, now: float, blind_s: float = 0.0, is_awaited: bool = False
    ) -> list[tuple[Who, int]]:
        """Returns (sampler, step) for the steps to ask for now: as many as there is ``room`` (free slots a sampler),
        and the next step in any case where it ``is_awaited``. ``blind_s``: how long the trainer may go without looking.
        """
        dealt = []
        if is_awaited and (who := self._helper(room, now)) is not None:
            dealt.append((who, self.next_step))
            self._ask(who, self.next_step, now)
        free = {who: room[who] - sum(who == maker for maker, _ in dealt) for who in self._available()}
        while able := [who for who, slots in free.items() if slots > 0 and self._wants_more(who, blind_s)]:
            who = min(able, key=lambda who: self._done_s(who, now))
            if not len(self._owners):
                step = self._unassigned(self._num_made_before(who, now))
            else:
                step = self._unassigned_at(self.workers[who].owner)
            if step is None:
                del free[who]  # others will have made all that is left before it has made one
                continue
            self._ask(who, step, now)
            free[who] -= 1
            dealt.append((who, step))
        return dealt

    @property
    def poll_s(self) -> float:
        """How long to wait before looking again whether an idle sampler can help: as long as it takes for a batch."""
        return min((self._latency_s(who) for who in self._idle()), default=math.inf) + _MIN_GAIN_S

    def _helper(self, room: Mapping[Who, int], now: float) -> Who | None:
        """Finds who is to make the next step, if it is unassigned or an idle sampler will have made it first.

        Free slots do not count: all may hold later steps, of a sampler that takes this one over, say.
        """
        if self._unassigned(0) == self.next_step:
            owner = self._owners[self.next_step] if len(self._owners) else None
            rank = {who: (owner not in (None, self.workers[who].owner), room[who] <= 0) for who in self._available()}
            return min(rank, key=lambda who: (*rank[who], self._done_s(who, now)), default=None)
        due_s = [self._rest_s(who, now) for who, worker in self.workers.items() if self.next_step in worker.due]
        who = min(self._idle(), key=self._latency_s, default=None)
        return None if who is None or self._latency_s(who) + _MIN_GAIN_S >= min(due_s, default=0) else who

    # Who may make what.

    def _available(self) -> list[Who]:
        """Returns the samplers that can make mini-batches at once, or all if none can yet."""
        return [who for who, worker in self.workers.items() if worker.has_opened] or list(self.workers)

    def _idle(self) -> list[Who]:
        return [who for who, worker in self.workers.items() if worker.has_opened and not worker.due]

    def _wants_more(self, who: Who, blind_s: float) -> bool:
        """Whether a sampler may run out of steps before the trainer looks again; a single one always takes more."""
        worker = self.workers[who]
        spare = blind_s / self._interval_s(who) if worker.batch_time.seconds else 0
        return len(self.workers) == 1 or len(worker.due) < worker.num_threads + spare

    def _ask(self, who: Who, step: int, now: float) -> None:
        self.workers[who].due[step] = now
        if step >= self._begin:
            self._skipped += range(max(self._begin, self.next_step), step)
            self._begin = step + 1
        else:
            self._skipped = [s for s in self._skipped if self.next_step <= s != step]

    def _unassigned(self, index: int) -> int | None:
        """Returns the unassigned step with ``index`` others before it, or None."""
        open_steps = [step for step in self._skipped if step >= self.next_step]
        step = (
            open_steps[index] if index < len(open_steps) else max(self._begin, self.next_step) + index - len(open_steps)
        )
        return step if step < self.spec.stop else None

    def _unassigned_at(self, owner: int) -> int | None:
        """Returns the first unassigned step of an owner, or of one whose sampler is gone, or None."""
        owners = {owner, *(self._steps_at.keys() - {worker.owner for worker in self.workers.values()})}
        # Those left are few: a slower sampler's steps, as far as the slots of a faster one reach.
        open_steps = [step for step in self._skipped if step >= self.next_step and self._owners[step] in owners][:1]
        begin = max(self._begin, self.next_step)
        for steps in [self._steps_at[location] for location in owners & self._steps_at.keys()]:
            open_steps += steps[np.searchsorted(steps, begin) :][:1].tolist()
        return min((step for step in open_steps if step < self.spec.stop), default=None)

    # What is known ahead. Seconds from now, for a trainer that gets its part of each sampler.

    def _latency_s(self, who: Who) -> float:
        """How long a sampler takes for a mini-batch; if unknown, as long as the slowest that is known."""
        batch_times = [worker.batch_time.seconds for worker in self.workers.values()]
        return (self.workers[who].batch_time.seconds or max(batch_times) or 1.0) * self.num_trainers

    def _interval_s(self, who: Who) -> float:
        """The time between two mini-batches of a busy sampler."""
        return self._latency_s(who) / self.workers[who].num_threads

    def _rest_s(self, who: Who, now: float) -> float:
        """When the first of a sampler's due steps will come: the longer it is late, the later."""
        worker = self.workers[who]
        due_s = self._interval_s(who) if len(worker.due) >= worker.num_threads else self._latency_s(who)
        return abs(due_s - (now - max(worker.made_s, next(iter(worker.due.values())))))

    def _free_s(self, who: Who, now: float) -> float:
        """When a sampler will have made all that is due."""
        due = self.workers[who].due
        return self._rest_s(who, now) + (len(due) - 1) * self._interval_s(who) if due else 0.0

    def _done_s(self, who: Who, now: float) -> float:
        """When a sampler would have made one step more."""
        return max(self._free_s(who, now) + self._interval_s(who), self._latency_s(who))

    def _num_made_before(self, who: Who, now: float) -> int:
        """How many steps more others would make before a sampler had made one."""
        done_s = self._done_s(who, now)
        return sum(
            max(math.ceil((done_s - self._free_s(maker, now)) / self._interval_s(maker) - 1e-6) - 1, 0)
            for maker in self._available()
            if maker != who and self._latency_s(maker) < done_s
        )
