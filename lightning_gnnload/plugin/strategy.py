"""FactoredStrategy: devices factored into sampler ranks and trainer ranks."""

from __future__ import annotations

import atexit
import hashlib
import os
from typing import Any

import torch
import torch.distributed

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue import BatchQueue
from lightning_gnnload.pipeline.queueloader import QueueLoader
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import environments, pl
from lightning_gnnload.plugin.datamodule import default_num_threads
from lightning_gnnload.plugin.launcher import ScriptLauncher, SpawnLauncher
from lightning_gnnload.plugin.rendezvous import form_group
from lightning_gnnload.plugin.roles import Role, RolePlan


class FactoredStrategy(pl.strategies.DDPStrategy):
    """Trains on some ranks and samples on the others, joined by a bounded queue in shared memory.

    Of ``Trainer(devices=n)``, the last ``samplers`` local ranks sample. Lightning's world consists of the trainers
    alone, which run plain DDP: callbacks, loggers, checkpoints, metrics, validation and test work as ever. Works
    under Lightning's own launcher, ``start_method="spawn"`` and torchrun.

    Args:
        samplers: how many of each machine's ranks sample.
        staleness: optimizer steps that a gradient may be late; 0, plain DDP, is what this release has.
        switching: whether idle samplers train; not in this release.
        queue_depth: mini-batches that each sampler may have made ahead, or in use, for each trainer and loader.
            Each is a buffer in shared memory as large as the largest batch; with 2 or more, sampling overlaps training.
        sampler_threads: sampling threads of a sampler; None takes the sampler's share of the cores, at most 4.
        connect_timeout_s: how long ranks wait for each other to start.
        stall_timeout_s: how long a trainer waits for a mini-batch that a sampler owes; then it counts as lost.
        takeover: whether training goes on, with the same mini-batches, when a sampler is lost (killed, out of memory,
            stopped, raised): the others take its work over, or the trainers sample themselves. Else the job ends.
        **ddp: arguments of Lightning's DDPStrategy.

    Raises:
        RoleConfigError: samplers that leave no trainer, or options that this release does not have.

    Source: GNNLab (EuroSys'22), section 5.2.
    """

    strategy_name = "factored"

    def __init__(
        self,
        samplers: int = 1,
        staleness: int = 0,
        switching: bool = False,
        queue_depth: int = 4,
        *,
        sampler_threads: int | None = None,
        connect_timeout_s: float = 60.0,
        stall_timeout_s: float = 120.0,
        takeover: bool = True,
        **ddp: Any,
    ) -> None:
        if not isinstance(samplers, int) or isinstance(samplers, bool) or samplers < 1:
            raise RoleConfigError(
                f"samplers={samplers!r}: this release needs the number of samplers, at least 1. "
                f"To sample inside the training ranks, use strategy='auto' or 'ddp' with the same data module."
            )
        if staleness != 0 or switching:
            raise RoleConfigError(
                f"staleness={staleness!r}, switching={switching!r}"
                f": this release has staleness=0 and switching=False only."
            )
        for name, value in (("queue_depth", queue_depth), ("sampler_threads", sampler_threads)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise RoleConfigError(f"{name}={value!r}: a whole number of at least 1 is needed.")
        for name, seconds in (("connect_timeout_s", connect_timeout_s), ("stall_timeout_s", stall_timeout_s)):
            if not seconds > 0:
                raise RoleConfigError(f"{name}={seconds!r}: a positive number of seconds is needed.")
        if not isinstance(takeover, bool):
            raise RoleConfigError(f"takeover={takeover!r}: True or False is needed.")
        self.num_samplers = samplers
        self.queue_depth = queue_depth
        self.sampler_threads = sampler_threads
        self.connect_timeout_s = connect_timeout_s
        self.stall_timeout_s = stall_timeout_s
        self.takeover = takeover
        self.queue: BatchQueue | None = None
        self._requests = dict.fromkeys(compat.LOADER_BARRIERS.values(), 0)
        self._next_loader = 0
        # A configuration file names every inherited argument, as None where it is not set.
        super().__init__(**{name: value for name, value in ddp.items() if value is not None})

    # Which rank is what.

    @property
    def roles(self) -> RolePlan:
        """Raises RoleConfigError: the devices leave no trainer."""
        return RolePlan(len(self._parallel_devices or ()), self.num_samplers, self.num_nodes)

    @property
    def role(self) -> Role:
        return self.roles.role(self.local_rank)

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """The trainers' devices."""
        return self._parallel_devices and self._parallel_devices[: self.roles.num_trainers]

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        """Set by Lightning to all devices."""
        self._parallel_devices = devices
        if devices:
            _ = self.roles  # an impossible plan is refused before any process starts

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

    @property
    def num_sampler_threads(self) -> int:
        return self.sampler_threads or 2 * default_num_threads(self.roles.num_devices)

    def set_world_ranks(self) -> None:
        if self.cluster_environment is not None:
            # Under torchrun and SLURM these setters do nothing, and RANK counts the samplers too.
            self.cluster_environment.set_global_rank(self.global_rank)
            self.cluster_environment.set_world_size(self.world_size)
        compat.set_process_rank(self.global_rank)

    @property
    def run_name(self) -> str:
        """What the ranks of one machine call themselves, alike in all of them and in no other job."""
        assert self.cluster_environment is not None
        # Two nodes of one job may be one machine.
        run = [str(self.cluster_environment.main_port), str(self.node_rank)]
        run += [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")]
        # A socket name holds 107 bytes, and a run's id may be longer.
        return hashlib.blake2b("/".join(run).encode(), digest_size=8).hexdigest()

    # What Lightning calls, in trainers only unless it says otherwise.

    def _configure_launcher(self) -> None:
        """In every rank, and in the parent of spawned ones."""
        self._launcher = (
            ScriptLauncher(self) if self._start_method == "popen" else SpawnLauncher(self, self._start_method)
        )

    def setup_distributed(self) -> None:
        if not torch.distributed.is_initialized():
            # Before Lightning does it from the environment, where torchrun counts the samplers too.
            assert self.cluster_environment is not None
            form_group(
                self._get_process_group_backend(),
                address=self.cluster_environment.main_address,
                port=self.cluster_environment.main_port,
                rank=self.global_rank,
                world_size=self.world_size,
                timeout=self._timeout,
                is_local=self.num_nodes == 1
                and isinstance(self.cluster_environment, environments.LightningEnvironment),
            )
            atexit.register(_leave_process_group)  # as Lightning does for the groups that it makes
        super().setup_distributed()

    def barrier(self, name: str | None = None) -> None:
        if name in compat.LOADER_BARRIERS:
            self._requests[compat.LOADER_BARRIERS[name]] += 1
            self._next_loader = 0
        super().barrier(name)

    def process_dataloader(self, dataloader: object) -> object:
        """Puts a queue loader in a sampled loader's place."""
        index, self._next_loader = self._next_loader, self._next_loader + 1
        if not isinstance(dataloader, SampledLoader):
            pl.utilities.rank_zero.rank_zero_warn(
                f"FactoredStrategy was given a {type(dataloader).__name__}, which trainers read themselves "
                f"while the samplers are idle. Use GraphDataModule, or a subclass of it."
            )
            return dataloader
        assert self.queue is not None
        trainer = self.lightning_module.trainer  # type: ignore[union-attr]
        assert trainer.state.stage is not None
        phase = trainer.state.stage.dataloader_prefix
        assert phase is not None

        def limit() -> float:
            # Asked late: the sanity check reads the validation loaders too, with a limit of its own.
            now = trainer.state.stage.value  # type: ignore[union-attr]
            name = {"train": "training", "sanity_check": "sanity_val", "validate": "val"}.get(now, now)
            steps = getattr(trainer, f"num_{name}_batches")
            return steps[index] if isinstance(steps, list) else steps

        return QueueLoader(
            self.queue,
            dataloader,
            phase=phase,
            loader=index,
            reload=self._requests[phase],
            limit=limit,
        )

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        strategy_registry.register(
            cls.strategy_name, cls, description="Sampler ranks and trainer ranks, joined by a queue"
        )


def _leave_process_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if FactoredStrategy.strategy_name not in pl.strategies.StrategyRegistry:
    FactoredStrategy.register_strategies(pl.strategies.StrategyRegistry)
