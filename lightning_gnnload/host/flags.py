"""Flags: names by which a process tells all others of its user on the machine a fact, as long as the name exists.

A flag is a datagram socket bound to a name in Linux's abstract namespace. To look at one is to try to connect to it,
which costs the owner nothing, and to ask the system whose it is; it goes down with its process, however that ends, and
leaves no file.
"""

from __future__ import annotations

import errno
import socket

from lightning_gnnload.host.socket_owners import is_bound_by_user
from lightning_gnnload.host.sockets import address


class Flag:
    """A named flag that other processes see until :meth:`lower`, or until this process ends. To raise one twice is no
    error."""

    def __init__(self, name: str) -> None:
        self._socket = _socket()
        try:
            self._socket.bind(_address(name))
        except OSError as error:
            self._socket.close()
            if error.errno != errno.EADDRINUSE:
                raise

    def lower(self) -> None:
        self._socket.close()


def is_up(name: str) -> bool:
    """Whether some process of this user has raised the flag on this machine."""
    with _socket() as looking:
        try:
            looking.connect(_address(name))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    # Who has seen a flag knows its address, and may take that when it has gone down.
    return is_bound_by_user(_address(name))


def trainer_alive(job: str, trainer: int) -> str:
    """Names the flag of a trainer that is in this launch, and needs its samplers."""
    return f"{job}-trainer-{trainer}"


def sampler_stalled(job: str, pid: int) -> str:
    """Names the flag that a trainer raises when it ends a stalled sampler, so that the others know why it is gone."""
    return f"{job}-stalled-{pid}"


def rank_ended(run: str, local_rank: int) -> str:
    """Names the flag that a rank's parent raises once the rank's process has ended: it will never connect."""
    return f"{run}-ended-{local_rank}"


def rank_parted(run: str, local_rank: int) -> str:
    """Names the flag of a rank whose launch is over: what its script does from there on needs no rank 0."""
    return f"{run}-parted-{local_rank}"


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def _address(name: str) -> bytes:
    return address(f"flag-{name}")
