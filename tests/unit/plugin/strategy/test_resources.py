from __future__ import annotations

import itertools
import math
import os
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload.plugin.job import RoleDecision, RolePlan
from lightning_gnnload.plugin.strategy.resources import (
    MAX_QUEUE_DEPTH,
    PipelineStage,
    allocate,
    default_queue_memory_bytes,
    divide_cores,
    kept_to,
    queue_depth,
)

STAGES = st.lists(
    st.builds(
        PipelineStage,
        work_ms=st.floats(0.1, 1000),
        workers=st.integers(1, 3),
        max_cores=st.sampled_from([1, 2, 4, math.inf]),
    ),
    min_size=1,
    max_size=4,
)


def slowest_ms(stages: list[PipelineStage], counts: tuple[int, ...]) -> float:
    return max(stage.time_ms(count) for stage, count in zip(stages, counts, strict=True))


@given(STAGES, st.integers(1, 14))
def test_no_other_division_has_a_faster_slowest_stage(stages: list[PipelineStage], num_cores: int) -> None:
    every = itertools.product(range(1, num_cores + 1), repeat=len(stages))
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
    ],
)
def test_by_hand(stages: list[PipelineStage], num_cores: int, counts: tuple[int, ...] | None) -> None:
    assert allocate(stages, num_cores) == counts


@given(st.integers(2, 6), st.data(), st.integers(1, 16), st.booleans())
def test_ranks_share_no_core(num_ranks: int, data: st.DataObject, num_cores: int, on_gpu: bool) -> None:
    plan = RolePlan(num_ranks, data.draw(st.integers(1, num_ranks - 1)))
    decision = RoleDecision(num_ranks, plan.num_samplers, sample_ms=12.0, train_ms=30.0)
    cores = {3 * core + 1 for core in range(num_cores)}  # a container's, with gaps
    divided = divide_cores(cores, plan, data.draw(st.sampled_from([None, decision])), on_gpu)
    if num_cores < num_ranks:
        assert divided == []
    else:
        assert len(divided) == num_ranks
        assert all(divided)
        assert sum(map(len, divided)) == len(set.union(*divided))
        assert set.union(*divided) <= cores


def test_the_measured_work_decides() -> None:
    plan = RolePlan(num_devices=2, num_samplers=1)
    # 4 x 10 ms of sampling on one core each; 20 ms of training on two: as much work on either side.
    even = RoleDecision(2, 1, sample_ms=10.0, sample_cores=4, train_ms=20.0, train_cores=2)
    assert [len(cores) for cores in divide_cores(range(8), plan, even, on_gpu=False)] == [4, 4]
    heavy = RoleDecision(2, 1, sample_ms=10.0, train_ms=30.0)
    assert [len(cores) for cores in divide_cores(range(8), plan, heavy, on_gpu=False)] == [6, 2]
    assert [len(cores) for cores in divide_cores(range(8), plan, heavy, on_gpu=True)] == [1, 7]
    three = RolePlan(num_devices=4, num_samplers=1)  # not measured: alike for every rank
    assert [len(cores) for cores in divide_cores(range(8), three, None, on_gpu=False)] == [2, 2, 2, 2]


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


def test_without_cores_nothing_is_touched() -> None:
    before, num_threads = masks(), torch.get_num_threads()
    with kept_to(()):
        assert masks() == before
        assert torch.get_num_threads() == num_threads


@pytest.mark.parametrize(
    ("batch_bytes", "memory_bytes", "depth"),
    [(10, 10 * 6 * 7 + 59, 7), (10, 0, 2), (10, 10**6, MAX_QUEUE_DEPTH), (0, 100, MAX_QUEUE_DEPTH)],
)
def test_the_queues_of_a_machine_share_the_memory(batch_bytes: int, memory_bytes: int, depth: int) -> None:
    assert queue_depth(batch_bytes, RolePlan(num_devices=5, num_samplers=2), memory_bytes) == depth  # 3 x 2 queues


def test_the_default_is_a_share_of_what_the_machine_has() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_queue_memory_bytes() <= total // 8
