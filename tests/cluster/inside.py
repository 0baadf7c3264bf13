"""``python -m tests.cluster.inside PID SCRIPT|-m MODULE|-c CODE ...``: Python on the machine that a process holds."""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

_CLONE_NEWNET = 0x40000000


def enter(holder: int) -> None:
    """Moves this thread, and what it starts from here on, to another process's network."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
    try:
        if libc.setns(fd, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"the network of process {holder}: {os.strerror(number)}")
    finally:
        os.close(fd)


def main(arguments: list[str]) -> None:
    holder, what, *rest = arguments
    enter(int(holder))
    if what == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif what == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [what, *rest]
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
