import json
import os
import socket
import struct
import time
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.queue import wire
from tests import guards

CLOSE = {"kind": "close", "stream": 3}


@pytest.fixture
def raw_and_channel() -> Iterator[tuple[socket.socket, wire.QueueChannel]]:
    raw, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = wire.QueueChannel(other)
    yield raw, channel
    raw.close()
    channel.close()


@pytest.fixture
def channels(raw_and_channel) -> tuple[wire.QueueChannel, wire.QueueChannel]:
    raw, channel = raw_and_channel
    return wire.QueueChannel(raw), channel


def sample_of(kind: str) -> dict:
    values = {int: 5, float: 2.5, str: "ä\0\n", dict: {"a": [1, None, {"b": 2.5}]}, list: [[1, 2]], bool: True}
    return {name: values[wanted] for name, wanted in wire.KINDS[kind].items()}


@pytest.mark.parametrize("kind", wire.KINDS)
def test_every_kind_arrives_as_it_was_sent(channels, kind: str) -> None:
    ours, theirs = channels
    ours.send(kind, **sample_of(kind))
    assert theirs.receive() == ({"kind": kind, **sample_of(kind)}, [])


def test_messages_keep_their_bounds_and_order(channels) -> None:
    ours, theirs = channels
    for stream in range(20):
        ours.send("close", stream=stream)
    assert [theirs.receive()[0]["stream"] for _ in range(20)] == list(range(20))


def test_a_descriptor_travels_and_is_the_receivers(channels) -> None:
    ours, theirs = channels
    fd = os.memfd_create("gnnload-test")
    os.write(fd, b"content")
    ours.send("close", [fd], stream=1)
    os.close(fd)
    _, (received,) = theirs.receive()
    assert os.pread(received, 7, 0) == b"content"
    os.close(received)


def dumps(**changes) -> bytes:
    return json.dumps({**CLOSE, **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"not json",
        b"[]",
        b"3",
        b"null",
        b"{}",
        b"[" * 60_000,
        dumps(kind="unheard of"),
        dumps(kind=["close"]),
        dumps(kind=None),
        dumps(stream="3"),
        dumps(stream=True),
        dumps(stream=3.0),
        dumps(stream=None),
        dumps(extra=1),
        b'{"kind":"close"}',
        b'{"kind":"close","slot":3}',
        dumps(pad="x" * wire.MAX_MESSAGE_BYTES),
        # A message that is sound until the limit, with more behind: the rest would be lost in silence.
        dumps() + b" " * wire.MAX_MESSAGE_BYTES,
    ],
)
def test_what_is_no_message_is_refused_with_its_descriptors(raw_and_channel, data: bytes) -> None:
    raw, channel = raw_and_channel
    before = guards.num_fds()
    fd = os.memfd_create("gnnload-test")
    socket.send_fds(raw, [data], [fd])
    os.close(fd)
    with pytest.raises(QueueProtocolError, match="malformed message"):
        channel.receive()
    assert guards.num_fds() == before  # a sender of garbage must not be able to use our descriptors up
    raw.send(dumps())
    assert channel.receive() == (CLOSE, [])


def test_an_empty_message_is_an_end_that_leaves_no_descriptors(raw_and_channel) -> None:
    raw, channel = raw_and_channel
    before = guards.num_fds()
    socket.send_fds(raw, [b""], [0])
    with pytest.raises(EOFError):
        channel.receive()
    assert guards.num_fds() == before


@given(st.binary(min_size=1, max_size=200))
def test_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    with pytest.raises(QueueProtocolError):
        wire.QueueChannel.checked(data, truncated=False)


def test_no_more_descriptors_are_taken_than_one(raw_and_channel) -> None:
    raw, channel = raw_and_channel
    before = guards.num_fds()
    fds = [os.memfd_create("gnnload-test") for _ in range(3)]
    socket.send_fds(raw, [dumps()], fds)
    for fd in fds:
        os.close(fd)
    _, received = channel.receive()
    for fd in received:
        os.close(fd)
    assert len(received) <= 1
    assert guards.num_fds() == before


def test_a_message_too_large_is_not_sent(channels) -> None:
    ours, theirs = channels
    with pytest.raises(QueueProtocolError, match=r"'withdrawn' message of \d+ bytes.*131072"):
        ours.send("withdrawn", text="x" * wire.MAX_MESSAGE_BYTES)
    assert not wire.readable([theirs], 0)


def test_the_end_of_a_stream_comes_after_all_that_was_sent(channels) -> None:
    ours, theirs = channels
    ours.send("close", stream=1)
    ours.finish()
    assert theirs.receive()[0]["stream"] == 1
    with pytest.raises(EOFError):
        theirs.receive()
    theirs.send("close", stream=2)  # the other half is still open
    assert ours.receive()[0]["stream"] == 2


def test_a_peer_that_is_gone_is_an_end_and_not_a_hang(channels) -> None:
    ours, theirs = channels
    theirs.send("close", stream=1)
    ours.close()  # with unread data, which resets the connection
    with pytest.raises(EOFError):
        theirs.receive()
    with pytest.raises(OSError, match=r"[Bb]roken pipe|reset"):
        theirs.send("close", stream=2)


def test_draining_reads_everything_and_keeps_no_descriptors(channels) -> None:
    ours, theirs = channels
    before = guards.num_fds()
    fd = os.memfd_create("gnnload-test")
    for number in range(3):
        ours.send("close", [fd], stream=number)
    os.close(fd)
    ours.finish()
    theirs.drain(timeout_s=5)
    assert guards.num_fds() == before


def test_draining_a_silent_peer_ends_in_time(channels) -> None:
    began = time.monotonic()
    channels[0].drain(timeout_s=0.1)
    assert 0.1 <= time.monotonic() - began < 2


def test_readable_names_who_has_something_to_say(channels) -> None:
    ours, theirs = channels
    assert wire.readable([ours, theirs], 0) == []
    theirs.send("close", stream=1)
    assert wire.readable([ours, theirs], 1) == [ours]
    theirs.close()
    ours.receive()
    assert wire.readable([ours], 1) == [ours]  # an end is something to read


def test_listening_connecting_and_parting() -> None:
    job = uuid.uuid4().hex
    listener = wire.listen_to_trainers(job, 0)
    trainer = wire.connect_to_sampler(job, 0)
    assert trainer is not None
    sampler = listener.accept()
    trainer.send("close", stream=4)
    assert sampler.receive()[0]["stream"] == 4
    with pytest.raises(QueueProtocolError, match="sampler 0 cannot listen"):
        wire.listen_to_trainers(job, 0)
    wire.listen_to_trainers(job, 1).close()
    for end in (trainer, sampler, listener):
        end.close()
    wire.listen_to_trainers(job, 0).close()  # the name is free again


def test_the_longest_job_name_fits() -> None:
    wire.listen_to_trainers("f" * 16 + "-999999", 999).close()


def test_nobody_listens() -> None:
    before = guards.num_fds()
    assert wire.connect_to_sampler(uuid.uuid4().hex, 3) is None
    assert guards.num_fds() == before


def test_another_users_process_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    job = uuid.uuid4().hex
    listener = wire.listen_to_trainers(job, 0)
    stranger = wire.connect_to_sampler(job, 0)
    assert stranger is not None
    before = guards.num_fds()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(QueueProtocolError, match=f"process of user {uid} connected; only user {uid + 1}"):
        listener.accept()
    assert guards.num_fds() == before
    with pytest.raises(EOFError):
        stranger.receive()  # cut off
    stranger.close()
    listener.close()


def test_the_kernels_word_is_taken_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    # struct ucred is pid, uid, gid: a mix-up passes wherever root runs the tests.
    class Connection:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
            return struct.pack("3i", 0, 1234, 0)

    monkeypatch.setattr(os, "getuid", lambda: 1234)
    wire.QueueChannel(Connection())
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with pytest.raises(QueueProtocolError, match="user 1234"):
        wire.QueueChannel(Connection())
