"""Trainer 0's part of switching, against a queue that the test plays: what it gives, takes, refuses and awaits."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.contributed import Ledger
from lightning_gnnload.pipeline.queue.wire import Message
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import MAX_UNANSWERED, ParameterExchange
from lightning_gnnload.plugin.gradients.cost_model import CostModel
from lightning_gnnload.plugin.gradients.slice_scheduler import SamplerGradients, SliceScheduler

NUM_STEPS, NUM_RANKS = 50, 2


class Queue:
    """In a BatchQueue's place: hands over what the test says that samplers said, and keeps what was sent."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[int, Message, list[int]], None]] = {}
        self.lost: list[Callable[[int], None]] = []
        self.said: list[tuple[int, Message, list[int]]] = []
        self.sent: defaultdict[str, list[Message]] = defaultdict(list)
        self.on_wait: Callable[[], None] = lambda: None
        self.num_waits = 0

    def send(self, index: int, kind: str, fds: tuple[int, ...] = (), **fields: Any) -> None:
        self.sent[kind].append({"to": index, **fields})

    def pump(self, timeout_s: float) -> bool:
        if timeout_s > 0:
            self.num_waits += 1
            self.on_wait()
        if not self.said:
            return False
        index, message, fds = self.said.pop(0)
        self.handlers[message["kind"]](index, message, fds)
        return True


class Play:
    """A fit of ``NUM_STEPS`` planned steps with two trainers, of which this is the first."""

    def __init__(self, staleness: int = 0, bound: int = 1, max_steps: int = -1, step_s: float = 0.002) -> None:
        self.step_s = step_s
        self.queue, self.ledger, self.module = Queue(), Ledger(NUM_RANKS), nn.Linear(2, 1)
        self.version = self.num_tried = 0
        self.exchanges: list[ParameterExchange] = []
        self.slice_scheduler = SliceScheduler(
            self.queue,  # type: ignore[arg-type]
            self.module,
            self.ledger,
            staleness=staleness,
            bound=bound,
            version=lambda: self.version,
            global_step=lambda: self.ledger.step,
            max_steps=max_steps,
        )
        self.ledger.open(stream=7, epoch=0, start=0, stop=NUM_STEPS)
        for _ in range(4):  # as many as it takes to know the times
            self.step()

    def step(self) -> list[int]:
        """One step of training; returns the slices that joined it."""
        time.sleep(self.step_s)
        self.slice_scheduler.before_backward()
        merging = list(self.slice_scheduler.merging)
        self.version += 1
        self.slice_scheduler.after_update()
        self.ledger.step += 1
        return merging

    def say(self, kind: str, index: int = 0, fds: tuple[int, ...] = (), **fields: Any) -> None:
        self.queue.said.append((index, {"kind": kind, **fields}, list(fds)))

    def offer(self, index: int = 0) -> ParameterExchange:
        exchange = ParameterExchange(nn.Linear(2, 1))
        self.exchanges.append(exchange)
        self.say("standby", index, (os.dup(exchange.slot.fd),), digest=exchange.digest)
        self.say("offer", index, room=2)
        return exchange

    def gradient(
        self, number: int, version: int, index: int = 0, copy: int = 0, stream: int = 7, train_ms: float = 1e-3
    ) -> None:
        of = {"stream": stream, "slice": number, "copy": copy, "version": version}
        self.say("gradient", index, **of, make_ms=0.0, train_ms=train_ms)  # type: ignore[arg-type]

    def try_out(self, train_ms: float, lag: int = 0, times: int = 3) -> None:
        """The one sampler trains what it was given, in turn, so slowly, and asks for more."""
        for _ in range(times):
            self.gradient(self.given[self.num_tried], self.version - lag, train_ms=train_ms)
            self.num_tried += 1
            self.say("offer", room=1)
            self.step()

    @property
    def given(self) -> list[int]:
        return [message["slice"] for message in self.queue.sent["task"]]


@pytest.fixture
def play() -> Iterator[Callable[..., Play]]:
    started: list[Play] = []

    def start(**settings: float) -> Play:
        started.append(Play(**settings))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.slice_scheduler.close()
        for exchange in each.exchanges:
            exchange.close()


def test_an_idle_sampler_gets_the_last_slices_and_the_parameters_of_now(play: Callable[..., Play]) -> None:
    running = play()
    exchange = running.offer()
    running.step()
    assert running.given == [99, 98]  # no more than it has room for
    published = running.queue.sent["parameters"]
    assert [message["version"] for message in published] == [4, 5]
    assert [message["global_step"] for message in published] == [4, 4]
    received = {name: torch.empty_like(tensor) for name, tensor in running.module.state_dict().items()}
    exchange.load(published[-1]["copy"], received)
    assert torch.equal(received["weight"], running.module.weight.detach())
    # The first was published amid a step, of which less time is left.
    assert published[0]["due_ms"] < published[0]["fresh_due_ms"]
    assert published[1]["due_ms"] == published[1]["fresh_due_ms"]


def test_max_steps_ends_the_slices(play: Callable[..., Play]) -> None:
    running = play(max_steps=30)
    running.offer()
    running.step()
    assert running.given == [59, 58]


@pytest.mark.parametrize(("staleness", "bound"), [(0, 1), (1, 1), (3, 3), (0, 5)])
def test_a_gradient_joins_within_the_bound_and_is_given_again_beyond_it(
    play: Callable[..., Play], staleness: int, bound: int
) -> None:
    running = play(staleness=staleness, bound=bound)
    running.offer()
    running.step()
    for _ in range(bound):
        running.step()
    running.gradient(99, running.version - bound)
    running.gradient(98, running.version - bound - 1, copy=1)
    assert running.step() == [99]
    assert [message["copy"] for message in running.queue.sent["settled"]] == [1, 0]
    stats = running.slice_scheduler.stats
    assert (stats.contributed, stats.merged, stats.refused, stats.max_lag) == (2, 1, 1, bound)
    running.say("offer", room=2)
    running.step()
    assert running.given == [99, 98, 98]


SLOW_MS = 500.0  # some two hundred steps


def test_a_sampler_is_judged_by_its_own_times(play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(pl.utilities.rank_zero, "rank_zero_info", told.append)
    running = play(step_s=0.01)
    running.offer()
    running.step()
    assert not told  # nothing is promised before anything is known
    running.try_out(train_ms=3.0)
    running.try_out(train_ms=3.0)
    (line,) = told
    assert re.match(
        r"FactoredStrategy: sampler 0 trains .*: profit \+\d+ ms = \d+ mini-batches left .* - 3.0 ms\.$", line
    )
    running.ledger.step = NUM_STEPS - 5
    running.step()
    assert len(told) == 1  # that the epoch ends is no other verdict


def test_one_too_slow_for_the_bound_is_told_of_and_tried_once_an_epoch(play: Callable[..., Play]) -> None:
    running = play()
    running.offer()
    running.step()
    running.say("begun", stream=7, slice=99, version=running.version)
    says = r"sampler 0 stays idle: it takes 500.0 ms to train .* at most 1 may be\. FactoredStrategy\(switching=\d+\)"
    with pytest.warns(UserWarning, match=says):
        running.try_out(SLOW_MS, lag=2)
    assert running.given == [99, 98, 99]
    running.step()
    assert running.queue.num_waits == 0
    for stream in (8, 9):
        running.ledger.open(stream=stream, epoch=1, start=0, stop=NUM_STEPS)
        running.step()
        running.step()
    assert running.given == [99, 98, 99, 99, 99]


def test_a_verdict_that_changes_to_and_fro_is_told_once(
    play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for how in ("rank_zero_info", "rank_zero_warn"):
        monkeypatch.setattr(pl.utilities.rank_zero, how, told.append)
    running = play()
    running.offer()
    running.step()
    (member,) = running.slice_scheduler._contributors.members
    worth = CostModel(num_left=40, step_ms=20.0, num_trainers=2, needed_ms=48.0, train_ms=24.0, late_ms=-12.0, bound=1)
    for profit in 3 * [worth, replace(worth, late_ms=50.0)]:
        running.slice_scheduler._report(member, profit)
        assert member.verdict == profit.verdict
    assert len(told) == 2


def test_one_that_is_slow_gets_on_within_the_bound_that_it_needs(play: Callable[..., Play]) -> None:
    running = play(bound=1000)
    running.offer()
    running.step()
    running.try_out(train_ms=10.0, times=5)  # some five steps
    assert running.slice_scheduler.stats.merged == 5
    assert running.given == [99, 98, 97, 96, 95, 94, 93]


def test_one_whose_gradients_come_too_late_whatever_it_says_is_left_alone(play: Callable[..., Play]) -> None:
    running = play(step_s=0.01)
    running.offer()
    running.step()
    with pytest.warns(UserWarning, match=r"newest gradients won .* too few came in time\. .*switching=2\)"):
        running.try_out(train_ms=3.0, lag=2, times=5)  # three trials, of which the last counts, and two more
    num_given = len(running.given)
    running.try_out(train_ms=3.0, lag=2, times=1)
    assert len(running.given) == num_given == 6


def test_gradients_are_added_up_and_weigh_one_each(play: Callable[..., Play]) -> None:
    running = play()
    first, second = running.offer(0), running.offer(1)
    running.step()
    assert sorted(running.given) == [96, 97, 98, 99]
    of = {message["to"]: message["slice"] for message in running.queue.sent["task"]}
    for index, exchange in enumerate((first, second)):
        for view in exchange.gradients[0].values():
            view.fill_(index + 1)
        running.gradient(of[index], running.version, index)
    contributions = SamplerGradients(running.ledger, running.module, rank=0, slice_scheduler=running.slice_scheduler)
    running.slice_scheduler.before_backward()
    taken = contributions.take()
    assert taken.extra is not None
    assert all(gradient.eq(3).all() for gradient in taken.extra.values())
    assert list(taken.extra) == list(running.module.parameters())
    assert (taken.weight, taken.counts_own) == (3.0, True)
    assert sorted(contributions.announce()) == sorted(of.values())


def test_of_a_step_contributed_in_part_the_slice_counts_once(play: Callable[..., Play]) -> None:
    running = play()
    of_both = [
        SamplerGradients(
            running.ledger, running.module, rank=rank, slice_scheduler=running.slice_scheduler if rank == 0 else None
        )
        for rank in range(2)
    ]
    for contributions in of_both:
        contributions.announced(0, [running.ledger.step * NUM_RANKS + 1])
    running.slice_scheduler.before_backward()
    assert [(taken.weight, taken.counts_own) for taken in (each.take() for each in of_both)] == [
        (1.0, True),
        (0.0, False),
    ]


def test_a_lost_sampler_leaves_its_slices_to_others_but_not_the_gradient_that_came(play: Callable[..., Play]) -> None:
    running = play()
    running.offer(0)
    running.step()
    running.gradient(99, running.version)
    running.slice_scheduler.before_backward()
    assert running.slice_scheduler.merging == [99]
    for lost in running.queue.lost:
        lost(0)
    assert [list(tensors) for tensors in running.slice_scheduler.gradients()] == [["weight", "bias"]]
    running.slice_scheduler.after_update()
    running.offer(1)
    running.ledger.step += 1
    running.step()
    assert running.given == [99, 98, 98, 97]


def test_what_comes_when_the_trainers_have_come_to_its_step_is_dropped(play: Callable[..., Play]) -> None:
    running = play()
    running.offer()
    running.step()
    running.ledger.step = NUM_STEPS - 1
    running.gradient(99, running.version)
    assert running.step() == []
    assert running.slice_scheduler.stats.refused == 1


def test_what_comes_after_its_epoch_is_dropped(play: Callable[..., Play]) -> None:
    running = play()
    running.offer()
    running.step()
    running.ledger.open(stream=8, epoch=1, start=0, stop=NUM_STEPS)
    running.gradient(99, running.version)
    assert running.step() == []
    running.gradient(98, running.version, copy=1, stream=7)
    assert running.step() == []
    assert len(running.queue.sent["settled"]) == running.slice_scheduler.stats.refused == 2


def test_it_waits_for_what_could_join_no_later_step_and_not_for_long(play: Callable[..., Play]) -> None:
    running = play(step_s=0.02)
    running.offer()
    running.step()
    running.say("begun", stream=7, slice=99, version=running.version - 1)
    running.step()
    assert running.queue.num_waits == 0  # nobody knows yet whether it is worth it
    running.try_out(train_ms=1.0)
    running.say("begun", stream=7, slice=96, version=running.version)
    running.step()
    assert running.queue.num_waits == 0  # it may come one update later
    running.queue.on_wait = lambda: running.gradient(96, running.version - 1, train_ms=1.0)
    assert running.step() == [96]
    assert running.queue.num_waits == 1
    running.say("begun", stream=7, slice=95, version=running.version - 1)
    running.queue.on_wait = lambda: time.sleep(0.002)
    assert running.step() == []  # it never comes: at most half a step is waited for it
    assert running.slice_scheduler.stats.awaited_ms > 0


def test_a_sampler_that_is_stopped_is_neither_awaited_for_long_nor_written_to(play: Callable[..., Play]) -> None:
    running = play()
    running.offer()
    running.step()
    running.try_out(train_ms=1e-3)
    running.say("begun", stream=7, slice=96, version=running.version)
    running.queue.on_wait = lambda: time.sleep(0.002)
    running.step()
    num_sent = len(running.queue.sent["parameters"])
    for _ in range(30):
        running.step()
    assert running.queue.num_waits <= 2  # in the one step in which the gradient was due
    assert len(running.queue.sent["parameters"]) == num_sent + MAX_UNANSWERED - 1
    running.say("offer", room=0)  # it goes on
    running.step()
    assert running.queue.sent["parameters"][-1]["version"] == running.version


@pytest.mark.parametrize("wrong", [{"version": 99}, {"copy": 2}, {"copy": -1}])
def test_what_cannot_be_a_gradient_is_no_message_of_ours(play: Callable[..., Play], wrong: dict[str, int]) -> None:
    running = play()
    running.offer()
    running.step()
    running.gradient(**{"number": 99, "version": 0, **wrong})
    with pytest.raises(QueueProtocolError, match="no gradient of ours"):
        running.step()


def test_another_model_is_not_trained(play: Callable[..., Play]) -> None:
    running = play()
    exchange = ParameterExchange(nn.Linear(3, 1))
    running.exchanges.append(exchange)
    running.say("standby", 0, (os.dup(exchange.slot.fd),), digest=exchange.digest)
    running.say("offer", 0, room=2)
    with pytest.warns(UserWarning, match=r"model of sampler 0 has other parameters.*on every rank"):
        running.step()
    assert running.given == []


def test_a_sampler_that_withdraws_says_why(play: Callable[..., Play]) -> None:
    running = play()
    running.offer()
    running.step()
    running.say("withdrawn", text="Traceback: no process group")
    with pytest.warns(UserWarning, match=r"failed on sampler 0(?s:.*)collectives(?s:.*)no process group"):
        running.step()
    running.say("offer", 0, room=2)
    running.step()
    assert running.given == [99, 98]
