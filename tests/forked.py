"""Work that may end its process by a signal."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any]) -> tuple[int, str]:
    """Runs it in a fork of this process: the status, minus the signal that it died of or 0, and what it printed.

    A fork, since a new interpreter takes seconds to import torch.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(write, 1)
            os.dup2(write, 2)
            faulthandler.disable()
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
            signal.alarm(60)
            work()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        printed = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), printed
