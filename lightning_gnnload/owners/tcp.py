"""The front of an owner that clients reach by TCP, and the connection to it."""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from lightning_gnnload.errors import AddressError, ExchangeError, FrameError, GnnLoadError, StrangerError
from lightning_gnnload.host.tcp import Frame, TcpStream, listen, stop_listening
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.owners.address import TCP, TLS, Address
from lightning_gnnload.owners.connection import (
    MOST_ANSWER_BYTES,
    MOST_TASK_BYTES,
    Connection,
    OwnerFailedError,
    is_refused,
)
from lightning_gnnload.owners.owner import Owner

PURPOSE = "owner"
HELLO, TASK, ANSWER, REFUSAL, FAILURE = range(5)
"""Codes of frames. A refusal is of a request that no owner could answer; a failure is this owner's alone."""
_GREETING_S = 5.0
_CLIENT_S = 60.0
"""A client that begins a request, or an answer, and neither sends nor reads for so long, is gone."""
_MOST_STRANGERS, _MOST_CLIENTS = 64, 1024
_MOST_WORDS_BYTES = 1 << 16


class TcpFront:
    """Serves an owner's clients over TCP: a thread a connection, one request of it at a time.

    A client that does not read its answer waits for itself alone, and is asked for no further request. Connections that
    have not proved yet that they know the secret are few, and short: the oldest makes room for a new one.

    Args:
        owner: who answers.
        host: of the one address to listen at.
        port: 0: any that is free.
        secret: as :func:`.find_secret` returns it.
        tls: None: without.
        on_stranger: is told of who was turned away, and why; for a log.

    Raises:
        AddressError: the address is taken, or none of this machine's.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, load_partition, partition_graph
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> _ = partition_graph(ring, "parts", 2, hops=0, progress=False)
        >>> with TcpFront(Owner(load_partition("parts")), "127.0.0.1", 0, b"a secret of ours") as front:
        ...     front.address.host
        '127.0.0.1'
    """

    def __init__(
        self,
        owner: Owner,
        host: str,
        port: int,
        secret: bytes,
        *,
        tls: ssl.SSLContext | None = None,
        on_stranger: Callable[[str], object] = lambda why: None,
    ) -> None:
        self._owner, self._secret, self._tls, self._on_stranger = owner, secret, tls, on_stranger
        address = Address(TLS if tls else TCP, host, port)
        try:
            self._listener = listen(host, port)
        except OSError as error:
            raise AddressError(
                f"nobody can listen at {address}: {error}. Give an address of this machine and a port "
                "that is free, or port 0 for any."
            ) from error
        self.address = Address(address.scheme, host, self._listener.getsockname()[1])
        # Guards what follows, which the accepting thread shares with those of connections.
        self._lock = threading.Lock()
        self._strangers: deque[Any] = deque()
        self._clients: dict[TcpStream, threading.Thread] = {}
        self._is_closed = False
        self._thread = start_thread("gnnload-owner", self._accept)

    def close(self) -> None:
        """Ends all connections, and waits for their threads. Safe to call twice."""
        with self._lock:
            self._is_closed = True
            strangers, clients = list(self._strangers), dict(self._clients)
        stop_listening(self._listener)
        for stream in (*map(TcpStream, strangers), *clients):
            stream.stop()  # and its thread closes it
        for thread in (self._thread, *clients.values()):
            thread.join(_GREETING_S)

    def __enter__(self) -> TcpFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                threading.Event().wait(0.05)  # out of descriptors, say: others may close theirs
                continue
            with self._lock:
                self._strangers.append(connection)
                if len(self._strangers) > _MOST_STRANGERS:
                    TcpStream(self._strangers.popleft()).stop()
            try:
                start_thread(f"gnnload-owner-{peer[0]}-{peer[1]}", self._serve, connection, f"{peer[0]}:{peer[1]}")
            except GnnLoadError as error:
                self._forget(connection)
                connection.close()
                self._on_stranger(f"{peer[0]}: {error}")

    def _serve(self, connection: Any, peer: str) -> None:
        try:
            stream = TcpStream.welcome(connection, self._secret, PURPOSE, _GREETING_S, self._tls)
        except (OSError, StrangerError) as error:
            self._on_stranger(f"{peer} was turned away: {error}")
            return
        finally:
            self._forget(connection)
        with self._lock:
            is_welcome = not self._is_closed and len(self._clients) < _MOST_CLIENTS
            if is_welcome:
                self._clients[stream] = threading.current_thread()
        try:
            if is_welcome:
                self._talk(stream)
            else:
                self._on_stranger(f"{peer} was turned away: {_MOST_CLIENTS} connections are open.")
        except (OSError, MemoryError):
            pass  # the client is gone, late or mad, or will ask again: nobody else's business
        except Exception as error:
            # What begins to come comes whole, or the connection ends.
            self._on_stranger(f"{peer} got half an answer: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._clients.pop(stream, None)
            stream.close()

    def _talk(self, stream: TcpStream) -> None:
        hello = json.dumps(self._owner.hello).encode()
        stream.send(Frame(HELLO, 0, len(hello)), _CLIENT_S, hello)
        while True:
            code, number, num_bytes = stream.receive(None)
            if code != TASK or num_bytes > MOST_TASK_BYTES:
                raise FrameError(f"a frame of code {code} and {num_bytes} bytes is no request.")
            task = np.empty(num_bytes, np.uint8)
            stream.receive_into(task, _CLIENT_S)
            try:
                reply = self._owner.answer(task)
            except Exception as error:
                words = f"{type(error).__name__}: {error}".encode()[:_MOST_WORDS_BYTES]
                stream.send(Frame(REFUSAL if is_refused(error) else FAILURE, number, len(words)), _CLIENT_S, words)
                continue
            stream.send(Frame(ANSWER, number, reply.num_bytes), _CLIENT_S)
            for piece in reply.pieces:
                stream.send_on(piece, _CLIENT_S)

    def _forget(self, connection: Any) -> None:
        with self._lock:
            if connection in self._strangers:
                self._strangers.remove(connection)


class TcpConnection(Connection):
    """A connection to a :class:`TcpFront`. It waits ``connect_s`` seconds for the greeting, ``deadline_s`` for each
    answer to begin, and for each MiB of it.

    Raises:
        StrangerError: the owner has another secret.
        OSError: no owner listens there, or it is late.
    """

    def __init__(
        self,
        address: Address,
        secret: bytes,
        connect_s: float,
        deadline_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._deadline_s = deadline_s
        self._number = 0
        self._stream = TcpStream.connect(address.host, address.port, secret, PURPOSE, connect_s, tls)
        try:
            code, _, num_bytes = self._stream.receive(connect_s)
            if code != HELLO or num_bytes > _MOST_WORDS_BYTES:
                raise FrameError(f"{address} begins by a frame of code {code} and {num_bytes} bytes.")
            self.hello = json.loads(self._read(num_bytes))
            if not isinstance(self.hello, dict):
                raise FrameError(f"{address} says of itself what is no description.")
        except ValueError as error:
            self.close()
            raise FrameError(f"{address} says of itself what is no description: {error}") from error
        except BaseException:
            self.close()
            raise

    def send(self, task: np.ndarray) -> None:
        if len(task) > MOST_TASK_BYTES:
            raise ExchangeError(
                f"a request has {len(task)} bytes, but owners take {MOST_TASK_BYTES}. Ask for fewer nodes at once: a "
                "smaller batch_size."
            )
        self._number = (self._number + 1) % 2**32
        self._stream.send(Frame(TASK, self._number, len(task)), self._deadline_s, task)

    def receive(self) -> np.ndarray:
        answer = np.empty(self.begin(), np.uint8)
        self.read(answer)
        return answer

    def receive_rows(self, out: np.ndarray, positions: np.ndarray | None) -> None:
        num_rows, row_bytes = len(out) if positions is None else len(positions), out.shape[1]
        if (num_bytes := self._receive_head()) != num_rows * row_bytes:
            raise FrameError(f"{num_bytes} bytes were announced, but {num_rows} rows of {row_bytes} asked for.")
        if positions is None:
            self.read(out.reshape(-1))
        else:
            self.read_rows(out, positions)

    def begin(self) -> int:
        if (num_bytes := self._receive_head()) > MOST_ANSWER_BYTES:
            raise FrameError(f"an answer of {num_bytes} bytes is announced.")
        return num_bytes

    def read(self, memory: np.ndarray) -> None:
        self._stream.receive_into(memory, self._deadline_s)

    def close(self) -> None:
        self._stream.close()

    def _receive_head(self) -> int:
        code, number, num_bytes = self._stream.receive(self._deadline_s)
        if number != self._number or code not in (ANSWER, REFUSAL, FAILURE):
            raise FrameError(f"a frame of code {code} answers request {number}, but {self._number} was sent.")
        if code == ANSWER:
            return num_bytes
        if num_bytes > _MOST_WORDS_BYTES:
            raise FrameError(f"a refusal of {num_bytes} bytes is announced.")
        words = self._read(num_bytes).decode(errors="replace")
        raise ExchangeError(words) if code == REFUSAL else OwnerFailedError(words)

    def _read(self, num_bytes: int) -> bytearray:
        content = bytearray(num_bytes)
        self._stream.receive_into(content, self._deadline_s)
        return content
