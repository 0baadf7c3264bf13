"""TcpStream: frames over one TCP connection, whose two ends have proved to each other that they know one secret.

Each end sends a number drawn at random, and answers the other's by an HMAC of both: the secret itself never travels,
and what was overheard serves nobody again. Before that, neither end reads more than some hundred bytes, nor waits
longer than it is told to. What follows is neither encrypted nor signed, unless the connection is under TLS.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lightning_gnnload.errors import FrameError, StrangerError
from lightning_gnnload.host.tls import TlsSocket

Buffer = bytes | bytearray | memoryview | np.ndarray
"""Bytes to send: an array is contiguous."""

_MAGIC = b"gnnload1"
_NONCE_BYTES = 32
_DIGEST_BYTES = hashlib.sha256().digest_size
_HEAD = struct.Struct("<IIQ")
_TIME = struct.Struct("@ll")  # timeval
_PIECE_BYTES = 1 << 20
"""Of so many bytes at most, each has to come, or to go, within the time limit."""
_BEGUN_S = 60.0
"""So long may take what has begun to come, if its beginning was waited for without a limit."""
_BACKLOG = 128
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A machine that is gone without a word is noticed after a minute, though nobody sends."""


class Frame(NamedTuple):
    """What comes before the bytes of a frame: what they are, the number of the request, and how many they are."""

    code: int
    number: int
    num_bytes: int


class TcpStream:
    """A connection to a process that knows the same secret. One thread at a time sends, and one receives.

    Time limits are seconds for each MiB: who sends less in that time counts as gone. All methods raise OSError where
    the other end is gone (ConnectionError) or late (TimeoutError); after that the stream is of no use.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket: socket.socket | TlsSocket = connection

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        secret: bytes,
        purpose: str,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> TcpStream:
        """Connects to who :meth:`welcome`\\s for the same purpose.

        Raises:
            StrangerError: the other end has another secret, or another purpose.
            FrameError: something else listens there, or another version of this package.
            OSError: nothing listens there, or it is late.
        """
        deadline = time.monotonic() + timeout_s
        connection = socket.create_connection((host, port), timeout_s)
        stream = cls(connection)
        try:
            if tls is not None:
                stream._socket = TlsSocket(tls.wrap_socket(connection, server_hostname=host))
            stream._prepare()
            stream._prove(secret, purpose, deadline)
        except BaseException:
            stream.close()
            raise
        return stream

    @classmethod
    def welcome(
        cls,
        connection: socket.socket,
        secret: bytes,
        purpose: str,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> TcpStream:
        """Has who has connected prove that it knows the secret, and proves the same; else closes the connection.

        Raises:
            StrangerError: it does not know it.
            OSError: it is late, or none of this package.
        """
        deadline = time.monotonic() + timeout_s
        stream = cls(connection)
        try:
            if tls is not None:
                connection.settimeout(timeout_s)
                # A copy of the descriptor, so that who has ``connection`` can still end it (:meth:`stop`).
                stream._socket = TlsSocket(tls.wrap_socket(connection.dup(), server_side=True))
            stream._prepare()
            stream._examine(secret, purpose, deadline)
        except BaseException:
            stream.close()
            raise
        finally:
            if tls is not None:
                connection.close()
        return stream

    def send(self, frame: Frame, timeout_s: float, content: Buffer = b"") -> None:
        """Sends a frame; what its bytes are beyond ``content`` follows by :meth:`send_on`."""
        # Held back until bytes follow, so that a short frame is one packet.
        flags = socket.MSG_MORE if frame.num_bytes else 0
        self._drain(memoryview(_HEAD.pack(*frame)), time.monotonic() + timeout_s, flags)
        self.send_on(content, timeout_s)

    def send_on(self, content: Buffer, timeout_s: float) -> None:
        """Sends further bytes of a frame."""
        view = _view(content)
        for begin in range(0, len(view), _PIECE_BYTES):
            self._drain(view[begin : begin + _PIECE_BYTES], time.monotonic() + timeout_s)

    def receive(self, timeout_s: float | None) -> Frame:
        """Waits for the next frame, whose bytes are then received by :meth:`receive_into`; None waits for ever, unless
        the frame has begun to come."""
        head = bytearray(_HEAD.size)
        if timeout_s is None:
            self._limit(None, socket.SO_RCVTIMEO)
            received = self._socket.recv_into(head)
            if not received:
                raise ConnectionResetError("the other end has closed the connection.")
            self._fill(memoryview(head)[received:], time.monotonic() + _BEGUN_S)
        else:
            self._fill(memoryview(head), time.monotonic() + timeout_s)
        return Frame(*_HEAD.unpack(head))

    def receive_into(self, memory: bytearray | np.ndarray, timeout_s: float) -> None:
        """Receives the next bytes of a frame to where they belong: all of ``memory``."""
        view = _view(memory)
        for begin in range(0, len(view), _PIECE_BYTES):
            self._fill(view[begin : begin + _PIECE_BYTES], time.monotonic() + timeout_s)

    def fileno(self) -> int:
        return self._socket.fileno()

    def stop(self) -> None:
        """Ends the connection, and with it what other threads wait for on it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Safe to call twice."""
        self._socket.close()

    def _prepare(self) -> None:
        options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        options += [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _KEEP_ALIVE.items()]
        for option in options:
            self._socket.setsockopt(*option)
        if not isinstance(self._socket, TlsSocket):
            self._socket.setblocking(True)

    def _prove(self, secret: bytes, purpose: str, deadline: float) -> None:
        theirs = self._read_greeting(deadline)
        ours = secrets.token_bytes(_NONCE_BYTES)
        self._write(_MAGIC + ours + _digest(secret, purpose, b"connects", theirs, ours), deadline)
        # Who does not know the secret, or is not told whether we do, says nothing but this.
        proof = self._read(_DIGEST_BYTES, deadline)
        if not any(proof):
            raise StrangerError("the other end does not take this secret: give both ends the same one.")
        if not hmac.compare_digest(proof, _digest(secret, purpose, b"listens", theirs, ours)):
            raise StrangerError("the other end does not know the secret: it is not who this process looks for.")

    def _examine(self, secret: bytes, purpose: str, deadline: float) -> None:
        ours = secrets.token_bytes(_NONCE_BYTES)
        self._write(_MAGIC + ours, deadline)
        theirs = self._read_greeting(deadline)
        proof = self._read(_DIGEST_BYTES, deadline)
        if not hmac.compare_digest(proof, _digest(secret, purpose, b"connects", ours, theirs)):
            self._write(bytes(_DIGEST_BYTES), deadline)
            raise StrangerError("who connected does not know the secret: give both ends the same one.")
        self._write(_digest(secret, purpose, b"listens", ours, theirs), deadline)

    def _read_greeting(self, deadline: float) -> bytes:
        magic = self._read(len(_MAGIC), deadline)
        if magic != _MAGIC:
            raise FrameError(
                f"the other end greets by {magic!r}, not {_MAGIC!r}: it is something else, or another version of this "
                "package. Give the address that it printed, and run one version."
            )
        return self._read(_NONCE_BYTES, deadline)

    def _read(self, num_bytes: int, deadline: float) -> bytes:
        memory = bytearray(num_bytes)
        self._fill(memoryview(memory), deadline)
        return bytes(memory)

    def _write(self, content: bytes, deadline: float) -> None:
        self._drain(memoryview(content), deadline)

    def _fill(self, view: memoryview, deadline: float) -> None:
        while len(view):
            self._limit(_left(deadline), socket.SO_RCVTIMEO)
            if isinstance(self._socket, TlsSocket):
                received = self._socket.recv_into(view)
            else:
                # All that is to come by one call: the system looks at the time, and wakes this thread for all of it.
                with _late():
                    received = self._socket.recv_into(view, len(view), socket.MSG_WAITALL)
            if not received:
                raise ConnectionResetError("the other end has closed the connection.")
            view = view[received:]

    def _drain(self, view: memoryview, deadline: float, flags: int = 0) -> None:
        while len(view):
            self._limit(_left(deadline), socket.SO_SNDTIMEO)
            if isinstance(self._socket, TlsSocket):
                self._socket.sendall(view)
                return
            with _late():
                view = view[self._socket.send(view, flags) :]

    def _limit(self, timeout_s: float | None, option: int) -> None:
        """Limits how long this thread's next call waits: None, for ever."""
        if isinstance(self._socket, TlsSocket):
            self._socket.settimeout(timeout_s)
            return
        # The socket blocks, and the system itself looks at the time, each way by itself: Python would poll before each
        # call, get no more by it than is there just then, and have one limit for the thread that sends and the other.
        microseconds = 0 if timeout_s is None else max(round(timeout_s * 1e6), 1)
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIME.pack(*divmod(microseconds, 1_000_000)))


@contextlib.contextmanager
def _late() -> Iterator[None]:
    """Names what a blocking socket calls by another name, once its time is over."""
    try:
        yield
    except BlockingIOError as error:
        raise TimeoutError("the other end did not answer in time.") from error


def listen(host: str, port: int) -> socket.socket:
    """Opens a socket that accepts connections at one address of this machine; port 0 lets the system choose. Raises
    OSError: the address is taken, or none of this machine's."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # A process that takes over from one that was killed need not wait for old connections to be forgotten.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def stop_listening(listener: socket.socket) -> None:
    """Ends a listening socket, and the thread that waits in ``accept``. Safe to call twice."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def end_connections(port: int) -> None:
    """Ends the connections that this process has accepted at a port, for a library that cannot end its own."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            # A copy, so that it is the same socket that is looked at and ended, whatever happens to the descriptor.
            copied = os.dup(int(name))
            try:
                connection = socket.socket(fileno=copied)
            except OSError:  # it is no socket
                os.close(copied)
                continue
            with connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
                    connection.getpeername()  # OSError: it listens
                    connection.shutdown(socket.SHUT_RDWR)


def is_loopback(address: str) -> bool:
    """Whether the address is loopback on every machine, unlike a host's own name, which may be so there alone."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _view(content: Any) -> memoryview:
    return memoryview(content).cast("B") if len(content) else memoryview(b"")


def _digest(secret: bytes, purpose: str, role: bytes, *nonces: bytes) -> bytes:
    # The role keeps an end from being given its own words back.
    return hmac.digest(secret, b"\0".join((role, purpose.encode(), *nonces)), "sha256")


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the other end did not answer in time.")
    return left_s
