"""Stages: how long each stage of a mini-batch takes, and how stages share a machine's cores, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MEASURING_ERROR = 0.03
"""A sampler more, or a thread more, is to make steps faster by more than so much, which is what measuring errs by."""
_MAX_WAITING = 8  # threads that wait for a disk side by side; few disks serve more at once any faster


@dataclass(frozen=True)
class StageTimes:
    """The milliseconds of one mini-batch's stages, each measured without the others beside it."""

    sample_ms: float  # drawing, in one thread
    gather_ms: float  # what a sampler gathers, in the same thread; where trainers gather, it is part of training
    # Of these two, the time on a core, and the wait for a disk or a device. The rest was spent waiting for a core.
    making_core_ms: float
    making_wait_ms: float
    convert_ms: float
    # Of a step (moving the mini-batch, forward, backward, optimizer), what cores share, in time of one, and the rest.
    train_work_ms: float
    train_fixed_ms: float
    sampler_threads: int = 1  # that made mini-batches side by side in this measurement
    torch_threads: int = 1  # with more, training is not faster
    draws_on_device: bool = False  # which all threads of a sampler share
    trains_on_device: bool = False  # trainers need a core for launches alone
    trainer_gather_ms: float = 0.0  # of ``train_fixed_ms``, where the trainer's device gathers

    @property
    def making_ms(self) -> float:
        return self.sample_ms + self.gather_ms

    def training_ms(self, cores: int) -> float:
        """A trainer's time for a step, on so many cores."""
        return self.convert_ms + self.train_fixed_ms + self.train_work_ms / max(min(cores, self.torch_threads), 1)


def batch_every_ms(sample_ms: float, train_ms: float, num_samplers: int, num_ranks: int) -> float:
    """Predicts how often a machine has trained on a mini-batch: as fast as all its samplers (T_s each), or all its
    trainers (T_t each), can. An epoch has the same mini-batches for any number of trainers, and takes as long for each
    of them.

    Example:
        >>> [batch_every_ms(20.0, 60.0, samplers, num_ranks=4) for samplers in (1, 2, 3)]
        [20.0, 30.0, 60.0]
    """
    return max(sample_ms / num_samplers, train_ms / (num_ranks - num_samplers))


@dataclass(frozen=True)
class PipelineStage:
    """What the workers of one stage do for a global step: ``work_ms`` is shared by ``workers`` equal processes, of
    which each gains from up to ``max_cores`` cores; ``fixed_ms`` is serial, and ``wait_ms`` is time that threads wait
    off their cores, say for a disk. A stage of 0 workers takes no core: a link, a disk, a device. Stages run side by
    side.

    Source: BGL (NSDI'23), section 3.4: T / c, f(c) = a / c + d, and D / b and T_net, which take no core.
    """

    work_ms: float
    workers: int = 1
    max_cores: float = math.inf
    fixed_ms: float = 0.0
    wait_ms: float = 0.0

    def time_ms(self, threads: int) -> float:
        """The time of a global step with so many threads a worker, each on a core of its own while it needs one."""
        if not self.workers:
            return self.fixed_ms
        return self.fixed_ms + (self.work_ms + self.wait_ms) / (self.workers * min(threads, self.max_cores))

    def threads_on(self, cores: int) -> int:
        """The threads of a worker that keep so many cores busy: more than cores where threads wait off them."""
        busy = round(cores * (self.work_ms + self.wait_ms) / self.work_ms) if self.work_ms else cores
        return int(min(busy, max(cores, _MAX_WAITING), self.max_cores))

    @property
    def core_ms(self) -> float:
        """The time that all its workers need on cores."""
        return self.work_ms + self.workers * self.fixed_ms


def allocate(stages: Sequence[PipelineStage], num_cores: int) -> tuple[int, ...] | None:
    """Divides cores among the workers of all stages, so that the slowest stage is as fast as it can be. Returns one
    count a stage, 0 for one without workers; None when there are fewer cores than workers.

    The slowest stage decides how fast batches come. Any better division gives it more than its present count and no
    other stage fewer than it needs, so giving the slowest one more, again and again, ends at the best division.

    Source: BGL (NSDI'23), section 3.4 (resource isolation; a brute-force search there).

    Example:
        >>> allocate([PipelineStage(work_ms=30.0), PipelineStage(work_ms=10.0)], num_cores=4)
        (3, 1)
    """
    counts = [min(stage.workers, 1) for stage in stages]
    free = num_cores - sum(stage.workers for stage in stages)
    if free < 0:
        return None
    while True:
        slower = [
            index
            for index, (stage, count) in enumerate(zip(stages, counts, strict=True))
            if 0 < stage.workers <= free and count < stage.max_cores and stage.work_ms + stage.wait_ms > 0
        ]
        if not slower:
            return tuple(counts)
        slowest = max(slower, key=lambda index: stages[index].time_ms(counts[index]))
        counts[slowest] += 1
        free -= stages[slowest].workers


def share_cores(stages: Sequence[PipelineStage], num_cores: int) -> tuple[int, ...]:
    """Gives each worker the fewest threads that make no stage slower than it must be, where all threads run on all
    cores. Returns one count a stage, 0 for one without workers.

    A step takes as long as the slowest stage, or as all work on all cores. More threads than needed take cores from
    others at the wrong moment (BGL's reason to isolate stages).

    Example:
        >>> share_cores([PipelineStage(work_ms=100.0, fixed_ms=10.0), PipelineStage(work_ms=12.0)], num_cores=2)
        (2, 1)
    """
    most = [stage.threads_on(num_cores) if stage.workers else 0 for stage in stages]
    enough_ms = shared_ms(stages, most, num_cores) * (1 + MEASURING_ERROR)
    return tuple(
        next((count for count in range(1, limit) if stage.time_ms(count) <= enough_ms), limit)
        for stage, limit in zip(stages, most, strict=True)
    )


def slowest_ms(stages: Sequence[PipelineStage], threads: Sequence[int]) -> float:
    """The time of a global step with so many threads a worker, where each has the cores that it needs."""
    return max(stage.time_ms(count) for stage, count in zip(stages, threads, strict=True))


def shared_ms(stages: Sequence[PipelineStage], threads: Sequence[int], num_cores: int) -> float:
    """The time of a global step with so many threads a worker, where all run on all cores."""
    return max(slowest_ms(stages, threads), sum(stage.core_ms for stage in stages) / num_cores)
