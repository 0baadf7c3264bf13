"""Roles: which ranks sample and which train."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lightning_gnnload.errors import RoleConfigError


class Role(Enum):
    """What a rank does."""

    SAMPLER = "sampler"
    TRAINER = "trainer"


@dataclass(frozen=True)
class RolePlan:
    """Factors the local ranks of each machine into trainers, first, and samplers, last.

    Lightning's world consists of the trainers alone, numbered from 0 over all machines; samplers come after them.

    Args:
        num_devices: local ranks of each machine.
        num_samplers: how many of them sample.
        num_nodes: machines.

    Raises:
        RoleConfigError: no sampler, or no device left to train on.

    Source: GNNLab (EuroSys'22), section 4 (the factored design).

    Example:
        >>> plan = RolePlan(num_devices=4, num_samplers=1)
        >>> [plan.role(rank).value for rank in range(4)]
        ['trainer', 'trainer', 'trainer', 'sampler']
    """

    num_devices: int
    num_samplers: int
    num_nodes: int = 1

    def __post_init__(self) -> None:
        if self.num_samplers < 1:
            raise RoleConfigError(
                f"samplers={self.num_samplers}: FactoredStrategy needs at least one sampler. "
                f"To sample inside the training ranks, use strategy='auto' or 'ddp' with the same data module."
            )
        if self.num_samplers >= self.num_devices:
            raise RoleConfigError(
                f"samplers={self.num_samplers} of devices={self.num_devices} leaves no device to train on. "
                f"Use fewer samplers, or Trainer(devices={self.num_samplers + 1}) or more."
            )

    @property
    def num_trainers(self) -> int:
        """Of each machine."""
        return self.num_devices - self.num_samplers

    @property
    def world_size(self) -> int:
        """Trainers of all machines: Lightning's world."""
        return self.num_nodes * self.num_trainers

    def role(self, local_rank: int) -> Role:
        return Role.TRAINER if local_rank < self.num_trainers else Role.SAMPLER

    def index(self, local_rank: int) -> int:
        """Its place among the machine's ranks of the same role."""
        return local_rank if self.role(local_rank) is Role.TRAINER else local_rank - self.num_trainers

    def global_rank(self, node_rank: int, local_rank: int) -> int:
        if self.role(local_rank) is Role.TRAINER:
            return node_rank * self.num_trainers + local_rank
        return self.world_size + node_rank * self.num_samplers + self.index(local_rank)
