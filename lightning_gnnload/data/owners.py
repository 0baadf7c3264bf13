"""Owners: whose sockets are, as the system knows it; users of one machine share its names and its loopback."""

from __future__ import annotations

import os
import socket
import struct

_SOCK_DIAG = 4  # linux/netlink.h: NETLINK_SOCK_DIAG; the rest is of linux/sock_diag.h and linux/unix_diag.h
_BY_FAMILY = 20
_DUMP = 0x301
_ERROR, _DONE = 2, 3
_STATES = 1 << 7 | 1 << 1  # of datagram sockets: TCP's closed; and established, from the first that connects to it on
_SHOW_NAME, _SHOW_UID = 0x01, 0x40
_UID = 7
_HEAD, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_HEAD_BYTES = 32  # of an answer: netlink's and unix_diag's own


def holds(address: bytes) -> bool:
    """Whether a datagram socket of this user is bound to an address; True where the system does not tell, as a kernel
    without unix_diag."""
    query = struct.pack("=BBHIII8s", socket.AF_UNIX, 0, 0, _STATES, 0, _SHOW_NAME | _SHOW_UID, b"\xff" * 8)
    try:
        asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
    except OSError:
        return True
    with asking:
        asking.send(_HEAD.pack(_HEAD.size + len(query), _BY_FAMILY, _DUMP, 0, 0) + query)
        while True:
            answers = asking.recv(1 << 16)
            while answers:
                length, kind, *_ = _HEAD.unpack_from(answers)
                if kind in (_ERROR, _DONE):
                    return kind == _ERROR
                answer, answers = answers[:length], answers[_aligned(length) :]
                # Sockets of another type may have the same name.
                if address in answer and answer[_HEAD.size + 1] == socket.SOCK_DGRAM:
                    found = _attributes(answer[_HEAD_BYTES:])
                    if address in found.values():
                        return found.get(_UID) == struct.pack("=I", os.getuid())


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind] = data[_ATTRIBUTE.size : length]
        data = data[max(_aligned(length), _ATTRIBUTE.size) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3
