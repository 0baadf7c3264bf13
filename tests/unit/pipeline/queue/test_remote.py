"""A connection between machines carries what one on a machine does, and gives strangers nothing."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.tcp import Frame, TcpStream
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue import remote, wire
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.remote import RemoteChannel, RemoteListener, RemoteSamplers, connect_to_remote
from lightning_gnnload.pipeline.queue.sealed import seal, unseal
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.slot_copies import pieces_of
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.slots import Slot
from tests.cluster.certificates import Certificate, can_make, make_certificate
from tests.rings import mostly_matrix
from tests.unit.toy import content, toy_data, toy_source

pytestmark = pytest.mark.timeout(60)
SECRET, OTHER = b"a secret of many characters", b"another one, as long as it"
WAIT_S = 10.0


class Served(RemoteListener):
    """A listener, and what trusts its certificate where it has one."""

    trust: ssl.SSLContext | None = None

    def connect(self, secret: bytes = SECRET) -> RemoteChannel:
        return connect_to_remote(*self.address, secret, self.trust)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate | None:
    return make_certificate(tmp_path_factory.mktemp("certificate")) if can_make() else None


@pytest.fixture(params=["clear", "tls"])
def listener(request: pytest.FixtureRequest, certificate: Certificate | None) -> Iterator[Served]:
    context = None
    if request.param == "tls":
        if certificate is None:
            pytest.skip("no openssl makes certificates here")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    opened = Served("127.0.0.1", SECRET, context)
    if context is not None:
        assert certificate is not None
        opened.trust = ssl.create_default_context(cafile=str(certificate.certificate))
    yield opened
    opened.close()


@pytest.fixture
def channels(listener: Served) -> Iterator[tuple[RemoteChannel, RemoteChannel]]:
    """A sampler's end, and a trainer's."""
    trainer = listener.connect()
    sampler = listener.accept()
    yield sampler, trainer
    trainer.close()
    sampler.close()


def raw_stream(listener: Served) -> tuple[TcpStream, RemoteChannel]:
    """A peer that knows the secret, and may send anything."""
    found: list[TcpStream] = []
    connect = partial(TcpStream.connect, *listener.address, SECRET, remote._PURPOSE, WAIT_S, listener.trust)
    thread = threading.Thread(target=lambda: found.append(connect()))
    thread.start()
    channel = listener.accept()
    thread.join()
    return found[0], channel


def test_messages_come_in_order_both_ways(channels: Any) -> None:
    sampler, trainer = channels
    for stream in range(1000):
        trainer.send("close", stream=stream)
        sampler.send("opened", stream=stream, threads=2)
    for stream in range(1000):
        assert sampler.receive() == ({"kind": "close", "stream": stream}, [])
        assert trainer.receive() == ({"kind": "opened", "stream": stream, "threads": 2}, [])
    assert (sampler.peer_pid, trainer.peer_pid) == (0, 0), "no process of this machine is to be signalled"


def test_the_end_comes_after_all_that_was_sent(channels: Any) -> None:
    sampler, trainer = channels
    trainer.send("bye", num_bytes=0)
    trainer.finish()
    assert sampler.receive()[0]["kind"] == "bye"
    with pytest.raises(EOFError):
        sampler.receive()
    assert not trainer.drain(0.05), "the other end is open yet"
    sampler.close()
    assert trainer.drain(WAIT_S)


def test_large_slots_pass_each_other(listener: Served) -> None:
    """Both ends send and receive at once, by threads of their own, more than the network holds."""
    ends = listener.connect(), listener.accept()
    slots = [Slot.shared(16 << 20) for _ in ends]
    for seed, slot in enumerate(slots):
        slot.array[:] = np.random.default_rng(seed).integers(0, 256, slot.num_bytes, np.uint8)
    for _ in range(2):
        for channel, slot in zip(ends, slots, strict=True):
            channel.send("batch", [slot.fd], **batch(slot, 0, slot.num_bytes))
        for channel, slot in zip(ends, reversed(slots), strict=True):
            _, fds = channel.receive()
            if fds:
                copy = Slot(slot.num_bytes, fds[0])
                assert np.array_equal(copy.array, slot.array)
                copy.close()
    for each in (*ends, *slots):
        each.close()


def batch(slot: Slot, number: int, num_bytes: int) -> dict[str, Any]:
    sizes = {"slot": number, "slot_bytes": slot.num_bytes, "num_bytes": num_bytes, "pieces": [0, num_bytes]}
    return {"stream": 0, "step": 0, **sizes, "memory_handle": {}, "payload": {}}


def test_a_slot_comes_with_its_bytes_when_it_is_new_reused_and_grown(channels: Any) -> None:
    sampler, trainer = channels
    slot, copy = Slot.shared(8192), None
    random = np.random.default_rng(0)
    for round_number, num_bytes in enumerate((8192, 5, 0, 3 << 20)):
        if num_bytes > slot.num_bytes:
            slot.grow(num_bytes)
        slot.array[:num_bytes] = random.integers(0, 256, num_bytes, np.uint8)
        sampler.send("batch", [slot.fd] if round_number == 0 else [], **batch(slot, 3, num_bytes))
        message, fds = trainer.receive()
        assert len(fds) == (round_number == 0), "a slot's memory comes once"
        if fds:
            copy = Slot(message["slot_bytes"], fds[0])
        assert copy is not None
        if message["slot_bytes"] > copy.num_bytes:
            copy.remap()
        assert np.array_equal(copy.array[:num_bytes], slot.array[:num_bytes])
        assert os.stat(copy.fd).st_ino != os.stat(slot.fd).st_ino
    copy.close()
    slot.close()


def test_what_is_empty_in_a_slot_is_not_sent(channels: Any) -> None:
    sampler, trainer = channels
    source = toy_source(toy_data(width=400), batch_size=16)
    slot = Slot.shared(1 << 20)
    payload = source.make(BatchRequest(0, 0, 0, 1), slot)
    pieces, size = pieces_of(payload.header), payload.header.end
    assert size > 1 << 19, "hops lie at the end"
    fields = batch(slot, 0, size) | {"pieces": pieces}
    slot.array[pieces[1] : pieces[2]] = 7  # what no column needs
    sampler.send("batch", [slot.fd], **fields)
    _, (fd,) = trainer.receive()
    copy = Slot(slot.num_bytes, fd)
    assert payload.num_nodes * 400 * 4 < sum(pieces[1::2]) - sum(pieces[::2]) < size / 2
    assert not copy.array[pieces[1] : pieces[2]].any()
    assert content(payload.view(copy.buffer())) == content(payload.view(slot.buffer()))
    copy.close()
    slot.close()


def test_the_outcome_of_training_comes_sealed(channels: Any) -> None:
    sampler, trainer = channels
    outcome = seal({"weights": np.arange(100_000)})
    trainer.send("bye", [outcome.fd], num_bytes=len(outcome.array))
    outcome.close()
    message, (fd,) = sampler.receive()
    received = MemoryFile.adopt(fd, message["num_bytes"])
    assert np.array_equal(unseal(received)["weights"], np.arange(100_000))
    received.close()


def test_a_connection_that_is_closed_at_once_leaves_nothing(listener: Served) -> None:
    for _ in range(20):
        trainer = listener.connect()
        sampler = listener.accept()
        trainer.close()
        sampler.close()


def test_memory_of_other_messages_is_refused(channels: Any) -> None:
    _, trainer = channels
    with pytest.raises(QueueProtocolError, match="'parameters' message stays on its machine"):
        trainer.send("parameters", [0], copy=0, version=0, global_step=0, due_ms=0.0, fresh_due_ms=0.0)


def test_a_peer_that_does_not_read_is_not_sent_to_without_bound(channels: Any) -> None:
    sampler, trainer = channels
    deadline = time.monotonic() + WAIT_S
    sent = 0
    while sampler.has_room() or time.monotonic() < deadline - WAIT_S + 0.5:
        sampler.send("failed", role="sampler", rank=1, died=False, stage="x" * 100_000, text="", is_final=False)
        time.sleep(0.001)
        sent += 1
        assert time.monotonic() < deadline
    assert len(trainer._inbox) <= remote._MOST_UNREAD
    for _ in range(sent):
        assert trainer.receive()[0]["kind"] == "failed"


def test_clocks_are_compared_by_the_fastest_message(listener: Served) -> None:
    stream, channel = raw_stream(listener)
    for late_s in (3.0, 0.0, 5.0):
        data = b'{"kind":"opening"}'
        head = struct.pack("<d", time.monotonic() - 1000.0 - late_s)
        stream.send(Frame(1, len(data), 8 + len(data)), WAIT_S, head + data)
        channel.receive()
    assert 1000.0 <= channel.clock_s < 1001.0
    stream.close()
    channel.close()


class TestStrangers:
    def test_another_secret_is_told_to_both_ends(self, listener: Served) -> None:
        trainer = listener.connect(OTHER)
        sampler = listener.accept()
        for channel in (trainer, sampler):
            with pytest.raises(QueueProtocolError, match="secret"):
                channel.receive()
            channel.close()

    @pytest.mark.parametrize("listener", ["tls"], indirect=True)
    def test_another_certificate_is_told(self, listener: Served, tmp_path: Path) -> None:
        other = make_certificate(tmp_path, "other").certificate
        trainer = connect_to_remote(*listener.address, SECRET, ssl.create_default_context(cafile=str(other)))
        sampler = listener.accept()
        with pytest.raises(
            QueueProtocolError, match=r"certificate of the sampler .* is not to be trusted: self-signed"
        ):
            trainer.receive()
        with pytest.raises((QueueProtocolError, EOFError)):
            sampler.receive()
        for channel in (trainer, sampler):
            channel.close()

    def test_who_speaks_in_the_clear_to_tls_is_cut_off(self, listener: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote, "_HELLO_S", 0.5)
        trainer = connect_to_remote(*listener.address, SECRET, None if listener.trust else ssl.create_default_context())
        sampler = listener.accept()
        for channel in (trainer, sampler):
            with pytest.raises((QueueProtocolError, EOFError)):
                channel.receive()
            channel.close()

    @pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096])
    def test_who_knows_no_secret_is_cut_off(self, listener: Served, words: bytes) -> None:
        with socket.create_connection(listener.address) as stranger:
            channel = listener.accept()
            with suppress(OSError):  # it may be cut off already
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)
            with pytest.raises((QueueProtocolError, EOFError)):
                channel.receive()
            channel.close()

    def test_so_many_are_heard_at_once(self, listener: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote, "_MOST_STRANGERS", 2)
        strangers = [socket.create_connection(listener.address) for _ in range(3)]
        channels = [listener.accept() for _ in range(2)]
        with pytest.raises(QueueProtocolError, match="have not shown the secret"):
            listener.accept()
        for each in (*strangers, *channels):
            each.close()

    @pytest.mark.parametrize(
        ("changes", "more"),
        [
            ({}, 1),
            ({}, -1),
            ({"slot": -1}, 0),
            ({"slot": 1 << 40}, 0),
            ({"slot_bytes": 5}, 0),
            ({"slot_bytes": 1 << 60}, 0),
            ({"num_bytes": 1 << 44, "slot_bytes": 1 << 45}, (1 << 44) - 16),
            ({"num_bytes": -1}, -17),
            ({"pieces": [0]}, 0),
            ({"pieces": [0, 8, 4, 12]}, 0),
            ({"pieces": [8, 0]}, 0),
            ({"pieces": [-8, 8]}, 0),
            ({"pieces": [0, 4096]}, 4080),
            ({"pieces": [0, "16"]}, 0),
            ({"pieces": [0, True]}, -15),
        ],
    )
    def test_sizes_are_checked_before_memory_is_taken(
        self, listener: Served, changes: dict[str, int], more: int
    ) -> None:
        stream, channel = raw_stream(listener)
        fields = {"slot": 0, "slot_bytes": 4096, "num_bytes": 16, "pieces": [0, 16], **changes}
        data = wire.QueueChannel.encoded("batch", stream=0, step=0, memory_handle={}, payload={}, **fields)
        frame = Frame(1, len(data), 8 + len(data) + 16 + more)
        stream.send(frame, WAIT_S, struct.pack("<d", 0.0) + data)
        with pytest.raises(QueueProtocolError):
            channel.receive()
        stream.close()
        channel.close()

    @pytest.mark.parametrize("frame", [Frame(7, 0, 0), Frame(1, 1 << 20, 1 << 20), Frame(1, 3, 5)])
    def test_frames_of_nothing(self, listener: Served, frame: Frame) -> None:
        stream, channel = raw_stream(listener)
        stream.send(frame, WAIT_S, bytes(16))
        with pytest.raises(QueueProtocolError):
            channel.receive()
        stream.close()
        channel.close()


# A whole job, whose trainers and sampler are threads.


class Trainer:
    def __init__(self, rank: int, num_trainers: int, connect: Callable[[int], RemoteChannel], **settings: Any) -> None:
        self.source = toy_source(batch_size=8)
        self.rank, self.num_trainers = rank, num_trainers
        defaults: dict[str, Any] = {"connect_timeout_s": WAIT_S, "stall_timeout_s": WAIT_S, "takeover": True}
        self.queue = BatchQueue(
            uuid.uuid4().hex[:16],
            trainer=0,
            rank=rank,
            num_samplers=0,
            queue_depth=2,
            remote=RemoteSamplers([num_trainers], 1, connect),
            **(defaults | settings),
        )
        self.loader = QueueLoader(self.queue, self._local(), phase="train", limit=lambda: 99.0, loader=0, reload=0)

    def _local(self) -> SampledLoader:
        return SampledLoader(self.source, num_ranks=self.num_trainers, rank=self.rank, num_threads=0)

    def epoch(self, epoch: int) -> list[Any]:
        self.loader.set_epoch(epoch)
        return [content(each) for each in self.loader]

    def wanted(self, epoch: int) -> list[Any]:
        local = self._local()
        local.set_epoch(epoch)
        return [content(each) for each in local]


@contextmanager
def sampler(listener: Served, num_trainers: int, **settings: Any) -> Iterator[list[Any]]:
    """A sampler that serves; what became of it."""
    service = SamplerService(
        uuid.uuid4().hex[:16],
        sampler=0,
        rank=num_trainers,
        num_trainers=num_trainers,
        world_size=num_trainers,
        num_threads=2,
        open_source=lambda spec: toy_source(batch_size=8),
        listener=listener,
        **({"connect_timeout_s": WAIT_S} | settings),
    )
    ends: list[Any] = []

    def serve() -> None:
        try:
            ends.append(service.serve())
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    yield ends
    thread.join(2 * WAIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("listener", mostly_matrix(["clear", "tls"], "tls"), indirect=True)
def test_trainers_of_several_machines_get_what_they_would_sample_themselves(listener: Served) -> None:
    connect = lambda rank: listener.connect()  # noqa: E731
    with sampler(listener, 2) as ends:
        trainers = [Trainer(rank, 2, connect) for rank in range(2)]
        for epoch in range(3):
            for trainer in trainers:
                assert trainer.queue.alive == [0]
                assert trainer.epoch(epoch) == trainer.wanted(epoch)
        for trainer in trainers:
            trainer.queue.goodbye()
    assert ends == [None]


@pytest.mark.parametrize("listener", mostly_matrix(["clear", "tls"], "clear"), indirect=True)
def test_a_cut_cable_is_no_failure_and_is_plugged_in_again(listener: Served) -> None:
    channels: list[RemoteChannel] = []

    def connect(rank: int) -> RemoteChannel:
        channels.append(listener.connect())
        return channels[-1]

    with sampler(listener, 2) as ends:
        cut, other = (Trainer(rank, 2, connect) for rank in range(2))
        first = channels[0]
        assert first._stream is not None
        first._stream.stop()
        # It goes on by itself, or by the sampler again, which it calls at once: the batches are the same.
        assert cut.epoch(0) == cut.wanted(0)
        assert other.epoch(0) == other.wanted(0)
        assert len(channels) > 2
        assert cut.epoch(1) == cut.wanted(1)
        assert cut.queue.alive == [0], "it is called for the next stream, at the latest"
        reason = other.queue.failure_behind(0.5)
        assert "trainer rank 0 is gone" in str(reason), "who fails, too, can say why"
        for trainer in (cut, other):
            trainer.queue.goodbye()
    assert ends == [None]


@pytest.mark.parametrize("listener", mostly_matrix(["clear", "tls"], "clear"), indirect=True)
def test_trainers_that_never_come_are_not_waited_for_forever(listener: Served) -> None:
    with sampler(listener, 1, connect_timeout_s=0.3) as ends:
        pass
    assert "no trainer of another machine connected in time" in str(ends[0])


@pytest.mark.parametrize("listener", mostly_matrix(["clear", "tls"], "tls"), indirect=True)
def test_another_secret_ends_the_trainer_with_a_clear_error(listener: Served) -> None:
    with sampler(listener, 1, connect_timeout_s=0.5), pytest.raises(QueueProtocolError, match="secret"):
        Trainer(0, 1, lambda rank: listener.connect(OTHER))
