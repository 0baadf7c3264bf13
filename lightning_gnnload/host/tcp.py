"""Stream: a TCP connection between two processes that know one secret, on any machines.

Each end proves that it knows the secret, which itself is never sent: whoever listens sends a random number, whoever
connects answers with another one and a code of both, and gets a code back. A frame is a head of 24 bytes and a body.
Without TLS, what follows the proofs can be read, and changed, by those who are on its way.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from lightning_gnnload.errors import StreamError

_MAGIC = b"GNL1"
_HEAD = struct.Struct("<4sIQQ")
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_AT_ONCE = 1 << 20  # bytes for one call of the system, so that deadlines are looked at
_BACKLOG = 128
_IDLE_S = 30  # before the system asks whether the other machine is still there


class Frame(NamedTuple):
    """The head of a frame: what it is, which request it belongs to, and how many bytes follow."""

    kind: int
    number: int
    num_bytes: int


class Stream:
    """One end of a connection whose other end knows the secret. One thread at a time sends, and one receives.

    A deadline is a moment of ``time.monotonic()``; None waits for ever. Raises TimeoutError when it is past, OSError
    (ConnectionError) when the other end is gone, StreamError when it sends what is no frame. After any of them the
    stream is to be closed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @classmethod
    def connect(
        cls, host: str, port: int, secret: bytes, deadline: float | None, tls: ssl.SSLContext | None = None
    ) -> Stream:
        """Connects to who listens there. Raises StreamError: it does not know the secret, or says that this end does
        not."""
        connection = socket.create_connection((host, port), _left(deadline))
        try:
            _prepare(connection)
            if tls is not None:
                connection.settimeout(_left(deadline))
                connection = tls.wrap_socket(connection, server_hostname=host)
            stream = cls(connection)
            theirs = stream._read_exactly(_NONCE_BYTES, deadline)
            ours = os.urandom(_NONCE_BYTES)
            stream._write([ours, _proof(secret, b"connects", theirs, ours)], deadline)
            try:
                proof = stream._read_exactly(_PROOF_BYTES, deadline)
            except ConnectionError as error:
                raise StreamError(
                    f"{host}:{port} did not accept this process's secret. Give both ends the same one: "
                    "GNNLOAD_SECRET_FILE, a file that they share, or GNNLOAD_SECRET."
                ) from error
            if not hmac.compare_digest(proof, _proof(secret, b"listens", theirs, ours)):
                raise StreamError(f"{host}:{port} does not know the secret: it is not who was meant.")
            return stream
        except BaseException:
            connection.close()
            raise

    @classmethod
    def accept(
        cls, connection: socket.socket, secret: bytes, deadline: float, tls: ssl.SSLContext | None = None
    ) -> Stream:
        """Takes a connection that a listening socket has accepted, which is closed where this raises. Raises
        StreamError: the other end does not know the secret."""
        try:
            _prepare(connection)
            if tls is not None:
                connection.settimeout(_left(deadline))
                connection = tls.wrap_socket(connection, server_side=True)
            stream = cls(connection)
            ours = os.urandom(_NONCE_BYTES)
            stream._write([ours], deadline)
            answer = stream._read_exactly(_NONCE_BYTES + _PROOF_BYTES, deadline)
            theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
            if not hmac.compare_digest(proof, _proof(secret, b"connects", ours, theirs)):
                raise StreamError("a process connected that does not know the secret.")
            stream._write([_proof(secret, b"listens", ours, theirs)], deadline)
            return stream
        except BaseException:
            connection.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: int, number: int, pieces: Iterable[Any], deadline: float | None = None) -> None:
        """Sends a frame whose body is these buffers, one after the other."""
        views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        self.begin(kind, number, sum(map(len, views)), deadline)
        self._write(views, deadline)

    def begin(self, kind: int, number: int, num_bytes: int, deadline: float | None = None) -> None:
        """Sends the head of a frame; :meth:`write` sends its body in pieces, as these are made."""
        self._write([_HEAD.pack(_MAGIC, kind, number, num_bytes)], deadline)

    def write(self, piece: Any, deadline: float | None = None) -> None:
        """Sends a piece of the frame's body."""
        self._write([memoryview(piece).cast("B")], deadline)

    def receive(self, most_bytes: int, deadline: float | None = None) -> Frame:
        """Waits for the head of the next frame. Raises EOFError: the other end closed the connection between frames;
        StreamError: no frame, or one of more than ``most_bytes``."""
        head = bytearray(_HEAD.size)
        if not self._read(memoryview(head), deadline, may_end=True):
            raise EOFError
        magic, kind, number, num_bytes = _HEAD.unpack(head)
        if magic != _MAGIC or num_bytes > most_bytes:
            raise StreamError(f"a frame of {num_bytes} bytes came, but at most {most_bytes} are allowed: {head.hex()}.")
        return Frame(kind, number, num_bytes)

    def read_into(self, buffer: Any, deadline: float | None = None) -> None:
        """Fills a buffer with the next bytes of the frame's body."""
        self._read(memoryview(buffer).cast("B"), deadline)

    def close(self) -> None:
        """Closes the connection; a thread that waits on it ends in an error. Safe to call twice."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was not connected any more
        self._socket.close()

    def _read_exactly(self, num_bytes: int, deadline: float | None) -> bytes:
        buffer = bytearray(num_bytes)
        self._read(memoryview(buffer), deadline)
        return bytes(buffer)

    def _read(self, view: memoryview, deadline: float | None, *, may_end: bool = False) -> bool:
        at = 0
        while at < len(view):
            self._socket.settimeout(_left(deadline))
            received = self._socket.recv_into(view[at : at + _AT_ONCE])
            if not received:
                if may_end and not at:
                    return False
                raise ConnectionResetError("the other end closed the connection")
            at += received
        return True

    def _write(self, pieces: Iterable[Any], deadline: float | None) -> None:
        for piece in pieces:
            for begin in range(0, len(piece), _AT_ONCE):
                self._socket.settimeout(_left(deadline))
                self._socket.sendall(piece[begin : begin + _AT_ONCE])


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket at one address; port 0 takes a free one. Raises OSError: the port is taken."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _prepare(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that is gone says nothing: without this, its connection would stay for ever.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError("the deadline is past")
    return left


def _proof(secret: bytes, role: bytes, listener: bytes, connector: bytes) -> bytes:
    # The role keeps a proof from being sent back as the other end's own.
    return hmac.digest(secret, role + listener + connector, "sha256")
