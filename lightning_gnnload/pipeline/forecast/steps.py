"""How long a global step takes by a layout of ranks and threads, and what limits it: a pure function of both.

The assumptions, and where they come from:

- Stages run side by side, joined by bounded queues (GNNLab, EuroSys'22, section 5.2; DSP, PPoPP'23, section 5): a maker
  waits for a free slot, a trainer for a mini-batch. Every mini-batch takes as long as the one that was measured.
- A stage's work on cores is ``a / cores + d`` (BGL, NSDI'23, section 3.4). Threads share the cores equally. Torch's
  threads of a step wait for each other without leaving their cores, also while one of them computes alone (``d``).
- Python code of one process takes turns, and so does all work on one device.
- A trainer's missed rows come over its link while its device trains on the mini-batch before; rows that it has cached
  are read by the device itself, between two steps.
- Trainers average their gradients after each step, so that all go at the pace of the slowest.
- An idle sampler that trains (GNNLab, section 5.3) adds its steps to the trainers'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lightning_gnnload.pipeline.forecast.fluid import Clockwork, Command, Compute, Give, Off, Store, Take
from lightning_gnnload.pipeline.forecast.stages import PipelineStage, shared_ms
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

_WARM_UP, _STEPS = 12, 36
_LITTLE = 0.05  # of a step: a shorter wait limits nothing
_BUSY = 0.95


@dataclass(frozen=True)
class StepForecast:
    """A global step of a layout: its time, what limits it, and which share of it trainers wait for mini-batches and
    cores are busy."""

    step_ms: float
    limit: str
    wait_share: float = 0.0
    core_share: float = 0.0


def least_ms(work: BatchWork, layout: RunLayout, cores: int) -> float:
    """The least time that a step can take: that of the slowest stage by itself, or of all work on all cores."""
    trainers, makers = layout.trainers, layout.samplers or layout.trainers
    converts = work.convert_ms if layout.samplers else 0.0
    training = PipelineStage(
        trainers * work.train_work_ms,
        trainers,
        max_cores=layout.torch_threads,
        fixed_ms=work.train_ms(layout.torch_threads) - work.train_work_ms / layout.torch_threads + converts,
    )
    making = PipelineStage(
        trainers * (work.making_core_ms + (work.convert_ms - converts)),
        makers,
        max_cores=layout.threads,
        wait_ms=trainers * work.wait_ms,
    )
    return max(shared_ms([training, making], [layout.torch_threads, layout.threads], cores), work.gather_link_ms)


def forecast_step(work: BatchWork, layout: RunLayout, cores: int, num_devices: int = 0) -> StepForecast:
    """Predicts a global step on one of equal machines with so many cores and devices.

    Example:
        >>> work = BatchWork(sample_ms=20.0, train_fixed_ms=30.0)
        >>> steps = [forecast_step(work, RunLayout(), cores) for cores in (1, 2)]
        >>> [(step.step_ms, step.limit) for step in steps]
        [(50.0, 'cores'), (30.0, 'training')]
    """
    if layout.alternates:
        return _in_turns(work, layout, cores)
    run = _Run(work, layout, cores, num_devices)
    if not layout.switching:
        return run.forecast()
    alone = run.forecast()
    step_ms = max(_with_switching(work, layout, alone.step_ms), work_on_cores_ms(work, layout) / cores)
    return alone if step_ms >= alone.step_ms else StepForecast(step_ms, alone.limit, alone.wait_share, alone.core_share)


def work_on_cores_ms(work: BatchWork, layout: RunLayout) -> float:
    """What a step takes of one core, if that does all of it."""
    return layout.trainers * (work.making_core_ms + work.convert_ms + work.train_on_cores_ms(1))


def _in_turns(work: BatchWork, layout: RunLayout, cores: int) -> StepForecast:
    """One rank makes all mini-batches of a queue, then trains on them (GNNLab, section 5.3, the lone device)."""
    threads = min(layout.threads, cores)
    made_core_ms = work.making_core_ms + work.convert_ms
    making_ms = max(made_core_ms / threads, (made_core_ms + work.wait_ms) / layout.threads)
    making_ms = max(making_ms, work.making_python_ms) + work.draw_device_ms
    train_ms = work.train_ms(min(layout.torch_threads, cores)) + work.gather_device_ms + work.gather_link_ms
    step_ms = making_ms + train_ms
    limit = "sampling" if making_ms > train_ms else _training(work)
    return StepForecast(step_ms, limit, making_ms / step_ms if step_ms else 0.0, 1.0)


def _with_switching(work: BatchWork, layout: RunLayout, step_ms: float) -> float:
    """A step of all trainers, if samplers train on one core each while they have nothing to make.

    Of each step's mini-batches, samplers train x of them: they make all and train theirs in the time in which trainers
    train the others.
    """
    made_ms = work.making_core_ms / layout.threads + work.wait_ms / layout.threads + work.draw_device_ms
    theirs_ms = work.train_ms(1) + work.convert_ms + work.gather_device_ms + work.gather_link_ms
    idle_ms = step_ms - layout.trainers * made_ms / layout.samplers
    if idle_ms <= 0 or theirs_ms <= 0:
        return step_ms
    # Rates of trained mini-batches: the trainers', and the samplers' in what making leaves of their time.
    rate = (layout.trainers / step_ms + layout.samplers / theirs_ms) / (1 + made_ms / theirs_ms)
    return layout.trainers / rate


def _training(work: BatchWork) -> str:
    return "device" if work.train_device_ms > work.train_fixed_ms + work.train_work_ms else "training"


class _Run:
    """The processes of one machine's ranks, for some steps."""

    def __init__(self, work: BatchWork, layout: RunLayout, cores: int, num_devices: int) -> None:
        self.work = work
        self.layout = layout
        self.clockwork = Clockwork(cores)
        self.step_ends: list[float] = []
        trainers, self.makers_in = layout.trainers, layout.samplers or layout.trainers
        # A loader in process makes a mini-batch a thread, and has one more ready.
        room = layout.slots * layout.samplers if layout.samplers else layout.threads + 1
        self.free = [Store("slots", room) for _ in range(trainers)]
        self.made = [Store("mini-batches") for _ in range(trainers)]
        self.fetched = [Store("mini-batches") for _ in range(trainers)] if work.gather_link_ms else self.made
        self.room = [Store("room", 1) for _ in range(trainers)]
        self.arrived, self.go = Store("other trainers"), [Store("other trainers") for _ in range(trainers)]
        self.python = [Store("python", 1) for _ in range(trainers + layout.samplers)]
        on_devices = max(min(num_devices, trainers + layout.samplers), 1)
        devices = [Store("device", 1) for _ in range(on_devices)]
        self.device_of = [devices[rank % on_devices] for rank in range(trainers + layout.samplers)]

    def forecast(self) -> StepForecast:
        layout, clockwork = self.layout, self.clockwork
        processes = {f"trainer {rank}": self._train(rank) for rank in range(layout.trainers)}
        for number in range(self.makers_in * layout.threads):
            processes[f"maker {number}"] = self._make(number)
        if self.work.gather_link_ms:
            processes |= {f"fetcher {rank}": self._fetch(rank) for rank in range(layout.trainers)}
        if layout.trainers > 1:
            processes["reduction"] = self._reduce()
        clockwork.run(processes)
        took_ms = (self.step_ends[-1] - self.step_ends[_WARM_UP - 1]) / _STEPS
        step_ms = max(took_ms, least_ms(self.work, layout, int(clockwork.cores)))
        shares = self._wait_shares()
        core_share = clockwork.busy_core_ms / max(clockwork.now_ms * clockwork.cores, 1e-9)
        waits = shares.get("mini-batches", 0.0)
        return StepForecast(step_ms, self._limit(shares, core_share), waits, core_share)

    def _wait_shares(self) -> dict[str, float]:
        """The share of the time that the trainer which waits longest waits, by what for: all go at its pace."""
        shares: dict[str, float] = {}
        for (process, store), ms in self.clockwork.waited_ms.items():
            if process.startswith("trainer"):
                shares[store] = max(shares.get(store, 0.0), ms / max(self.clockwork.now_ms, 1e-9))
        return shares

    def _limit(self, shares: dict[str, float], core_share: float) -> str:
        work, layout = self.work, self.layout
        if shares.get("mini-batches", 0.0) > _LITTLE:
            stages = {"sampling": work.sample_ms + work.draw_device_ms, "gathering": work.gather_ms}
            stages |= {"disk": work.wait_ms, "link": work.gather_link_ms * self.makers_in * layout.threads}
            if not layout.samplers:
                stages["conversion"] = work.convert_ms
            stage = max(stages, key=lambda name: stages[name])
            return "cores" if core_share > _BUSY and stage not in ("disk", "link") else stage
        if core_share > _BUSY and layout.num_threads > self.clockwork.cores:
            return "cores"
        if work.exchange_ms > max(work.train_ms(layout.torch_threads), work.gather_link_ms):
            return "exchange"
        if shares.get("python", 0.0) > _LITTLE:
            return "python"
        return _training(work)

    def _turn(self, store: Store, *commands: Command) -> Iterator[Command]:
        """Commands that only one may run at a time, if they take any time."""
        if any(command.ms for command in commands if isinstance(command, Compute | Off)):
            yield Take(store)
            yield from commands
            yield Give(store)

    def _make(self, number: int) -> Iterator[Command]:
        work, layout = self.work, self.layout
        own_rank = number // layout.threads
        rank = own_rank + (layout.trainers if layout.samplers else 0)
        step = layout.samplers * layout.threads
        batch = number
        while True:
            trainer = batch % layout.trainers if layout.samplers else own_rank
            batch += step
            yield Take(self.free[trainer])
            yield from self._turn(self.python[rank], Compute(work.making_python_ms))
            yield from self._turn(self.device_of[rank], Off(work.draw_device_ms))
            yield Compute(max(work.making_core_ms - work.making_python_ms, 0.0))
            yield Off(work.wait_ms)
            if not layout.samplers:
                yield from self._turn(self.python[rank], Compute(work.convert_ms))
            yield Give(self.made[trainer])

    def _fetch(self, rank: int) -> Iterator[Command]:
        """Brings a trainer's missed rows to its device, one mini-batch ahead of it."""
        while True:
            yield Take(self.room[rank])
            yield Take(self.made[rank])
            yield Off(self.work.gather_link_ms)
            yield Give(self.fetched[rank])

    def _train(self, rank: int) -> Iterator[Command]:
        work, layout = self.work, self.layout
        for step in range(_WARM_UP + _STEPS):
            if step and not layout.samplers:
                yield Give(self.free[rank])  # only now is another one begun
            yield Take(self.fetched[rank])
            if work.gather_link_ms:
                yield Give(self.room[rank])
            if layout.samplers:
                yield from self._turn(self.python[rank], Compute(work.convert_ms))
            yield from self._turn(self.python[rank], Compute(work.train_python_ms))
            # Torch's other threads keep their cores while one computes alone: they wait by looking again and again.
            on_cores_ms = work.train_on_cores_ms(layout.torch_threads) - work.train_python_ms
            yield Compute(on_cores_ms, layout.torch_threads)
            yield from self._turn(self.device_of[rank], Off(work.gather_device_ms), Off(work.train_device_ms))
            if layout.trainers > 1:
                yield Give(self.arrived)
                yield Take(self.go[rank])
            if layout.samplers:
                yield Give(self.free[rank])
            if rank == 0:
                self.step_ends.append(self.clockwork.now_ms)

    def _reduce(self) -> Iterator[Command]:
        while True:
            for _ in range(self.layout.trainers):
                yield Take(self.arrived)
            yield Off(self.work.exchange_ms)
            for store in self.go:
                yield Give(store)
