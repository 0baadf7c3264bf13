"""Other processes of this machine: whether they are stopped or busy, and signals to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

# As the masks of /proc/PID/status have them: bit n - 1 is signal n.
_TO_END = 1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1


def is_stopped(pid: int) -> bool:
    """Returns whether a process is stopped (SIGSTOP, SIGTSTP, a debugger): it does nothing until SIGCONT."""
    return _stat(pid)[:1] in (["T"], ["t"])


def is_busy(pid: int) -> bool:
    """Returns whether a thread of a process runs, or waits for a core or for a disk."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(_stat(f"{pid}/task/{thread}")[:1] in (["R"], ["D"]) for thread in threads)


def wake(pid: int) -> bool:
    """Lets a stopped process go on; returns whether it was one."""
    return is_stopped(pid) and send_signal(pid, signal.SIGCONT)


def wake_to_end(pid: int) -> bool:
    """Lets a stopped process go on where SIGINT or SIGTERM waits for it; returns whether it did."""
    # A stopped process gets a signal to end when it goes on, and not before.
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
    """Finds the children and grandchildren of a process, of ``variables`` those with one of them: ``b"NAME=value"``."""
    parents = {int(pid): int(stat[1]) for pid in os.listdir("/proc") if pid.isdigit() and (stat := _stat(int(pid)))}
    pids = []
    for pid, parent in parents.items():
        if ancestor in (parent, parents.get(parent)):
            with suppress(OSError):  # it has ended meanwhile
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if variables else ()
                if not variables or not set(variables).isdisjoint(environment):
                    pids.append(pid)
    return pids


def _stat(pid: int | str) -> list[str]:
    """Returns the fields of a process's, or a thread's ``PID/task/TID``, stat from its state on; none if it is gone."""
    try:
        # After the command's name, which may hold blanks and brackets of its own.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
