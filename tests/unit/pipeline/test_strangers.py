"""What other users of the machine do to a job's sockets: nothing."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.host import flags, sockets
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.pipeline.queue import connections, wire
from tests.runif import RunIf
from tests.strangers import as_stranger, beside_stranger
from tests.unit.pipeline.job import job
from tests.unit.toy import content


def test_no_address_tells_of_a_name_or_of_another_address() -> None:
    name = uuid.uuid4().hex
    made = [sockets.address(wire._name(f"{name}-{session}", 0)) for session in range(3)]
    assert len(set(made)) == 3
    assert all(name.encode() not in each for each in made)
    digests = [each.rsplit(b"-", 1)[1] for each in made]
    # Of 32 hexadecimal digits of two random numbers, two are equal in the mean: 16 are not in 1e-9 of all cases.
    assert sum(a == b for a, b in zip(digests[0].decode(), digests[1].decode(), strict=True)) < 16


def test_a_name_of_any_length_fits() -> None:
    sockets.open_listener("x" * 1000).close()


# Flags.


def bind_flag(name: str, *, kind: int = socket.SOCK_DGRAM) -> None:
    with socket.socket(socket.AF_UNIX, kind) as forged:
        forged.bind(flags._address(name))
        if kind != socket.SOCK_DGRAM:
            forged.listen()
        time.sleep(30)


@RunIf(root=True)
def test_a_flag_of_another_user_is_none() -> None:
    """Who has seen a flag can take its address as soon as it has gone down."""
    name = uuid.uuid4().hex
    with beside_stranger(lambda: bind_flag(name)):
        _await_bound(flags._address(name))
        assert not flags.is_up(name)


@RunIf(root=True)
def test_a_stranger_who_takes_a_flags_name_for_another_kind_of_socket_hides_it_from_nobody() -> None:
    name = uuid.uuid4().hex
    flag = Flag(name)
    with beside_stranger(lambda: bind_flag(name, kind=socket.SOCK_SEQPACKET)):
        _await_bound(flags._address(name), count=2)
        assert flags.is_up(name)
    flag.lower()


def test_a_system_that_does_not_tell_owners_leaves_flags_to_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    name = uuid.uuid4().hex
    flag = Flag(name)
    monkeypatch.setattr("lightning_gnnload.host.socket_owners._SOCK_DIAG", 99)  # no such protocol
    assert flags.is_up(name)
    flag.lower()
    assert not flags.is_up(name)


# Connections.


@RunIf(root=True)
def test_a_stranger_is_cut_off_and_learns_nothing() -> None:
    name = uuid.uuid4().hex
    listener = wire.listen_to_trainers(name, 0)

    def ask() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(sockets.address(wire._name(name, 0)))
            assert stranger.recv(100) == b""

    def accept() -> None:
        with pytest.raises(wire.QueueProtocolError):
            listener.accept()

    thread = threading.Thread(target=accept)
    thread.start()
    assert as_stranger(ask) == (0, "")
    thread.join()
    listener.close()


@RunIf(root=True)
def test_a_stranger_who_listens_in_a_lost_samplers_place_is_nobody() -> None:
    """The address was seen while the sampler lived; trainers look there for who comes in its stead."""
    name = uuid.uuid4().hex
    address = sockets.address(wire._name(name, 0))

    def listen() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forged:
            forged.bind(address)
            forged.listen()
            time.sleep(30)

    with beside_stranger(listen):
        _await_bound(address)
        assert wire.connect_to_sampler(name, 0) is None


def test_who_finds_no_place_in_the_line_waits_a_little_and_goes_away() -> None:
    """For good, a trainer would hang in the system where strangers fill the line of a sampler that is stopped."""
    name = uuid.uuid4().hex
    address = sockets.address(wire._name(name, 0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            first.connect(address)
            began = time.monotonic()
            assert wire.connect_to_sampler(name, 0) is None
            assert 0.1 < time.monotonic() - began < 5
            accepting = threading.Timer(0.05, listener.accept)
            accepting.start()
            channel = wire.connect_to_sampler(name, 0)
            assert channel is not None
            # Its end of the connection waits without a limit, as ever.
            assert not any(channel._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))
            channel.close()
            accepting.join()


@RunIf(root=True)
def test_trainers_get_through_a_flood_of_strangers_of_whom_the_log_says_little(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with job(num_samplers=1) as running:
        address = sockets.address(wire._name(running.name, 0))

        def flood() -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.connect_ex(address)

        with caplog.at_level(logging.WARNING, connections.__name__), beside_stranger(flood):
            time.sleep(0.5)
            assert [content(batch) for batch in running.loader(running.queue())] == running.wanted()
        running.part()
        running.join()
        assert running.ends == {0: None}
    said = [record.getMessage() for record in caplog.records if "turned away" in record.getMessage()]
    assert 1 <= len(said) <= 2  # the first, and at the end how many more
    assert "process of user 65534 connected" in said[0]


def test_further_refusals_are_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(connections.time, "monotonic", lambda: now)
    refusals = connections._Refusals()
    with caplog.at_level(logging.WARNING, connections.__name__):
        for _ in range(1000):
            refusals.note("a stranger")
        now += connections._REPORT_S + 1
        refusals.report()
        refusals.report()
        refusals.report(is_last=True)
    assert [record.getMessage() for record in caplog.records] == [
        "turned away: a stranger",
        "turned away: a stranger (998 more were, before)",
    ]


def test_once_all_trainers_are_there_nobody_is_accepted() -> None:
    """Who connects all the time would take a sampler's time."""
    with job() as running:
        queue = running.queue()
        list(running.loader(queue))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as late:
            late.connect(sockets.address(wire._name(running.name, 0)))
            late.send(b"nonsense, for which it would be cut off")
            late.settimeout(0.3)
            with pytest.raises(TimeoutError):
                late.recv(1)
        running.part()
        running.join()
        assert running.ends == {0: None}


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"trainer": 2}, "no trainer of this sampler"),
        ({"trainer": -1}, "no trainer of this sampler"),
        ({"rank": 0}, "no trainer of this sampler"),
        ({"rank": -1}, "no trainer of this sampler"),
        ({"trainer": 0, "rank": 0}, "trainer rank 0 is connected already"),
    ],
)
def test_a_damaged_hello_is_refused(spoilt: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with job(num_trainers=2) as running:
        first = running.queue(0)
        fields = {"version": wire.PROTOCOL_VERSION, "trainer": 1, "rank": 1, "device": "", **spoilt}
        channel = wire.connect_to_sampler(running.name, 0)
        assert channel is not None
        with caplog.at_level(logging.WARNING, connections.__name__):
            channel.send("hello", **fields)
            with pytest.raises(EOFError):
                channel.receive()
        channel.close()
        assert any(reason in record.getMessage() for record in caplog.records)
        second = running.queue(1)  # whose place is free
        for trainer, queue in enumerate((first, second)):
            assert [content(batch) for batch in running.loader(queue, rank=trainer)] == running.wanted(rank=trainer)
        running.part()
        running.join()
        assert running.ends == {0: None}


# Descriptors.


def test_received_descriptors_go_to_no_program_that_is_started() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other, open(os.devnull) as file:
        socket.send_fds(one, [b"x"], [file.fileno()])
        data, fds, _ = sockets.receive_fds(other)
        assert data == b"x"
        assert [os.get_inheritable(fd) for fd in fds] == [False]
        os.close(fds[0])


def _await_bound(address: bytes, count: int = 1) -> None:
    wanted = address.replace(b"\0", b"@")
    deadline = time.monotonic() + 10
    while Path("/proc/net/unix").read_bytes().count(wanted) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
