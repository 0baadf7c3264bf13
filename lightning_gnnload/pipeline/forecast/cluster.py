"""Cluster: several equal machines, their links, and who answers for the lists and rows that a machine does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.work import check_number

Placement = Literal["replicated", "collective", "owners"]
PLACEMENTS: tuple[Placement, ...] = ("replicated", "collective", "owners")
_MOST_MACHINES = 256
_MOST_TASKS = 64  # of a mini-batch: hops and tables


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
        cut: of ``"collective"``, the share of draws and rows that lie with another machine, against nodes that lie at
            random, of which that is all but one part: 1 there, and less by what a partitioner keeps together.
        hot: the share of all rows of which each machine has a copy, those most asked for first.
        message_ms: what a task and its answer take of one core, on each side, whatever their size.
        copy_gb_s: what one core writes or reads of messages.
        joining: the share of the time to draw that those who ask keep, to join what others drew.
        ahead: mini-batches that a sampling thread asks for before it waits for the first.
        sizes: of mini-batches, as shares of the mean one; which of them each has is drawn by ``seed``.

    Raises:
        PlanError: a number cannot be.
    """

    machines: int = 1
    placement: Placement = "replicated"
    link_gb_s: float = 1.25
    latency_ms: float = 0.03
    owners: int = 0
    owner_cores: int = 1
    cut: float = 1.0
    hot: float = 0.0
    message_ms: float = 0.1
    copy_gb_s: float = 1.5
    joining: float = 0.4
    ahead: int = 0
    sizes: tuple[float, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise PlanError(f"placement is {self.placement!r}; one of {', '.join(PLACEMENTS)} is needed.")
        least = {"machines": 1, "owners": int(self.placement == "owners"), "owner_cores": 1, "ahead": 0}
        for name, fewest in least.items():
            if type(value := getattr(self, name)) is not int or not fewest <= value <= _MOST_MACHINES:
                raise PlanError(
                    f"{name} is {value!r}; a whole number from {fewest} to {_MOST_MACHINES} is needed with placement "
                    f"{self.placement!r}."
                )
        for name in ("link_gb_s", "copy_gb_s"):
            check_number(name, getattr(self, name), 1e6, least=1e-6)
        for name, most in (("latency_ms", 1e5), ("message_ms", 1e5), ("cut", 1.0), ("hot", 1.0), ("joining", 1.0)):
            check_number(name, getattr(self, name), most)
        for size in self.sizes:
            check_number("sizes", size, 1e6)

    @property
    def remote(self) -> float:
        """The share of draws that others do."""
        if self.placement == "owners":
            return 1.0
        return self.cut * (1 - 1 / self.machines) if self.placement == "collective" else 0.0

    def copy_ms(self, num_bytes: float) -> float:
        """What it takes of one core to write or read a message."""
        return num_bytes / self.copy_gb_s / 1e6


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
