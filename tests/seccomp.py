"""Filters of system calls, as containers set them."""

from __future__ import annotations

import ctypes
import errno
import struct

IO_URING_SETUP, IO_URING_ENTER = 425, 426  # alike on all machines
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def forbid(system_call: int) -> None:
    """Has a system call fail with EPERM from now on, in this process and its children, for good."""
    steps = [
        (_LOAD_WORD, 0, 0, 0),  # its number
        (_JUMP_IF_EQUAL, 0, 1, system_call),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
