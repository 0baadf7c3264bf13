"""The ranks that a process has started: it watches them, and kills those that hang."""

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

from lightning_gnnload.errors import ThreadLimitError
from lightning_gnnload.host import flags, processes
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.plugin.compat import SIGTERM_STATUS

GRACE_S = 5.0
"""Ranks that see another one end get so long to say why, and to stop in good order."""
_POLL_S = 0.2
_ORDERLY = (0, SIGTERM_STATUS)
"""Exit codes of ranks that came to their end: on SIGTERM all do, each in its own time."""
_log = logging.getLogger(__name__)


class ChildProcesses:
    """Watches the ranks that this process has started, in a thread, and kills those that hang when it ends.

    Lightning's own observer kills all ranks within five seconds of one's end, often before any could say why. This one
    waits for this process to fail by itself. A rank that ``may_end``, such as a sampler whose work is taken over, is
    let go; a flag tells the others that it will never connect. ``started`` are local ranks 1, 2, ... in order.
    """

    def __init__(self, started: Sequence[subprocess.Popen], run: str, may_end: Callable[[int], bool]) -> None:
        self.processes = list(started)
        self._run = run
        self._may_end = may_end
        self._ended: dict[int, Flag] = {}
        self._ending = False
        _start_watching(self.processes, self._watch)
        atexit.register(self._at_exit)

    def begin_launch(self, may_end: Callable[[int], bool]) -> None:
        """Begins another Trainer's launch, in which ranks may have other roles."""
        self._may_end = may_end

    @property
    def exit_codes(self) -> dict[int, int]:
        """Exit codes by local rank, of the processes that have ended."""
        # A copy of the keys: the watching thread adds to them.
        return {local_rank: self.processes[local_rank - 1].returncode for local_rank in list(self._ended)}

    def send_signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def expect_end(self) -> None:
        """Notes that this process has failed and will end, so that the others must end too."""
        self._ending = True

    def _watch(self) -> None:
        codes = self._await_bad_end()
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

    def _await_bad_end(self) -> dict[int, int]:
        """Waits until a rank ends badly that is needed; returns the exit codes of such, or none when all have ended."""
        while True:
            for local_rank, process in enumerate(self.processes, 1):
                if process.poll() is not None and local_rank not in self._ended:
                    # In a field: a flag goes down with its socket.
                    self._ended[local_rank] = Flag(flags.rank_ended(self._run, local_rank))
                # It may wait for others in a collective, where it handles no Ctrl-C.
                processes.wake_to_end(process.pid)
            # Anew each time: roles change from launch to launch, and when they are decided.
            codes = {
                rank: code for rank, code in self.exit_codes.items() if code not in _ORDERLY and not self._may_end(rank)
            }
            if codes or len(self._ended) == len(self.processes):
                return codes
            time.sleep(_POLL_S)

    def _at_exit(self) -> None:
        # The process group is left by now, as exit handlers run last in, first out: no rank waits for this one.
        # Those that are in a launch see by it that this process ends well, and take a grace of their own first. Where
        # it has failed, they know already.
        ended = [] if self._ending else [Flag(flags.rank_ended(self._run, 0))]
        deadline = time.monotonic() + (GRACE_S if self._ending else 2 * GRACE_S)
        alive = self._unended()
        # Ctrl-C here is meant for all of them.
        with suppress(KeyboardInterrupt):
            while alive and time.monotonic() < deadline:
                for rank in alive:
                    if processes.wake(self.processes[rank - 1].pid):
                        _log.warning(f"Local rank {rank} was stopped when rank 0 ended: it is woken up, to end.")
                        self.processes[rank - 1].terminate()
                time.sleep(_POLL_S)
                alive = self._unended()
        for rank in alive:
            self.processes[rank - 1].kill()
        for flag in ended:
            flag.lower()

    def _unended(self) -> list[int]:
        """The local ranks that must not outlive this process: those whose script does not go on after the launch."""
        alive = {rank: process.pid for rank, process in enumerate(self.processes, 1) if process.poll() is None}
        if self._ending:
            return list(alive)
        return [
            rank
            for rank, pid in alive.items()
            if processes.is_stopped(pid) or not flags.is_up(flags.rank_parted(self._run, rank))
        ]


def _start_watching(started: Sequence[Any], watch: Callable[[], None]) -> None:
    """Starts the watching thread; without one, kills the processes and raises ThreadLimitError."""
    try:
        start_thread("gnnload-children", watch)
    except ThreadLimitError:
        for process in started:
            process.kill()
        for process in started:
            process.wait() if isinstance(process, subprocess.Popen) else process.join()
        raise


class SpawnedRanks:
    """Kills samplers that outlive all trainers by ``end_timeout_s``, for which the joining process would wait for ever.

    ``started`` is the very list that is joined: local ranks 0, 1, ..., trainers first.
    """

    def __init__(self, started: list[Any], num_trainers: int, end_timeout_s: float) -> None:
        self._started = started
        self._end_timeout_s = end_timeout_s
        self._sentinels = [process.sentinel for process in started]
        self._num_trainers = num_trainers

    def watch(self) -> None:
        _start_watching(self._started, self._watch)

    def _watch(self) -> None:
        # By sentinels, not by exit status, which the joining thread collects.
        trainers = self._sentinels[: self._num_trainers]
        while len(wait(trainers, 0)) < self._num_trainers:
            for process in self._started:
                processes.wake_to_end(process.pid)
            time.sleep(_POLL_S)
        deadline = time.monotonic() + self._end_timeout_s
        while (alive := self._unended()) and time.monotonic() < deadline:
            for rank in alive:
                if processes.wake(self._started[rank].pid):
                    _log.warning(f"Local rank {rank} was stopped when all trainers had ended: it is woken up.")
            time.sleep(_POLL_S)
        for rank in alive:
            _log.warning(
                f"Local rank {rank} has not ended {self._end_timeout_s:g} s after all trainers, and is killed."
            )
            # Before it is killed: the joining thread reads its status then.
            process, self._started[rank] = self._started[rank], _ExpectedExit(self._started[rank])
            processes.send_signal(process.pid, signal.SIGKILL)

    def _unended(self) -> list[int]:
        ended = wait(self._sentinels, 0)
        return [rank for rank, sentinel in enumerate(self._sentinels) if sentinel not in ended]


class _ExpectedExit:
    """A process that was killed after all training was done: its exit code is no failure of the job."""

    exitcode = 0

    def __init__(self, process: Any) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)
