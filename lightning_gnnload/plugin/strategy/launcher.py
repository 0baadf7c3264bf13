"""Launchers: Lightning's own, which start the processes, with the ranks' roles inside.

The function that they are given is wrapped by :func:`.ranks.play_role`; nothing of how
to launch is written again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException
from torch.multiprocessing.spawn import ProcessException

from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.plugin.compat import MultiProcessingLauncher, SubprocessScriptLauncher, TunerExit, pl
from lightning_gnnload.plugin.strategy.children import Children, end_with_parent, is_child, parent_pid_told
from lightning_gnnload.plugin.strategy.decision import RoleDecision
from lightning_gnnload.plugin.strategy.ranks import play_role
from lightning_gnnload.plugin.strategy.roles import Role

if TYPE_CHECKING:
    from lightning_gnnload.plugin.strategy.factored import FactoredStrategy

_sessions = itertools.count(1)
"""Counts launches (fit, then test, ...), alike in every rank, as all ranks run the same script."""


class ScriptLauncher(SubprocessScriptLauncher):
    """Starts the script again for each further local rank, or finds them started (torchrun, SLURM)."""

    _children: Children | None = None  # of this process, whose later Trainers find them started

    def __init__(self, strategy: FactoredStrategy) -> None:
        assert strategy.cluster_environment is not None
        super().__init__(strategy.cluster_environment, strategy.roles.num_devices, strategy.num_nodes)
        self._factored = strategy

    @property
    def starts_ranks(self) -> bool:
        """This launcher started them, or in this process's parent one did."""
        return ScriptLauncher._children is not None or is_child()

    def launch(self, function: Callable[..., Any], *args: Any, trainer: pl.Trainer | None = None, **kwargs: Any) -> Any:
        assert trainer is not None
        wrapped = partial(play_role, self._factored, trainer, next(_sessions), function)
        try:
            if ScriptLauncher._children is not None:
                self._check(ScriptLauncher._children)
            with end_with_parent(self._can_tell):
                return super().launch(wrapped, *args, trainer=trainer, **kwargs)
        except BaseException as error:
            if ScriptLauncher._children is not None and not isinstance(error, TunerExit):
                ScriptLauncher._children.expect_end()
            raise

    def kill(self, signum: int) -> None:
        if ScriptLauncher._children is not None:
            ScriptLauncher._children.send_signal(signum)

    def _call_children_scripts(self) -> None:
        with parent_pid_told():
            super()._call_children_scripts()
        # Ours to watch: Lightning's observer is left with none.
        ScriptLauncher._children = Children(self.procs, self._factored.run_name, self._may_end)
        self.procs = []

    def _check(self, children: Children) -> None:
        """Of earlier launches, in which ranks may have had other roles. Raises TrainerDiedError: one is needed now."""
        children.begin_launch(self._may_end)
        for local_rank, code in children.exit_codes.items():
            if not self._may_end(local_rank):
                rank = self._factored.roles.global_rank(self._factored.node_rank, local_rank)
                text = f"Its process ended in an earlier launch, with exit code {code}."
                raise Failure("trainer", rank, True, "start", text).error()

    def _can_tell(self) -> bool:
        """A trainer fails with its group once that is formed, and a sampler knows its trainers."""
        return dist.is_initialized() or (not self._factored.is_undecided and self._factored.role is Role.SAMPLER)

    def _may_end(self, local_rank: int) -> bool:
        """The others take over what such a rank does. While roles are open, each rank is needed."""
        if self._factored.is_undecided:
            return False
        return self._factored.takeover and self._factored.roles.role(local_rank) is Role.SAMPLER


class SpawnLauncher(MultiProcessingLauncher):
    """Spawns or forks the local ranks from this process."""

    def __init__(self, strategy: FactoredStrategy, start_method: Any) -> None:
        super().__init__(_AllRanks(strategy), start_method=start_method)  # type: ignore[arg-type]
        self._factored = strategy

    def launch(self, function: Callable[..., Any], *args: Any, trainer: pl.Trainer | None = None, **kwargs: Any) -> Any:
        assert trainer is not None
        wrapped = partial(play_role, self._factored, trainer, next(_sessions), function)
        try:
            return super().launch(wrapped, *args, trainer=trainer, **kwargs)
        except ProcessException as error:  # it tells the process, not what that was
            roles, local_rank = self._factored.roles, error.error_index
            rank = roles.global_rank(self._factored.node_rank, local_rank)
            died = isinstance(error, ProcessExitedException)
            stage = str(trainer.state.fn and trainer.state.fn.value)
            raise Failure(roles.role(local_rank).value, rank, died, stage, str(error)).error() from None

    def get_extra_results(self, trainer: pl.Trainer) -> dict[str, Any]:
        """In rank 0, for the process that spawned it."""
        decision = self._factored.role_decision
        return super().get_extra_results(trainer) | {"role_decision": decision and decision.to_json()}

    def update_main_process_results(self, trainer: pl.Trainer, extra: dict[str, Any]) -> None:
        super().update_main_process_results(trainer, extra)
        if (decision := extra["role_decision"]) is not None:
            self._factored.decide(RoleDecision.from_json(decision))


class _AllRanks:
    """The strategy as Lightning's spawn launcher must see it: with as many processes as there are ranks."""

    def __init__(self, strategy: FactoredStrategy) -> None:
        self._strategy = strategy

    @property
    def num_processes(self) -> int:
        return self._strategy.roles.num_devices

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_strategy":  # asked for by pickle, before there is a strategy
            raise AttributeError(name)
        return getattr(self._strategy, name)
