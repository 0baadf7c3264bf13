"""Steps dealt by demand, as pure logic: samplers and a trainer are played, and so is time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lightning_gnnload.pipeline.queue.scheduler import BatchTime, Scheduler, WorkerState
from lightning_gnnload.pipeline.queue.streams import StreamSpec

NUM_STEPS = 400
DEPTH = 4
MESSAGE_S = 1e-4


def dealt_to(batch_times: dict[str, float], *, start: int = 0, stop: int = 100) -> Scheduler[str]:
    scheduler: Scheduler[str] = Scheduler(StreamSpec("train", loader=0, reload=0, epoch=0, start=start, stop=stop))
    scheduler.workers = {who: WorkerState(BatchTime(seconds), has_opened=True) for who, seconds in batch_times.items()}
    return scheduler


class Played:
    """A trainer whose step takes ``step_s``, and samplers that make a mini-batch in what their laws say.

    Attributes:
        time: when the trainer has taken all steps, seconds.
        made: steps in the order in which each sampler made them.
        most_used: the most slots that a sampler had in use.
    """

    def __init__(
        self, laws: Sequence[Callable[[], float]], step_s: float, *, depth: int = DEPTH, threads: int = 1
    ) -> None:
        self.laws, self.depth, self.threads = laws, depth, threads
        self.scheduler: Scheduler[int] = dealt_to({}, stop=NUM_STEPS)  # type: ignore[assignment]
        self.scheduler.workers = {who: WorkerState(BatchTime(), threads, has_opened=True) for who in range(len(laws))}
        self.made: list[list[int]] = [[] for _ in laws]
        self.most_used = 0
        self._asked: list[list[int]] = [[] for _ in laws]  # what waits for a thread, as heaps
        self._used = [0 for _ in laws]  # slots with mini-batches that came
        self._inbox: dict[int, int] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._free = [threads for _ in laws]
        self.time = self._run(step_s)

    def _run(self, step_s: float) -> float:
        now, held = 0.0, None
        for step in range(NUM_STEPS):
            self.scheduler.next_step = step
            if held is not None:
                self._used[held] -= 1
            self._look(now, step_s)
            while step not in self._inbox:
                self._look(now, step_s, is_awaited=True)
                now = max(now, min(self._events[0][0], now + self.scheduler.poll_s))
                self._look(now, step_s)
            held = self._inbox.pop(step)
            self.scheduler.next_step = step + 1
            now += step_s
        return now

    def _look(self, now: float, blind_s: float, *, is_awaited: bool = False) -> None:
        while self._events and self._events[0][0] <= now:
            moment, _, event = heapq.heappop(self._events)
            event(moment)
        used = [self._used[who] + len(worker.due) for who, worker in self.scheduler.workers.items()]
        room = {who: self.depth - number for who, number in enumerate(used)}
        for who, step in self.scheduler.deal(room, now=now, blind_s=blind_s, is_awaited=is_awaited):
            used[who] += 1
            assert used[who] <= self.depth + (step == self.scheduler.next_step)
            self._at(now + MESSAGE_S, lambda moment, who=who, step=step: self._ask(who, step, moment))
        self.most_used = max(self.most_used, *used)

    def _at(self, moment: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), event))

    def _ask(self, who: int, step: int, now: float) -> None:
        heapq.heappush(self._asked[who], step)
        self._begin(who, now)

    def _begin(self, who: int, now: float) -> None:
        if self._free[who] and self._asked[who]:
            self._free[who] -= 1
            step, done = heapq.heappop(self._asked[who]), now + self.laws[who]()
            self._at(done, lambda moment: self._come(who, step, now, moment))

    def _come(self, who: int, step: int, began: float, now: float) -> None:
        self._free[who] += 1
        self.made[who].append(step)
        self.scheduler.came(who, step, began_s=began, made_s=now)
        if step >= self.scheduler.next_step and step not in self._inbox:
            self._inbox[step] = who
            self._used[who] += 1
        self._begin(who, now)


@pytest.mark.parametrize("busy", [0.05, 0.9, 1.5])
@pytest.mark.parametrize("ms", [[20, 20], [20, 100], [10, 100], [10, 20, 40], [15, 45, 90], [20] * 4], ids=str)
def test_unequal_samplers_reach_their_summed_rate(ms: list[int], busy: float) -> None:
    # Dealt in turn, 20 and 100 ms reach a third of it; the lowest step to whoever asks, 10 and 100 ms two thirds.
    interval = 1e-3 / sum(1 / each for each in ms)
    played = Played([lambda each=each: each * 1e-3 for each in ms], busy * interval)
    assert played.time < NUM_STEPS * interval * max(1, busy) / 0.95
    assert sum(map(len, played.made)) <= NUM_STEPS * 1.01  # hardly anything is made twice
    assert played.most_used <= DEPTH + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_a_sampler_whose_pace_varies_costs_little(threads: int) -> None:
    draws = random.Random(1)
    played = Played([lambda: 0.02, lambda: draws.uniform(0.01, 0.08)], 0.0, threads=threads, depth=4 * threads)
    assert played.time < NUM_STEPS / (threads * (1 / 0.02 + 1 / 0.045)) / 0.9


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_shallow_queues_lose_no_step(depth: int) -> None:
    draws = random.Random(2)
    laws = [lambda: draws.expovariate(50), lambda: draws.expovariate(10), lambda: draws.expovariate(25)]
    played = Played(laws, 0.01, depth=depth)
    assert set().union(*played.made) == set(range(NUM_STEPS))
    assert played.most_used <= depth + 1


def test_one_that_hangs_costs_the_time_of_few_mini_batches() -> None:
    calls = itertools.count()
    played = Played([lambda: 0.02, lambda: 1e9 if next(calls) == 50 else 0.02], 0.0)
    assert played.time < (100 * 0.01 + 300 * 0.02) + 10 * 0.02
    assert set().union(*played.made) == set(range(NUM_STEPS))


def test_a_slow_sampler_is_asked_for_what_is_needed_when_it_is_done() -> None:
    scheduler = dealt_to({"fast": 0.02, "slow": 0.1})
    assert scheduler.deal({"fast": 2, "slow": 1}, now=0.0, blind_s=0.01) == [("fast", 0), ("fast", 1), ("slow", 4)]
    scheduler.came("fast", 0, began_s=0.0, made_s=0.02)
    # What was left out is still to be made.
    assert scheduler.deal({"fast": 3, "slow": 0}, now=0.02, blind_s=1.0) == [("fast", 2), ("fast", 3), ("fast", 5)]


def test_at_the_end_a_slow_sampler_is_left_out() -> None:
    scheduler = dealt_to({"fast": 0.02, "slow": 0.1}, start=96)
    assert scheduler.deal({"fast": 4, "slow": 4}, now=0.0, blind_s=0.1) == [("fast", step) for step in range(96, 100)]


def test_one_whose_pace_is_unknown_is_asked_for_a_step_a_thread() -> None:
    scheduler = dealt_to({"a": 0.0, "b": 0.0})
    scheduler.workers["b"].num_threads = 2
    assert sorted(who for who, _ in scheduler.deal({"a": 4, "b": 4}, now=0.0, blind_s=9.0)) == ["a", "b", "b"]


def test_one_that_is_alone_is_asked_for_all_that_there_is_room_for() -> None:
    scheduler = dealt_to({"only": 0.0}, stop=3)
    assert scheduler.deal({"only": 4}, now=0.0) == [("only", 0), ("only", 1), ("only", 2)]


def test_who_still_opens_is_asked_only_where_all_do() -> None:
    scheduler = dealt_to({"a": 0.0, "b": 0.0})
    scheduler.workers["a"].has_opened = scheduler.workers["b"].has_opened = False
    assert scheduler.deal({"a": 1, "b": 1}, now=0.0) == [("a", 0), ("b", 1)]
    scheduler.workers["b"].has_opened = True
    assert scheduler.deal({"a": 1, "b": 1}, now=0.0) == []
    scheduler.came("b", 1, began_s=0.0, made_s=0.1)
    assert {who for who, _ in scheduler.deal({"a": 4, "b": 4}, now=0.1)} == {"b"}


def test_what_a_lost_one_owed_is_dealt_again_first() -> None:
    scheduler = dealt_to({"a": 0.02, "b": 0.02})
    scheduler.deal({"a": 2, "b": 2}, now=0.0, blind_s=0.01)
    for step in scheduler.workers.pop("a").due:
        scheduler.give_back(step)
    # Its slots are filled or promised: only what is waited for goes beyond them.
    assert scheduler.deal({"b": 0}, now=0.0) == []
    assert scheduler.deal({"b": 0}, now=0.0, is_awaited=True) == [("b", 0)]
    assert scheduler.deal({"b": -1}, now=0.0, is_awaited=True) == []
    assert scheduler.deal({"b": 2}, now=0.0) == [("b", 2), ("b", 4)]


def test_what_another_one_still_makes_is_not_dealt_again() -> None:
    scheduler = dealt_to({"a": 0.02, "b": 0.02}, stop=1)
    scheduler.deal({"a": 1, "b": 1}, now=0.0)
    scheduler.workers["b"].due[0] = 0.0
    scheduler.workers.pop("a")
    scheduler.give_back(0)
    assert scheduler.deal({"b": 1}, now=0.0) == []


def test_the_awaited_step_is_made_by_an_idle_one_too_if_that_wins_time() -> None:
    scheduler = dealt_to({"slow": 0.1}, stop=1)
    scheduler.deal({"slow": 1}, now=0.0)  # due at 0.1
    scheduler.workers["fast"] = WorkerState(BatchTime(0.02), has_opened=True)
    room = {"fast": 0, "slow": 3}
    assert scheduler.deal(room, now=0.08, is_awaited=True) == []  # it will be there sooner
    assert scheduler.deal(room, now=0.1, is_awaited=True) == []
    assert scheduler.deal(room, now=0.2) == []  # nobody waits
    assert scheduler.deal(room, now=0.2, is_awaited=True) == [("fast", 0)]
    assert scheduler.deal(room, now=9.0, is_awaited=True) == []  # it is no longer idle


def test_steps_that_are_passed_over_are_not_dealt() -> None:
    scheduler = dealt_to({"a": 0.02}, stop=10)
    scheduler.deal({"a": 2}, now=0.0)
    scheduler.give_back(scheduler.workers["a"].due.popitem()[0])
    scheduler.next_step = 7
    assert scheduler.deal({"a": 9}, now=0.0) == [("a", 7), ("a", 8), ("a", 9)]


def at_owners(owners: Sequence[int], batch_times: dict[str, float], *, start: int = 0) -> Scheduler[str]:
    spec = StreamSpec("train", loader=0, reload=0, epoch=0, start=start, stop=len(owners))
    scheduler: Scheduler[str] = Scheduler(spec, owners=np.array(owners))
    scheduler.workers = {
        who: WorkerState(BatchTime(each), has_opened=True, owner=owner)
        for owner, (who, each) in enumerate(batch_times.items())
    }
    return scheduler


def test_steps_are_made_where_they_are_at_home() -> None:
    owners = [0, 1, 1, 0, 2, 2, 1, 0, 2, 0, 1, 2]
    scheduler = at_owners(owners, {"a": 0.02, "b": 0.1}, start=1)
    dealt = scheduler.deal({"a": 12, "b": 12}, now=0.0, blind_s=10.0)
    # Nobody lives at owner 2: whoever has room makes these, too. Each step once.
    assert sorted(step for _, step in dealt) == list(range(1, 12))
    assert all(owners[step] in (2, scheduler.workers[who].owner) for who, step in dealt)


def test_the_steps_of_a_lost_home_are_made_by_others() -> None:
    scheduler = at_owners([1, 1, 0, 0], {"a": 0.02, "b": 0.02})
    assert sorted(scheduler.deal({"a": 1, "b": 1}, now=0.0)) == [("a", 2), ("b", 0)]
    scheduler.workers.pop("b")
    scheduler.give_back(0)
    assert scheduler.deal({"a": 8}, now=0.0) == [("a", 0), ("a", 1), ("a", 3)]


def test_an_awaited_step_is_made_at_home_though_it_has_no_room() -> None:
    scheduler = at_owners([1, 1, 0, 0], {"a": 0.02, "b": 0.05})
    assert scheduler.deal({"a": 0, "b": 0}, now=0.0, is_awaited=True) == [("b", 0)]
