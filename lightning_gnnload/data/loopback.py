"""Loopback: TCP connections within a machine, which any of its users may open.

gloo's ranks connect by TCP, and take who comes first and names a pair, by a small number, for the rank that is due. So
the system is asked who is at the other end, before anything is sent: torch passes pickled objects over these.
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


class _Row(NamedTuple):
    """A socket, as /proc/net/tcp has it: addresses and ports in hexadecimal, in the order of bytes there."""

    local: str
    remote: str
    state: str
    uid: int
    inode: str  # "0" while nobody has accepted it, and once nobody holds it

    @property
    def is_within(self) -> bool:
        """Whether it is connected within this machine, on whatever interface."""
        own, other = (each.split(":")[0] for each in (self.local, self.remote))
        return own == other or (len(own) == 8 and own.endswith("7F"))  # 127.0.0.1 has more addresses beside it


@contextmanager
def own_pairs(num_ranks: int, backend: str = "gloo") -> Iterator[None]:
    """Checks a gloo group that is formed within the block: its connections within this machine lead to this user's.
    From then on nobody can connect to it any more, as all of its ranks have.

    Connections to other machines are not checked, nor those of a group that connects when they are first used
    (``TORCH_GLOO_LAZY_INIT``), nor any on a system without ``/proc/net/tcp``.

    Args:
        num_ranks: of the group.
        backend: its own; of others than gloo, nothing is checked.

    Raises:
        StrangerError: one leads to another user's process, or to none.
    """
    is_lazy = os.environ.get("TORCH_GLOO_LAZY_INIT", "0").lower() in ("1", "true", "on", "yes", "y")
    if "gloo" not in backend or is_lazy or not _TABLES[0].exists():
        yield
        return
    before = _own_sockets()
    yield
    own = {inode: fd for inode, fd in _own_sockets().items() if inode not in before}
    rows = [row for row in _table() if row.inode in own]
    # In whatever state: who is gone again may have sent something.
    connected = [row for row in rows if row.state != _LISTENING]
    # What has merely connected, and named no pair, does no harm. gloo sets the group's time limit on its pairs alone.
    pairs = [row for row in connected if _has_time_limit(own[row.inode])]
    if len(pairs) < num_ranks - 1:
        pairs = connected
    if len(pairs) < num_ranks - 1:
        raise _stranger("nobody")
    _await_own([(row.remote, row.local) for row in pairs if row.is_within])
    listeners = {row.local: row for row in rows if row.state == _LISTENING}
    if len(listeners) > 1:  # another thread of this process has just begun to listen, too
        listeners = {row.local: listeners[row.local] for row in pairs if row.local in listeners}
    for row in listeners.values():
        _deafen(own[row.inode])


def _await_own(ends: list[tuple[str, str]]) -> None:
    """Waits until processes of this user hold these ends. Raises StrangerError: another one's does, or nobody."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = {(row.local, row.remote): row for row in _table() if row.state == _ESTABLISHED and row.inode != "0"}
        for row in (found[end] for end in ends if end in found):
            if row.uid != os.getuid():
                raise _stranger(f"a process of user {row.uid}")
        if all(end in found for end in ends):
            return
        if time.monotonic() > deadline:
            raise _stranger("nobody")
        time.sleep(_POLL_S)


def _stranger(who: str) -> StrangerError:
    return StrangerError(
        f"a connection between ranks leads to {who}, and must lead to a process of user {os.getuid()}, who runs this "
        f"job; nothing was sent over it. If no other rank says why it ended, find out what other users run on this "
        f"machine, then start the job again."
    )


def _table() -> list[_Row]:
    rows = []
    for table in _TABLES:
        with suppress(FileNotFoundError):  # a system without IPv6
            for line in table.read_text().splitlines()[1:]:
                _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
                rows.append(_Row(local, remote, state, int(uid), inode))
    return rows


def _own_sockets() -> dict[str, int]:
    """Lists the descriptors of this process's sockets, by inode."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # of the listing itself, or closed since
            link = os.readlink(f"/proc/self/fd/{fd}")
            if link.startswith("socket:["):
                found[link[8:-1]] = int(fd)
    return found


def _has_time_limit(fd: int) -> bool:
    with suppress(OSError), _opened(fd) as connection:  # it may have ended
        return any(connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL_BYTES))
    return False


def _deafen(fd: int) -> None:
    """Has the system drop whatever else comes to a listening socket."""
    drop_all = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, 0))
    program = struct.pack("@HP", 1, ctypes.addressof(drop_all))
    with _opened(fd) as listener:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


@contextmanager
def _opened(fd: int) -> Iterator[socket.socket]:
    with socket.socket(fileno=os.dup(fd)) as opened:
        yield opened
