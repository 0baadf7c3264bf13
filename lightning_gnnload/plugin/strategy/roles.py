"""Roles: which ranks sample and which train."""

from __future__ import annotations

import math
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
    A machine's only rank has both roles: it counts as a trainer, and samples in threads of its own.

    Args:
        num_devices: local ranks of each machine.
        num_samplers: how many of them sample.
        num_nodes: machines.

    Raises:
        RoleConfigError: no sampler, or no rank left to train.

    Source: GNNLab (EuroSys'22), section 4 (the factored design) and 5.3 (the lone device).

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
        if self.num_samplers >= self.num_devices and not self.is_lone:
            raise RoleConfigError(
                f"samplers={self.num_samplers} of devices={self.num_devices} leaves no device to train on. "
                f"Use fewer samplers, or Trainer(devices={self.num_samplers + 1}) or more, "
                f"or let ranks share devices with FactoredStrategy(trainers=1, samplers={self.num_samplers})."
            )

    @property
    def is_lone(self) -> bool:
        """Each machine has one rank, which trains and samples."""
        return self.num_devices == 1 and self.num_samplers == 1

    @property
    def num_trainers(self) -> int:
        """Of each machine."""
        return 1 if self.is_lone else self.num_devices - self.num_samplers

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


def samplers_needed(sample_ms: float, train_ms: float, num_ranks: int) -> int:
    """How many of a machine's ranks should sample, so that trainers need not wait: at least 1, and not all.

    One sampler feeds ``K = train_ms / sample_ms`` trainers. Of ``K + 1`` ranks one samples, rounded up, as a
    trainer that waits is worse than a sampler that does.

    Args:
        sample_ms: what one sampler takes for a mini-batch, at its throughput (T_s).
        train_ms: what one trainer takes for a step, its mini-batch being ready (T_t).
        num_ranks: ranks of the machine, 2 or more (N_g).

    Source: GNNLab (EuroSys'22), section 5.2.

    Example:
        >>> samplers_needed(sample_ms=12.1, train_ms=31.0, num_ranks=8)  # 8 / (2.56 + 1) = 2.2
        3
    """
    # N_g / (K + 1) without the division by T_s, which may be as small as the clock can tell.
    wanted = math.ceil(num_ranks * sample_ms / max(sample_ms + train_ms, 1e-9))
    return min(max(wanted, 1), num_ranks - 1)


def check_role_options(samplers: object, trainers: object, queue_depth: object, queue_memory_bytes: object) -> None:
    """Raises RoleConfigError: options of FactoredStrategy that exclude each other, whatever the devices."""
    if samplers != "auto" and (not isinstance(samplers, int) or isinstance(samplers, bool) or samplers < 1):
        raise RoleConfigError(
            f"samplers={samplers!r}: the number of samplers is needed, at least 1, or 'auto'. "
            f"To sample inside the training ranks, use strategy='auto' or 'ddp' with the same data module."
        )
    if samplers == "auto" and trainers is not None:
        raise RoleConfigError(
            f"samplers='auto', trainers={trainers!r}: 'auto' divides as many ranks as there are devices. "
            f"Give the number of both, or leave trainers out."
        )
    if queue_memory_bytes is not None and queue_depth != "auto":
        raise RoleConfigError(
            f"queue_depth={queue_depth!r}, queue_memory_bytes={queue_memory_bytes!r}: the one sets how deep the "
            f"queue is, and so does the other. Leave one out, or give queue_depth='auto'."
        )
    for name, value in (
        ("trainers", trainers),
        ("queue_depth", None if queue_depth == "auto" else queue_depth),
        ("queue_memory_bytes", queue_memory_bytes),
    ):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise RoleConfigError(f"{name}={value!r}: a whole number of at least 1 is needed.")
