"""Children: the ranks that a script's first process started. They end with it, and it ends with them."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

GRACE_S = 5.0
"""Ranks that see another one end need so long to say why, and to stop in good order."""
_POLL_S = 0.2
_log = logging.getLogger(__name__)


class Children:
    """Watches the started ranks in a thread, and this process's end.

    Lightning's own observer kills all ranks within five seconds of one's end, often before any could tell the
    reason. This one waits for this process to notice by itself, and kills only what hangs.

    Args:
        processes: local ranks 1, 2, ..., in order.
    """

    def __init__(self, processes: Sequence[subprocess.Popen]) -> None:
        self.processes = list(processes)
        self._ending = False
        threading.Thread(target=self._watch, name="gnnload-children", daemon=True).start()
        atexit.register(self._at_exit)

    def send_signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def expect_end(self) -> None:
        """This process has failed, and will end: the others must too."""
        self._ending = True

    def _watch(self) -> None:
        while any(process.poll() is None for process in self.processes):
            if any(process.returncode for process in self.processes):
                break
            time.sleep(_POLL_S)
        codes = {rank: process.returncode for rank, process in enumerate(self.processes, 1) if process.returncode}
        if not codes:
            return
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            if self._ending:
                return
            time.sleep(_POLL_S)
        _log.error(
            f"local rank {min(codes)} ended with exit code {codes[min(codes)]}, and rank 0 hangs since: "
            f"ending all ranks. What the other ranks wrote above may say why."
        )
        self.send_signal(signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _at_exit(self) -> None:
        # The process group is left by now, as exit handlers run last in, first out: no rank waits for this one.
        if not self._ending:
            return
        deadline = time.monotonic() + GRACE_S
        while any(process.poll() is None for process in self.processes) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self.send_signal(signal.SIGKILL)
