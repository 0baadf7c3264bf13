from __future__ import annotations

import itertools
import math
import os
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload.pipeline.forecast.stages import (
    PipelineStage,
    StageTimes,
    allocate,
    share_cores,
    shared_ms,
    slowest_ms,
)
from lightning_gnnload.plugin.job import RoleDecision, RolePlan
from lightning_gnnload.plugin.strategy import resources
from lightning_gnnload.plugin.strategy.resources import (
    default_queue_memory_bytes,
    default_torch_threads,
    divide_cores,
    kept_to,
)

STAGES = st.lists(
    st.builds(
        PipelineStage,
        work_ms=st.sampled_from([0.0, 5.0]) | st.floats(0.1, 1000),
        workers=st.integers(0, 3),
        max_cores=st.sampled_from([1, 2, 4, math.inf]),
        fixed_ms=st.sampled_from([0.0, 40.0, 400.0]),
    ),
    min_size=1,
    max_size=4,
)


@given(STAGES, st.integers(1, 14))
def test_no_other_division_has_a_faster_slowest_stage(stages: list[PipelineStage], num_cores: int) -> None:
    every = itertools.product(*(range(1, num_cores + 1) if stage.workers else [0] for stage in stages))
    possible = [
        counts
        for counts in every
        if sum(stage.workers * count for stage, count in zip(stages, counts, strict=True)) <= num_cores
    ]
    found = allocate(stages, num_cores)
    if not possible:
        assert found is None
    else:
        assert found in possible
        assert slowest_ms(stages, found) == min(slowest_ms(stages, counts) for counts in possible)


@pytest.mark.parametrize(
    ("stages", "num_cores", "counts"),
    [
        ([PipelineStage(30), PipelineStage(10)], 4, (3, 1)),
        ([PipelineStage(30), PipelineStage(10)], 2, (1, 1)),
        ([PipelineStage(30), PipelineStage(10)], 1, None),
        ([PipelineStage(60, workers=3), PipelineStage(60)], 7, (1, 4)),  # a core for each of three trainers, or none
        ([PipelineStage(90, max_cores=1), PipelineStage(10)], 6, (1, 5)),  # a GPU trains: more cores cannot help it
        ([PipelineStage(30, fixed_ms=20), PipelineStage(60)], 4, (2, 2)),  # 35 and 30 ms; by work alone it is (1, 3)
        ([PipelineStage(10), PipelineStage(0, workers=0, fixed_ms=80)], 3, (3, 0)),  # a link takes no core
    ],
)
def test_by_hand(stages: list[PipelineStage], num_cores: int, counts: tuple[int, ...] | None) -> None:
    assert allocate(stages, num_cores) == counts


@given(STAGES, st.integers(1, 6))
def test_no_other_threads_on_shared_cores_are_faster_and_none_is_idle(
    stages: list[PipelineStage], num_cores: int
) -> None:
    limits = [stage.threads_on(num_cores) if stage.workers else 0 for stage in stages]
    every = itertools.product(*(range(1, limit + 1) if limit else [0] for limit in limits))
    best_ms = min(shared_ms(stages, threads, num_cores) for threads in every)
    found = share_cores(stages, num_cores)
    assert shared_ms(stages, found, num_cores) <= 1.03 * best_ms * (1 + 1e-9)
    for stage, count in zip(stages, found, strict=True):
        assert count <= 1 or stage.time_ms(count - 1) > 1.03 * best_ms, "one less would do"


def test_threads_wait_for_a_disk_side_by_side() -> None:
    # 10 ms on a core and 30 ms of waiting: four threads keep one core busy.
    reading = PipelineStage(10, wait_ms=30)
    assert [reading.threads_on(cores) for cores in (1, 2, 16)] == [4, 8, 16]
    assert share_cores([PipelineStage(0, fixed_ms=10), reading], 2) == (1, 4)
    assert share_cores([PipelineStage(0, fixed_ms=41), reading], 2) == (1, 1)


TIMES = StageTimes(
    sample_ms=8.0,
    gather_ms=4.0,
    making_core_ms=12.0,
    making_wait_ms=0.0,
    convert_ms=0.0,
    train_work_ms=30.0,
    train_fixed_ms=0.0,
)
TIMES = replace(TIMES, torch_threads=16)


def decided(num_ranks: int, num_samplers: int, **times: float) -> RoleDecision:
    return RoleDecision(num_ranks, num_samplers, replace(TIMES, **times), num_cores=16)


@given(st.integers(2, 6), st.data(), st.integers(1, 16))
def test_ranks_share_no_core(num_ranks: int, data: st.DataObject, num_cores: int) -> None:
    plan = RolePlan(num_ranks, data.draw(st.integers(1, num_ranks - 1)))
    decision = data.draw(st.sampled_from([None, decided(num_ranks, plan.num_samplers)]))
    cores = {3 * core + 1 for core in range(num_cores)}  # a container's, with gaps
    divided = divide_cores(cores, plan, decision, pinned=True).cores
    if num_cores < num_ranks:
        assert not divided
    else:
        assert len(divided) == num_ranks
        assert all(divided)
        assert sum(map(len, divided)) == len(set.union(*map(set, divided)))
        assert set.union(*map(set, divided)) <= cores


def test_the_measured_work_decides() -> None:
    plan = RolePlan(num_devices=2, num_samplers=1)

    def counts(decision: RoleDecision | None, plan: RolePlan = plan) -> list[int]:
        return [len(cores) for cores in divide_cores(range(8), plan, decision, pinned=True).cores]

    assert counts(decided(2, 1, making_core_ms=40.0, train_work_ms=40.0)) == [4, 4]
    assert counts(decided(2, 1, making_core_ms=10.0)) == [6, 2]
    # A GPU trains: one core launches its kernels.
    on_gpu = decided(2, 1, train_work_ms=0.0, train_fixed_ms=30.0, torch_threads=1, trains_on_device=True)
    assert counts(on_gpu) == [1, 7]
    divided = divide_cores(range(8), plan, on_gpu, pinned=True)
    assert divided.torch_threads is None
    assert "training 30.0 ms on its device. Hence 7 sampling threads" in divided.about
    # Without measures, alike for every rank.
    assert counts(None, RolePlan(num_devices=4, num_samplers=1)) == [2, 2, 2, 2]


def test_threads_are_those_that_the_slowest_stage_needs() -> None:
    plan, lone = RolePlan(2, 1), RolePlan(1, 1)
    wide = decided(2, 1, train_work_ms=100.0, train_fixed_ms=10.0)
    divided = divide_cores(range(2), plan, wide, pinned=False)
    assert (divided.torch_threads, divided.sampler_threads, divided.cores) == (2, 1, [])
    # 61 ms: 122 ms of work on two cores.
    assert divided.about == (
        "Stages: sampling 8.0 ms, gathering 4.0 ms in one thread; training 110.0 ms on one core "
        "(10.0 + 100.0 / cores). Hence 2 torch threads and 1 sampling thread, cores shared by all: 61.0 ms a step, "
        "bounded by the work on all cores"
    )
    # Without a core for each rank, threads are still those that were measured.
    assert divide_cores(range(1), plan, wide, pinned=True) == divide_cores(range(1), plan, wide, pinned=False)
    narrow = decided(2, 1, train_work_ms=1.0, train_fixed_ms=4.0)  # sampling is the slowest
    divided = divide_cores(range(2), plan, narrow, pinned=False)
    assert (divided.torch_threads, divided.sampler_threads) == (1, 2)
    assert divide_cores(range(2), plan, narrow, pinned=False, sampler_threads=1).sampler_threads == 1
    # Conversion is a trainer's work, but of a lone rank its sampling threads'.
    converting = decided(2, 1, convert_ms=20.0, train_work_ms=10.0)
    assert divide_cores(range(9), plan, converting, pinned=True).torch_threads == 8
    assert divide_cores(range(9), lone, converting, pinned=True).torch_threads == 2
    assert not divide_cores(range(9), lone, converting, pinned=True).cores
    # A device draws: its threads share it, and more of them make it no faster.
    drawing = decided(
        2, 1, making_core_ms=1.0, making_wait_ms=11.0, draws_on_device=True, sampler_threads=2, train_work_ms=2.0
    )
    assert divide_cores(range(8), plan, drawing, pinned=True).sampler_threads == 2


def test_trainers_that_were_not_measured_have_as_many_threads_as_under_ddp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(resources, "_GIVEN_THREADS", None)

    def threads(num_devices: int, num_samplers: int, device: str = "cpu") -> int | None:
        ranks = RolePlan(num_devices, num_samplers)
        job: Any = SimpleNamespace(roles=ranks, device=torch.device(device))
        return divide_cores(range(8), ranks, None, pinned=False, torch_threads=default_torch_threads(job)).torch_threads

    # Lightning counts the samplers' ranks, too, and would give 4, 2, 2 and 1.
    assert [threads(2, 1), threads(4, 1), threads(4, 2), threads(9, 1)] == [8, 2, 4, 1]
    # Another device computes, or there is no rank that only samples.
    assert (threads(2, 1, "cuda"), threads(1, 1)) == (None, None)
    monkeypatch.setattr(resources, "_GIVEN_THREADS", 3)
    assert threads(2, 1) is None, "what the user has set stands"


def masks() -> dict[int, set[int]]:
    return {int(thread): os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to keep to one of them")
def test_all_threads_keep_to_their_cores_and_are_let_go() -> None:
    (torch.rand(600, 600) @ torch.rand(600, 600)).sum()  # torch has its threads by now
    before, num_threads = masks(), torch.get_num_threads()
    core = {max(os.sched_getaffinity(0))}
    end, started = threading.Event(), threading.Event()
    younger = threading.Thread(target=lambda: (started.set(), end.wait()))
    with kept_to(core):
        younger.start()
        started.wait()
        assert set(map(frozenset, masks().values())) == {frozenset(core)}
        assert torch.get_num_threads() == 1
    after = masks()
    assert {thread: after[thread] for thread in before if thread in after} == before
    assert after[younger.native_id] == os.sched_getaffinity(0)  # it began meanwhile, and goes on
    assert torch.get_num_threads() == num_threads
    end.set()
    younger.join()


def test_without_cores_nothing_is_touched_but_what_is_told() -> None:
    before, num_threads = masks(), torch.get_num_threads()
    for threads in (None, num_threads + 1):
        with kept_to((), threads):
            assert masks() == before
            assert torch.get_num_threads() == (threads or num_threads)
        assert torch.get_num_threads() == num_threads


def test_the_default_is_a_share_of_what_the_machine_has() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_queue_memory_bytes() <= total // 8
