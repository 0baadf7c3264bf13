"""Cluster: several equal machines, their links, and who answers for the lists and rows that a machine does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.costs import ASSUMED, MessageCosts
from lightning_gnnload.pipeline.forecast.work import check_number

Placement = Literal["replicated", "collective", "owners"]
PLACEMENTS: tuple[Placement, ...] = ("replicated", "collective", "owners")
_MOST_MACHINES = 256
_MOST_TASKS = 64  # of a mini-batch: hops and tables


class BatchShares(NamedTuple):
    """How much of the mean mini-batch one has: of its nodes and bytes, of the time to make it, and of its step's."""

    size: float = 1.0
    making: float = 1.0
    training: float = 1.0


@dataclass(frozen=True)
class Cluster:
    """Machines that train together.

    Attributes:
        machines: that train.
        placement: of the graph and its rows: each machine has all (``"replicated"``), machines that train have a part
            each and ask each other (``"collective"``), or machines beside them have it (``"owners"``).
        link_gb_s: what a machine sends in a second, and what it receives meanwhile.
        latency_ms: the way of a message, one way.
        owners: machines that answer, with ``"owners"``.
        owner_cores: that an owner answers with.
        owner_link_gb_s: of an owner, each way; 0: as a machine that trains has.
        replicas: owners of each part, of which a client asks one.
        streams: connections that a large answer of an owner is spread over.
        sampler_nodes: machines that sample for all that train, each with ``samplers`` ranks (``RunLayout.threads``
            each); mini-batches cross the network. 0: machines that train sample for themselves.
        samplers: ranks of each of these.
        cut: of ``"collective"``, the share of draws and rows that lie with another machine, against nodes that lie at
            random, of which that is all but one part: 1 there, and less by what a partitioner keeps together.
        hot: the share of all rows of which each machine has a copy, those most asked for first.
        costs: what messages take of cores.
        joining: the share of the time to draw that those who ask keep, to join what others drew.
        ahead: mini-batches that a sampling thread asks for before it waits for the first.
        sizes: of mini-batches, as shares of the mean one; which of them each has is drawn by ``seed``.
        recorded: mini-batches of a recorded run, which come one after the other, instead of ``sizes``.
        is_one_host: all these machines are processes of one, whose cores they share, as in tests.

    Raises:
        PlanError: a number cannot be.
    """

    machines: int = 1
    placement: Placement = "replicated"
    link_gb_s: float = 1.25
    latency_ms: float = 0.03
    owners: int = 0
    owner_cores: int = 1
    owner_link_gb_s: float = 0.0
    replicas: int = 1
    streams: int = 4
    sampler_nodes: int = 0
    samplers: int = 1
    cut: float = 1.0
    hot: float = 0.0
    costs: MessageCosts = ASSUMED
    joining: float = 0.4
    ahead: int = 0
    sizes: tuple[float, ...] = ()
    recorded: tuple[BatchShares, ...] = ()
    seed: int = 0
    is_one_host: bool = False

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise PlanError(f"placement is {self.placement!r}; one of {', '.join(PLACEMENTS)} is needed.")
        least = {"owners": int(self.placement == "owners"), "ahead": 0, "sampler_nodes": 0}
        for name in ("machines", "owners", "owner_cores", "replicas", "streams", "sampler_nodes", "samplers", "ahead"):
            fewest = least.get(name, 1)
            if type(value := getattr(self, name)) is not int or not fewest <= value <= _MOST_MACHINES:
                raise PlanError(
                    f"{name} is {value!r}; a whole number from {fewest} to {_MOST_MACHINES} is needed with placement "
                    f"{self.placement!r}."
                )
        if self.placement == "owners" and self.owners % self.replicas:
            raise PlanError(
                f"replicas is {self.replicas} with {self.owners} owners; a number of owners that it divides is needed."
            )
        if self.sampler_nodes and self.placement == "collective":
            raise PlanError(
                f"sampler_nodes is {self.sampler_nodes} with placement 'collective', whose parts lie with the machines "
                "that train: give owners, or a copy each."
            )
        check_number("link_gb_s", self.link_gb_s, 1e6, least=1e-6)
        check_number("owner_link_gb_s", self.owner_link_gb_s, 1e6)
        for name, most in (("latency_ms", 1e5), ("cut", 1.0), ("hot", 1.0), ("joining", 1.0)):
            check_number(name, getattr(self, name), most)
        for size in (*self.sizes, *(share for shares in self.recorded for share in shares)):
            check_number("sizes", size, 1e6)

    @property
    def remote(self) -> float:
        """The share of draws that others do."""
        if self.placement == "owners":
            return 1.0
        return self.cut * (1 - 1 / self.machines) if self.placement == "collective" else 0.0

    @property
    def parts(self) -> int:
        """How many owners a mini-batch asks."""
        return self.owners // self.replicas


@dataclass(frozen=True)
class RemoteTask:
    """What a mini-batch asks of the others in one go: a hop's draws, or its rows. All that answer get an equal share.

    Attributes:
        request_bytes: to all of them.
        answer_bytes: from all of them.
        core_ms: that they compute, in time of one core.
    """

    request_bytes: float
    answer_bytes: float
    core_ms: float

    def __post_init__(self) -> None:
        for name in ("request_bytes", "answer_bytes", "core_ms"):
            check_number(f"a task's {name}", getattr(self, name), 1e15)


def check_tasks(tasks: tuple[RemoteTask, ...]) -> None:
    """Raises PlanError: they are too many."""
    if len(tasks) > _MOST_TASKS:
        raise PlanError(f"a mini-batch asks {len(tasks)} times; at most {_MOST_TASKS} hops and tables are simulated.")
