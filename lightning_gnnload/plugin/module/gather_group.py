"""GatherGroup: which ranks of a machine read features, and so may share a cache of them."""

from __future__ import annotations

import hashlib
import itertools
import os
from dataclasses import dataclass, field

from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.plugin.compat import environments, pl
from lightning_gnnload.plugin.handover import secret_of

_WAIT_S = 1800.0  # torch's default timeout of a process group
_A_DAY_S = 86_400.0
"""The longest wait: sockets take no infinity."""
_openings = itertools.count()
"""Caches that this process has opened together with others: they open the same ones in the same order."""


@dataclass(frozen=True)
class GatherGroup:
    """The group of this machine's ranks that gather features, and this rank's place in it."""

    is_here: bool = True  # this rank is one of them
    index: int = 0  # of this rank, in ``[0, count)``
    count: int = 1
    name: str = field(default="", repr=False)  # alike in all of them and in no other job; a secret
    timeout_s: float = 0.0  # how long they wait for each other to come
    trainer: int | None = None  # the one trainer that this rank gathers for; None: for all
    ranks: tuple[int, ...] = ()  # their global ranks, for messages
    silence_s: float = _WAIT_S  # how long one may make no progress once all have come
    num_machines: int = 1  # with such a group each, in a FactoredStrategy

    @classmethod
    def of(cls, trainer: pl.Trainer | None) -> GatherGroup:
        """The group of a Trainer's job; for a data module without a Trainer, this process alone."""
        if trainer is None:
            return cls()
        # A FactoredStrategy says so itself. Asked by name, as it imports the data module, which asks this.
        group = getattr(trainer.strategy, "gather_group", None)
        if group is not None:
            return group
        environment = getattr(trainer.strategy, "cluster_environment", None)
        if trainer.num_devices == 1 or environment is None:
            return cls(trainer=trainer.global_rank)
        timeout = getattr(trainer.strategy, "_timeout", None)
        return cls(
            index=trainer.local_rank,
            count=trainer.num_devices,
            name=f"{run_name(environment, trainer.node_rank)}-{next(_openings)}",
            timeout_s=_WAIT_S if timeout is None else timeout.total_seconds(),
            trainer=trainer.global_rank,
            ranks=tuple(range(first := trainer.global_rank - trainer.local_rank, first + trainer.num_devices)),
        )

    @classmethod
    def of_devices(cls, trainer: pl.Trainer | None) -> GatherGroup:
        """The group of ranks whose devices gather: those that train, whoever makes their mini-batches."""
        # By name, as in ``of``.
        group = getattr(trainer.strategy, "training", None) if trainer is not None else None
        return cls.of(trainer) if group is None else group

    def membership(self, purpose: str, *, at_most_s: float = _A_DAY_S) -> Membership | None:
        """The group for one purpose, whose ranks wait for each other at most so long; None where this rank is alone."""
        if self.count == 1:
            return None
        timeout_s = min(self.timeout_s, at_most_s)
        return Membership(purpose, self.index, self.count, timeout_s, self.silence_s, key=self.name, ranks=self.ranks)


def run_name(environment: environments.ClusterEnvironment, node_rank: int) -> str:
    """Names the run on one machine, alike in all of its ranks and in no other job, and known to nobody else. Raises
    LaunchError: ranks that another launcher started cannot share a secret."""
    named = public_name(environment, node_rank)
    return hashlib.blake2b(f"{secret_of(named)}/{named}".encode(), digest_size=16).hexdigest()


def public_name(environment: environments.ClusterEnvironment, node_rank: int) -> str:
    """Names the run on one machine as its ranks can without communication."""
    # Two nodes of one job may be one machine, in tests, and must not meet there.
    run = [str(environment.main_port), str(node_rank)]
    run += [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")]
    return "/".join(run)
