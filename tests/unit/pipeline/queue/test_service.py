import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lightning_gnnload import NeighborSampler
from lightning_gnnload.errors import (
    QueueProtocolError,
    QueueStalledError,
    SamplerDiedError,
    SamplerFailedError,
    ThreadLimitError,
    TrainerDiedError,
    TrainerFailedError,
)
from lightning_gnnload.host import flags, processes, sockets
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.pipeline.queue import setup_watch, wire
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.pipeline.queue.sealed import seal, unseal
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from tests.guards import our_threads
from tests.threadless import refused
from tests.unit.pipeline.job import job, lone_service
from tests.unit.toy import content, toy_source

SPEC = StreamSpec("train", loader=0, reload=0, epoch=0, start=0, stop=3)


@pytest.fixture(autouse=True)
def _kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer ends a sampler that does not answer its last words: here it would be this process."""
    monkeypatch.setattr(processes, "send_signal", lambda *_: pytest.fail("a sampler did not part in time"))


class Failing(NeighborSampler):
    def draw(self, graph, draw, memory):
        if draw.key.step == 5:
            raise ValueError("no such luck")
        return super().draw(graph, draw, memory)


# A sampler that fails.


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_failure_to_sample_reaches_every_trainer(num_threads: int) -> None:
    source = toy_source(sampler=Failing([2]), batch_size=4)
    with job(source, num_samplers=2, num_trainers=2, num_threads=num_threads) as running:
        queues = [running.queue(rank) for rank in range(2)]
        failing, other = (running.loader(queue, rank=rank) for rank, queue in enumerate(queues))
        # The samplers' ranks follow the trainers'.
        where = r"sampler rank [23] failed in stage 'sample \(train, epoch 0, step 5\)'(.|\n)*ValueError: no such luck"
        with pytest.raises(SamplerFailedError, match=where) as caught:
            list(failing)
        rank = caught.value.failure.rank
        assert caught.value.failure.role == "sampler"
        with pytest.raises(SamplerFailedError, match="no such luck"):
            list(other)
        running.part()
        running.join()
        assert isinstance(running.ends[rank - 2], ValueError)  # its own process ends with what it raised


@pytest.mark.parametrize("name", ["gnnload-open", "gnnload-sample_1", "gnnload-sample_2"])
def test_a_sampler_that_gets_too_few_threads_is_replaced(name: str) -> None:
    source = toy_source(batch_size=4)
    with refused(0, name, times=1), job(source, num_samplers=2, num_threads=3, takeover=True) as running:
        assert [content(batch) for batch in running.loader(running.queue())] == running.wanted()
        running.part()
        running.join()
    assert list(running.ends.values()) == [None] * 2


@pytest.mark.parametrize("name", ["gnnload-read", "gnnload-open", "gnnload-sample_1"])
def test_a_sampler_that_gets_too_few_threads_and_is_alone_ends_the_job(name: str) -> None:
    with refused(0, name, times=1), job(num_threads=2, connect_timeout_s=0.5) as running:
        running.join()
        assert isinstance(running.ends[0], ThreadLimitError)
    assert our_threads() == []


def test_a_source_that_cannot_be_opened() -> None:
    def open_source(spec: StreamSpec):
        raise FileNotFoundError(f"no data for {spec.phase}")

    with job(open_source=open_source) as running:
        loader = running.loader(running.queue())
        with pytest.raises(SamplerFailedError, match=r"rank 1 failed in stage 'setup'(.|\n)*no data for train"):
            next(iter(loader))


def test_opening_may_take_longer_than_a_stall() -> None:
    # Pre-sampling may take minutes. A sampler that said nothing meanwhile would be given up, and with takeover killed.
    def open_source(spec: StreamSpec):
        time.sleep(3)
        return running.sources[spec.phase]

    with job(open_source=open_source, takeover=True) as running:
        loader = running.loader(running.queue(stall_timeout_s=2))
        first = next(iter(loader))
        assert content(first) == running.wanted()[0]
        assert {loader.last.made_by} == {1}


def test_opening_waits_for_no_trainer_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that computes for minutes: a connection holds some 280 signs of life.
    monkeypatch.setattr(setup_watch, "_HEARTBEAT_S", 5e-4)

    def open_source(spec: StreamSpec):
        time.sleep(1.5)
        return running.sources[spec.phase]

    with job(open_source=open_source, num_trainers=2) as running:
        running.queue(1)
        loader = running.loader(running.queue(stall_timeout_s=4))
        assert content(next(iter(loader))) == running.wanted()[0]


def test_every_sampler_opens_a_stream_though_it_makes_nothing_of_it() -> None:
    # Samplers that share a cache wait for each other: of one step, the second sampler is asked for nothing.
    everybody = threading.Barrier(2)

    def open_source(spec: StreamSpec):
        everybody.wait(5)
        return running.sources[spec.phase]

    with job(open_source=open_source, num_samplers=2) as running:
        loader = running.loader(running.queue(), limit=1)
        assert [content(batch) for batch in loader] == running.wanted()[:1]


# Trainers that fail, die or never come.


def test_a_trainers_failure_reaches_the_others() -> None:
    with job(num_trainers=2, num_samplers=2) as running:
        failing, other = running.queue(0), running.queue(1)
        reading = iter(running.loader(other, rank=1))
        next(reading)
        failing.goodbye(failure=Failure("trainer", 0, False, "training", "ValueError: loss is nan"))
        running.queues.remove(failing)
        with pytest.raises(TrainerFailedError, match=r"trainer rank 0 failed in stage 'training'(.|\n)*loss is nan"):
            list(reading)
        running.part()
        running.join()
        assert [type(end) for end in running.ends.values()] == [TrainerFailedError] * 2


def test_a_trainer_that_vanishes_is_noticed() -> None:
    with job(num_trainers=2) as running:
        dying, other = running.queue(0), running.queue(1)
        iter(running.loader(dying))
        dying._pool.peers[0].channel.close()
        running.queues.remove(dying)
        error = other.failure_behind(timeout_s=5)
        assert isinstance(error, TrainerDiedError)
        assert "trainer rank 0 is gone without a word" in str(error)


def test_nobody_knows_of_a_failure() -> None:
    with job() as running:
        assert running.queue().failure_behind(timeout_s=0.2) is None


def test_a_sampler_that_comes_too_late_ends_with_the_trainers() -> None:
    # They gave it up, as it was stopped before it connected: their flags are all that it sees of them.
    with job(connect_timeout_s=60) as running:
        trainer = Flag(flags.trainer_alive(running.name, 0))
        time.sleep(1)
        assert not running.ends
        trainer.lower()
        running.join()
        assert running.ends == {0: None}


def test_trainers_that_never_come() -> None:
    with job(num_trainers=2, connect_timeout_s=0.1) as running:
        queue = running.queue(0)
        error = queue.failure_behind(timeout_s=5)
        assert isinstance(error, TrainerDiedError)
        assert "1 of 2 trainers did not connect in time" in str(error)


def test_a_trainer_that_is_busy_starting_is_waited_for_longer() -> None:
    service = lone_service(connect_timeout_s=0.1, setup_timeout_s=0.4, is_busy=lambda trainer: trainer == 0)
    with pytest.raises(TrainerDiedError, match=r"it was busy, but did not come within 0\.4 s"):
        service.serve()


def test_the_first_trainers_outcome_is_returned() -> None:
    outcome = {"metrics": {"loss": 0.5}, "epoch": 3}
    with job(num_trainers=2, num_samplers=2) as running:
        queues = [running.queue(rank) for rank in range(2)]
        sealed = seal(outcome)
        parting = [
            threading.Thread(target=queue.goodbye, args=(given,))
            for queue, given in zip(queues, (sealed, None), strict=True)
        ]
        for thread in parting:
            thread.start()
        for thread in parting:
            thread.join()
        running.queues = []
        running.join()
        assert [unseal(told) for told in running.ends.values()] == [outcome] * 2
        assert sealed.fd == -1  # the trainer needs no descriptor any more


@pytest.mark.parametrize("num_bytes", [1, 999, -1])
def test_an_outcome_that_is_none_ends_a_sampler(num_bytes: int) -> None:
    """Of another size than said, or with no descriptor at all."""
    with job() as running:
        queue = running.queue()
        sealed = seal({})
        queue.send(0, "bye", (sealed.fd,) if num_bytes > 1 else (), num_bytes=num_bytes)
        running.join()
        assert isinstance(running.ends[0], QueueProtocolError)
        assert "malformed value" in str(running.ends[0])


def test_parting_in_mid_stream() -> None:
    with job(queue_depth=4, num_threads=3) as running:
        queue = running.queue()
        reading = iter(running.loader(queue))
        held = next(reading)
        wanted = content(held)
        running.part()
        running.join()
        assert running.ends == {0: None}
        assert content(held) == wanted


# Strangers, and trainers that talk nonsense.


def raw_connection(name: str, sampler: int = 0) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    raw.connect(sockets.address(wire._name(name, sampler)))
    return raw


@pytest.mark.parametrize("leaves", [True, False])
def test_a_stranger_who_says_nothing_does_no_harm(leaves: bool) -> None:
    with job() as running:
        stranger = raw_connection(running.name)
        if leaves:
            stranger.close()
        assert [content(batch) for batch in running.loader(running.queue())] == running.wanted()
        running.part()
        running.join()
        assert running.ends == {0: None}
        stranger.close()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1", b"{}", b'{"kind":"free","slot":0}'])
def test_a_process_of_this_user_that_talks_nonsense_is_turned_away(garbage: bytes) -> None:
    with job() as running:
        stranger = raw_connection(running.name)
        stranger.send(garbage)
        assert stranger.recv(1) == b""  # cut off
        stranger.close()
        assert [content(batch) for batch in running.loader(running.queue())] == running.wanted()
        running.part()
        running.join()
        assert running.ends == {0: None}


def test_a_trainer_of_another_release_ends_the_job_loudly() -> None:
    with job(num_trainers=2) as running:
        queue = running.queue()
        foreigner = raw_connection(running.name)
        foreigner.send(b'{"kind":"hello","version":99,"trainer":1,"rank":1,"device":""}')
        error = queue.failure_behind(timeout_s=5)
        assert isinstance(error, SamplerFailedError)
        assert "install one release" in str(error)
        foreigner.close()
        running.part()
        running.join()
        assert isinstance(running.ends[0], QueueProtocolError)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("deal", {"slots": [99], "stream": -1, "steps": []}, "freed slot 99, of 0"),
        ("deal", {"slots": [-1], "stream": -1, "steps": []}, "freed slot -1"),
        ("deal", {"slots": [None], "stream": -1, "steps": []}, "freed slot None"),
        ("welcome", {"version": 2, "rank": 0, "pid": 1}, "'welcome'"),
        (
            "batch",
            {
                "stream": 0,
                "step": 0,
                "slot": 0,
                "slot_bytes": 0,
                "num_bytes": 0,
                "pieces": [],
                "memory_handle": {},
                "payload": {},
            },
            "which it must not",
        ),
        ("deal", {"slots": [], "stream": 7, "steps": [0]}, "which it must not"),
    ],
)
def test_a_trainer_that_sends_what_it_must_not(kind: str, fields: dict[str, Any], message: str) -> None:
    with job() as running:
        queue = running.queue()
        queue._pool.peers[0].channel.send(kind, **fields)
        error = queue.failure_behind(timeout_s=5)
        assert isinstance(error, SamplerFailedError)
        assert message in str(error)
        running.part()
        running.join()
        assert isinstance(running.ends[0], QueueProtocolError)


def test_a_slot_freed_twice_is_noticed() -> None:
    # Unnoticed, two batches would be written to it at once.
    with job(queue_depth=1) as running:
        queue = running.queue()
        next(iter(running.loader(queue)))
        for _ in range(3):
            queue._pool.peers[0].channel.send("deal", slots=[0], stream=-1, steps=[])
        error = queue.failure_behind(timeout_s=5)
        assert error is not None
        assert "freed twice" in str(error)


def test_a_malformed_message_of_a_trainer_ends_the_job() -> None:
    with job() as running:
        queue = running.queue()
        queue._pool.peers[0].channel._socket.send(b"}{")
        error = queue.failure_behind(timeout_s=5)
        assert "malformed message" in str(error)


# A trainer, and a sampler that the test plays.


@contextlib.contextmanager
def played_sampler(
    *messages: tuple[str, dict[str, Any]] | bytes, welcome: dict[str, Any] | None = None
) -> Iterator[str]:
    """Says welcome, then ``messages``, then nothing; yields the job's name."""
    name = uuid.uuid4().hex[:16]
    listener = wire.listen_to_trainers(name, 0)

    def play() -> None:
        channel = listener.accept()
        channel.receive()
        channel.send("welcome", **{"version": wire.PROTOCOL_VERSION, "rank": 7, "pid": os.getpid(), **(welcome or {})})
        with contextlib.suppress(OSError, EOFError):
            for message in messages:
                if message == b"":
                    break
                if isinstance(message, bytes):
                    channel._socket.send(message)
                else:
                    channel.send(message[0], **message[1])
            else:
                while True:  # deaf until the trainer parts
                    channel.receive()
        channel.close()

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield name
    finally:
        thread.join()
        listener.close()


def connected(name: str, stall_timeout_s: float = 5.0, **settings: Any) -> BatchQueue:
    settings = {"trainer": 0, "rank": 0, "num_samplers": 1, "connect_timeout_s": 5.0, "takeover": False} | settings
    return BatchQueue(name, queue_depth=2, stall_timeout_s=stall_timeout_s, **settings)


BATCH = {
    "stream": 0,
    "step": 0,
    "slot": 0,
    "slot_bytes": 4096,
    "num_bytes": 4096,
    "pieces": [],
    "memory_handle": {},
    "payload": {},
}
FAILED = {"role": "sampler", "rank": 7, "died": False, "stage": "sample", "text": "out of luck", "is_final": False}


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (b"", SamplerDiedError, "sampler rank 7 is gone without a word"),
        (b"[]", QueueProtocolError, "malformed message"),
        (("batch", BATCH), QueueProtocolError, "rank 7 named slot 0, whose memory it never sent"),
        (("close", {"stream": 1}), QueueProtocolError, "rank 7 sent 'close' in mid-stream"),
        (
            (
                "failed",
                {
                    "role": "sampler",
                    "rank": 7,
                    "died": False,
                    "stage": "sample",
                    "text": "out of luck",
                    "is_final": True,
                },
            ),
            SamplerFailedError,
            "sampler rank 7 failed in stage 'sample'.\nout of luck",
        ),
    ],
)
def test_what_a_broken_sampler_does_to_a_trainer(message, error: type[Exception], text: str) -> None:
    with played_sampler(message) as name:
        queue = connected(name)
        with pytest.raises(error) as caught:
            queue.take(queue.open(SPEC), 0)
        assert text in str(caught.value)
        queue.goodbye()


def test_a_final_failure_ends_the_job_where_others_would_take_over() -> None:
    with played_sampler(("failed", {**FAILED, "is_final": True})) as name:
        queue = connected(name, takeover=True)
        with pytest.raises(SamplerFailedError, match="out of luck"):
            queue.take(queue.open(SPEC), 0)
        queue.goodbye()


def test_a_sampler_that_stops_is_waited_for_so_long() -> None:
    with played_sampler() as name:
        queue = connected(name, stall_timeout_s=0.3)
        with pytest.raises(QueueStalledError, match=r"rank 7.*step 2.*stall_timeout_s"):
            queue.take(queue.open(SPEC), 2)
        queue.goodbye()


def test_a_sampler_that_does_not_open_is_waited_for_so_long_though_it_owes_no_step() -> None:
    # Another one may wait for it to fill a cache together: whoever makes the step cannot make it before.
    with played_sampler() as name:
        queue = connected(name, stall_timeout_s=0.3)
        number = queue.open(replace(SPEC, stop=0))
        with pytest.raises(QueueStalledError, match=r"rank 7.*opening.*stall_timeout_s"):
            queue.take(number, 0)
        queue.goodbye()


def test_who_has_opened_and_owes_nothing_may_be_silent() -> None:
    with played_sampler(("opened", {"stream": 0, "threads": 1})) as name:
        queue = connected(name)
        number, (peer,) = queue.open(replace(SPEC, stop=0)), queue._pool.peers
        while not queue._streams[number].workers[peer].has_opened:
            queue.pump(1)
        peer.heard_at -= 60
        queue.pump(0)
        assert queue.alive == [0]
        queue.goodbye()


def test_a_sampler_that_owes_a_step_is_missed_though_nobody_waits_for_that() -> None:
    # Others may have made it: one that hangs would never be told of.
    with played_sampler(("opened", {"stream": 0, "threads": 1})) as name:
        queue = connected(name, stall_timeout_s=0.3)
        queue.open(SPEC)
        queue.pump(0.1)
        queue._pool.peers[0].heard_at -= 1
        with pytest.raises(QueueStalledError, match=r"rank 7.*step 0.*stall_timeout_s"):
            queue.pump(0.1)
        queue.goodbye()


def test_time_in_which_nobody_listens_is_no_silence() -> None:
    with played_sampler(("opened", {"stream": 0, "threads": 1})) as name:
        queue = connected(name, stall_timeout_s=5)
        queue.open(SPEC)
        queue.pump(0.1)
        queue._listened_at -= 60  # as a long step has it, or a job that was stopped
        (peer,) = queue._pool.peers
        peer.heard_at -= 60
        queue.pump(0)
        assert queue.alive == [0]
        queue.goodbye()


def test_another_release_is_refused() -> None:
    with (
        played_sampler(welcome={"version": wire.PROTOCOL_VERSION + 1}) as name,
        pytest.raises(QueueProtocolError, match=r"instead of welcome.*one release"),
    ):
        connected(name)


def test_no_sampler_starts() -> None:
    with pytest.raises(SamplerDiedError, match=r"sampler rank 4 did not start(.|\n)*raise .*connect_timeout_s"):
        connected(uuid.uuid4().hex, connect_timeout_s=0.1, first_sampler_rank=4)
    with pytest.raises(SamplerDiedError, match=r"sampler rank 0 did not start(.|\n)*its own output"):
        connected(uuid.uuid4().hex, connect_timeout_s=60, has_ended=lambda sampler: True)
