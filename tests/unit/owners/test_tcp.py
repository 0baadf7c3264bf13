"""The front of an owner: clients that are frozen, mad or strangers are cut off, and cost the others nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

from lightning_gnnload import load_partition, partition_graph
from lightning_gnnload.errors import ExchangeError, FrameError, StrangerError
from lightning_gnnload.host.tcp import Frame, TcpStream
from lightning_gnnload.owners import front as fronts
from lightning_gnnload.owners import tcp
from lightning_gnnload.owners.connection import MOST_TASK_BYTES, TASK, OwnerFailedError
from lightning_gnnload.owners.owner import Owner, Reply
from lightning_gnnload.owners.tcp import PURPOSE, TcpConnection, TcpFront
from lightning_gnnload.sample.group.messages import Message
from tests.unit.owners.serving import graph_data

SECRET = b"known to tests alone"
WIDTH = 256


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Owner:
    folder = tmp_path_factory.mktemp("one") / "parts"
    partition_graph(graph_data(20_000, 20_000, width=WIDTH), folder, 2, "random", hops=0, progress=False)
    return Owner(load_partition(folder), [1])


@pytest.fixture
def front(owner: Owner) -> Iterator[TcpFront]:
    with TcpFront(owner, "127.0.0.1", 0, SECRET) as front:
        yield front


def connected(front: TcpFront) -> TcpConnection:
    return TcpConnection(front.address, SECRET, connect_s=5, deadline_s=5)


def task(rows: np.ndarray, **about: object) -> np.ndarray:
    return Message({"operation": "rows", "table": "x", "part": 1, **about}, {"rows": rows}).to_bytes()


def check_serves(front: TcpFront) -> None:
    connection = connected(front)
    connection.send(task(np.arange(3)))
    connection.receive_rows(np.empty((3, 4 * WIDTH), np.uint8), None)
    connection.close()


def asked(connection: TcpConnection) -> np.ndarray:
    connection.send(task(np.arange(3)))
    return connection.receive()


def wait_until(condition: object, timeout_s: float = 5) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (task(np.arange(3), part=0), r"part 0 is asked for, but this owner has \[1\]"),
        (task(np.arange(3), part=True), "part True is asked for"),
        (task(np.array([-1])), "whole numbers in"),
        (task(np.array([20_000])), "whole numbers in"),
        (task(np.array([0.5])), "whole numbers in"),
        (task(np.array([2**63], np.uint64)), "whole numbers in"),
        (task(np.arange(3), table="y"), "there is no table 'y' in part 1, but x"),
        (task(np.arange(3), table=["x"]), "there is no table"),
        (task(np.arange(3), operation="__init__"), "there is no operation"),
        (task(np.arange(3), operation=["draw"]), "there is no operation"),
        (task(np.arange(3), operation="draw", sampler={"kind": "os:system", "settings": {}}, key=[0] * 4), "system"),
        (task(np.arange(3), operation="lists", columns=7), "lists cannot be done"),
        (Message({}, {}).to_bytes(), "part None"),
        (np.zeros(24, np.uint8), "no message"),
        (np.empty(0, np.uint8), "no message"),
    ],
)
def test_what_no_owner_can_answer_is_refused(front: TcpFront, request_: np.ndarray, words: str) -> None:
    connection = connected(front)
    for _ in range(2):  # the connection goes on
        connection.send(request_)
        with pytest.raises(ExchangeError, match=words):
            connection.receive()
    connection.close()
    check_serves(front)


class Broken:
    hello: ClassVar = {"parts": [0]}

    def __init__(self, error: Exception, num_pieces: int = 0) -> None:
        self.error, self.num_pieces = error, num_pieces

    def answer(self, task: np.ndarray) -> Reply:
        if not self.num_pieces:
            raise self.error
        return Reply(8 * self.num_pieces + 8, self._pieces())

    def _pieces(self) -> Iterator[np.ndarray]:
        for _ in range(self.num_pieces):
            yield np.zeros(8, np.uint8)
        raise self.error


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (AttributeError("a fault"), ExchangeError),  # alike anywhere: no minute of silent attempts
        (RuntimeError("of torch"), ExchangeError),
        (MemoryError("for now"), OwnerFailedError),
        (OSError("a broken disk"), OwnerFailedError),
    ],
)
def test_a_fault_is_told_at_once_and_a_failure_tried_elsewhere(error: Exception, wanted: type[Exception]) -> None:
    with TcpFront(Broken(error), "127.0.0.1", 0, SECRET) as front:  # type: ignore[arg-type]
        connection = connected(front)
        with pytest.raises(wanted, match=f"{type(error).__name__}: {error}"):
            asked(connection)
        connection.close()


def test_half_an_answer_ends_the_connection_and_is_told() -> None:
    told: list[str] = []
    broken = Broken(RuntimeError("of torch"), num_pieces=1)
    with TcpFront(broken, "127.0.0.1", 0, SECRET, on_stranger=told.append) as front:  # type: ignore[arg-type]
        connection = connected(front)
        with pytest.raises(OSError):  # noqa: PT011  whichever: the connection is gone
            asked(connection)
        connection.close()
    assert [words.split(" ", 1)[1] for words in told] == ["got half an answer: RuntimeError: of torch"]


@pytest.mark.parametrize("frame", [Frame(TASK, 1, MOST_TASK_BYTES + 1), Frame(77, 1, 8), Frame(TASK, 1, 2**64 - 1)])
def test_frames_that_are_none_end_the_connection(front: TcpFront, frame: Frame) -> None:
    stream = TcpStream.connect("127.0.0.1", front.address.port, SECRET, PURPOSE, 5)
    hello = stream.receive(5)
    stream.receive_into(memory := bytearray(hello.num_bytes), 5)
    assert json.loads(memory)["parts"] == [1]
    stream.send(frame, 5)
    with pytest.raises(ConnectionError):
        stream.receive(5)
    stream.close()
    check_serves(front)


def test_a_client_that_does_not_read_waits_alone(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "_CLIENT_S", 0.3)
    with TcpFront(owner, "127.0.0.1", 0, SECRET) as front:
        frozen = connected(front)
        many = np.zeros(50_000, np.int64)
        frozen.send(task(many))  # 51 MB, which no buffer of the system holds
        for _ in range(5):
            check_serves(front)
        wait_until(lambda: not front._clients)  # and is given up
        out = np.empty((len(many), 4 * WIDTH), np.uint8)
        with pytest.raises(ConnectionError):
            frozen.receive_rows(out, None)
        frozen.close()


def test_strangers_are_told_apart_and_make_room(front: TcpFront) -> None:
    told: list[str] = []
    front._on_stranger = told.append
    silent = [socket.create_connection(("127.0.0.1", front.address.port)) for _ in range(tcp._MOST_STRANGERS + 20)]
    check_serves(front)  # the oldest of them went
    assert len(front._strangers) <= tcp._MOST_STRANGERS
    for connection in silent:
        connection.close()
    with pytest.raises(StrangerError, match="does not take this secret"):
        TcpConnection(front.address, b"another secret of mine", 5, 5)
    wait_until(lambda: any("does not know the secret" in why for why in told))
    assert SECRET.decode() not in "".join(told)


def test_what_is_no_owner_is_named(front: TcpFront) -> None:
    with pytest.raises(StrangerError):  # who has the secret of another service of the job
        TcpStream.connect("127.0.0.1", front.address.port, SECRET, "queue", 5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = other.accept()
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        with pytest.raises(FrameError, match=r"greets by b'HTTP/1\.1'"):
            TcpStream.welcome(accepted, SECRET, PURPOSE, 1)
        client.close()


def test_nobody_waits_for_a_greeting_that_does_not_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            TcpStream.connect("127.0.0.1", silent.getsockname()[1], SECRET, PURPOSE, 0.2)
        assert time.monotonic() - begun < 2


def test_an_owner_ends_with_clients_and_strangers_connected(owner: Owner) -> None:
    front = TcpFront(owner, "127.0.0.1", 0, SECRET)
    connection, stranger = connected(front), socket.create_connection(("127.0.0.1", front.address.port))
    begun = time.monotonic()
    front.close()
    front.close()
    assert time.monotonic() - begun < 1
    with pytest.raises(OSError):  # noqa: PT011  which of them is the system's choice
        asked(connection)
    connection.close()
    stranger.close()
