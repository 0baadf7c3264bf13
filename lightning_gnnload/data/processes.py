"""Other processes of this machine: whether one is stopped, and signals to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_TO_END = 1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP, SIGTSTP, a debugger): it does nothing until SIGCONT."""
    return _stat(pid)[:1] in (["T"], ["t"])


def is_busy(pid: int) -> bool:
    """Whether a thread of a process runs, or waits for a core to run on or for a disk."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(_stat(f"{pid}/task/{thread}")[:1] in (["R"], ["D"]) for thread in threads)


def wake(pid: int) -> bool:
    """Lets a stopped process go on; returns whether it was one."""
    return is_stopped(pid) and send_signal(pid, signal.SIGCONT)


def wake_to_end(pid: int) -> bool:
    """Lets a stopped process go on that was sent SIGINT or SIGTERM, as by Ctrl-C; returns whether it was one."""
    if not is_stopped(pid):
        return False
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        pending = sum(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
        return bool(pending & _TO_END) and send_signal(pid, signal.SIGCONT)
    return False


def send_signal(pid: int, number: int) -> bool:
    """Sends a signal to another process than this one; returns whether there is one."""
    if pid == os.getpid():
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def descendants(ancestor: int, variables: Collection[bytes] = ()) -> list[int]:
    """Finds processes that ``ancestor`` or its children started, with one of ``variables``, as ``b"NAME=value"``, where
    some are given."""
    parents = {int(pid): int(stat[1]) for pid in os.listdir("/proc") if pid.isdigit() and (stat := _stat(int(pid)))}
    found = []
    for pid, parent in parents.items():
        if ancestor in (parent, parents.get(parent)):
            with suppress(OSError):  # it has ended meanwhile
                if not variables or not set(variables).isdisjoint(
                    Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                ):
                    found.append(pid)
    return found


def _stat(pid: int | str) -> list[str]:
    """Returns the state of a process, or of a thread ``PID/task/TID``, its parent and what else the kernel tells;
    nothing for one that is gone."""
    try:
        # After the command's name, which may hold blanks and brackets of its own.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
