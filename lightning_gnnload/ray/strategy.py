"""RayFactoredStrategy: sampler ranks and trainer ranks that Ray Train has started."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from ray.train import lightning as ray_lightning  # first: ``plugin.compat`` follows the Lightning that is imported
from ray.train import torch as ray_torch

from lightning_gnnload.errors import LaunchError, LightningCompatibilityError, RoleConfigError
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.plugin.compat import PACKAGE_VARIABLE, environments, pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.strategy.factored import FactoredStrategy
from lightning_gnnload.plugin.strategy.ranks import datamodule_in
from lightning_gnnload.ray.addresses import ranks_secret
from lightning_gnnload.ray.collectives import announced_to, answered_beside
from lightning_gnnload.ray.command import start_command
from lightning_gnnload.ray.compat import is_worker, train_context
from lightning_gnnload.ray.owner_actors import OwnerActors
from lightning_gnnload.settings import check_whole_number

if not issubclass(ray_lightning.RayDDPStrategy, pl.strategies.DDPStrategy):
    _THEIRS, _OURS = (
        strategy.__module__.partition(".")[0]
        for strategy in (ray_lightning.RayDDPStrategy.__bases__[0], pl.strategies.DDPStrategy)
    )
    raise LightningCompatibilityError(
        f"Ray Train follows the package {_THEIRS}, and lightning_gnnload {_OURS}: a Trainer of the one takes no "
        f"strategy of the other. In the function that Ray runs, import {_THEIRS} first and nothing of {_OURS}; or set "
        f"{PACKAGE_VARIABLE}={_THEIRS} for all workers: "
        f"ray.init(runtime_env={{'env_vars': {{'{PACKAGE_VARIABLE}': '{_THEIRS}'}}}})."
    )

_OF_RAY = {
    "cluster_environment": "Ray's is the only one that knows the ranks",
    "parallel_devices": "they are those that ScalingConfig gives the workers",
    "start_method": "Ray Train starts the ranks",
    "takeover": "Ray starts all ranks again when one is lost, as often as FailureConfig(max_failures=...) says",
    "trainers": "ScalingConfig(num_workers=...) says how many ranks there are",
}
"""Arguments of FactoredStrategy that have no meaning here, and why."""


class RayFactoredStrategy(FactoredStrategy, ray_lightning.RayDDPStrategy):
    """FactoredStrategy within a function that Ray Train runs in each worker, on machines that Ray chooses.

    The Trainer needs no ``devices``, ``num_nodes`` and plugins: these are Ray's, which places workers by its
    ScalingConfig, as many on each machine. A sampler feeds the trainers of its machine, so its workers belong together
    (``placement_strategy="PACK"``); those of ``sampler_nodes``, trainers of others. Samplers call ``ray.train.report``
    whenever trainers do, as Ray waits for all workers there. When a rank is lost, or its machine, Ray starts all of
    them again, and training goes on from the checkpoint that was reported last (:class:`.RayReportCallback`).

    Args:
        samplers, **settings: arguments of FactoredStrategy and Lightning's DDPStrategy, except ``trainers``,
            ``takeover``, ``start_method``, ``cluster_environment`` and ``parallel_devices``, which Ray decides on.
        owners: how many owners Ray starts, for data with ``graph="remote"`` or ``features="remote"``: on the machines
            that have Ray's custom resource ``storage`` in turn; without that resource, on all. The partition's folder
            lies there under the path that the data module was given. Ray starts an owner again that is lost, elsewhere
            if its machine is, and training goes on with the same mini-batches. They end with the run.

    Raises:
        LaunchError: the process is no worker of Ray Train, or was not started with :class:`.FactoredTorchConfig`.
        RoleConfigError: samplers that leave no trainer, machines with other numbers of workers, or an argument that
            Ray decides on.

    Source: GNNLab (EuroSys'22), section 5.2.

    Example:
        >>> def train_function(config):
        ...     data = GraphDataModule(Debian(), NeighborSampler([15, 10]))
        ...     trainer = pl.Trainer(strategy=RayFactoredStrategy(samplers=1), accelerator="cpu", max_epochs=5)
        ...     prepare_trainer(trainer).fit(model, data)
    """

    strategy_name = "ray_factored"

    def __init__(self, samplers: int | Literal["auto"] = 1, *, owners: int = 0, **settings: Any) -> None:
        check_whole_number("owners", owners, RoleConfigError, least=0)
        for name in _OF_RAY.keys() & settings.keys():
            if settings[name] not in (
                None,
                "popen",
            ):  # the default, which a configuration names: scripts go on after a call
                raise RoleConfigError(f"RayFactoredStrategy has no {name}: {_OF_RAY[name]}. Leave it out.")
            del settings[name]
        context = train_context()
        here, everywhere = context.get_local_world_size(), context.get_world_size()
        if everywhere % here:
            raise RoleConfigError(
                f"Ray Train has placed {here} of {everywhere} workers on this machine, hence other numbers on others: "
                f"RayFactoredStrategy needs as many on each. Give each machine a custom resource for so many workers, "
                f"as ray start --resources='{{\"rank\": {here}}}', and each worker one of them: "
                f"ScalingConfig(resources_per_worker={{'rank': 1, ...}}, placement_strategy='PACK')."
            )
        self.owners = owners
        self._owner_actors: OwnerActors | None = None
        self._num_workers_here = here
        self._num_machines = everywhere // here
        super().__init__(samplers, takeover=False, **settings)

    # What Ray decides, whatever the Trainer sets.

    @property
    def num_nodes(self) -> int:
        """The machines; Lightning sets it to the Trainer's, which is 1 where it was left out."""
        return self._num_machines

    @num_nodes.setter
    def num_nodes(self, num_nodes: int) -> None:
        self._check_trainers("num_nodes", num_nodes, self._num_machines)

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        return super().parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        """Sets the devices of this machine's ranks. On CPUs, ``devices="auto"`` is 1 to Lightning; where workers share
        GPUs, it is the number of these."""
        if devices and devices[0].type == "cpu":
            self._check_trainers("devices", len(devices), self._num_workers_here)
        if devices:
            devices = [devices[rank % len(devices)] for rank in range(self._num_workers_here)]
        FactoredStrategy.parallel_devices.fset(self, devices)  # type: ignore[attr-defined]

    def _check_trainers(self, name: str, trainers: int, rays: int) -> None:
        if trainers not in (1, rays):
            raise RoleConfigError(
                f"Trainer({name}={trainers}), but Ray Train has {name}={rays} here: leave {name} out of the Trainer, "
                f"and set ScalingConfig(num_workers=...), which counts the ranks of all machines."
            )

    @property
    def root_device(self) -> torch.device:
        return ray_torch.get_device() if super().root_device.type == "cuda" else super().root_device

    @property
    def cluster_environment(self) -> environments.ClusterEnvironment | None:
        """Ray's, in the place of what Lightning finds in the variables of the environment."""
        return self._rays_environment

    @cluster_environment.setter
    def cluster_environment(self, environment: environments.ClusterEnvironment | None) -> None:
        is_rays = environment is None or isinstance(environment, ray_lightning.RayLightningEnvironment)
        self._rays_environment: Any = environment if is_rays else ray_lightning.RayLightningEnvironment()

    def _configure_launcher(self) -> None:
        ranks_secret()
        super()._configure_launcher()

    @classmethod
    def start_command(cls, arguments: Sequence[str], trainer: Mapping[str, Any]) -> bool:
        """What ``gnnload`` calls before it makes this strategy: has Ray's workers run the command, unless this process
        is one of them; returns whether they did. See :func:`.command.start_command`."""
        if is_worker():
            return False
        start_command(arguments, trainer)
        return True

    # Owners, which the data module finds by these two names.

    def owner_addresses(self) -> list[str]:
        """Where the owners listen now; none before a call of the Trainer, and without ``owners``."""
        return [] if self._owner_actors is None else self._owner_actors.addresses()

    @property
    def owner_secret(self) -> str | None:
        """The secret that they share with the ranks; None where they are not of this strategy."""
        return None if self._owner_actors is None else ranks_secret()

    @property
    def queue_secret(self) -> str | None:
        return ranks_secret()

    def play(self, trainer: pl.Trainer, session: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.owners:
            self._start_owners(datamodule_in(inspect.signature(function).bind(*args, **kwargs).arguments))
        return super().play(trainer, session, function, *args, **kwargs)

    def _start_owners(self, datamodule: Any) -> None:
        if not isinstance(datamodule, GraphDataModule) or not datamodule.owners.is_asked:
            raise LaunchError(
                f"RayFactoredStrategy(owners={self.owners}) starts the owners of a partition's folder, but the Trainer "
                f"was called with data that ask for none. Give GraphDataModule(load_partition(folder), ..., "
                f"features='remote')."
            )
        partition = datamodule.owners.open_partition()
        if self._owner_actors is None or self._owner_actors.folder != partition.folder:
            self._owner_actors = OwnerActors.start(partition, self.owners, ranks_secret(), self.connect_timeout_s)

    # Samplers are workers of Ray Train, too.

    def beside_sampling(self, service: SamplerService) -> AbstractContextManager[None]:
        return answered_beside(service)

    def beside_training(self, queue: BatchQueue) -> AbstractContextManager[None]:
        if self.local_rank:
            return nullcontext()
        # Those of other machines hear all trainers: the first tells them.
        return announced_to(queue, queue.num_samplers if self.is_global_zero else self.roles.num_samplers)
