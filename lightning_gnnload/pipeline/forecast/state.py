"""RunState: what all processes of a simulated run share: its machines and links, who answers, and what they count."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from lightning_gnnload.pipeline.forecast.cluster import BatchShares, Cluster, RemoteTask, check_tasks
from lightning_gnnload.pipeline.forecast.fluid import Clockwork, Command, Compute, Cores, Give, Off, Store, Take
from lightning_gnnload.pipeline.forecast.rounds import ExchangeRounds
from lightning_gnnload.pipeline.forecast.sites import Site
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

_WARM_UP, _STEPS = 12, 36
_DRAWN = 1024  # sizes of each trainer's mini-batches, which then come again


class RunState:
    """Machines that train, owners, machines that sample, and how far all of them are. Arguments: as ``PipelineRun``."""

    def __init__(
        self,
        work: BatchWork,
        layout: RunLayout,
        cores: float,
        cluster: Cluster,
        tasks: tuple[RemoteTask, ...],
        batch_bytes: float,
        steps: int | None,
    ) -> None:
        check_tasks(tasks)
        self.work, self.layout, self.cluster, self.batch_bytes = work, layout, cluster, batch_bytes
        self.clockwork = Clockwork(cores)
        self.step_ends: list[float] = []
        self.asked_ms = self.made_ms = 0.0
        self.device_ms: dict[Store, float] = {}
        self.is_apart = bool(layout.samplers or cluster.sampler_nodes)
        self.sites = self._sites(cluster.machines, cores, cluster.link_gb_s, first=self.clockwork.cores)
        is_owned = cluster.placement == "owners"
        owner_link = cluster.owner_link_gb_s or cluster.link_gb_s
        self.owners = self._sites(cluster.owners if is_owned else 0, cluster.owner_cores, owner_link)
        self.nodes = self._sites(cluster.sampler_nodes, cores, cluster.link_gb_s)
        is_remote = is_owned or (cluster.placement == "collective" and cluster.machines > 1)
        self.tasks = tasks if is_remote else ()
        self.rounds: ExchangeRounds | None = None
        if self.tasks and not is_owned:
            self.rounds = ExchangeRounds(self.clockwork, self.sites, cluster, layout.samplers or layout.trainers)
        seeds = range(cluster.machines * layout.trainers) if cluster.sizes else ()
        self._sizes = [Random(f"{cluster.seed} {seed}").choices(cluster.sizes, k=_DRAWN) for seed in seeds]
        self.arrived = [Store("other trainers") for _ in range(layout.trainers * cluster.machines)]
        # Gradients may be so many steps late.
        self.go = [Store("other trainers", layout.staleness) for _ in self.arrived]
        # Mini-batches that are asked for together come together: as many steps as make several such crowds.
        crowd = layout.threads * (1 + cluster.ahead) if self.tasks else 0
        self.warm_up = max(_WARM_UP, 3 * crowd)
        self.steps = steps or max(_STEPS, 6 * crowd, len(cluster.recorded))

    def _sites(self, count: int, cores: float, link_gb_s: float, first: Cores | None = None) -> list[Site]:
        """Machines with links of their own; if all are one, they share its cores."""
        cores_of = [self.clockwork.cores if self.cluster.is_one_host else Cores(cores) for _ in range(count)]
        if first is not None:
            cores_of[0] = first
        return [Site.of(cores_here, link_gb_s) for cores_here in cores_of]

    def owners_of(self, client: int) -> list[Site]:
        """The owners that a client asks: of each part, one of those that have it."""
        return self.owners[client % self.cluster.replicas :: self.cluster.replicas]

    def shares_of(self, trainer: int, number: int) -> BatchShares:
        """A trainer's mini-batch of a number, as shares of the mean one."""
        if recorded := self.cluster.recorded:
            # Trainers have others at the same time.
            return recorded[(number + round(_golden(trainer) * len(recorded))) % len(recorded)]
        return BatchShares(*[self._sizes[trainer][number % _DRAWN]] * 3) if self._sizes else BatchShares()

    def late_ms(self, trainer: int) -> float:
        """When a trainer's makers begin. Ranks that ask in rounds never begin together, and one that is a round behind
        stays so."""
        if self.rounds is None:
            return 0.0
        return (self.work.making_core_ms + self.work.train_ms(1) + 1.0) * _golden(trainer)

    def on_device(self, device: Store, *waits_ms: float) -> Iterator[Command]:
        """Work on a device, which others wait for."""
        if any(waits_ms):
            self.device_ms[device] = self.device_ms.get(device, 0.0) + sum(waits_ms)
        return in_turn(device, *map(Off, waits_ms))


def in_turn(store: Store, *commands: Command) -> Iterator[Command]:
    """Commands that only one may run at a time, if they take any time."""
    if any(command.ms for command in commands if isinstance(command, Compute | Off)):
        yield Take(store)
        yield from commands
        yield Give(store)


def _golden(number: int) -> float:
    """A share for each number, all of them far from each other: multiples of the golden ratio, without whole turns."""
    return number * 0.6180339887498949 % 1
