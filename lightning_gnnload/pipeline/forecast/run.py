"""PipelineRun: the processes of a run's ranks on all machines, and of those who answer them, for some steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.fluid import Command, Give, Off, Send, Store, Take, Together
from lightning_gnnload.pipeline.forecast.ranks import Makers, Trainer
from lightning_gnnload.pipeline.forecast.sites import Site
from lightning_gnnload.pipeline.forecast.state import RunState
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

_LITTLE = 0.05  # of a step: a shorter wait limits nothing
_MUCH = 0.25  # of a step, that machines average gradients
_BUSY = 0.95
_MOSTLY = 0.7  # of the time, that rounds pass bytes
_FULL = 0.85  # of a link, or of owners: near enough to all, where several wait for it in turn


@dataclass(frozen=True)
class StepForecast:
    """A global step of a layout: its time, what limits it, and which share of it trainers wait for mini-batches and
    cores are busy.

    ``uses``: the busy share of each thing, of the busiest machine's, by its name: ``"cores"``, ``"device"``, ``"out"``
    and ``"in"`` (its link, each way), ``"owners"`` (their cores) and ``"owners' links"``, and likewise ``"samplers"``,
    of machines that only sample.
    """

    step_ms: float
    limit: str
    wait_share: float = 0.0
    core_share: float = 0.0
    uses: dict[str, float] = field(default_factory=dict)


class PipelineRun(RunState):
    """Simulates ``steps`` global steps of ``cluster.machines`` equal machines. Arguments: as ``forecast_step``; cores
    may be fewer than whole ones, where other programs use the rest.

    Raises:
        PlanError: a mini-batch asks too often.
    """

    def __init__(
        self,
        work: BatchWork,
        layout: RunLayout,
        cores: float,
        num_devices: int,
        cluster: Cluster,
        tasks: tuple[RemoteTask, ...] = (),
        gradient_bytes: float = 0.0,
        batch_bytes: float = 0.0,
        steps: int | None = None,
    ) -> None:
        super().__init__(work, layout, cores, cluster, tasks, batch_bytes, steps)
        self.gradient_bytes = gradient_bytes
        self.exchanged_ms = 0.0
        self.trainers: list[Trainer] = []
        self.makers: list[Makers] = []
        for machine in range(cluster.machines):
            self._add_ranks(machine, num_devices)
        if self.nodes:
            self._add_nodes()

    def _add_ranks(self, machine: int, num_devices: int) -> None:
        """The trainers of a machine, and who makes mini-batches there."""
        layout, cluster, site = self.layout, self.cluster, self.sites[machine]
        samplers = 0 if self.nodes else layout.samplers
        # A mini-batch that is asked for ahead has a maker, which leaves its thread to others meanwhile.
        makers_each = layout.threads * (1 + (cluster.ahead if self.tasks else 0))
        # A loader in process makes a mini-batch a thread, and has one more ready.
        makers = len(self.nodes) * cluster.samplers or samplers
        room = layout.slots * makers if self.is_apart else makers_each + 1
        ranks = layout.trainers + samplers
        devices = [Store("device", 1) for _ in range(max(min(num_devices, ranks), 1))]
        device_of = [devices[rank % len(devices)] for rank in range(ranks)]
        first = machine * layout.trainers
        trainers = [Trainer(self, first + rank, site, device_of[rank], room) for rank in range(layout.trainers)]
        self.trainers += trainers
        if samplers:
            drawing = device_of[layout.trainers :]
            self.makers.append(Makers(self, machine, [site] * samplers, trainers, drawing, makers_each))
        elif not self.nodes:
            for trainer, device in zip(trainers, device_of, strict=True):
                self.makers.append(Makers(self, machine, [site], [trainer], [device], makers_each))

    def _add_nodes(self) -> None:
        """Who samples on machines of their own, for all trainers: a mini-batch that is on its way has a maker, too."""
        cluster, layout = self.cluster, self.layout
        sites = [site for site in self.nodes for _ in range(cluster.samplers)]
        makers_each = layout.threads * (1 + cluster.ahead) + layout.slots * len(self.trainers)
        self.makers.append(Makers(self, -1, sites, self.trainers, [Store("device", 1) for _ in sites], makers_each))

    def forecast(self) -> StepForecast:
        clockwork, processes = self.clockwork, dict[str, Iterator[Command]]()
        for trainer in self.trainers:
            processes |= trainer.processes()
        for number, maker in enumerate(maker for makers in self.makers for maker in makers.processes()):
            processes[f"maker {number}"] = maker
        if len(self.arrived) > 1:
            processes["reduction"] = self._reduce()
        if self.rounds is not None:
            processes["rounds"] = self.rounds.run()
        clockwork.run(processes)
        step_ms = (self.step_ends[-1] - self.step_ends[self.warm_up - 1]) / self.steps
        shares, uses = self._wait_shares(), self._uses()
        return StepForecast(
            step_ms, self._limit(shares, uses), shares.get("mini-batches", 0.0), uses.get("cores", 0.0), uses
        )

    def _reduce(self) -> Iterator[Command]:
        """All trainers meet after each step; machines send gradients around a ring, all at once."""
        machines = self.cluster.machines
        ring = list(zip(self.sites, self.sites[1:] + self.sites[:1], strict=True))
        sent = 2 * (machines - 1) / machines * self.gradient_bytes
        while True:
            for store in self.arrived:
                yield Take(store)
            began_ms = self.clockwork.now_ms
            yield Off(self.work.exchange_ms)
            if machines > 1:
                yield Together(tuple(iter([Send(sent, (here.sends, there.receives))]) for here, there in ring))
                yield Off(2 * (machines - 1) * self.cluster.latency_ms)
            self.exchanged_ms += self.clockwork.now_ms - began_ms
            for store in self.go:
                yield Give(store)

    # What came of it.

    def _wait_shares(self) -> dict[str, float]:
        """The share of the time that the trainer which waits longest waits, by what for: all go at its pace."""
        shares: dict[str, float] = {}
        for (process, store), ms in self.clockwork.waited_ms.items():
            if process.startswith("trainer"):
                shares[store] = max(shares.get(store, 0.0), ms / max(self.clockwork.now_ms, 1e-9))
        return shares

    def _uses(self) -> dict[str, float]:
        now_ms = max(self.clockwork.now_ms, 1e-9)
        uses = {"cores": max(site.cores.busy_ms / site.cores.count for site in self.sites) / now_ms}
        if self.device_ms:
            uses["device"] = max(self.device_ms.values()) / now_ms
        if len(self.sites) > 1 or self.tasks or self.nodes:
            uses["out"] = max(site.sends.busy_ms for site in self.sites) / now_ms
            uses["in"] = max(site.receives.busy_ms for site in self.sites) / now_ms
        if self.tasks and self.cluster.placement == "owners":
            uses["owners"] = max(owner.cores.busy_ms / owner.cores.count for owner in self.owners) / now_ms
            uses["owners' links"] = _fullest(self.owners) / now_ms
        if self.nodes:
            uses["samplers"] = max(node.cores.busy_ms / node.cores.count for node in self.nodes) / now_ms
            uses["samplers' links"] = _fullest(self.nodes) / now_ms
        return {name: min(share, 1.0) for name, share in uses.items()}  # links count bytes as they are sent

    def _limit(self, shares: dict[str, float], uses: dict[str, float]) -> str:
        work, layout, core_share = self.work, self.layout, uses["cores"]
        if shares.get("mini-batches", 0.0) > _LITTLE:
            if (self.tasks or self.nodes) and (limit := self._remote_limit(uses)):
                return limit
            stages = {"sampling": work.sample_ms + work.draw_device_ms, "gathering": work.gather_ms}
            makers = sum(len(makers.sites) for makers in self.makers) // self.cluster.machines * layout.threads
            stages |= {"disk": work.wait_ms, "link": work.gather_link_ms * makers}
            if not self.is_apart:
                stages["conversion"] = work.convert_ms
            stage = max(stages, key=lambda name: stages[name])
            return "cores" if core_share > _BUSY and stage not in ("disk", "link") else stage
        if core_share > _BUSY and layout.num_threads > self.clockwork.cores.count:
            return "cores"
        # Late gradients are averaged beside the next steps, unless a trainer waits for them.
        if not layout.staleness or shares.get("other trainers", 0.0) > _LITTLE:
            if len(self.sites) > 1 and self.exchanged_ms > _MUCH * self.step_ends[-1]:
                return "network" if self._fullest_link(uses) > _FULL else "exchange"
            train_ms = max(work.train_ms(layout.torch_threads), work.gather_link_ms)
            if max(work.exchange_ms, self.exchanged_ms / max(len(self.step_ends), 1)) > train_ms:
                return "exchange"
        if shares.get("python", 0.0) > _LITTLE:
            return "python"
        return training_limit(work)

    def _fullest_link(self, uses: dict[str, float]) -> float:
        return max(uses[name] for name in ("out", "in", "owners' links", "samplers' links") if name in uses)

    def _remote_limit(self, uses: dict[str, float]) -> str:
        """What holds up those who ask: what is full, or only their waiting; empty where it is their own work."""
        links = self._fullest_link(uses)
        if self.rounds is not None and self.rounds.passed_ms > _MOSTLY * self.clockwork.now_ms:
            return "network"  # though links idle one way while they are full the other way
        if max(links, uses.get("owners", 0.0)) > _FULL:
            return "network" if links >= uses.get("owners", 0.0) else "owners"
        return "answers" if self.asked_ms > self.made_ms / 2 and uses["cores"] < _BUSY else ""


def _fullest(sites: list[Site]) -> float:
    """How long the fullest of their links was busy, in ms."""
    return max(link.busy_ms for site in sites for link in (site.sends, site.receives))


def training_limit(work: BatchWork) -> str:
    """Names what a trainer waits for in a step: ``"device"``, or ``"training"`` on the processor."""
    return "device" if work.train_device_ms > work.train_fixed_ms + work.train_work_ms else "training"
