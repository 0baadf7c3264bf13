"""Messages between the ranks of one machine: JSON over sequenced-packet unix sockets.

Socket names live in Linux's abstract namespace, so a killed process leaves no file. Both ends check that the other
runs under the same user; every message is checked against its kind's fields before anything looks at it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from lightning_gnnload.errors import QueueProtocolError

PROTOCOL_VERSION = 4
MAX_MESSAGE_BYTES = 1 << 17

Message = dict[str, Any]

KINDS: dict[str, dict[str, type]] = {
    # trainer -> sampler
    "hello": {"version": int, "trainer": int, "rank": int},
    "open": {"stream": int, "phase": str, "loader": int, "reload": int, "epoch": int, "start": int, "stop": int},
    "share": {"stream": int, "ranges": list, "slots": int},
    "close": {"stream": int},
    "free": {"slot": int},
    "bye": {"outcome": dict},
    # trainer 0 -> sampler, when that is idle: a mini-batch to train, parameters to do it with, a gradient's receipt
    "task": {"stream": int, "slice": int},
    "parameters": {"copy": int, "version": int, "global_step": int, "due_ms": float, "fresh_due_ms": float},
    "settled": {"copy": int},
    # sampler -> trainer
    "welcome": {"version": int, "rank": int, "pid": int},
    "opening": {},  # it lives, and fills a cache, say, before it makes a stream's first mini-batch
    "batch": {"stream": int, "step": int, "slot": int, "slot_bytes": int, "payload": dict},
    # sampler -> trainer 0, when it is idle
    "standby": {"digest": str},
    "offer": {"room": int},
    "begun": {"stream": int, "slice": int, "version": int},
    "gradient": {"stream": int, "slice": int, "copy": int, "version": int, "ms": float},
    "withdrawn": {"text": str},
    # either way: what ended the sender, or a peer that it saw end
    "failed": {"role": str, "rank": int, "died": bool, "stage": str, "text": str},
}


class Channel:
    """One end of a connection. Sending is atomic a message, so that any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.peer_pid = _check_peer(connection)
        """The process at the other end; seen from who connected, the one that made the listening socket."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Raises OSError: the peer is gone."""
        data = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise QueueProtocolError(
                f"a {kind!r} message of {len(data)} bytes is too large; the limit is {MAX_MESSAGE_BYTES}."
            )
        if fds:
            socket.send_fds(self._socket, [data], list(fds))
        else:
            self._socket.send(data)

    def receive(self) -> tuple[Message, list[int]]:
        """The next message, and the file descriptors that came with it, which the caller owns. Waits for it.

        Raises:
            EOFError: the peer has closed its end, or is gone.
            QueueProtocolError: what came is no message of ours.
        """
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 1)
        except ConnectionResetError:
            raise EOFError from None
        try:
            if not data:
                raise EOFError
            return _checked(data, truncated=bool(flags & socket.MSG_TRUNC)), fds
        except (EOFError, QueueProtocolError):
            for fd in fds:
                os.close(fd)
            raise

    def finish(self) -> None:
        """Closes the sending half, so that all that was sent arrives before the end of the stream."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self, timeout_s: float) -> None:
        """Discards what still comes, until the peer closes too.

        Closing with unread data would make the kernel reset the connection, and the peer would lose our last words.
        """
        deadline = time.monotonic() + timeout_s
        while readable([self], max(deadline - time.monotonic(), 0)):
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 1)
            except OSError:
                return
            for fd in fds:
                os.close(fd)
            if not data:
                return

    def close(self) -> None:
        self._socket.close()


def readable(channels: Sequence[Channel], timeout_s: float) -> list[Channel]:
    """The channels with something to receive, once there is one, or none when the time is over.

    Sockets stay blocking: a time limit on the socket itself would reach the threads that send on it.
    """
    poll = select.poll()
    by_fd = {channel.fileno(): channel for channel in channels}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(timeout_s * 1e3)]


def listen(job: str, sampler: int) -> socket.socket:
    """The socket that trainers of this machine connect to.

    Raises:
        QueueProtocolError: another process listens under this name.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        listener.bind(_address(job, sampler))
    except OSError as error:
        listener.close()
        raise QueueProtocolError(
            f"sampler {sampler} cannot listen: {error}. Another job runs under the same name {job!r}."
        ) from error
    listener.listen(128)
    return listener


def accept(listener: socket.socket) -> Channel:
    """Raises QueueProtocolError: the process that connected runs under another user; it is cut off."""
    connection, _ = listener.accept()
    try:
        return Channel(connection)
    except BaseException:
        connection.close()
        raise


def connect(job: str, sampler: int) -> Channel | None:
    """Connects to a sampler; None where nobody listens, not yet or not any more.

    Raises:
        QueueProtocolError: it runs under another user.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        connection.connect(_address(job, sampler))
        return Channel(connection)
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise


def _address(job: str, sampler: int) -> bytes:
    return f"\0gnnload-{os.getuid()}-{job}-{sampler}".encode()


def _check_peer(connection: socket.socket) -> int:
    """The peer's process id, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    if uid != os.getuid():
        raise QueueProtocolError(f"a process of user {uid} connected; only user {os.getuid()}, who runs this job, may.")
    return int(pid)


def _checked(data: bytes, *, truncated: bool) -> Message:
    try:
        message = json.loads(data)
        fields = KINDS[message["kind"]]
        sound = not truncated and message.keys() == {"kind", *fields}
        sound = sound and all(type(message[name]) is wanted for name, wanted in fields.items())
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise QueueProtocolError(f"a malformed message came from another rank: {data[:200]!r}")
    return message
