"""RankedStrategy: Lightning's world consists of the trainers alone, beside which samplers run."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from lightning_gnnload.errors import LaunchError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import Job, Role, RoleDecision, RolePlan
from lightning_gnnload.plugin.module.gather_group import run_name
from lightning_gnnload.plugin.strategy.rendezvous import check_machines, form_group, launch_store, leave_group


class RankedStrategy(pl.strategies.DDPStrategy):
    """DDP over the trainers alone, which are numbered from 0 over all machines.

    ``num_samplers`` are of each machine that trains, and may change until the ranks are launched; the last
    ``sampler_nodes`` machines only sample. ``trainers``, of each machine, are given where ranks share devices; None is
    one rank a device.

    Source: GNNLab (EuroSys'22), section 4 (the factored design).
    """

    def __init__(self, num_samplers: int, trainers: int | None, sampler_nodes: int = 0, **ddp: Any) -> None:
        self.num_samplers = num_samplers
        self.sampler_nodes = sampler_nodes
        self.trainers = trainers
        self.session = 0  # set by each launch
        # A configuration file names every inherited argument, as None where it is not set.
        ddp = {name: value for name, value in ddp.items() if value is not None}
        if compat.IS_INTERACTIVE and "start_method" not in ddp:
            ddp["start_method"] = "fork"  # no script could be started again, and no function found by its name
            pl.utilities.rank_zero.rank_zero_info(
                "FactoredStrategy forks its ranks, as this session is interactive (start_method='fork'). They compute "
                "with one thread each: in a script, they may use more."
            )
        super().__init__(**ddp)

    @property
    def start_method(self) -> str:
        """``"popen"``, ``"spawn"`` or ``"fork"``; torchrun and SLURM start ranks themselves."""
        return self._start_method

    # Which rank is what.

    @property
    def roles(self) -> RolePlan:
        """The roles of this machine's ranks. Raises RoleConfigError: the devices leave no trainer."""
        num_devices = len(self._parallel_devices or ())
        return RolePlan(num_devices, self.num_samplers, self.num_nodes, self.sampler_nodes, self.node_rank)

    @property
    def role(self) -> Role:
        return self.roles.role(self.local_rank)

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """The trainers' devices, or the samplers' of a machine without trainers; set by Lightning, or the constructor,
        to those of all ranks."""
        return self._parallel_devices and self._parallel_devices[: self.roles.num_trainers or None]

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        """Sets the devices of all ranks: Lightning gives all of the Trainer's, the constructor those it is given."""
        if devices and self.trainers is not None:
            devices = [devices[rank % len(devices)] for rank in range(self.trainers + self.num_samplers)]
        self._parallel_devices = devices
        if devices:
            RolePlan(
                len(devices), self.num_samplers, sampler_nodes=self.sampler_nodes
            )  # an impossible one is refused before any process starts

    @property
    def root_device(self) -> torch.device:
        assert self._parallel_devices is not None
        return self._parallel_devices[self.local_rank]

    @property
    def world_size(self) -> int:
        return self.roles.world_size

    @property
    def global_rank(self) -> int:
        if self.cluster_environment is None or not self._parallel_devices:
            return 0
        return self.roles.global_rank(self.node_rank, self.local_rank)

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    def set_world_ranks(self) -> None:
        if self.cluster_environment is not None:
            # Under torchrun and SLURM these setters do nothing, and RANK counts the samplers too.
            self.cluster_environment.set_global_rank(self.global_rank)
            self.cluster_environment.set_world_size(self.world_size)
        # Lightning's ``rank_zero_only`` has guessed a rank from the environment, where samplers count.
        compat.set_process_rank(self.global_rank)

    @property
    def run_name(self) -> str:
        """The name of the run on this machine, alike in all of its ranks and in no other job; a secret."""
        assert self.cluster_environment is not None
        return run_name(self.cluster_environment, self.node_rank)

    # What a subclass makes of the ranks.

    @property
    def job(self) -> Job:
        """The job as this rank knows it now."""
        raise NotImplementedError

    def play(self, trainer: pl.Trainer, session: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Trains or samples, in every rank: ``function(*args, **kwargs)`` is what Lightning launches, ``session``
        counts launches."""
        raise NotImplementedError

    def decide(self, decision: RoleDecision) -> None:
        raise NotImplementedError

    # What Lightning calls, in trainers only unless it says otherwise.

    def setup_distributed(self) -> None:
        """Forms the trainers' group. Raises LaunchError: a launcher other than this strategy's started the ranks."""
        if not self.session and not self.roles.is_lone:
            raise LaunchError(
                f"The launcher {type(self.launcher).__name__} started trainers but no samplers, for which trainers "
                f"would wait: {type(self).__name__} needs its own. Leave _configure_launcher as it is, or subclass "
                f"ScriptLauncher or SpawnLauncher of lightning_gnnload.plugin.strategy.launcher there."
            )
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() != self.world_size:
            leave_group()  # of an earlier launch, with another number of trainers
        if not torch.distributed.is_initialized():
            # Before Lightning does it from the environment, where torchrun counts the samplers too.
            store = torch.distributed.HashStore() if self.world_size == 1 else launch_store(self.job, self._timeout)
            if self.num_nodes > 1:
                check_machines(store, self.node_rank, self.roles)
            form_group(
                self._get_process_group_backend(),
                store,
                rank=self.global_rank,
                world_size=self.world_size,
                timeout=self._timeout,
            )
            atexit.register(leave_group)  # as Lightning does for the groups that it makes
        super().setup_distributed()

    def _get_process_group_backend(self) -> str:
        devices = self.parallel_devices or []
        if self._process_group_backend is None and len(set(devices)) < len(devices):
            return "gloo"  # NCCL refuses two ranks of one GPU
        return super()._get_process_group_backend()
