"""Messages between processes of one user on one machine: JSON over sequenced-packet unix sockets, with descriptors.

Sockets live in Linux's abstract namespace, so a killed process leaves no file. There, any user of the machine may take
a name and connect to one, and sees which names are taken. So an address is the digest of a name that contains a secret,
both processes check that the other runs under the same user, and every message is checked before it is used.
"""

from __future__ import annotations

import array
import contextlib
import hashlib
import json
import math
import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from lightning_gnnload.errors import GnnLoadError

MAX_MESSAGE_BYTES = 1 << 17  # below Linux's default send buffer (208 KiB), so that a message is sent whole
_BACKLOG = 4096  # connections that may wait to be accepted; the system takes no more by default
_CONNECT_S = 0.2  # how long to wait in line where strangers fill that up

Message = dict[str, Any]
Listener = socket.socket
"""A socket that :func:`open_listener` has bound, which accepts connections."""

AnyChannel = TypeVar("AnyChannel", bound="MessageChannel")


class MessageChannel:
    """A connection to another process; each protocol derives a class from it. Any thread may send.

    ``kinds`` names the protocol's messages, each with its fields and their types. A malformed message, or a process of
    another user, raises ``error``.
    """

    kinds: ClassVar[Mapping[str, Mapping[str, type]]]
    error: ClassVar[type[GnnLoadError]]

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.peer_pid = self._check_peer(connection)
        """The other process; for the one that connected, it is the one that made the listening socket."""

    @classmethod
    def accept(cls: type[AnyChannel], listener: socket.socket) -> AnyChannel:
        """Accepts a connection; that of another user is cut off and raises :attr:`error`."""
        connection, _ = listener.accept()
        try:
            return cls(connection)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def connect(cls: type[AnyChannel], name: str) -> AnyChannel | None:
        """Connects to the process of this user that listens under a name.

        Returns None, for the caller to try again, where none does now, or too many wait to be accepted.
        """
        connection = _new_socket()
        try:
            # Waits in the system's queue, which is fair: by trying often, some process might never get its turn.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_CONNECT_S))
            connection.connect(address(name))
            # No limit from now on: a message must be sent whole, however long its reader takes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(0))
            return cls(connection)
        except (ConnectionRefusedError, FileNotFoundError, BlockingIOError, cls.error):
            # Another user may take an address that has been seen, once the one who had it is gone.
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_room(self) -> bool:
        """Returns whether a short message can be sent without waiting for the peer to read."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return any(event & select.POLLOUT for _, event in poll.poll(0))

    def send(self, message_type: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Sends a message whole or not at all. Raises OSError: the peer is gone."""
        data = self.encoded(message_type, **fields)
        if fds:
            socket.send_fds(self._socket, [data], list(fds))
        else:
            self._socket.send(data)

    def receive(self) -> tuple[Message, list[int]]:
        """Waits for the next message; returns it and the descriptors that came with it, which the caller must close.

        Raises:
            EOFError: the peer has closed its end, or is gone.
            error: it is no message of this protocol.
        """
        try:
            data, fds, flags = receive_fds(self._socket)
        except ConnectionResetError:
            raise EOFError from None
        # Descriptors that came are ours to close, whatever they came with.
        try:
            if not data:
                raise EOFError
            return self.checked(data, truncated=bool(flags & socket.MSG_TRUNC)), fds
        except (EOFError, self.error):
            for fd in fds:
                os.close(fd)
            raise

    def finish(self) -> None:
        """Closes the sending half, so that all that was sent arrives before the end of the stream."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self, timeout_s: float) -> bool:
        """Discards what still comes until the peer closes, too; returns whether it has."""
        # Closing with unread data would make the kernel reset the connection, and the peer would lose our last words.
        deadline = time.monotonic() + timeout_s
        while readable([self], max(deadline - time.monotonic(), 0)):
            try:
                data, fds, _ = receive_fds(self._socket)
            except OSError:
                return True
            for fd in fds:
                os.close(fd)
            if not data:
                return True
        return False

    def close(self) -> None:
        self._socket.close()

    @classmethod
    def encoded(cls, message_type: str, **fields: Any) -> bytes:
        """Returns a message's bytes. Raises :attr:`error`: it is too large."""
        data = json.dumps({"kind": message_type, **fields}, separators=(",", ":")).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise cls.error(
                f"a {message_type!r} message of {len(data)} bytes is too large; the limit is {MAX_MESSAGE_BYTES}."
            )
        return data

    @classmethod
    def checked(cls, data: bytes, *, truncated: bool) -> Message:
        """Parses a message and checks it against :attr:`kinds`. Raises :attr:`error`: ``data`` is none."""
        try:
            message = json.loads(data)
            fields = cls.kinds[message["kind"]]
            # By type(), as True is an int to isinstance. JSON that is nested too deeply is a RecursionError.
            sound = not truncated and {name: type(value) for name, value in message.items()} == {"kind": str, **fields}
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise cls.error(f"a malformed message came from another rank: {data[:200]!r}")
        return message

    @classmethod
    def _check_peer(cls, connection: socket.socket) -> int:
        # The kernel noted them when the connection was made, so the peer cannot lie.
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        if uid != os.getuid():
            raise cls.error(f"a process of user {uid} connected; only user {os.getuid()}, who runs this job, may.")
        return int(pid)


class HasFileno(Protocol):
    """What :func:`readable` waits for."""

    def fileno(self) -> int: ...


Waited = TypeVar("Waited", bound=HasFileno)


def readable(channels: Sequence[Waited], timeout_s: float) -> list[Waited]:
    """Waits for channels with something to receive, and returns them; none when the time, which may be infinite, is
    over."""
    # Not by a time limit on the socket itself, which would reach the threads that send on it.
    poll = select.poll()
    by_fd = {channel.fileno(): channel for channel in channels}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(None if timeout_s == math.inf else timeout_s * 1e3)]


def open_listener(name: str) -> socket.socket:
    """Opens the socket that :meth:`MessageChannel.connect` reaches. Raises OSError: the name is taken."""
    listener = _new_socket()
    try:
        listener.bind(address(name))
    except OSError:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    return listener


def address(name: str) -> bytes:
    """Returns the address of a name in the abstract namespace, which does not give the name away."""
    return b"\0gnnload-" + hashlib.blake2b(name.encode(), digest_size=16).hexdigest().encode()


def receive_fds(connection: socket.socket) -> tuple[bytes, list[int], int]:
    """Receives a message's bytes, its descriptors, which the caller must close, and ``recvmsg``'s flags."""
    # socket.recv_fds drops MSG_CMSG_CLOEXEC, without which programs that this process starts would inherit them.
    room = socket.CMSG_LEN(array.array("i").itemsize)
    data, ancillary, flags, _ = connection.recvmsg(MAX_MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, control_type, content in ancillary:
        if (level, control_type) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) // fds.itemsize * fds.itemsize])
    return data, list(fds), flags


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
