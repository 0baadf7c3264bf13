"""A sampler that trains while it is idle, against a trainer that the test plays."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from lightning_gnnload import Dropout, set_step
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.plugin.gradients.contributors import ParameterExchange, state_of
from lightning_gnnload.plugin.gradients.standby import Standby
from tests.unit.toy import content, toy_source

TIMEOUT_S = 20.0
NUM_STEPS = 13  # of 100 seeds, 8 a step


class Pupil:
    """In the place of a ModelReplica: its gradients tell which parameters it had, and how many seeds."""

    def __init__(self, seconds: float = 0.0, dropout: nn.Module | None = None) -> None:
        self.module: Any = nn.Linear(1, 2)
        self.module.dropout = dropout or nn.Dropout()
        self.seconds = seconds
        self.trained: list[Any] = []
        self.masks: list[torch.Tensor] = []
        self.dismissed = threading.Event()

    def train(self, batch: Any, step: int, *, global_step: int, seed: int) -> dict[str, torch.Tensor | None]:
        if step == 2:
            raise ValueError("nobody can train step 2")
        time.sleep(self.seconds)
        self.masks.append(self.module.dropout(torch.ones(256)))
        self.trained.append((content(batch), step, global_step, seed))
        return {"weight": self.module.weight.detach() + batch.num_seeds, "bias": None}

    def restore(self) -> None:
        self.dismissed.set()


class Play:
    """One sampler in a thread, and this trainer, which has opened a training stream."""

    def __init__(self, pupil: Pupil) -> None:
        self.pupil, self.source = pupil, toy_source(batch_size=8)
        self.heard: list[dict[str, Any]] = []
        self.exchange: ParameterExchange | None = None
        self.module = nn.Linear(1, 2)
        loader = SampledLoader(self.source)
        name = uuid.uuid4().hex[:16]
        service = SamplerService(
            name,
            sampler=0,
            rank=1,
            num_trainers=1,
            world_size=1,
            num_threads=1,
            open_source=lambda spec: self.source,
            connect_timeout_s=TIMEOUT_S,
        )
        Standby(service, lambda: pupil, lambda spec: loader)  # type: ignore[arg-type, return-value]
        self.thread = threading.Thread(target=service.serve)
        self.thread.start()
        timeouts = {"connect_timeout_s": TIMEOUT_S, "stall_timeout_s": TIMEOUT_S}
        self.queue = BatchQueue(name, trainer=0, rank=0, num_samplers=1, queue_depth=2, **timeouts)
        self.queue.handlers |= dict.fromkeys(("standby", "offer", "begun", "gradient", "withdrawn"), self.hear)
        self.stream = self.queue.open(StreamSpec("train", 0, 0, 4, 0, NUM_STEPS))

    def hear(self, index: int, message: dict[str, Any], fds: list[int]) -> None:
        self.heard.append(message)
        if fds:
            self.exchange = ParameterExchange(self.module, fds[0])

    def until(self, kind: str, times: int = 1) -> dict[str, Any]:
        """The message that comes for the so-manyeth time, within the time limit."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(found := [message for message in self.heard if message["kind"] == kind]) < times:
            assert time.monotonic() < deadline, f"no {kind} came, only {self.heard}"
            self.queue.pump(0.1)
        return found[times - 1]

    def task(self, number: int) -> None:
        self.queue.send(0, "task", stream=self.stream, slice=number)

    def publish(self, version: int, due_ms: float = 1e6) -> None:
        assert self.exchange is not None
        with torch.no_grad():
            for tensor in state_of(self.module).values():
                tensor.fill_(version)
        copy = self.exchange.publish(state_of(self.module))
        due = {"due_ms": due_ms, "fresh_due_ms": 1e6}
        self.queue.send(0, "parameters", copy=copy, version=version, global_step=10 * version, **due)

    def note_what_is_made(self) -> list[int]:
        """The steps of mini-batches whose making has begun; each takes a while."""
        made, make = [], self.source.make

        def slowly(request: BatchRequest, slot: Slot) -> Payload:
            made.append(request.step)
            time.sleep(0.05)
            return make(request, slot)

        self.source.make = slowly  # type: ignore[method-assign]
        return made

    def close(self) -> None:
        self.queue.goodbye()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()
        if self.exchange is not None:
            self.exchange.close()


@pytest.fixture
def play() -> Iterator[Callable[..., Play]]:
    started: list[Play] = []

    def start(pupil: Pupil | None = None) -> Play:
        started.append(Play(pupil or Pupil()))
        started[-1].until("offer")
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_it_trains_the_mini_batch_that_it_is_asked_for_with_the_newest_parameters(play: Callable[..., Play]) -> None:
    running = play(Pupil(dropout=Dropout()))
    assert running.until("offer")["room"] == 2
    running.task(12)
    running.task(9)
    running.publish(3)
    for times, (number, num_seeds) in enumerate([(12, 4), (9, 8)], 1):
        begun, gradient = running.until("begun", times), running.until("gradient", times)
        assert (begun["slice"], begun["version"], gradient["slice"], gradient["version"]) == (number, 3, number, 3)
        assert running.exchange is not None
        tensors = running.exchange.gradients[gradient["copy"]]
        assert tensors["weight"].unique().tolist() == [3 + num_seeds]
        assert tensors["bias"].unique().tolist() == [0]  # it had no gradient
    wanted = SampledLoader(running.source)
    wanted.set_epoch(4)
    batches = [content(batch) for batch in wanted]
    assert [trained[:3] for trained in running.pupil.trained] == [(batches[12], 12, 30), (batches[9], 9, 30)]
    trainers = Dropout()
    for step, mask in zip((12, 9), running.pupil.masks, strict=True):
        set_step(trainers, epoch=4, step=step, seed=3, rank=0)  # as in the trainer whose mini-batch it is
        assert torch.equal(trainers(torch.ones(256)), mask)


def test_it_asks_for_as_much_as_it_gets_through_and_waits_for_memory(play: Callable[..., Play]) -> None:
    running = play()
    for number in (12, 11):
        running.task(number)
    running.publish(1)
    running.until("gradient", 2)
    assert sum(message["room"] for message in running.heard if message["kind"] == "offer") >= 3
    running.task(10)
    running.queue.pump(0.3)
    assert len([message for message in running.heard if message["kind"] == "begun"]) == 2  # both copies are trainer 0's
    first = running.until("gradient")["copy"]
    running.queue.send(0, "settled", copy=first)
    assert running.until("gradient", 3)["copy"] == first


def test_it_begins_when_there_is_time_enough(play: Callable[..., Play]) -> None:
    running = play(Pupil(seconds=0.05))
    running.task(12)
    running.publish(1)
    running.until("gradient")
    running.publish(2, due_ms=20.0)  # less than it needs
    running.task(11)
    for _ in range(3):
        running.queue.pump(0.1)
    assert len([message for message in running.heard if message["kind"] == "begun"]) == 1
    running.publish(3)
    assert running.until("begun", 2)["version"] == 3


def test_a_stream_that_ends_takes_its_tasks_with_it(play: Callable[..., Play]) -> None:
    running = play()
    running.task(12)  # which waits for parameters
    running.queue.close_stream(running.stream)
    running.stream = running.queue.open(StreamSpec("train", 0, 0, 5, 0, NUM_STEPS))
    running.until("offer", 2)
    running.task(11)
    running.publish(1)
    assert running.until("gradient")["slice"] == 11


def test_sampling_comes_first(play: Callable[..., Play]) -> None:
    """Both of the stream's slots are full, and come back right before the task: they are filled first."""
    running = play()
    running.publish(1)
    made = running.note_what_is_made()
    for step in (0, 1):
        assert running.queue.take(running.stream, step) is not None
    running.queue.pump(0)
    running.task(12)
    running.until("gradient")
    assert made == [2, 3, 12]


def test_a_failure_ends_the_training_there_but_not_the_sampling(play: Callable[..., Play]) -> None:
    running = play()
    running.task(2)
    running.publish(1)
    assert "ValueError: nobody can train step 2" in running.until("withdrawn")["text"]
    assert running.queue.take(running.stream, 0) is not None
    assert running.pupil.dismissed.wait(TIMEOUT_S)  # the script has its module back
    running.queue.close_stream(running.stream)
