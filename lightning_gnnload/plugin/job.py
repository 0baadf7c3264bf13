"""Job: what a rank knows of its job: its role, the settings, and the ranks' decision on roles."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, Literal

import torch

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.pipeline.forecast.stages import StageTimes, batch_every_ms
from lightning_gnnload.plugin.compat import environments

FILE_NAME = "gnnload_roles.json"
FORMAT = 2
"""The format of that file; one of another format is not read."""


class Role(Enum):
    """Whether a rank samples or trains."""

    SAMPLER = "sampler"
    TRAINER = "trainer"


@dataclass(frozen=True)
class RolePlan:
    """Divides the local ranks of each machine into trainers, which come first, and samplers.

    All ranks of the last ``sampler_nodes`` machines sample, for the trainers of all others. ``node_rank`` is the
    machine whose local ranks are asked about.

    Lightning's world consists of the trainers alone, numbered from 0 over all machines; samplers come after them. A
    machine's only rank has both roles: it counts as a trainer, and samples in threads of its own. Raises
    RoleConfigError: no sampler, or no rank left to train.

    Source: GNNLab (EuroSys'22), section 4 (the factored design) and 5.3 (the lone device).

    Example:
        >>> plan = RolePlan(num_devices=4, num_samplers=1)
        >>> [plan.role(rank).value for rank in range(4)]
        ['trainer', 'trainer', 'trainer', 'sampler']
        >>> RolePlan(num_devices=4, num_samplers=0, num_nodes=3, sampler_nodes=1).world_size
        8
    """

    num_devices: int
    num_samplers: int  # of each machine that trains
    num_nodes: int = 1
    sampler_nodes: int = 0
    node_rank: int = 0

    def __post_init__(self) -> None:
        if self.num_samplers < 0 or self.num_samplers + self.sampler_nodes < 1:
            raise RoleConfigError(
                f"samplers={self.num_samplers}: FactoredStrategy needs at least one sampler, on each machine or, with "
                f"sampler_nodes=, on other machines. To sample inside the training ranks, use strategy='auto' or "
                f"'ddp' with the same data module."
            )
        if self.num_samplers >= self.num_devices and not self.is_lone:
            without = " Or samplers=0, as sampler_nodes sample for them." if self.sampler_nodes else ""
            raise RoleConfigError(
                f"samplers={self.num_samplers} of devices={self.num_devices} leaves no device to train on. "
                f"Use fewer samplers, or Trainer(devices={self.num_samplers + 1}) or more, "
                f"or let ranks share devices with FactoredStrategy(trainers=1, samplers={self.num_samplers}).{without}"
            )

    def check_nodes(self) -> None:
        """Raises RoleConfigError: no machine is left to train on."""
        if self.sampler_nodes and self.num_training_nodes < 1:
            raise RoleConfigError(
                f"sampler_nodes={self.sampler_nodes} of num_nodes={self.num_nodes} leaves no machine to train on. "
                f"num_nodes counts all machines: use Trainer(num_nodes={self.sampler_nodes + 1}) or more."
            )

    @property
    def is_lone(self) -> bool:
        """Whether each machine has one rank, which trains and samples."""
        return self.num_devices == 1 and self.num_samplers == 1 and not self.sampler_nodes

    @property
    def num_training_nodes(self) -> int:
        """The number of machines that have trainers; they come first."""
        return self.num_nodes - self.sampler_nodes

    @property
    def only_samples(self) -> bool:
        """Whether this machine has no trainer."""
        return self.sampler_nodes > 0 and self.node_rank >= self.num_training_nodes

    @property
    def num_trainers(self) -> int:
        """The number of trainers of this machine."""
        return 0 if self.only_samples else self._trainers_of_each

    @property
    def world_size(self) -> int:
        """The number of trainers of all machines, which are Lightning's world."""
        return self.num_training_nodes * self._trainers_of_each

    @property
    def remote_samplers(self) -> range:
        """The global ranks of the samplers that serve trainers of other machines."""
        first = self.world_size + self.num_training_nodes * self.num_samplers
        return range(first, first + self.sampler_nodes * self.num_devices)

    def role(self, local_rank: int) -> Role:
        return Role.TRAINER if local_rank < self.num_trainers else Role.SAMPLER

    def index(self, local_rank: int) -> int:
        """The rank's number among the machine's ranks of its role."""
        return local_rank if self.role(local_rank) is Role.TRAINER else local_rank - self.num_trainers

    def global_rank(self, node_rank: int, local_rank: int) -> int:
        """The rank in Lightning's world, or beyond it, of a local rank of any machine."""
        if node_rank >= self.num_training_nodes:
            return self.remote_samplers[(node_rank - self.num_training_nodes) * self.num_devices + local_rank]
        if local_rank < self._trainers_of_each:
            return node_rank * self._trainers_of_each + local_rank
        return self.world_size + node_rank * self.num_samplers + local_rank - self._trainers_of_each

    @property
    def _trainers_of_each(self) -> int:
        return 1 if self.is_lone else self.num_devices - self.num_samplers


@dataclass(frozen=True)
class RoleDecision:
    """The roles on which all ranks of a job have agreed at its start, and why; ``num_samplers`` of each machine's
    ``num_ranks``.

    Source: GNNLab (EuroSys'22), section 5.3.
    """

    num_ranks: int
    num_samplers: int
    stages: StageTimes | None = None  # None where nothing was measured
    num_cores: int = 1  # of the machine that measured them
    reason: str = ""  # where the times do not decide
    measured_on: dict[str, Any] = field(default_factory=dict)  # the facts that the times depend on
    reused: bool = False  # the times come from an earlier run
    # Threads of the host that draw, although there is a device that can; 0: it draws.
    host_threads: int = 0
    drawing: str = ""  # by whom, and why, where both could

    @property
    def sample_ms(self) -> float | None:
        """A sampler's time for a mini-batch at its throughput (T_s): drawing, and gathering if it gathers."""
        return None if self.stages is None else self.stages.making_ms / self.stages.sampler_threads

    @property
    def train_ms(self) -> float | None:
        """A trainer's time for a step on its share of the cores (T_t): gathering if it gathers, converting and
        training."""
        return None if self.stages is None else self.stages.training_ms(self.num_cores // self.num_ranks)

    @property
    def trainers_fed(self) -> float | None:
        """The trainers that one sampler can feed (K); None where nothing was measured."""
        if self.sample_ms is None or self.train_ms is None:
            return None
        return self.train_ms / max(self.sample_ms, 1e-6)

    @property
    def every_ms(self) -> float:
        """How often a mini-batch is trained on, by the measured times, which there have to be."""
        assert self.sample_ms is not None
        assert self.train_ms is not None
        return batch_every_ms(self.sample_ms, self.train_ms, self.num_samplers, self.num_ranks)

    def __str__(self) -> str:
        verb = "samples" if self.num_samplers == 1 else "sample"
        line = f"{self.num_samplers} of {self.num_ranks} ranks {verb}: "
        if self.trainers_fed is None:
            return line + "; ".join(filter(None, (self.reason, self.drawing)))
        times = f"a batch takes {self.sample_ms:.1f} ms to make and {self.train_ms:.1f} ms to train on"
        if self.num_ranks == 1:
            line += f"{self.reason}; {times}"
        else:
            line += f"{times}, so one sampler feeds {self.trainers_fed:.1f} trainers"
            line += f", and {self._predicted()}"
            line += f"; {self.reason}" if self.reason else ""
        line += f"; {self.drawing}" if self.drawing else ""
        return line + (f" (measured in an earlier run; delete {FILE_NAME} to measure again)" if self.reused else "")

    def _predicted(self) -> str:
        """How often a mini-batch is trained on, and how often with a sampler less, and with one more."""
        assert self.sample_ms is not None
        assert self.train_ms is not None
        counts = (self.num_samplers, self.num_samplers - 1, self.num_samplers + 1)
        every = {
            count: f"{batch_every_ms(self.sample_ms, self.train_ms, count, self.num_ranks):.1f} ms"
            for count in counts
            if 0 < count < self.num_ranks
        }
        alternatives = [f"with {count} every {time}" for count, time in every.items() if count != self.num_samplers]
        return f"a batch is done every {every[self.num_samplers]}" + (
            f" ({', '.join(alternatives)})" if alternatives else ""
        )

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RoleDecision:
        """Reads what :meth:`to_json` returned. Raises ValueError: ``text`` is none of that."""
        values = json.loads(text)
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        # All of them: what another release has measured is measured again.
        if values.keys() != {field_.name for field_ in fields(cls)}:
            raise ValueError("its fields are others")
        if values["stages"] is not None:
            values["stages"] = StageTimes(**values["stages"])
        decision = cls(**values)
        decision._check()
        return decision

    def _check(self) -> None:
        stages = {} if self.stages is None else asdict(self.stages)
        flags = [stages.pop(name, False) for name in ("draws_on_device", "trains_on_device")]
        threads = [stages.pop(name, 1) for name in ("sampler_threads", "torch_threads")]
        counts = (self.num_ranks, self.num_samplers, self.num_cores, *threads)
        # By type, not isinstance: JSON's true is an int to that. So bounded, sums and quotients are numbers, too.
        sound = (
            *(type(count) is int and 1 <= count < 1e9 for count in counts),
            *(type(flag) is bool for flag in flags),
            *(type(time) in (int, float) and 0 <= time < 1e12 for time in stages.values()),
            isinstance(self.measured_on, dict),
            isinstance(self.reason, str),
            isinstance(self.drawing, str),
            type(self.host_threads) is int and 0 <= self.host_threads < 1e9,
        )
        # A lone rank counts as a sampler too, though none is left to train.
        if not all(sound) or not self.num_samplers <= max(self.num_ranks - 1, 1):
            raise ValueError("its figures are impossible")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a rank knows of its job at one moment; ``FactoredStrategy.job`` makes it. Fields without a comment are the
    strategy's settings or state, by their names there."""

    roles: RolePlan  # provisional while ``is_undecided``
    decision: RoleDecision | None  # None before the ranks agree, and where roles are given
    is_undecided: bool  # the ranks must measure, and agree, before any samples or trains
    environment: environments.ClusterEnvironment
    node_rank: int
    local_rank: int  # on this machine, samplers last
    device: torch.device
    run_name: str = field(repr=False)  # alike in all ranks of a machine, and a secret: no message contains it
    session: int  # counts launches, alike in every rank
    start_method: str  # "popen", "spawn" or "fork"
    num_sampler_threads: int
    has_sampler_threads: bool  # the user has set them
    shares_devices: bool  # ranks are laid round-robin over the devices
    samplers: int | Literal["auto"]
    staleness: int
    switching: bool | int
    queue_depth: int  # the first one, where ``queue_memory_bytes`` is a number
    queue_memory_bytes: int | None
    pin_cores: bool
    connect_timeout_s: float
    stall_timeout_s: float
    setup_timeout_s: float
    takeover: bool
    queue_secret: str | None = field(default=None, repr=False)

    @property
    def role(self) -> Role:
        return self.roles.role(self.local_rank)

    @property
    def global_rank(self) -> int:
        """The rank in Lightning's world, where samplers come after the trainers of all machines."""
        return self.roles.global_rank(self.node_rank, self.local_rank)

    @property
    def name(self) -> str:
        """The name of this launch on this machine, which is part of its queues' names."""
        return f"{self.run_name}-{self.session}"
