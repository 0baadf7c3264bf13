"""Which user owns a socket, as the system knows it: any user of a machine may take a name or connect to a port of it.

gloo's ranks connect by TCP, and take whoever comes first and names a pair, by a small number, for the rank that is due.
torch then passes pickled objects over these connections. So the system is asked who is at their other end first.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload.errors import StrangerError

_TABLES = Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6")
_ESTABLISHED, _LISTENING = "01", "0A"  # linux/tcp_states.h
_PATIENCE_S = 5.0  # how long a rank may take to accept what has connected
_POLL_S = 0.01
_SO_ATTACH_FILTER = 26  # linux/socket.h
_TIMEVAL_BYTES = 16
_RETURN = 0x06  # linux/bpf_common.h: BPF_RET | BPF_K

_SOCK_DIAG = 4  # linux/netlink.h: NETLINK_SOCK_DIAG; the rest is of linux/sock_diag.h and linux/unix_diag.h
_BY_FAMILY = 20
_DUMP = 0x301
_ERROR, _DONE = 2, 3
_STATES = 1 << 7 | 1 << 1  # of datagram sockets: TCP's closed; and established, from the first that connects to it on
_SHOW_NAME, _SHOW_UID = 0x01, 0x40
_UID = 7
_HEAD, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_HEAD_BYTES = 32  # of an answer: netlink's and unix_diag's own


def is_bound_by_user(address: bytes) -> bool:
    """Returns whether a datagram socket of this user is bound to an address of the unix namespace."""
    query = struct.pack("=BBHIII8s", socket.AF_UNIX, 0, 0, _STATES, 0, _SHOW_NAME | _SHOW_UID, b"\xff" * 8)
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
    except OSError:
        return True  # a kernel without unix_diag does not tell, and most sockets are of this user
    with netlink:
        netlink.send(_HEAD.pack(_HEAD.size + len(query), _BY_FAMILY, _DUMP, 0, 0) + query)
        while True:
            answers = netlink.recv(1 << 16)
            while answers:
                length, message_type, *_ = _HEAD.unpack_from(answers)
                if message_type in (_ERROR, _DONE):
                    return message_type == _ERROR
                answer, answers = answers[:length], answers[_aligned(length) :]
                # Sockets of another type may have the same name.
                if address in answer and answer[_HEAD.size + 1] == socket.SOCK_DGRAM:
                    attributes = _attributes(answer[_HEAD_BYTES:])
                    if address in attributes.values():
                        return attributes.get(_UID) == struct.pack("=I", os.getuid())


def _attributes(message: bytes) -> dict[int, bytes]:
    attributes = {}
    while len(message) >= _ATTRIBUTE.size:
        length, attribute = _ATTRIBUTE.unpack_from(message)
        attributes[attribute] = message[_ATTRIBUTE.size : length]
        # A length of 0 would never end.
        message = message[max(_aligned(length), _ATTRIBUTE.size) :]
    return attributes


def _aligned(length: int) -> int:
    return (length + 3) & ~3


class _SocketRow(NamedTuple):
    """A socket in /proc/net/tcp: addresses and ports in hexadecimal, in the order of bytes there."""

    local: str
    remote: str
    state: str
    uid: int
    inode: str  # "0" while nobody has accepted it, and once nobody holds it

    @property
    def is_within(self) -> bool:
        """Whether it is connected within this machine, on whatever interface."""
        local_ip, remote_ip = (endpoint.split(":")[0] for endpoint in (self.local, self.remote))
        # All of 127.0.0.0/8 leads here; its first byte is the last one of the text.
        return local_ip == remote_ip or (len(local_ip) == 8 and local_ip.endswith("7F"))


@contextmanager
def guarded_group(num_ranks: int, backend: str = "gloo") -> Iterator[None]:
    """Checks the gloo group that the block forms: its connections within this machine must lead to this user's ranks.

    Then it shuts the group's listening socket. Connections to other machines are not checked, nor are other backends,
    groups that connect at first use (``TORCH_GLOO_LAZY_INIT``), and systems without ``/proc/net/tcp``.

    Raises StrangerError: one leads to another user's process, or to none.
    """
    is_lazy = os.environ.get("TORCH_GLOO_LAZY_INIT", "0").lower() in ("1", "true", "on", "yes", "y")
    if "gloo" not in backend or is_lazy or not _TABLES[0].exists():
        yield
        return
    before = _socket_fds()
    yield
    new_fds = {inode: fd for inode, fd in _socket_fds().items() if inode not in before}
    rows = [row for row in _socket_rows() if row.inode in new_fds]
    pairs = _group_pairs(rows, new_fds, num_ranks)
    _await_peers([(row.remote, row.local) for row in pairs if row.is_within])
    listeners = {row.local: row for row in rows if row.state == _LISTENING}
    if len(listeners) > 1:  # another thread of this process has just begun to listen, too
        listeners = {row.local: listeners[row.local] for row in pairs if row.local in listeners}
    for row in listeners.values():
        _drop_all_input(new_fds[row.inode])


def _group_pairs(rows: list[_SocketRow], fds: dict[str, int], num_ranks: int) -> list[_SocketRow]:
    """Returns the group's connections, one to each other rank. Raises StrangerError: there are fewer."""
    # In whatever state: who is gone again may have sent something.
    connected = [row for row in rows if row.state != _LISTENING]
    # What has merely connected, and named no pair, does no harm. gloo sets the group's time limit on its pairs alone.
    pairs = [row for row in connected if _has_time_limit(fds[row.inode])]
    if len(pairs) < num_ranks - 1:
        pairs = connected
    if len(pairs) < num_ranks - 1:
        raise _stranger_error("nobody")
    return pairs


def _await_peers(endpoints: list[tuple[str, str]]) -> None:
    """Waits until processes of this user have accepted these (local, remote) connections.

    Raises StrangerError: another user's process has one, or nobody has it in time.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        rows = {
            (row.local, row.remote): row for row in _socket_rows() if row.state == _ESTABLISHED and row.inode != "0"
        }
        for row in (rows[endpoint] for endpoint in endpoints if endpoint in rows):
            if row.uid != os.getuid():
                raise _stranger_error(f"a process of user {row.uid}")
        if all(endpoint in rows for endpoint in endpoints):
            return
        if time.monotonic() > deadline:
            raise _stranger_error("nobody")
        time.sleep(_POLL_S)


def _stranger_error(who: str) -> StrangerError:
    return StrangerError(
        f"a connection between ranks leads to {who}, and must lead to a process of user {os.getuid()}, who runs this "
        f"job; nothing was sent over it. If no other rank says why it ended, find out what other users run on this "
        f"machine, then start the job again."
    )


def _socket_rows() -> list[_SocketRow]:
    rows = []
    for table in _TABLES:
        with suppress(FileNotFoundError):  # a system without IPv6
            for line in table.read_text().splitlines()[1:]:
                _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
                rows.append(_SocketRow(local, remote, state, int(uid), inode))
    return rows


def _socket_fds() -> dict[str, int]:
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # of the listing itself, or closed since
            link = os.readlink(f"/proc/self/fd/{fd}")
            if link.startswith("socket:["):
                fds[link[8:-1]] = int(fd)
    return fds


def _has_time_limit(fd: int) -> bool:
    with suppress(OSError), _duplicate(fd) as connection:  # it may have ended
        return any(connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL_BYTES))
    return False


def _drop_all_input(fd: int) -> None:
    # A filter, as the socket is gloo's to close: from now on the system drops whatever comes to it.
    drop_all = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, 0))
    program = struct.pack("@HP", 1, ctypes.addressof(drop_all))
    with _duplicate(fd) as listener:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


@contextmanager
def _duplicate(fd: int) -> Iterator[socket.socket]:
    with socket.socket(fileno=os.dup(fd)) as opened:
        yield opened
