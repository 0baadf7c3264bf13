"""Children: the ranks that a process has started, which it watches, and ends when they hang."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from lightning_gnnload.data import processes
from lightning_gnnload.data.threads import start_thread
from lightning_gnnload.errors import ThreadLimitError
from lightning_gnnload.pipeline import flags
from lightning_gnnload.pipeline.flags import Flag
from lightning_gnnload.plugin.compat import SIGTERM_STATUS

GRACE_S = 5.0
"""Ranks that see another one end get so long to say why, and to stop in good order."""
_POLL_S = 0.2
_TOLD = (0, SIGTERM_STATUS)
"""Exit codes of ranks that came to their end: on SIGTERM all do, each in its own time."""
_log = logging.getLogger(__name__)


class ChildProcesses:
    """Watches the ranks that this process has started, in a thread, and kills those that hang when it ends.

    Lightning's own observer kills all ranks within five seconds of one's end, often before any could tell the
    reason. This one waits for this process to notice by itself, and kills only what hangs. A rank that may end, as a
    sampler may whose work is taken over, is let go; a flag tells all others that it will never connect.

    Args:
        started: local ranks 1, 2, ..., in order.
        run: name that the ranks of this machine share.
        may_end: whether a local rank is one that may.
    """

    def __init__(self, started: Sequence[subprocess.Popen], run: str, may_end: Callable[[int], bool]) -> None:
        self.processes = list(started)
        self._run = run
        self._may_end = may_end
        self._ended: dict[int, Flag] = {}
        self._ending = False
        _have_watched(self.processes, self._watch)
        atexit.register(self._at_exit)

    def begin_launch(self, may_end: Callable[[int], bool]) -> None:
        """Begins another Trainer's launch, in which ranks may have other roles."""
        self._may_end = may_end

    @property
    def exit_codes(self) -> dict[int, int]:
        """The exit codes of the local ranks whose processes have ended."""
        # A copy of the keys: the watching thread adds to them.
        return {local_rank: self.processes[local_rank - 1].returncode for local_rank in list(self._ended)}

    def send_signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def expect_end(self) -> None:
        """Notes that this process has failed and will end, and that the others must too."""
        self._ending = True

    def _watch(self) -> None:
        codes: dict[int, int] = {}
        while not codes:
            for local_rank, process in enumerate(self.processes, 1):
                if process.poll() is not None and local_rank not in self._ended:
                    # Kept: a flag goes down with its socket.
                    self._ended[local_rank] = Flag(flags.rank_ended(self._run, local_rank))
                # Others may wait for it in a collective, where they heed no Ctrl-C.
                processes.wake_to_end(process.pid)
            # Asked of all each time: roles change from launch to launch, and when they are decided.
            codes = {
                rank: code for rank, code in self.exit_codes.items() if code not in _TOLD and not self._may_end(rank)
            }
            if len(self._ended) == len(self.processes) and not codes:
                return
            time.sleep(_POLL_S)
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
        # Those that are in a launch see by it that this process ends well, and take a grace of their own first. Where
        # it has failed, they have been told.
        ended = [] if self._ending else [Flag(flags.rank_ended(self._run, 0))]
        deadline = time.monotonic() + (GRACE_S if self._ending else 2 * GRACE_S)
        left = self._unended()
        # Ctrl-C here is meant for all of them.
        with suppress(KeyboardInterrupt):
            while left and time.monotonic() < deadline:
                for rank in left:
                    if processes.wake(self.processes[rank - 1].pid):
                        _log.warning(f"Local rank {rank} was stopped when rank 0 ended: it is woken up, to end.")
                        self.processes[rank - 1].terminate()
                time.sleep(_POLL_S)
                left = self._unended()
        for rank in left:
            self.processes[rank - 1].kill()
        for flag in ended:
            flag.lower()

    def _unended(self) -> list[int]:
        """The local ranks that must not outlive this process: all but those whose script goes on after the launch."""
        alive = {rank: process.pid for rank, process in enumerate(self.processes, 1) if process.poll() is None}
        if self._ending:
            return list(alive)
        return [
            rank
            for rank, pid in alive.items()
            if processes.is_stopped(pid) or not flags.is_up(flags.rank_parted(self._run, rank))
        ]


def _have_watched(started: Sequence[Any], watch: Callable[[], None]) -> None:
    """Has a thread watch processes; where the system gives none, they end, as nobody else would end them.

    Raises:
        ThreadLimitError: it gives none.
    """
    try:
        start_thread("gnnload-children", watch)
    except ThreadLimitError:
        for process in started:
            process.kill()
        for process in started:
            process.wait() if isinstance(process, subprocess.Popen) else process.join()
        raise


class SpawnedRanks:
    """Watches the ranks that this process spawned or forked, and ends samplers that outlive all trainers, for which
    whoever joins the processes would wait for ever.

    Args:
        started: local ranks 0, 1, ..., in order: the list that is joined.
        num_trainers: the first ones are.
        end_timeout_s: how long a sampler may take to end after them.
    """

    def __init__(self, started: list[Any], num_trainers: int, end_timeout_s: float) -> None:
        self._started = started
        self._end_timeout_s = end_timeout_s
        self._sentinels = [process.sentinel for process in started]
        self._num_trainers = num_trainers

    def watch(self) -> None:
        _have_watched(self._started, self._watch)

    def _watch(self) -> None:
        # By what tells of an end, not by its status, which is the joining thread's to collect.
        trainers = self._sentinels[: self._num_trainers]
        while len(wait(trainers, 0)) < self._num_trainers:
            for process in self._started:
                processes.wake_to_end(process.pid)
            time.sleep(_POLL_S)
        deadline = time.monotonic() + self._end_timeout_s
        while (left := self._unended()) and time.monotonic() < deadline:
            for rank in left:
                if processes.wake(self._started[rank].pid):
                    _log.warning(f"Local rank {rank} was stopped when all trainers had ended: it is woken up.")
            time.sleep(_POLL_S)
        for rank in left:
            _log.warning(
                f"Local rank {rank} has not ended {self._end_timeout_s:g} s after all trainers, and is killed."
            )
            # Before it is killed: whoever joins it looks at its status then.
            process, self._started[rank] = self._started[rank], _Excused(self._started[rank])
            processes.send_signal(process.pid, signal.SIGKILL)

    def _unended(self) -> list[int]:
        ended = wait(self._sentinels, 0)
        return [rank for rank, sentinel in enumerate(self._sentinels) if sentinel not in ended]


class _Excused:
    """A rank's process that was ended after all training was done: how it ended is no failure of the job."""

    exitcode = 0

    def __init__(self, process: Any) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)
