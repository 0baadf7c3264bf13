"""What the launch environment must tell on every machine, checked before ranks wait for each other in vain."""

from __future__ import annotations

import os
import re

from lightning_gnnload.errors import LaunchError
from lightning_gnnload.plugin.compat import environments
from lightning_gnnload.plugin.strategy.roles import RolePlan

_SEVERAL = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")


def check_environment(environment: environments.ClusterEnvironment, roles: RolePlan) -> None:
    """Raises LaunchError: the processes were not started as the Trainer's ``devices`` and ``num_nodes`` say."""
    if isinstance(environment, environments.TorchElasticEnvironment):
        _check_torchrun(roles)
    elif isinstance(environment, environments.SLURMEnvironment):
        _check_slurm(roles)
    elif isinstance(environment, environments.LightningEnvironment) and roles.num_nodes > 1:
        _check_several(roles.num_nodes)


def _check_torchrun(roles: RolePlan) -> None:
    for variable, option, name, wanted in (
        ("LOCAL_WORLD_SIZE", "--nproc-per-node", "devices", roles.num_devices),
        ("GROUP_WORLD_SIZE", "--nnodes", "num_nodes", roles.num_nodes),
    ):
        given = int(os.environ.get(variable, wanted))
        if given != wanted:
            raise LaunchError(
                f"torchrun was started with {option}={given}, but the Trainer has {name}={wanted}: the two must be "
                f"equal, on every machine. devices counts trainers and samplers."
            )


def _check_slurm(roles: RolePlan) -> None:
    # Of the step that srun started, where there is one; else of the whole allocation. "2(x3),1" is 2, 2, 2 and 1.
    layout = os.environ.get("SLURM_STEP_TASKS_PER_NODE") or os.environ.get("SLURM_TASKS_PER_NODE")
    if layout is not None:
        counts = {int(count) for count in re.findall(r"(?:^|,)(\d+)", layout)}
        if counts != {roles.num_devices}:
            raise LaunchError(
                f"SLURM starts {layout} tasks on its nodes, but the Trainer has devices={roles.num_devices}: each node "
                f"needs as many tasks, as devices counts trainers and samplers. "
                f"Use sbatch or srun --ntasks-per-node={roles.num_devices}."
            )


def _check_several(num_nodes: int) -> None:
    missing = [name for name in _SEVERAL if name not in os.environ]
    if "GROUP_RANK" in os.environ and "NODE_RANK" in missing:
        missing.remove("NODE_RANK")  # Lightning takes either
    if missing:
        raise LaunchError(
            f"num_nodes={num_nodes}, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set. On each "
            f"machine, set MASTER_ADDR to the address of the first, MASTER_PORT to a free port there, and NODE_RANK to "
            f"0, 1, ...; then start the same script on all. Or start it by torchrun or SLURM, which set them."
        )
    node_rank = int(os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", 0)))
    if not 0 <= node_rank < num_nodes:
        raise LaunchError(f"NODE_RANK={node_rank}, but num_nodes={num_nodes}: from 0 to {num_nodes - 1} is needed.")
