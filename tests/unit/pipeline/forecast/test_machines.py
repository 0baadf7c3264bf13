"""Several machines, simulated: against closed forms, and against what BGL and DSP measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
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
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.memory import BatchSize
from lightning_gnnload.pipeline.forecast.run import PipelineRun
from lightning_gnnload.pipeline.forecast.scaling import forecast_machines, tasks_of
from lightning_gnnload.pipeline.forecast.steps import forecast_step
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from tests.benchmarks import scaling
from tests.unit.pipeline.forecast.runs import measured_run

FREE = MessageCosts(0.0, 0.0, 1e6, 1e6)
ASKS = Cluster(machines=8, placement="collective", link_gb_s=1.0, latency_ms=0.0, costs=FREE)


def test_flows_share_a_link_and_go_at_the_pace_of_the_narrowest() -> None:
    wide, narrow = Link(100.0), Link(20.0)
    ends: list[float] = []

    def flow(num_bytes: float, *links: Link) -> Iterator[Command]:
        yield Send(num_bytes, links)
        ends.append(clockwork.now_ms)

    def all_of_them() -> Iterator[Command]:
        yield Together((flow(100.0, wide, narrow), flow(100.0, wide), flow(300.0, wide)))

    clockwork = Clockwork(cores=1)
    clockwork.run({"flows": all_of_them()})
    # A third of the wide link each, and the narrow one's 20 for the first; then half for the third, beside the first,
    # which ends after 5 ms; then all of it.
    third = 100 / (100 / 3)
    last = 5 + (300 - third * 100 / 3 - (5 - third) * 50) / 100
    assert ends == pytest.approx([third, 5.0, last])
    assert wide.busy_ms == pytest.approx(5.0)
    assert narrow.busy_ms == pytest.approx(5.0)


def test_cores_of_other_machines_are_none_of_ours() -> None:
    there = Cores(1)

    def work(cores: Cores | None) -> Iterator[Command]:
        yield Compute(10.0, 1, cores)
        yield Off(100.0)

    clockwork = Clockwork(cores=1)
    processes = {"here": work(None), "there": work(there), "there, too": work(there)}
    assert clockwork.run(processes) == pytest.approx(110.0)
    assert (clockwork.busy_core_ms, there.busy_ms) == pytest.approx((10.0, 20.0))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_queue_waits_as_long_as_m_d_1_says(load: float) -> None:
    # Arrivals by chance from a fixed sequence; service of 1 ms by one. W = load / (2 (1 - load)): Pollaczek, Khinchine.
    rows, random = 20_000, Random(1)
    arriving = accumulate(random.expovariate(load) for _ in range(rows))
    server, waits = Store("server", 1), []

    def arrivals() -> Iterator[Command]:
        yield Together(tuple(customer(at) for at in arriving))

    def customer(at_ms: float) -> Iterator[Command]:
        yield Off(at_ms)
        yield Take(server)
        waits.append(clockwork.now_ms - at_ms)
        yield Off(1.0)
        yield Give(server)

    clockwork = Clockwork(cores=1)
    clockwork.run({"arrivals": arrivals()})
    assert sum(waits) / rows == pytest.approx(load / (2 * (1 - load)), rel=0.1)


def test_a_link_that_is_full_sets_the_pace() -> None:
    work = BatchWork(train_device_ms=1.0)
    task = RemoteTask(0, answer_bytes=10e6, core_ms=0.0)  # 10 ms of a link of 1 GB/s
    step = forecast_step(work, RunLayout(threads=4), 16, 1, replace(ASKS, ahead=3), (task,))
    assert step.step_ms == pytest.approx(10.0, rel=0.02)
    assert (step.limit, step.uses["in"] > 0.85) == ("network", True)
    # Two trainers of a machine share its link.
    two = forecast_step(work, RunLayout(way="ddp", trainers=2, threads=4), 16, 2, replace(ASKS, ahead=3), (task,))
    assert two.step_ms == pytest.approx(20.0, rel=0.1)


def test_hops_one_after_the_other_cost_their_ways_and_mini_batches_ahead_hide_them() -> None:
    work, task = BatchWork(sample_ms=1.0, train_device_ms=5.0), RemoteTask(1, 1, 0.0)
    far = replace(ASKS, placement="owners", owners=3, latency_ms=10.0)
    step = forecast_step(work, RunLayout(), 16, 1, far, (task,) * 3)
    two = replace(far, machines=2)
    # Three ways there and back, and its own millisecond; gradients meet over 14 more ways.
    assert forecast_step(work, RunLayout(), 16, 1, two, (task,) * 3).step_ms == pytest.approx(61, rel=0.02)
    assert step.step_ms == pytest.approx(max(61, 5 + 14 * 10), rel=0.02)
    hidden = forecast_step(work, RunLayout(), 16, 1, replace(two, ahead=11), (task,) * 3)
    assert hidden.step_ms == pytest.approx(5 + 2 * 10, rel=0.02)
    assert forecast_step(work, RunLayout(), 16, 1, two, (task,) * 3).limit == "answers"
    # Threads that wait hide as much as mini-batches ahead do: they are the credit.
    assert forecast_step(work, RunLayout(threads=12), 16, 1, two, (task,) * 3).step_ms == pytest.approx(25, rel=0.02)


def test_owners_whose_cores_are_busy_set_the_pace_and_more_of_them_lift_it() -> None:
    work, task = BatchWork(train_device_ms=1.0), RemoteTask(1, 1, core_ms=12.0)
    owners = replace(ASKS, placement="owners", owners=2, owner_cores=4, ahead=7)
    step = forecast_step(work, RunLayout(threads=2), 16, 1, owners, (task,))
    assert step.step_ms == pytest.approx(8 * 12 / (2 * 4), rel=0.03)
    assert step.limit == "owners"
    more = forecast_step(work, RunLayout(threads=2), 16, 1, replace(owners, owners=8), (task,))
    assert more.step_ms == pytest.approx(8 * 12 / (8 * 4), rel=0.03)


def test_gradients_go_around_a_ring_beside_rows() -> None:
    work = BatchWork(train_device_ms=10.0)
    gradients = forecast_step(work, RunLayout(), 16, 1, replace(ASKS, placement="replicated"), (), 8e6)
    assert gradients.step_ms == pytest.approx(10 + 2 * 7 / 8 * 8, rel=1e-6)
    task = RemoteTask(0, 10e6, 0.0)
    both = forecast_step(work, RunLayout(threads=4), 16, 1, replace(ASKS, ahead=3), (task,), 8e6)
    # 24 ms of a link are asked for, in steps of 24 alone: they delay each other, and no more than all of it.
    assert 24 * 0.99 <= both.step_ms < 34


def test_unequal_mini_batches_cost_more_the_more_trainers_wait_for_the_largest() -> None:
    work = BatchWork(train_device_ms=10.0)
    sizes = Cluster(sizes=(0.5, 1.5))
    steps = [
        PipelineRun(work, RunLayout(), 8, 1, replace(sizes, machines=count, latency_ms=0.0), steps=300).forecast()
        for count in (1, 2, 4)
    ]
    # The largest of n: 15 ms but where all are small, with a chance of a half each.
    expected = [15 - 10 * 0.5**count for count in (1, 2, 4)]
    assert [step.step_ms for step in steps] == pytest.approx(expected, rel=0.03)


def test_what_is_serial_bounds_how_many_times_as_fast() -> None:
    # Amdahl: 90 ms of a step that machines share, and 10 of meeting that they do not.
    measured = measured_run(
        global_batch=100,
        works={100: BatchWork(train_device_ms=90.0)},
        sizes={100: BatchSize(0, 0, 0, 0)},
        num_seeds=100 * 64,
        mine=RunLayout(batch_size=100),
        meeting_ms=10.0,
    )
    machine = Machine(cores=4, memory_gib=64)
    forecasts = forecast_machines(measured, measured.mine, machine, Cluster(latency_ms=0.0), [1, 2, 4, 8])
    assert [forecast.speedup for forecast in forecasts] == pytest.approx([1, 1.8, 3.6, 7.2], rel=0.01)


def test_with_others_who_do_nothing_a_machine_is_as_it_was() -> None:
    work = BatchWork(sample_ms=7.0, gather_ms=3.0, train_work_ms=9.0, making_python_ms=1.0, convert_ms=0.5)
    for layout in (RunLayout(threads=3), RunLayout(way="factored", samplers=1, trainers=2, threads=2)):
        alone = forecast_step(work, layout, 4)
        together = forecast_step(work, layout, 4, cluster=Cluster(machines=3, latency_ms=0.0))
        assert together.step_ms == pytest.approx(alone.step_ms)
        assert together.limit == alone.limit


def test_tasks_are_what_the_traffic_of_parts_is() -> None:
    measured = measured_run(hops=((1000.0, 10_000.0), (9000.0, 40_000.0)))
    size, host = measured.size_of(1024), BatchWork(sample_ms=10.0, gather_ms=8.0)
    cluster = Cluster(machines=4, placement="collective", cut=0.5, joining=0.0)
    *hops, rows = tasks_of(measured, 1024, host, cluster, cached=0.75)
    remote, scale = 0.5 * 3 / 4, size.num_edges / 50_000
    assert hops[1].request_bytes == pytest.approx(remote * scale * 9000 * 4)
    assert hops[1].answer_bytes == pytest.approx(remote * scale * (40_000 * 8 + 9000 * 4))
    assert sum(hop.core_ms for hop in hops) == pytest.approx(remote * 10.0)
    assert rows.answer_bytes == pytest.approx(remote * 0.25 * size.num_nodes * measured.data.row_bytes)
    assert tasks_of(measured, 1024, host, replace(cluster, placement="replicated"), 0.0) == ()


def test_a_run_is_the_same_each_time_and_its_seed_is_heeded() -> None:
    work, task = BatchWork(sample_ms=2.0, train_device_ms=5.0), RemoteTask(1e5, 1e6, 1.0)
    cluster = replace(ASKS, sizes=(0.8, 1.0, 1.2), latency_ms=0.03, ahead=2)
    arguments = (work, RunLayout(), 8, 1, cluster, (task,) * 2, 1e6)
    first = PipelineRun(*arguments, steps=30).forecast()
    assert PipelineRun(*arguments, steps=30).forecast() == first
    assert PipelineRun(*arguments[:4], replace(cluster, seed=1), *arguments[5:], steps=30).forecast() != first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"machines": 0}, "machines is 0; a whole number from 1 to 256"),
        ({"placement": "owners"}, "owners is 0; a whole number from 1"),
        ({"placement": "elsewhere"}, "one of replicated, collective, owners is needed"),
        ({"cut": 1.5}, "cut is 1.5"),
        ({"link_gb_s": 0.0}, "link_gb_s is 0.0"),
        ({"sizes": (float("nan"),)}, "sizes is nan"),
    ],
)
def test_clusters_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Cluster(**settings)  # type: ignore[arg-type]


def test_what_cannot_be_simulated_is_refused() -> None:
    turns = RunLayout(way="factored", switching=True)
    with pytest.raises(PlanError, match="samples and trains in turns"):
        forecast_step(BatchWork(train_device_ms=1.0), turns, 4, cluster=Cluster(machines=2))
    with pytest.raises(PlanError, match="asks 65 times"):
        forecast_step(BatchWork(train_device_ms=1.0), RunLayout(), 4, 1, ASKS, (RemoteTask(1, 1, 1),) * 65)
    measured = measured_run(num_seeds=3)
    with pytest.raises(PlanError, match="3 seeds are not enough for 1 trainers on each of 4 machines"):
        forecast_machines(measured, measured.mine, Machine(cores=4, memory_gib=64), Cluster(machines=4), [4])


def test_epochs_that_dsp_measured_are_met() -> None:
    # Of fifteen epochs of two systems on up to eight GPUs, told what one of them takes: docs/guides/machines.md.
    off = [abs(error) for error in scaling.errors()]
    assert sum(off) / len(off) < 0.2
    assert max(off) < 0.5
