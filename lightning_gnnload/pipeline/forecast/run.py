"""PipelineRun: the processes of a run's ranks on all machines, and of those who answer them, for some steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask, check_tasks
from lightning_gnnload.pipeline.forecast.fluid import (
    Clockwork,
    Command,
    Compute,
    Cores,
    Give,
    Link,
    Off,
    Send,
    Store,
    Take,
    Together,
)
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

_WARM_UP, _STEPS = 12, 36
_DRAWN = 1024  # sizes of each trainer's mini-batches, which then come again
_LITTLE = 0.05  # of a step: a shorter wait limits nothing
_MUCH = 0.25  # of a step, that machines average gradients
_BUSY = 0.95
_FULL = 0.85  # of a link, or of owners: near enough to all, where several wait for it in turn


@dataclass(frozen=True)
class StepForecast:
    """A global step of a layout: its time, what limits it, and which share of it trainers wait for mini-batches and
    cores are busy.

    ``uses``: the busy share of each thing, of the busiest machine's, by its name: ``"cores"``, ``"device"``, ``"out"``
    and ``"in"`` (its link, each way), ``"owners"`` (their cores) and ``"their links"``.
    """

    step_ms: float
    limit: str
    wait_share: float = 0.0
    core_share: float = 0.0
    uses: dict[str, float] = field(default_factory=dict)


@dataclass(eq=False)
class Site:
    """A machine: its cores, and its link each way."""

    cores: Cores
    sends: Link
    receives: Link

    @classmethod
    def of(cls, cores: Cores, link_gb_s: float) -> Site:
        return cls(cores, Link(link_gb_s * 1e6), Link(link_gb_s * 1e6))


class PipelineRun:
    """Simulates ``steps`` global steps of ``cluster.machines`` equal machines. Arguments: as ``forecast_step``.

    Raises:
        PlanError: a mini-batch asks too often.
    """

    def __init__(
        self,
        work: BatchWork,
        layout: RunLayout,
        cores: int,
        num_devices: int,
        cluster: Cluster,
        tasks: tuple[RemoteTask, ...] = (),
        gradient_bytes: float = 0.0,
        steps: int | None = None,
    ) -> None:
        check_tasks(tasks)
        self.work, self.layout, self.cluster = work, layout, cluster
        self.gradient_bytes = gradient_bytes
        self.clockwork = Clockwork(cores)
        self.step_ends: list[float] = []
        self.exchanged_ms = 0.0
        self.device_ms: dict[Store, float] = {}
        self.sites = [Site.of(self.clockwork.cores, cluster.link_gb_s)]
        self.sites += [Site.of(Cores(cores), cluster.link_gb_s) for _ in range(cluster.machines - 1)]
        self.owners = list(self.sites) if cluster.placement == "collective" else []
        if cluster.placement == "owners":
            self.owners = [Site.of(Cores(cluster.owner_cores), cluster.link_gb_s) for _ in range(cluster.owners)]
        self.tasks = tasks if any(owner is not self.sites[0] for owner in self.owners) else ()
        seeds = range(cluster.machines * layout.trainers) if cluster.sizes else ()
        self.sizes = [Random(f"{cluster.seed} {seed}").choices(cluster.sizes, k=_DRAWN) for seed in seeds]
        self.arrived = [Store("other trainers") for _ in range(layout.trainers * cluster.machines)]
        self.go = [Store("other trainers") for _ in self.arrived]
        # Mini-batches that are asked for together come together: as many steps as make several such crowds.
        crowd = layout.threads * (1 + cluster.ahead) if self.tasks else 0
        self.warm_up = max(_WARM_UP, 3 * crowd)
        self.steps = steps or max(_STEPS, 10 * crowd)
        self.machines = [_MachineRun(self, number, num_devices) for number in range(cluster.machines)]

    def forecast(self) -> StepForecast:
        clockwork, processes = self.clockwork, dict[str, Iterator[Command]]()
        for machine in self.machines:
            processes |= machine.processes()
        if len(self.arrived) > 1:
            processes["reduction"] = self._reduce()
        clockwork.run(processes)
        step_ms = (self.step_ends[-1] - self.step_ends[self.warm_up - 1]) / self.steps
        shares, uses = self._wait_shares(), self._uses()
        return StepForecast(
            step_ms, self._limit(shares, uses), shares.get("mini-batches", 0.0), uses.get("cores", 0.0), uses
        )

    def size_of(self, trainer: int, number: int) -> float:
        """The size of a trainer's mini-batch of a number, as a share of the mean one."""
        return self.sizes[trainer][number % _DRAWN] if self.sizes else 1.0

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
        if len(self.sites) > 1 or self.tasks:
            uses["out"] = max(site.sends.busy_ms for site in self.sites) / now_ms
            uses["in"] = max(site.receives.busy_ms for site in self.sites) / now_ms
        if self.tasks and self.cluster.placement == "owners":
            uses["owners"] = max(owner.cores.busy_ms / owner.cores.count for owner in self.owners) / now_ms
            links = [link for owner in self.owners for link in (owner.sends, owner.receives)]
            uses["their links"] = max(link.busy_ms for link in links) / now_ms
        return uses

    def _limit(self, shares: dict[str, float], uses: dict[str, float]) -> str:
        work, layout, core_share = self.work, self.layout, uses["cores"]
        if shares.get("mini-batches", 0.0) > _LITTLE:
            if self.tasks and (limit := self._remote_limit(uses)):
                return limit
            stages = {"sampling": work.sample_ms + work.draw_device_ms, "gathering": work.gather_ms}
            makers = (layout.samplers or layout.trainers) * layout.threads
            stages |= {"disk": work.wait_ms, "link": work.gather_link_ms * makers}
            if not layout.samplers:
                stages["conversion"] = work.convert_ms
            stage = max(stages, key=lambda name: stages[name])
            return "cores" if core_share > _BUSY and stage not in ("disk", "link") else stage
        if core_share > _BUSY and layout.num_threads > self.clockwork.cores.count:
            return "cores"
        if len(self.sites) > 1 and self.exchanged_ms > _MUCH * self.step_ends[-1]:
            return "network" if self._fullest_link(uses) > _FULL else "exchange"
        train_ms = max(work.train_ms(layout.torch_threads), work.gather_link_ms)
        if max(work.exchange_ms, self.exchanged_ms / max(len(self.step_ends), 1)) > train_ms:
            return "exchange"
        if shares.get("python", 0.0) > _LITTLE:
            return "python"
        return training_limit(work)

    def _fullest_link(self, uses: dict[str, float]) -> float:
        return max(uses[name] for name in ("out", "in", "their links") if name in uses)

    def _remote_limit(self, uses: dict[str, float]) -> str:
        """What holds up those who ask: what is full, or only their waiting; empty where it is their own work."""
        links = self._fullest_link(uses)
        if max(links, uses.get("owners", 0.0)) > _FULL:
            return "network" if links >= uses.get("owners", 0.0) else "owners"
        asked_ms = sum(machine.asked_ms for machine in self.machines)
        made_ms = sum(machine.made_ms for machine in self.machines)
        return "answers" if asked_ms > made_ms / 2 and uses["cores"] < _BUSY else ""


class _MachineRun:
    """The processes of one machine's ranks."""

    def __init__(self, run: PipelineRun, number: int, num_devices: int) -> None:
        self.run, self.site, self.number = run, run.sites[number], number
        self.work, self.layout = run.work, run.layout
        trainers, samplers = self.layout.trainers, self.layout.samplers
        self.asked_ms = self.made_ms = 0.0
        # A mini-batch that is asked for ahead has a maker, which leaves its thread to others meanwhile.
        self.makers_each = self.layout.threads * (1 + (run.cluster.ahead if run.tasks else 0))
        self.threads = [Store("threads", self.layout.threads) for _ in range(samplers or trainers)]
        # A loader in process makes a mini-batch a thread, and has one more ready.
        room = self.layout.slots * samplers if samplers else self.makers_each + 1
        self.free = [Store("slots", room) for _ in range(trainers)]
        self.made = [Store("mini-batches") for _ in range(trainers)]
        self.fetched = [Store("mini-batches") for _ in range(trainers)] if self.work.gather_link_ms else self.made
        self.room = [Store("room", 1) for _ in range(trainers)]
        self.python = [Store("python", 1) for _ in range(trainers + samplers)]
        on_devices = max(min(num_devices, trainers + samplers), 1)
        devices = [Store("device", 1) for _ in range(on_devices)]
        self.device_of = [devices[rank % on_devices] for rank in range(trainers + samplers)]

    def processes(self) -> dict[str, Iterator[Command]]:
        machine = f" of machine {self.number}"
        trainers = range(self.layout.trainers)
        processes = {f"trainer {rank}{machine}": self._train(rank) for rank in trainers}
        for number in range(len(self.threads) * self.makers_each):
            processes[f"maker {number}{machine}"] = self._make(number)
        if self.work.gather_link_ms:
            processes |= {f"fetcher {rank}{machine}": self._fetch(rank) for rank in trainers}
        return processes

    def _compute(self, ms: float, threads: int = 1) -> Compute:
        return Compute(ms, threads, self.site.cores)

    def _turn(self, store: Store, *commands: Command) -> Iterator[Command]:
        """Commands that only one may run at a time, if they take any time."""
        if any(command.ms for command in commands if isinstance(command, Compute | Off)):
            yield Take(store)
            yield from commands
            yield Give(store)

    def _on_device(self, rank: int, *waits_ms: float) -> Iterator[Command]:
        device = self.device_of[rank]
        if any(waits_ms):
            self.run.device_ms[device] = self.run.device_ms.get(device, 0.0) + sum(waits_ms)
        return self._turn(device, *map(Off, waits_ms))

    def _make(self, number: int) -> Iterator[Command]:
        work, layout, run = self.work, self.layout, self.run
        maker = number // self.makers_each
        rank = maker + (layout.trainers if layout.samplers else 0)
        step = len(self.threads) * self.makers_each if layout.samplers else self.makers_each
        batch = number if layout.samplers else number % self.makers_each
        while True:
            trainer = batch % layout.trainers if layout.samplers else maker
            size = run.size_of(
                self.number * layout.trainers + trainer, batch // layout.trainers if layout.samplers else batch
            )
            batch += step
            yield Take(self.free[trainer])
            yield Take(self.threads[maker])
            began_ms = run.clockwork.now_ms
            yield from self._turn(self.python[rank], self._compute(work.making_python_ms))
            yield from self._on_device(rank, size * work.draw_device_ms)
            for task in run.tasks:
                yield from self._ask(task, size, maker)
            yield self._compute(size * max(work.making_core_ms - work.making_python_ms, 0.0))
            yield Off(size * work.wait_ms)
            if not layout.samplers:
                yield from self._turn(self.python[rank], self._compute(size * work.convert_ms))
            self.made_ms += run.clockwork.now_ms - began_ms
            yield Give(self.threads[maker])
            yield Give(self.made[trainer])

    def _ask(self, task: RemoteTask, size: float, maker: int) -> Iterator[Command]:
        """Asks all that answer at once, and waits for the last of them."""
        run, cluster = self.run, self.run.cluster
        owners = [owner for owner in run.owners if owner is not self.site]
        share = size / len(owners)
        yield self._compute(len(owners) * cluster.message_ms / 2 + cluster.copy_ms(size * task.request_bytes))
        if cluster.ahead:
            yield Give(self.threads[maker])
        began_ms = run.clockwork.now_ms
        yield Together(tuple(self._answer(task, share, owner) for owner in owners))
        self.asked_ms += run.clockwork.now_ms - began_ms
        if cluster.ahead:
            yield Take(self.threads[maker])
        yield self._compute(len(owners) * cluster.message_ms / 2 + cluster.copy_ms(size * task.answer_bytes))

    def _answer(self, task: RemoteTask, share: float, owner: Site) -> Iterator[Command]:
        cluster = self.run.cluster
        request_bytes, answer_bytes = share * task.request_bytes, share * task.answer_bytes
        yield Send(request_bytes, (self.site.sends, owner.receives))
        copied_ms = cluster.copy_ms(request_bytes + answer_bytes)
        yield Off(2 * cluster.latency_ms)
        yield Compute(share * task.core_ms + cluster.message_ms + copied_ms, 1, owner.cores)
        yield Send(answer_bytes, (owner.sends, self.site.receives))

    def _fetch(self, rank: int) -> Iterator[Command]:
        """Brings a trainer's missed rows to its device, one mini-batch ahead of it."""
        trainer = self.number * self.layout.trainers + rank
        batch = 0
        while True:
            yield Take(self.room[rank])
            yield Take(self.made[rank])
            yield Off(self.run.size_of(trainer, batch) * self.work.gather_link_ms)
            yield Give(self.fetched[rank])
            batch += 1

    def _train(self, rank: int) -> Iterator[Command]:
        work, layout, run = self.work, self.layout, self.run
        trainer = self.number * layout.trainers + rank
        for step in range(run.warm_up + run.steps):
            size = run.size_of(trainer, step)
            if step and not layout.samplers:
                yield Give(self.free[rank])  # only now is another one begun
            yield Take(self.fetched[rank])
            if work.gather_link_ms:
                yield Give(self.room[rank])
            if layout.samplers:
                yield from self._turn(self.python[rank], self._compute(size * work.convert_ms))
            yield from self._turn(self.python[rank], self._compute(work.train_python_ms))
            # Torch's other threads keep their cores while one computes alone: they wait by looking again and again.
            on_cores_ms = work.train_on_cores_ms(layout.torch_threads) - work.train_python_ms
            yield self._compute(size * on_cores_ms, layout.torch_threads)
            yield from self._on_device(rank, size * work.gather_device_ms, size * work.train_device_ms)
            if len(run.arrived) > 1:
                yield Give(run.arrived[trainer])
                yield Take(run.go[trainer])
            if layout.samplers:
                yield Give(self.free[rank])
            if trainer == 0:
                run.step_ends.append(run.clockwork.now_ms)


def training_limit(work: BatchWork) -> str:
    """Names what a trainer waits for in a step: ``"device"``, or ``"training"`` on the processor."""
    return "device" if work.train_device_ms > work.train_fixed_ms + work.train_work_ms else "training"
