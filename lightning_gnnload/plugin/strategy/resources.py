"""Resources: which cores and how many threads each rank has, and how much memory its queues take."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lightning_gnnload.pipeline.forecast.stages import (
    PipelineStage,
    StageTimes,
    allocate,
    share_cores,
    shared_ms,
    slowest_ms,
)
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import Job, Role, RoleDecision, RolePlan
from lightning_gnnload.plugin.module.settings import default_num_threads

_MEMORY_SHARE = 8
_GIVEN_THREADS = int(value) if (value := os.environ.get("OMP_NUM_THREADS", "")).isdigit() else None
"""Torch's threads as the user gave them: Lightning sets the same variable when it launches ranks."""


@dataclass(frozen=True)
class Division:
    """How the ranks of a machine use its cores: each local rank's ``cores``, empty where all share all; threads;
    ``step_ms``, how long a global step takes then, None where nothing was measured; ``about``, one line for people,
    empty likewise."""

    cores: Sequence[Collection[int]] = ()
    sampler_threads: int | None = None
    torch_threads: int | None = None
    step_ms: float | None = None
    about: str = ""


def divide_cores(
    cores: Collection[int],
    plan: RolePlan,
    decision: RoleDecision | None,
    *,
    pinned: bool,
    sampler_threads: int | None = None,
    torch_threads: int | None = None,
) -> Division:
    """Solves for the threads of all ranks of a machine, and for their cores where these are ``pinned``. Without a
    ``decision``, each rank gets the same number of cores, or they share all, and a trainer has ``torch_threads``. A
    lone rank's are divided among its threads.

    Example:
        >>> divide_cores(range(4), RolePlan(num_devices=2, num_samplers=1), None, pinned=True).cores
        [{0, 1}, {2, 3}]
    """
    times = None if decision is None else decision.stages
    if plan.only_samples:
        share = len(cores) // plan.num_devices if pinned else 0
        return Division(_cores_by_rank(cores, plan, (0, share)), sampler_threads or share) if share else Division()
    if times is None:
        return _even_division(cores, plan, sampler_threads) if pinned else Division(torch_threads=torch_threads)
    stages = stages_of(times, plan, sampler_threads)
    # By the work on cores alone: a thread that waits for a disk needs none.
    counts = allocate([replace(stage, wait_ms=0.0) for stage in stages], len(cores)) if pinned else None
    if counts is None:
        threads = share_cores(stages, len(cores))
        step_ms, how = shared_ms(stages, threads, len(cores)), "shared by all"
    else:
        threads = tuple(stage.threads_on(count) for stage, count in zip(stages, counts, strict=True))
        step_ms, how = slowest_ms(stages, threads), f"{counts[0]} a trainer and {counts[1]} a sampler"
    return Division(
        _cores_by_rank(cores, plan, counts),
        sampler_threads or threads[1],
        None if times.trains_on_device else threads[0],
        step_ms,
        _about(times, stages, threads, step_ms, how),
    )


def _even_division(cores: Collection[int], plan: RolePlan, sampler_threads: int | None) -> Division:
    """Divides cores without measured times: evenly among ranks, or between the threads of a lone one."""
    if plan.is_lone:
        return Division(torch_threads=max(len(cores) - (sampler_threads or default_num_threads(1)), 1))
    if not plan.num_samplers:  # other machines sample
        share = len(cores) // plan.num_trainers
        return Division(_cores_by_rank(cores, plan, (share, 0)), torch_threads=share) if share else Division()
    stages = [PipelineStage(float(count), count) for count in (plan.num_trainers, plan.num_samplers)]
    counts = allocate(stages, len(cores))
    if counts is None:
        return Division()
    return Division(_cores_by_rank(cores, plan, counts), sampler_threads or counts[1], counts[0])


def _cores_by_rank(cores: Collection[int], plan: RolePlan, counts: Sequence[int] | None) -> list[set[int]]:
    """The cores of each local rank, from those of a trainer and of a sampler; empty where they are not divided."""
    if counts is None or plan.is_lone:
        return []
    remaining, by_role = iter(sorted(cores)), dict(zip((Role.TRAINER, Role.SAMPLER), counts, strict=True))
    return [{next(remaining) for _ in range(by_role[plan.role(rank)])} for rank in range(plan.num_devices)]


def stages_of(times: StageTimes, plan: RolePlan, sampler_threads: int | None = None) -> list[PipelineStage]:
    """The stages of a machine, training and making mini-batches, from the times of one mini-batch. A sampler's threads
    draw and gather; a trainer converts, moves, trains, and gathers where samplers do not."""
    num = plan.num_trainers
    in_trainer_ms, in_sampler_ms = (0.0, times.convert_ms) if plan.is_lone else (times.convert_ms, 0.0)
    training = PipelineStage(
        num * times.train_work_ms,
        num,
        max_cores=times.torch_threads,
        fixed_ms=times.train_fixed_ms + in_trainer_ms,
    )
    # More threads than a device was tried with need not be faster: they share it.
    most = times.sampler_threads if times.draws_on_device else math.inf
    making = PipelineStage(
        num * (times.making_core_ms + in_sampler_ms),
        plan.num_samplers,
        max_cores=sampler_threads or most,
        wait_ms=num * times.making_wait_ms,
    )
    return [training, making]


def _about(
    times: StageTimes, stages: Sequence[PipelineStage], threads: Sequence[int], step_ms: float, cores: str
) -> str:
    names = {"sampling": times.sample_ms, "gathering": times.gather_ms, "conversion": times.convert_ms}
    listed = [f"{name} {ms:.1f} ms" for name, ms in names.items() if ms >= 0.05]
    where = "on its device" if times.trains_on_device else "on one core"
    by_cores = f" ({times.train_fixed_ms:.1f} + {times.train_work_ms:.1f} / cores)" if times.train_work_ms else ""
    if times.trainer_gather_ms >= 0.05:
        by_cores += f", {times.trainer_gather_ms:.1f} ms of it to gather"
    named = dict(zip(("torch", "sampling"), threads, strict=True))
    if times.trains_on_device:
        del named["torch"]
    counts = [f"{count} {name} thread{'s' * (count != 1)}" for name, count in named.items()]
    longest_ms, slowest = max(
        (stage.time_ms(count), name)
        for stage, count, name in zip(stages, threads, ("training", "making mini-batches"), strict=True)
    )
    bound = slowest if longest_ms >= step_ms * (1 - 1e-9) else "the work on all cores"
    return (
        f"Stages: {', '.join(listed)} in one thread; training {times.train_work_ms + times.train_fixed_ms:.1f} ms "
        f"{where}{by_cores}. Hence {' and '.join(counts)}, cores {cores}: {step_ms:.1f} ms a step, bounded by {bound}"
    )


@contextmanager
def kept_to(cores: Collection[int], torch_threads: int | None = None) -> Iterator[None]:
    """Keeps all threads of this process, and those that they start, to ``cores``, and torch to ``torch_threads`` (or as
    many as cores). Afterwards everything is as before. Without cores, threads run where they did."""
    if not cores and torch_threads is None:
        yield
        return
    mask_here = os.sched_getaffinity(0)
    # Thread by thread, as an affinity set for the process is that of the calling thread alone.
    before = {thread: mask for thread in _threads() if (mask := _mask(thread)) is not None} if cores else {}
    num_threads = torch.get_num_threads()
    _move({thread: set(cores) for thread in before})
    torch.set_num_threads(torch_threads or len(cores))
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        if cores:
            # Threads that started meanwhile have inherited the narrow mask, and get the caller's.
            _move({thread: before.get(thread, mask_here) for thread in _threads()})


@contextmanager
def own_cores(job: Job, division: Division) -> Iterator[None]:
    """Keeps this rank, and the threads that it starts, to its cores meanwhile."""
    one = 1 if job.start_method == "fork" else None  # OpenMP's threads do not outlive a fork
    if job.pin_cores and not division.cores and not job.roles.is_lone:
        pl.utilities.rank_zero.rank_zero_warn(
            f"pin_cores=True has no effect: {len(os.sched_getaffinity(0))} cores do not give each of "
            f"{job.roles.num_devices} ranks its own."
        )
    cores = division.cores[job.local_rank] if division.cores else ()
    threads = one or (division.torch_threads if job.role is Role.TRAINER else None)
    with kept_to(cores, threads):
        yield


def most_torch_threads(job: Job) -> int:
    """All cores, or fewer if the user set OMP_NUM_THREADS; one in a fork of a process that has computed."""
    if job.start_method == "fork":
        return 1
    return min(_GIVEN_THREADS or len(os.sched_getaffinity(0)), len(os.sched_getaffinity(0)))


def default_torch_threads(job: Job) -> int | None:
    """A trainer's torch threads where nothing was measured: as many as under DDP with as many trainers. Lightning would
    divide the cores by samplers, too, which are idle most of the time where trainers have no device but cores. None
    leaves what it has set."""
    if job.device.type != "cpu" or job.roles.is_lone or job.roles.only_samples or _GIVEN_THREADS is not None:
        return None
    return max(len(os.sched_getaffinity(0)) // job.roles.num_trainers, 1)


def default_queue_memory_bytes() -> int:
    """An eighth of the machine's memory, or of the container's where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of control groups, versions 2 and 1
        with suppress(OSError, ValueError):  # no such file, or "max"
            total = min(total, int(Path("/sys/fs/cgroup", limit).read_text()))
    return total // _MEMORY_SHARE


def _threads() -> list[int]:
    return [int(thread) for thread in os.listdir("/proc/self/task")]


def _mask(thread: int) -> set[int] | None:
    with suppress(OSError):  # it ended meanwhile
        return os.sched_getaffinity(thread)
    return None


def _move(masks: dict[int, set[int]]) -> None:
    for thread, mask in masks.items():
        with suppress(OSError):
            os.sched_setaffinity(thread, mask)
