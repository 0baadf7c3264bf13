"""Predicts an epoch for each sensible layout of ranks, threads and cache, and recommends one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.memory import (
    BatchSize,
    DataSize,
    MemoryPart,
    memory_parts,
    needed_bytes,
    what_does_not_fit,
)
from lightning_gnnload.pipeline.forecast.run import StepForecast
from lightning_gnnload.pipeline.forecast.stages import MEASURING_ERROR
from lightning_gnnload.pipeline.forecast.steps import forecast_step
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

_MOST_RANKS = 8
_TURN_SLOTS = 16  # that a lone device fills before it trains
_WORTH_CACHING = 0.05  # of an epoch
_HALVINGS = 10  # of a step's time: to a thousandth of it


@dataclass(frozen=True)
class CacheEffect:
    """How often a cache of a size serves a row, by ``policy``, and what a row costs with and without it, in ns on one
    core. ``hit_rates`` are those of ``ratios``, both ascending."""

    policy: str = ""
    ratios: tuple[float, ...] = ()
    hit_rates: tuple[float, ...] = ()
    store_ns: float = 1.0
    memory_ns: float = 1.0

    def hit_rate(self, ratio: float) -> float:
        """Interpolates between measured sizes; nothing is hit without a cache, and all with all rows."""
        sizes, rates = (0.0, *self.ratios, 1.0), (0.0, *self.hit_rates, 1.0)
        number = min(max(bisect_left(sizes, ratio), 1), len(sizes) - 1)
        low, high = sizes[number - 1], sizes[number]
        share = (ratio - low) / (high - low) if high > low else 1.0
        return rates[number - 1] + share * (rates[number] - rates[number - 1])

    def gather_share(self, ratio: float) -> float:
        """The time to gather, as a share of that without a cache, where both lie on the host."""
        saved = self.hit_rate(ratio) * (self.store_ns - self.memory_ns) / max(self.store_ns, 1e-9)
        return 1.0 - saved


@dataclass(frozen=True)
class MeasuredRun:
    """What was measured of a configuration, on the machine that plans.

    Attributes:
        works: of a mini-batch, by its seeds.
        sizes: likewise.
        slowdown: by threads side by side, how many times longer each takes of its core than one by itself.
        num_seeds: of an epoch.
        limit: the steps of an epoch at most, or the share of them, as ``limit_train_batches`` says.
        gradient_bytes: that trainers average.
        mine: the layout that the configuration asks for.
        copy_gb_s: that one core copies; it scales a step to a device that nobody has measured.
        draws_on_device: mini-batches are drawn where there is a device.
        formats: by batch format, what a mini-batch takes to convert, in ms.
        foreign_load: the share of the cores that other processes used meanwhile.
        hops: nodes that are asked for their lists, and edges drawn of them, by hop, of a mini-batch of as many seeds as
            the largest of ``sizes``; empty: not measured.
        batch_sizes: of mini-batches, as shares of their mean.
        meeting_ms: what trainers without devices take in each step to meet, beside what their gradients take to go from
            one to another; None: not measured.
    """

    works: dict[int, BatchWork]
    sizes: dict[int, BatchSize]
    data: DataSize
    num_seeds: int
    mine: RunLayout
    limit: int | float = 1.0
    gradient_bytes: int = 0
    slowdown: dict[int, float] = field(default_factory=dict)
    drop_last: bool = False
    draws_on_device: bool = False
    copy_gb_s: float = 10.0
    cache: CacheEffect = CacheEffect()
    formats: dict[str, float] = field(default_factory=dict)
    foreign_load: float = 0.0
    hops: tuple[tuple[float, float], ...] = ()
    batch_sizes: tuple[float, ...] = ()
    meeting_ms: float | None = None

    @property
    def global_batch(self) -> int:
        """The seeds of one step of all trainers of a machine, which no layout changes."""
        return self.mine.batch_size * self.mine.trainers

    def mine_on(self, machine: Machine) -> RunLayout:
        """The configuration's layout there: torch takes all cores, as Lightning divides them among ranks."""
        if machine.is_here:
            return self.mine
        return replace(self.mine, torch_threads=max(machine.cores // self.mine.ranks, 1))

    def fits_seeds(self, layout: RunLayout, machine: Machine) -> bool:
        """Whether there is a seed for every trainer, and with ``drop_last`` a whole step."""
        trainers = layout.trainers * machine.machines
        return self.num_seeds >= (layout.batch_size * trainers if self.drop_last else trainers)

    def seeds_of(self, layout: RunLayout, machine: Machine) -> int:
        """The seeds of a trainer's mini-batch: no more than there are."""
        return min(layout.batch_size, max(self.num_seeds // (layout.trainers * machine.machines), 1))

    def size_of(self, num_seeds: int) -> BatchSize:
        below, above, share = _between(sorted(self.sizes), num_seeds)
        return self.sizes[below].scaled(self.sizes[above], share)

    def work_of(self, layout: RunLayout, machine: Machine) -> BatchWork:
        """The work of a mini-batch in this layout, on this machine."""
        num_seeds = self.seeds_of(layout, machine)
        if machine.stages is not None:
            share = num_seeds / machine.stage_seeds
            work = BatchWork().scaled(machine.stages, share)
        else:
            below, above, share = _between(sorted(self.works), num_seeds)
            work = self.works[below].scaled(self.works[above], share)
            work = replace(work, gather_ms=work.gather_ms * self.cache.gather_share(layout.cache))
            if machine.gpus and not machine.is_here:
                work = self._on_device(work, layout, machine)
        if layout.batch_format != self.mine.batch_format and layout.batch_format in self.formats:
            share = num_seeds / self.seeds_of(self.mine, machine)
            work = replace(work, convert_ms=self.formats[layout.batch_format] * share)
        factor = _slowdown(self.slowdown, layout.threads)
        exchange_ms = work.exchange_ms or machine.exchange_ms(self.gradient_bytes, layout.trainers, self.meeting_ms)
        return replace(
            work,
            sample_ms=work.sample_ms * factor,
            gather_ms=work.gather_ms * factor,
            exchange_ms=exchange_ms if layout.trainers * machine.machines > 1 else 0.0,
        )

    def _on_device(self, work: BatchWork, layout: RunLayout, machine: Machine) -> BatchWork:
        """The work on a described device. Drawing and gathering follow from counts and rates. For the step there is no
        more than what its memory delivers beside one core here: a guess, which ``stages`` replace by what is known."""
        gpu, size = machine.gpus[0], self.size_of(self.seeds_of(layout, machine))
        row_mb = self.data.row_bytes / 1e6
        hits = self.cache.hit_rate(layout.cache)
        core_ms = work.train_work_ms + max(work.train_fixed_ms - work.train_python_ms, 0.0)
        step_ms = core_ms * self.copy_gb_s / gpu.memory_gb_s
        if machine.step_ms:
            step_ms = machine.step_ms * self.seeds_of(layout, machine) / machine.stage_seeds
        return replace(
            work,
            sample_ms=0.0 if self.draws_on_device else work.sample_ms,
            gather_ms=0.0,
            wait_ms=0.0,
            making_python_ms=0.0 if self.draws_on_device else work.making_python_ms,
            draw_device_ms=gpu.draw_ms + size.num_edges / gpu.edges_per_ms if self.draws_on_device else 0.0,
            gather_device_ms=hits * size.num_nodes * row_mb / gpu.rows_gb_s,
            gather_link_ms=(1 - hits) * size.num_nodes * row_mb / machine.rows_gb_s,
            train_device_ms=step_ms,
            train_work_ms=0.0,
            train_fixed_ms=0.0,
        )

    def num_steps(self, layout: RunLayout, machine: Machine) -> int:
        """Raises SeedError: they do not fit."""
        plan = StepPlan(self.num_seeds, layout.batch_size, layout.trainers * machine.machines, self.drop_last)
        most = self.limit if isinstance(self.limit, int) else int(plan.num_steps * self.limit)
        return min(plan.num_steps, most)


@dataclass(frozen=True)
class EpochForecast:
    """What is predicted for a layout; ``problem`` says what does not fit, and is empty where all does."""

    layout: RunLayout
    step: StepForecast
    epoch_s: float
    parts: tuple[MemoryPart, ...]
    problem: str = ""

    @property
    def host_bytes(self) -> int:
        return needed_bytes(self.parts)


def forecast_epoch(measured: MeasuredRun, layout: RunLayout, machine: Machine) -> EpochForecast:
    """Predicts an epoch, the time in which its first mini-batch is made included."""
    work = measured.work_of(layout, machine)
    step = forecast_step(work, layout, machine.cores, len(machine.gpus))
    first_ms = work.making_core_ms + work.wait_ms + work.draw_device_ms
    num_seeds = measured.seeds_of(layout, machine)
    parts = tuple(memory_parts(layout, measured.data, measured.size_of(num_seeds), machine))
    # The last step may have fewer seeds than the others.
    global_batch = num_seeds * layout.trainers * machine.machines
    num_steps = min(measured.num_steps(layout, machine), measured.num_seeds / global_batch)
    epoch_s = (num_steps * step.step_ms + first_ms) / 1e3
    return EpochForecast(layout, step, epoch_s, parts, what_does_not_fit(parts, machine))


def meeting_ms(measured: MeasuredRun, layout: RunLayout, machine: Machine, step_ms: float) -> float:
    """What trainers take to meet, if a step of ``layout`` takes ``step_ms``: all that stages, cores and gradients leave
    unexplained. That is DDP's own code in each trainer, the wait for the slower of them, and for threads that wake."""
    least, most = 0.0, step_ms
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        work = replace(measured, meeting_ms=middle).work_of(layout, machine)
        if forecast_step(work, layout, machine.cores).step_ms < step_ms:
            least = middle
        else:
            most = middle
    return (least + most) / 2


def sensible_layouts(measured: MeasuredRun, machine: Machine) -> Iterator[RunLayout]:
    """Yields the layouts that a machine has room for: all its devices or up to eight of its cores as ranks, in each way
    to divide them, with one thread or with what its cores leave. All train on the same seeds a step."""
    cores, whole, mine = machine.cores, measured.global_batch, measured.mine_on(machine)
    most = len(machine.gpus) or min(cores, _MOST_RANKS)
    usual = replace(mine, switching=False, samplers=0, trainers=1, batch_size=whole)
    for threads in _counts(cores):
        yield replace(usual, way="auto", threads=threads, torch_threads=cores)
    yield replace(usual, way="factored", switching=True, threads=cores, torch_threads=cores, slots=_TURN_SLOTS)
    for ranks in range(2, most + 1):
        if len(machine.gpus) and ranks < most:
            continue
        share = max(cores // ranks, 1)
        for trainers in range(1, ranks + 1):
            if whole % trainers:
                continue
            shared = replace(usual, trainers=trainers, batch_size=whole // trainers, torch_threads=share)
            for threads in _counts(share):
                if trainers == ranks:
                    yield replace(shared, way="ddp", threads=threads)
                    continue
                for switching in (False, True):
                    yield replace(
                        shared, way="factored", samplers=ranks - trainers, threads=threads, switching=switching
                    )


def forecast_all(measured: MeasuredRun, machine: Machine) -> list[EpochForecast]:
    """Predicts all sensible layouts, the configuration's own among them, and the fastest with other caches; fastest
    first."""
    sensible = (layout for layout in sensible_layouts(measured, machine) if measured.fits_seeds(layout, machine))
    layouts = dict.fromkeys([measured.mine_on(machine), *sensible])
    forecasts = [forecast_epoch(measured, layout, machine) for layout in layouts]
    fastest = min(forecasts, key=lambda forecast: forecast.epoch_s)
    for ratio in measured.cache.ratios:
        cached = forecast_epoch(measured, replace(fastest.layout, cache=ratio), machine)
        if cached.epoch_s < fastest.epoch_s * (1 - _WORTH_CACHING):
            forecasts.append(cached)
    return sorted(forecasts, key=lambda forecast: (bool(forecast.problem), forecast.epoch_s, str(forecast.layout)))


def recommend_layout(forecasts: Sequence[EpochForecast], mine: RunLayout) -> EpochForecast:
    """Recommends, of all that fit and come within 3 % of the fastest, what is there already, or else the fewest ranks
    with the least memory. Samplers that train are recommended to those alone who have them: their gradients come late,
    which changes what is learned. Raises PlanError: none fits."""
    fitting = [
        forecast
        for forecast in forecasts
        if not forecast.problem and (forecast.layout.alternates or not forecast.layout.switching or mine.switching)
    ]
    if not fitting:
        least = min(forecasts, key=lambda forecast: forecast.host_bytes)
        raise PlanError(f"no layout fits this machine. Of the smallest, {least.layout}: {least.problem}")
    enough_s = min(forecast.epoch_s for forecast in fitting) * (1 + MEASURING_ERROR)
    near = [forecast for forecast in fitting if forecast.epoch_s <= enough_s]
    return min(
        near,
        key=lambda forecast: (
            forecast.layout != mine,
            forecast.layout.ranks,
            forecast.layout.samplers,
            forecast.layout.switching,
            forecast.host_bytes,
            forecast.layout.threads,
        ),
    )


def _counts(most: int) -> list[int]:
    """1, 2, 4 and so on, and all."""
    counts = [1]
    while counts[-1] * 2 <= min(most, 16):
        counts.append(counts[-1] * 2)
    return sorted({*counts, min(most, 16)})


def _between(sizes: Sequence[int], size: int) -> tuple[int, int, float]:
    """The two measured sizes next to one, and its way from the first to the second: beyond them on the same line."""
    if len(sizes) == 1:
        return sizes[0], sizes[0], 0.0
    number = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
    below, above = sizes[number - 1], sizes[number]
    return below, above, (size - below) / (above - below)


def _slowdown(factors: dict[int, float], threads: int) -> float:
    """How many times longer making takes beside ``threads - 1`` others, as measured with the nearest fewer."""
    return max((factor for count, factor in factors.items() if count <= threads), default=1.0)
