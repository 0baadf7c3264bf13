"""BatchWork: what one mini-batch asks of a machine; RunLayout: which ranks and threads do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any, Literal

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.pipeline.queue.depth import FIRST

Way = Literal["auto", "ddp", "factored"]
WAYS: tuple[Way, ...] = ("auto", "ddp", "factored")
_MOST_MS = 1e9


@dataclass(frozen=True)
class BatchWork:
    """The work of one mini-batch of one trainer, in milliseconds, by stage and by what it keeps busy.

    Attributes:
        sample_ms: drawing, on one core.
        gather_ms: copying rows of features, on the same core.
        wait_ms: what the thread that makes it waits for a disk, off its core.
        convert_ms: making what the model expects, on one core.
        train_work_ms: the part of a step that cores share, in time of one core.
        train_fixed_ms: the rest of the step, on one core.
        making_python_ms: the part of making that Python code takes, while no other thread of the process can run any.
        train_python_ms: likewise of the step.
        draw_device_ms: drawing on the device of the rank that samples.
        gather_device_ms: gathering rows that lie on the trainer's device, which cannot compute meanwhile.
        gather_link_ms: rows that come to it over a link, beside its computing.
        train_device_ms: the step on the trainer's device.
        exchange_ms: averaging gradients among trainers.
    """

    sample_ms: float = 0.0
    gather_ms: float = 0.0
    wait_ms: float = 0.0
    convert_ms: float = 0.0
    train_work_ms: float = 0.0
    train_fixed_ms: float = 0.0
    making_python_ms: float = 0.0
    train_python_ms: float = 0.0
    draw_device_ms: float = 0.0
    gather_device_ms: float = 0.0
    gather_link_ms: float = 0.0
    train_device_ms: float = 0.0
    exchange_ms: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(f"stages: {field.name}", getattr(self, field.name), _MOST_MS)

    @classmethod
    def measured(cls, times: StageTimes, *, making_python_ms: float = 0.0) -> BatchWork:
        """The work behind stages that were timed: of a step on a device, all that is not shared is the device's."""
        core_ms = times.making_core_ms / max(times.making_ms, 1e-9)
        work = cls(
            sample_ms=times.sample_ms * core_ms,
            gather_ms=times.gather_ms * core_ms,
            wait_ms=times.making_wait_ms,
            convert_ms=times.convert_ms,
            train_work_ms=times.train_work_ms,
            train_fixed_ms=times.train_fixed_ms,
            making_python_ms=min(making_python_ms, times.making_core_ms),
        )
        if times.trains_on_device:
            work = replace(work, train_fixed_ms=0.0, train_device_ms=times.train_fixed_ms)
        if times.draws_on_device:
            work = replace(work, wait_ms=0.0, draw_device_ms=times.making_wait_ms)
        return work

    @classmethod
    def mean(cls, works: Sequence[BatchWork]) -> BatchWork:
        """The mean of the same work, measured several times."""
        return cls(**{field.name: fmean(getattr(work, field.name) for work in works) for field in fields(cls)})

    @property
    def making_core_ms(self) -> float:
        return self.sample_ms + self.gather_ms

    def train_on_cores_ms(self, torch_threads: int) -> float:
        """What a step computes on cores, each of ``torch_threads`` on one of its own. Its Python code is a part of
        ``train_fixed_ms``; where a device computes, it may be all there is."""
        return max(self.train_fixed_ms, self.train_python_ms) + self.train_work_ms / torch_threads

    def train_ms(self, torch_threads: int) -> float:
        """A step with nothing beside it, once its mini-batch is on the device."""
        return self.train_on_cores_ms(torch_threads) + self.train_device_ms

    def scaled(self, further: BatchWork, share: float) -> BatchWork:
        """Goes a ``share`` of the way to another size of mini-batches, on straight lines, and never below 0."""
        names = [field.name for field in fields(self)]
        return BatchWork(
            **{name: max(getattr(self, name) * (1 - share) + getattr(further, name) * share, 0.0) for name in names}
        )


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """The ranks and threads of a run; counts of ranks are each machine's.

    Attributes:
        way: the strategy: ``"auto"`` trains on one rank, ``"ddp"`` on several, each of which samples for itself, and
            ``"factored"`` has ranks that sample for those that train. A factored run of one rank does both in turn.
        threads: that sample, in each rank that does.
        torch_threads: that compute, in each trainer.
        batch_size: seeds a trainer and step.
        slots: of each trainer's queue from each sampler.
        switching: idle samplers train.
        cache: the share of the rows that a cache has.
        staleness: steps by which averaged gradients may be late.
    """

    way: Way = "auto"
    trainers: int = 1
    samplers: int = 0
    threads: int = 1
    torch_threads: int = 1
    batch_size: int = 1
    slots: int = FIRST
    switching: bool = False
    cache: float = 0.0
    batch_format: str = "blocks"
    staleness: int = 0

    @property
    def ranks(self) -> int:
        return self.trainers + self.samplers

    @property
    def alternates(self) -> bool:
        """Whether one rank fills a queue with all its threads, then trains from it, and so on."""
        return self.way == "factored" and not self.samplers

    @property
    def num_threads(self) -> int:
        """The most threads that compute at once on a machine."""
        return self.trainers * self.torch_threads + (self.samplers or self.trainers) * self.threads

    def __str__(self) -> str:
        """Names it in a few words, as tables and figures do."""
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        if self.way == "auto":
            text = f"1 rank, {threads}"
        elif self.alternates:
            text = f"1 rank in turns, {threads}"
        elif self.way == "ddp":
            text = f"ddp, {self.trainers} ranks, {threads} each"
        else:
            text = f"{self.samplers} sampling, {self.trainers} training, {threads}"
        text += ", switching" if self.switching and self.samplers else ""
        return text + (f", {self.cache:.3g} cached" if self.cache else "")


def check_number(name: str, value: Any, most: float, *, least: float = 0.0) -> None:
    """Raises PlanError: it is no number within these bounds. By type, as JSON's true is an int to isinstance."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise PlanError(f"{name} is {value!r}; a number from {least:g} to {most:g} is needed.")
