"""Resources: which cores a rank runs on, and how much memory its queues take."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import Job, Role, RoleDecision, RolePlan

MIN_QUEUE_DEPTH, MAX_QUEUE_DEPTH = 2, 16
_MEMORY_SHARE = 8


@dataclass(frozen=True)
class PipelineStage:
    """One stage of making a mini-batch; the stages of a machine run side by side.

    Attributes:
        work_ms: what one core would take for a global step's share of this machine.
        workers: processes that share the work equally; each gets the same number of cores, at least one.
        max_cores: more than so many do not make a worker faster (1 where the work is done on a GPU).
    """

    work_ms: float
    workers: int = 1
    max_cores: float = math.inf

    def time_ms(self, cores: int) -> float:
        """The time of a mini-batch with so many cores a worker."""
        return self.work_ms / (self.workers * min(cores, self.max_cores))


def allocate(stages: Sequence[PipelineStage], num_cores: int) -> tuple[int, ...] | None:
    """Divides cores among the workers of all stages, so that the slowest stage is as fast as it can be.

    The slowest stage decides how fast batches come. Any better division gives it more than its present count and no
    other stage fewer than it needs, so giving the slowest one more, again and again, ends at the best division.
    Cores that cannot help it go to the next slowest.

    Returns:
        One count a stage; None when there are fewer cores than workers.

    Source: BGL (NSDI'23), section 3.4 (resource isolation; a brute-force search there).

    Example:
        >>> allocate([PipelineStage(work_ms=30.0), PipelineStage(work_ms=10.0)], num_cores=4)
        (3, 1)
    """
    counts = [1] * len(stages)
    free = num_cores - sum(stage.workers for stage in stages)
    if free < 0:
        return None
    while True:
        slower = [
            index
            for index, (stage, count) in enumerate(zip(stages, counts, strict=True))
            if stage.workers <= free and count < stage.max_cores
        ]
        if not slower:
            return tuple(counts)
        slowest = max(slower, key=lambda index: stages[index].time_ms(counts[index]))
        counts[slowest] += 1
        free -= stages[slowest].workers


def divide_cores(cores: Collection[int], plan: RolePlan, decision: RoleDecision | None, on_gpu: bool) -> list[set[int]]:
    """Returns the cores of each local rank of a machine, by local rank; empty when there are fewer cores than ranks.

    A sampler's threads both sample and gather, so these are one stage; training is the other. Where nothing was
    measured, each rank gets the same number of cores.

    Args:
        cores: that the ranks may use together.
        plan: which ranks there are.
        decision: the measured times.
        on_gpu: training needs the CPU for its launches alone.

    Example:
        >>> divide_cores(range(4), RolePlan(num_devices=2, num_samplers=1), None, on_gpu=False)
        [{0, 1}, {2, 3}]
    """
    sample_ms = train_ms = 1.0
    if decision is not None and decision.sample_ms is not None and decision.train_ms is not None:
        # A step takes a mini-batch for each trainer; measured on several cores, it is as much more work for one.
        sample_ms = plan.num_trainers * decision.sample_ms * decision.sample_cores
        train_ms = plan.num_trainers * decision.train_ms * decision.train_cores
    else:
        sample_ms, train_ms = float(plan.num_samplers), float(plan.num_trainers)
    training = PipelineStage(train_ms, plan.num_trainers, max_cores=1 if on_gpu else math.inf)
    counts = allocate([training, PipelineStage(sample_ms, plan.num_samplers)], len(cores))
    if counts is None:
        return []
    by_role = dict(zip((Role.TRAINER, Role.SAMPLER), counts, strict=True))
    left = iter(sorted(cores))
    return [{next(left) for _ in range(by_role[plan.role(rank)])} for rank in range(plan.num_devices)]


@contextmanager
def kept_to(cores: Collection[int], torch_threads: int | None = None) -> Iterator[None]:
    """Keeps all threads of this process, and those that they start, to ``cores``; and torch to as many threads,
    or to ``torch_threads``.

    Afterwards everything is as before. With no cores given nothing is touched.
    """
    if not cores:
        yield
        return
    own = os.sched_getaffinity(0)
    # Thread by thread, as an affinity set for the process is that of the calling thread alone.
    before = {thread: mask for thread in _threads() if (mask := _mask(thread)) is not None}
    num_threads = torch.get_num_threads()
    _move({thread: set(cores) for thread in before})
    torch.set_num_threads(torch_threads or len(cores))
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        # Threads that started meanwhile have inherited the narrow mask, and get the caller's.
        _move({thread: before.get(thread, own) for thread in _threads()})


@contextmanager
def own_cores(job: Job) -> Iterator[Collection[int]]:
    """Keeps a rank to its own of the cores that the process came with, where ``pin_cores`` wants it: to those that it
    gives, or to none in particular."""
    cores, plan = os.sched_getaffinity(0), job.roles
    if not job.pin_cores or (plan.is_lone and job.switching):
        yield ()
        return
    one = 1 if job.start_method == "fork" else None  # OpenMP's threads do not outlive a fork
    if plan.is_lone:
        with kept_to(cores, one or max(len(cores) - job.num_sampler_threads, 1)):
            yield ()
        return
    divided = divide_cores(cores, plan, job.decision, on_gpu=job.device.type == "cuda")
    if not divided:
        pl.utilities.rank_zero.rank_zero_warn(
            f"pin_cores=True has no effect: {len(cores)} cores do not give each of {plan.num_devices} ranks its own."
        )
    own = divided[job.local_rank] if divided else ()
    with kept_to(own, one):
        yield own


def queue_depth(batch_bytes: int, plan: RolePlan, memory_bytes: int) -> int:
    """Returns how many slots each trainer may have at each sampler: all of a machine's take ``memory_bytes`` together.

    At least 2, as sampling would not overlap training else, and at most 16, beyond which nothing is won.

    Source: DSP (PPoPP'23), section 5 (a bounded queue, by the memory that its batches take).
    """
    depth = memory_bytes // max(batch_bytes * plan.num_trainers * plan.num_samplers, 1)
    return min(max(depth, MIN_QUEUE_DEPTH), MAX_QUEUE_DEPTH)


def default_queue_memory_bytes() -> int:
    """Returns an eighth of the machine's memory, or of the container's where that is less."""
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
