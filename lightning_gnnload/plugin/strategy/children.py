"""Children: the ranks that a script's first process started. They end with it, and it ends with them."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lightning_gnnload.pipeline import flags
from lightning_gnnload.pipeline.flags import Flag

GRACE_S = 5.0
"""Ranks that see another one end need so long to say why, and to stop in good order."""
_POLL_S = 0.2
_PARENT = "GNNLOAD_PARENT_PID"
_log = logging.getLogger(__name__)


@contextmanager
def parent_pid_told() -> Iterator[None]:
    """The processes started meanwhile can :func:`end_with_parent`."""
    os.environ[_PARENT] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[_PARENT]


def is_child() -> bool:
    """This process was started while :func:`parent_pid_told`."""
    return _PARENT in os.environ


@contextmanager
def end_with_parent(can_tell: Callable[[], bool]) -> Iterator[None]:
    """In a started rank: should rank 0, or torchrun's agent, die meanwhile, this process ends soon after.

    While a process group forms, gloo waits half an hour for a rank 0 that is gone, and hears nobody. Ranks of an agent
    that was killed would train on, with nobody to end them.

    Args:
        can_tell: whether this rank will notice by itself, and can tell others; it gets the time to.
    """
    is_over = threading.Event()

    def watch(parent: int, who: str) -> None:
        was_there = os.getppid() == parent
        while os.getppid() == parent:
            if is_over.wait(_POLL_S):
                return
        grace_s = GRACE_S if was_there and can_tell() else 0.0
        if parent == agent:
            _log.error(f"{who} is gone: ending this rank.")
            os.kill(os.getpid(), signal.SIGTERM)  # as the agent would
            grace_s = GRACE_S
        if not is_over.wait(grace_s):
            _log.error(f"{who} is gone, and this rank hangs since: ending it.")
            os.kill(os.getpid(), signal.SIGKILL)

    agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ and _PARENT not in os.environ else None
    parent = agent or int(os.environ.get(_PARENT, 0))
    if parent:
        who = "torchrun's agent" if agent else "rank 0"
        threading.Thread(target=watch, args=(parent, who), name="gnnload-parent", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


class Children:
    """Watches the started ranks in a thread, and this process's end.

    Lightning's own observer kills all ranks within five seconds of one's end, often before any could tell the
    reason. This one waits for this process to notice by itself, and kills only what hangs. A rank that may end, as a
    sampler may whose work is taken over, is let go; a flag tells all others that it will never connect.

    Args:
        processes: local ranks 1, 2, ..., in order.
        run: name that the ranks of this machine share.
        may_end: whether a local rank is one that may.
    """

    def __init__(self, processes: Sequence[subprocess.Popen], run: str, may_end: Callable[[int], bool]) -> None:
        self.processes = list(processes)
        self._run = run
        self._may_end = may_end
        self._ended: dict[int, Flag] = {}
        self._ending = False
        threading.Thread(target=self._watch, name="gnnload-children", daemon=True).start()
        atexit.register(self._at_exit)

    def begin_launch(self, may_end: Callable[[int], bool]) -> None:
        """Another Trainer's turn, in which ranks may have other roles."""
        self._may_end = may_end

    @property
    def exit_codes(self) -> dict[int, int]:
        """Of the local ranks whose processes have ended."""
        return {local_rank: self.processes[local_rank - 1].returncode for local_rank in list(self._ended)}

    def send_signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def expect_end(self) -> None:
        """This process has failed, and will end: the others must too."""
        self._ending = True

    def _watch(self) -> None:
        codes: dict[int, int] = {}
        while not codes:
            for local_rank, process in enumerate(self.processes, 1):
                if process.poll() is not None and local_rank not in self._ended:
                    self._ended[local_rank] = Flag(flags.rank_ended(self._run, local_rank))
            # Asked of all each time: roles change from launch to launch, and when they are decided.
            codes = {rank: code for rank, code in self.exit_codes.items() if code and not self._may_end(rank)}
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
        if not self._ending:
            return
        deadline = time.monotonic() + GRACE_S
        while any(process.poll() is None for process in self.processes) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self.send_signal(signal.SIGKILL)
