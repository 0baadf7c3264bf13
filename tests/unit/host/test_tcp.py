"""TcpStream: what both ends send before they trust each other gives the secret to nobody, and serves nobody again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lightning_gnnload.errors import StrangerError
from lightning_gnnload.host.tcp import Frame, TcpStream

SECRET = b"known to tests alone"


@contextmanager
def welcoming(listener: socket.socket, outcomes: list[object]) -> Iterator[None]:
    """Welcomes the next connection in a thread, and notes what came of it."""

    def welcome() -> None:
        connection, _ = listener.accept()
        try:
            stream = TcpStream.welcome(connection, SECRET, "tests", 5)
            frame = stream.receive(5)
            stream.receive_into(memory := bytearray(frame.num_bytes), 5)
            outcomes.append((frame, bytes(memory)))
            stream.close()
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=welcome)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)


def relayed(source: socket.socket, target: socket.socket, heard: bytearray) -> Callable[[], None]:
    def relay() -> None:
        while piece := source.recv(4096):
            heard.extend(piece)
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)

    return relay


def test_what_is_overheard_does_not_serve_again() -> None:
    outcomes: list[object] = []
    heard, answered = bytearray(), bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as between:
        with welcoming(listener, outcomes):
            streams: list[TcpStream] = []
            connecting = threading.Thread(
                target=lambda: streams.append(
                    TcpStream.connect("127.0.0.1", between.getsockname()[1], SECRET, "tests", 5)
                )
            )
            connecting.start()
            client, _ = between.accept()
            server = socket.create_connection(listener.getsockname())
            pairs = [relayed(client, server, heard), relayed(server, client, answered)]
            relays = [threading.Thread(target=relay) for relay in pairs]
            for relay in relays:
                relay.start()
            connecting.join(10)
            streams[0].send(Frame(3, 8, 5), 5, b"hello")
            streams[0].close()
            for relay in relays:
                relay.join(10)
            client.close()
            server.close()
        assert outcomes.pop() == (Frame(3, 8, 5), b"hello")
        assert SECRET not in heard + answered
        with welcoming(listener, outcomes), socket.create_connection(listener.getsockname()) as again:
            again.sendall(heard[:72])
            assert again.makefile("rb").read(72 + 8)[40:] == bytes(32)  # a refusal, and no proof
    assert isinstance(outcomes.pop(), StrangerError)


def test_an_end_is_not_given_its_own_proof_back() -> None:
    """Who does not know the secret cannot have the other end make the proof for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def mirror() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"gnnload1" + bytes(32))
                greeting = connection.recv(72, socket.MSG_WAITALL)
                connection.sendall(greeting[40:])

        thread = threading.Thread(target=mirror)
        thread.start()
        with pytest.raises(StrangerError, match="does not know the secret"):
            TcpStream.connect("127.0.0.1", listener.getsockname()[1], SECRET, "tests", 5)
        thread.join(10)
