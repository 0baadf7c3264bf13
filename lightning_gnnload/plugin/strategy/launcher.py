"""Launchers: Lightning's own start the processes; these wrap the launched function in the strategy's ``play``."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException
from torch.multiprocessing.spawn import ProcessException

from lightning_gnnload.host import flags, processes
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.plugin import compat, handover
from lightning_gnnload.plugin.compat import MultiProcessingLauncher, SubprocessScriptLauncher, TunerExit, pl
from lightning_gnnload.plugin.job import Role, RoleDecision
from lightning_gnnload.plugin.module import error_reporting
from lightning_gnnload.plugin.module.gather_group import public_name
from lightning_gnnload.plugin.strategy.children import GRACE_S, ChildProcesses, SpawnedRanks
from lightning_gnnload.plugin.strategy.ranked import RankedStrategy
from lightning_gnnload.storage.folders import clear_leftovers, staging_folder

_POLL_S = 0.2
_PARENT = "GNNLOAD_PARENT_PID"
_parted: list[Flag] = []
"""The flag of this rank, while it is in no launch."""
_log = logging.getLogger(__name__)


@contextmanager
def parent_pid_in_environment() -> Iterator[None]:
    """Passes this process's id to those that it starts meanwhile, so that they can :func:`end_with_parent`."""
    os.environ[_PARENT] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[_PARENT]


def is_child() -> bool:
    """Whether this process was started within :func:`parent_pid_in_environment`."""
    return _PARENT in os.environ


@contextmanager
def end_with_parent(can_tell: Callable[[], bool], run: str, local_rank: int) -> Iterator[None]:
    """Kills this rank soon after rank 0, or torchrun's agent, has died. ``can_tell``: whether it notices that by itself
    and can say why, for which it gets some seconds.

    While a process group forms, gloo waits half an hour for a rank 0 that is gone, and reacts to no signal. Ranks of an
    agent that was killed would train on, with nobody to end them.
    """
    is_over = threading.Event()
    is_agents = "TORCHELASTIC_RUN_ID" in os.environ and _PARENT not in os.environ
    parent = os.getppid() if is_agents else int(os.environ.get(_PARENT, 0))
    while _parted:
        _parted.pop().lower()  # it was up since the launch before
    watch = partial(_watch_parent, parent, is_agents, can_tell, run, is_over)
    watcher = start_thread("gnnload-parent", watch) if parent else None
    try:
        yield
    finally:
        if is_child():
            _parted.append(Flag(flags.rank_parted(run, local_rank)))
        is_over.set()
        if watcher is not None:
            watcher.join()  # it refers to what can_tell does: a strategy, with its trainer, features and files


def _watch_parent(
    parent: int, is_agents: bool, can_tell: Callable[[], bool], run: str, is_over: threading.Event
) -> None:
    def is_there() -> bool:
        return os.getppid() == parent and not flags.is_up(flags.rank_ended(run, 0))

    # If it is gone before the first look, there is nobody to report to, hence no time for that.
    was_there = is_there()
    while is_there():
        if is_over.wait(_POLL_S):
            return
    grace_s = GRACE_S if was_there and can_tell() else 0.0
    if is_agents:
        _log.error("torchrun's agent is gone: ending this rank.")
        os.kill(os.getpid(), signal.SIGTERM)  # as the agent would
        grace_s = GRACE_S
    if not is_over.wait(grace_s):
        who = "torchrun's agent" if is_agents else "rank 0"
        _log.error(f"{who} is gone, and this rank hangs since: ending it.")
        os.kill(os.getpid(), signal.SIGKILL)


_sessions = itertools.count(1)
"""Counts launches (fit, then test, ...), alike in every rank, as all ranks run the same script."""


class ScriptLauncher(SubprocessScriptLauncher):
    """Starts the script again for each further local rank, unless torchrun or SLURM has started them."""

    _children: ChildProcesses | None = None  # of this process, whose later Trainers find them started

    def __init__(self, strategy: RankedStrategy) -> None:
        assert strategy.cluster_environment is not None
        super().__init__(strategy.cluster_environment, strategy.roles.num_devices, strategy.num_nodes)
        self._ranked = strategy

    @property
    def starts_ranks(self) -> bool:
        """Whether this launcher, or the one of this process's parent, has started the ranks."""
        return ScriptLauncher._children is not None or is_child()

    def launch(self, function: Callable[..., Any], *args: Any, trainer: pl.Trainer | None = None, **kwargs: Any) -> Any:
        assert trainer is not None
        wrapped = partial(self._ranked.play, trainer, next(_sessions), function)
        if not self.cluster_environment.creates_processes_externally:
            handover.create()  # before anything asks for the run's name
        error_reporting.begin_call()
        try:
            if ScriptLauncher._children is not None:
                self._check(ScriptLauncher._children)
            with end_with_parent(self._can_tell, self._ranked.run_name, self._ranked.local_rank):
                return super().launch(wrapped, *args, trainer=trainer, **kwargs)
        except BaseException as error:
            # A tuner's exit ends a search, not the job: this process goes on, and so must the others.
            if ScriptLauncher._children is not None and not isinstance(error, TunerExit):
                ScriptLauncher._children.expect_end()
            # Before this rank leaves the others, which fail then.
            ranked = self._ranked
            rank = f"{ranked.role.value} rank {ranked.roles.global_rank(ranked.node_rank, ranked.local_rank)}"
            error_reporting.note(error, public_name(self.cluster_environment, ranked.node_rank), rank)
            raise

    def kill(self, signum: int) -> None:
        if ScriptLauncher._children is not None:
            ScriptLauncher._children.send_signal(signum)

    def _call_children_scripts(self) -> None:
        with parent_pid_in_environment(), handover.passed_by_environment():
            super()._call_children_scripts()
        # Ours to watch: Lightning's observer is left with none.
        ScriptLauncher._children = ChildProcesses(self.procs, self._ranked.run_name, self._may_end)
        self.procs = []

    def _check(self, children: ChildProcesses) -> None:
        """Checks processes of earlier launches, where ranks may have had other roles; TrainerDiedError if a trainer has
        ended."""
        children.begin_launch(self._may_end)
        for local_rank, code in children.exit_codes.items():
            if not self._may_end(local_rank):
                rank = self._ranked.roles.global_rank(self._ranked.node_rank, local_rank)
                text = f"Its process ended in an earlier launch, with exit code {code}."
                raise Failure("trainer", rank, True, "start", text).error()

    def _can_tell(self) -> bool:
        """Whether this rank notices an end by itself: a trainer once its group is formed, a sampler at once."""
        return dist.is_initialized() or (not self._ranked.job.is_undecided and self._ranked.role is Role.SAMPLER)

    def _may_end(self, local_rank: int) -> bool:
        """Whether other ranks can take over this rank's work. While roles are undecided, each rank is needed."""
        if self._ranked.job.is_undecided:
            return False
        return self._ranked.job.takeover and self._ranked.roles.role(local_rank) is Role.SAMPLER


@contextmanager
def private_temporary_files() -> Iterator[None]:
    """Has this process make temporary files in a folder that other users cannot read.

    Processes that torch spawns leave their errors in pickle files there. torch frees the file names at once, so another
    user could put a file of that name in their place.
    """
    before = tempfile.tempdir
    target = Path(tempfile.gettempdir()) / f"gnnload-{os.getuid()}"
    clear_leftovers(target)  # of processes that were killed
    with staging_folder(target) as folder:
        tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before


class Siblings:
    """The processes of this machine's local ranks, as one of them finds them."""

    def __init__(self) -> None:
        # Now, as who asks later may be a child of this rank.
        self._launcher = os.getpid() if ScriptLauncher._children is not None else os.getppid()

    def is_busy(self, local_rank: int) -> bool:
        """Whether a rank that has not connected yet does something. If its process cannot be found, being spawned or
        not yet started: whether the launcher, or any of its descendants, does."""
        if local_rank == 0 and is_child():
            return processes.is_busy(self._launcher)
        family = self._of(local_rank) or [self._launcher, *processes.descendants(self._launcher)]
        return any(processes.is_busy(pid) for pid in family if pid != os.getpid())

    def wake(self, local_rank: int) -> None:
        """Continues a rank that was stopped (SIGSTOP), where a script, torchrun or SLURM started it."""
        woken = [processes.wake(pid) for pid in self._of(local_rank)]
        if any(woken):
            _log.warning(f"Local rank {local_rank} was stopped before it connected: it is woken up.")

    def _of(self, local_rank: int) -> list[int]:
        variables = {f"{name}={local_rank}".encode() for name in ("LOCAL_RANK", "SLURM_LOCALID")}
        return processes.descendants(self._launcher, variables)


class SpawnLauncher(MultiProcessingLauncher):
    """Spawns or forks the local ranks from this process, and ends samplers that outlive all trainers."""

    _procs: list[Any] = []  # noqa: RUF012 - for copies in ranks, which have started none

    def __init__(self, strategy: RankedStrategy, start_method: Any) -> None:
        # Before the base class sets ``procs``, whose setter reads it.
        self._end_signals: list[int] = []  # that this process has got
        super().__init__(_AllRanks(strategy), start_method=start_method)  # type: ignore[arg-type]
        self._ranked = strategy

    def launch(self, function: Callable[..., Any], *args: Any, trainer: pl.Trainer | None = None, **kwargs: Any) -> Any:
        assert trainer is not None
        try:
            with self._ended_by_signals(), handover.for_spawned() as launch_info, private_temporary_files():
                wrapped = partial(launch_info.run, self._ranked.play, trainer, next(_sessions), function)
                return super().launch(wrapped, *args, trainer=trainer, **kwargs)
        except ProcessException as error:  # it names the process, not its rank and role
            roles, local_rank = self._ranked.roles, error.error_index
            rank = roles.global_rank(self._ranked.node_rank, local_rank)
            died = isinstance(error, ProcessExitedException)
            stage = str(trainer.state.fn and trainer.state.fn.value)
            failure = Failure(roles.role(local_rank).value, rank, died, stage, str(error)).error()
            error_reporting.note(failure, None, "")
            raise failure from None

    @contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Ends the ranks by SIGTERM when this process gets SIGTERM or SIGHUP, and this process after them, by the same
        signal: they need it, and the folder for their errors, until then."""
        parent = os.getpid()

        def pass_on(number: int, frame: Any) -> None:
            if os.getpid() == parent:
                self._end_signals.append(number)
                self.kill(signal.SIGTERM)
            elif signal.getsignal(number) is pass_on:  # in a forked rank, before Lightning hears signals there
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        self._end_signals, self._procs, before = [], [], {}
        if threading.current_thread() is threading.main_thread():
            heeded = (signal.SIGTERM, signal.SIGHUP)
            before = {
                number: signal.signal(number, pass_on)
                for number in heeded
                if signal.getsignal(number) != signal.SIG_IGN
            }
        try:
            yield
        except BaseException:
            if self._end_signals:
                compat.end_by(self._end_signals[0])
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def procs(self) -> list[Any]:
        return self._procs

    @procs.setter
    def procs(self, started: list[Any]) -> None:
        # Lightning sets them as soon as they run, and joins them then.
        self._procs = started
        if self._end_signals:
            self.kill(signal.SIGTERM)
        if started:
            SpawnedRanks(started, self._ranked.roles.num_trainers, self._ranked.job.stall_timeout_s).watch()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"procs": [], "_procs": []}  # processes cannot be pickled

    def get_extra_results(self, trainer: pl.Trainer) -> dict[str, Any]:
        decision = self._ranked.job.decision
        return super().get_extra_results(trainer) | {"role_decision": decision and decision.to_json()}

    def update_main_process_results(self, trainer: pl.Trainer, extra: dict[str, Any]) -> None:
        super().update_main_process_results(trainer, extra)
        if (decision := extra["role_decision"]) is not None:
            self._ranked.decide(RoleDecision.from_json(decision))


class _AllRanks:
    """The strategy as Lightning's spawn launcher must see it: with as many processes as there are ranks."""

    def __init__(self, strategy: RankedStrategy) -> None:
        self._strategy = strategy

    @property
    def num_processes(self) -> int:
        return self._strategy.roles.num_devices

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_strategy":  # asked for by pickle, before there is a strategy
            raise AttributeError(name)
        return getattr(self._strategy, name)
