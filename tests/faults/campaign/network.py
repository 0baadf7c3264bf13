"""A network of the campaign's own, in which its processes meet each other and nobody else.

Strangers are let loose there: other jobs of this machine have nothing to do with it, nor has what they leave behind.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_obstacle = "the campaign has not left its network"


def leave() -> None:
    """Moves this process, and all that it starts from here on, to an empty network. Stays where that is refused."""
    global _obstacle
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        _obstacle = f"no network of its own: {os.strerror(ctypes.get_errno())} (it takes root)"
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    _obstacle = ""


def obstacle() -> str:
    """Says why strangers cannot be let loose; empty where they can."""
    return _obstacle or ("" if os.getuid() == 0 else "only root can be another user")
