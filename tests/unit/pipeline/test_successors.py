"""Who answers in a lost sampler's place: another process of its rank, one that comes late, or nobody after all."""

import logging
import os
import threading
import time
import uuid

import pytest

from lightning_gnnload.pipeline.queue import wire
from lightning_gnnload.pipeline.queue.sealed import seal, unseal
from tests.unit.pipeline.job import lone_service, settles
from tests.unit.pipeline.queue.test_service import SPEC, connected
from tests.unit.pipeline.test_takeover import sequential


def test_a_call_that_the_dying_sampler_still_took_is_no_second_loss(caplog: pytest.LogCaptureFixture) -> None:
    """The kernel closes a killed process' sockets one after the other: here the one that listens comes last."""
    name = uuid.uuid4().hex[:16]
    listener = wire.listen_to_trainers(name, 0)
    lost: list[int] = []

    def die() -> None:
        channel = listener.accept()
        channel.receive()
        channel.send("welcome", version=wire.PROTOCOL_VERSION, rank=7, pid=os.getpid())
        channel.close()

    thread = threading.Thread(target=die)
    thread.start()
    with caplog.at_level(logging.DEBUG):
        queue = connected(name, takeover=True, first_sampler_rank=7)
        queue.lost.append(lost.append)
        thread.join()
        assert queue.take(queue.open(SPEC), 0) is None
        assert not queue.gone  # somebody took the call
        listener.close()
        settles(lambda: queue.pump(0.1) or queue.gone, [7])
        queue.goodbye()
    assert caplog.text.count("The trainers sample themselves from here on") == 1
    assert lost == [0]


def test_a_late_sampler_answers_the_one_call_that_it_has() -> None:
    """It listened before it was stopped. Of two calls it would refuse one, and take the other's end for a death."""
    name = uuid.uuid4().hex[:16]
    listener = wire.listen_to_trainers(name, 0)
    queue = connected(name, takeover=True, first_sampler_rank=7, connect_timeout_s=0.1)
    assert not queue.alive
    channel = listener.accept()
    channel.receive()
    channel.send("welcome", version=wire.PROTOCOL_VERSION, rank=7, pid=os.getpid())
    assert settles(lambda: queue.pump(0.1) or queue.alive, [0])
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    queue.goodbye()
    channel.close()
    listener.close()


def test_a_sampler_that_gets_on_is_waited_for_however_slow_it_is() -> None:
    """As where twenty processes import torch on two cores: connect_timeout_s is for those that do nothing."""
    name = uuid.uuid4().hex[:16]
    listeners = []
    late = threading.Timer(1.0, lambda: listeners.append(wire.listen_to_trainers(name, 0)))
    asked: list[int] = []

    def is_busy(sampler: int) -> bool:
        asked.append(sampler)
        return True

    def answer() -> None:
        settles(lambda: len(listeners), 1)
        channels.append(listeners[0].accept())
        channels[0].receive()
        channels[0].send("welcome", version=wire.PROTOCOL_VERSION, rank=7, pid=os.getpid())

    channels: list[wire.QueueChannel] = []
    answering = threading.Thread(target=answer)
    late.start()
    answering.start()
    queue = connected(name, first_sampler_rank=7, connect_timeout_s=0.2, is_busy=is_busy)
    assert queue.alive == [0]
    assert set(asked) == {0}
    answering.join()
    queue.goodbye()
    channels[0].close()
    listeners[0].close()


def test_another_process_answers_at_the_socket_of_a_lost_one() -> None:
    """A rank whose sampling process was killed, and which then samples itself."""
    source = sequential()
    name = uuid.uuid4().hex[:16]
    # Its time to connect is not for who comes back.
    service = lone_service(name, rank=2, num_trainers=2, open_source=lambda spec: source, connect_timeout_s=0.1)

    def first_life(before: int) -> None:
        channels = []
        for _ in range(2):
            channels.append(service._listener.accept())
            channels[-1].receive()
            channels[-1].send("welcome", version=wire.PROTOCOL_VERSION, rank=2, pid=os.getpid())
        settles(lambda: before, before)
        for channel in channels:
            channel.close()

    thread = threading.Thread(target=first_life, args=(0,))
    thread.start()
    settings = {"takeover": True, "num_trainers": 2, "first_sampler_rank": 2}
    queues = [connected(name, trainer=rank, rank=rank, **settings) for rank in range(2)]
    thread.join()
    assert queues[0].take(queues[0].open(SPEC), 0) is None  # its loss is noticed, and nobody else is there
    queues[1].goodbye()  # parts from the first life, never to come back
    ends = []
    thread = threading.Thread(target=lambda: ends.append(service.serve(is_successor=True)))
    thread.start()
    while not queues[0].alive:
        queues[0].pump(1)
    number = queues[0].open(SPEC)
    for step in range(3):
        batch, _ = queues[0].take(number, step)
        assert batch.step == step
        del batch
    queues[0].goodbye(outcome=seal({"metrics": {}}))
    thread.join(10)
    assert unseal(ends[0]) == {"metrics": {}}


def test_a_sampler_that_comes_too_late_for_one_trainer_serves_the_others_and_then_that_one() -> None:
    source = sequential()
    name = uuid.uuid4().hex[:16]
    settings = {"takeover": True, "num_trainers": 2, "first_sampler_rank": 2}
    early = connected(name, trainer=0, rank=0, connect_timeout_s=0.05, **settings)
    assert early.gone == [2]
    service = lone_service(name, rank=2, num_trainers=2, open_source=lambda spec: source, connect_timeout_s=0.3)
    ends = []
    thread = threading.Thread(target=lambda: ends.append(service.serve()))
    thread.start()
    late = connected(name, trainer=1, rank=1, **settings)
    time.sleep(0.8)  # past the limit
    assert late.take(late.open(SPEC), 0) is not None
    early.open(SPEC)
    while not early.alive:
        early.pump(1)
    assert early.take(early.open(SPEC), 0) is not None
    late.goodbye()
    early.goodbye()
    thread.join(10)
    assert ends == [None]


def test_a_successor_whom_nobody_needs_ends() -> None:
    service = lone_service()
    assert service.serve(is_successor=True) is None
