"""A stall is told from figures alone: each cause has its own, and its own remedy."""

from __future__ import annotations

import pytest

from lightning_gnnload.pipeline.stats import Delivery, QueueFill
from lightning_gnnload.plugin.monitor.report import PipelineSettings
from lightning_gnnload.plugin.monitor.stall import MIN_STEPS, QUIET_S, Cause, StallWatch, StepTimes, blame, explain
from tests.unit.plugin.monitor.deliveries import delivery

FACTORED = PipelineSettings(samplers=1, threads=2, trainers=2, queue_depth=4, staleness=0)
IN_PROCESS = PipelineSettings(threads=2)
STEP_S = 0.05
BACKWARD_MS = 20.0


def usual(number: int, began: float) -> StepTimes:
    """A step of 50 ms whose mini-batch was ready when it was asked for, at ``began``."""
    return StepTimes(number, delivery(began=began - 0.1, asked=began, taken=began), STEP_S * 1e3, BACKWARD_MS, 18.0)


def watch_after(num_steps: int, stall_s: float = 5.0) -> tuple[StallWatch, float]:
    """A watch that has seen usual steps, and the moment after them."""
    watch = StallWatch(0, num_trainers=2, stall_s=stall_s)
    for number in range(num_steps):
        assert watch.look(usual(number, number * STEP_S), FACTORED) is None
    return watch, num_steps * STEP_S


STALLS: dict[str, tuple[Cause, Delivery]] = {
    # Asked at 10 s, taken at 16 s; what happened in between differs.
    "sampled while it waited": (Cause.SAMPLING, delivery(began=10.0, sample=5.9, gather=0.1, asked=10.0, taken=16.0)),
    "gathered while it waited": (Cause.GATHERING, delivery(began=9.9, sample=0.1, gather=6.0, asked=10.0, taken=16.0)),
    "gathered from a disk": (
        Cause.GATHERING,
        delivery(began=9.9, sample=0.1, gather=6.0, cpu=0.2, asked=10.0, taken=16.0),
    ),
    "converted by its maker": (
        Cause.CONVERSION,
        delivery(began=9.9, sample=0.1, gather=0.1, asked=10.0, taken=16.0, convert=(10.1, 16.0)),
    ),
    "converted by the trainer": (Cause.CONVERSION, delivery(began=9.0, asked=10.0, taken=10.0, convert=(10.0, 16.0))),
    "sampling, but off its core": (
        Cause.STOPPED,
        delivery(began=10.0, sample=5.9, gather=0.1, cpu=0.1, asked=10.0, taken=16.0),
    ),
    "not begun, with slots free": (
        Cause.STOPPED,
        delivery(began=15.9, asked=10.0, taken=16.0, fill=QueueFill(0, 1, 4)),
    ),
    "made long ago, but not handed over": (Cause.STOPPED, delivery(began=9.0, asked=10.0, taken=16.0)),
    "not begun, for lack of slots": (
        Cause.SLOTS,
        delivery(began=15.9, asked=10.0, taken=16.0, fill=QueueFill(0, 4, 4)),
    ),
}


@pytest.mark.parametrize("case", STALLS)
def test_a_wait_is_blamed_on_what_took_most_of_it(case: str) -> None:
    cause, stalled = STALLS[case]
    assert blame(stalled, []) is cause


@pytest.mark.parametrize(("sample", "gather", "cause"), [(1.4, 0.1, Cause.SAMPLING), (0.1, 1.4, Cause.GATHERING)])
def test_a_late_start_is_blamed_on_what_its_maker_did_before(sample: float, gather: float, cause: Cause) -> None:
    earlier = [delivery(began=10 + 1.5 * n, sample=sample, gather=gather, asked=0, taken=0) for n in range(4)]
    others = [delivery(began=10, sample=0, gather=6, asked=0, taken=0, made_by=2)]  # another sampler's work
    late = delivery(began=16, sample=0.1, gather=0.1, asked=10, taken=16.2)
    assert blame(late, [*others, *earlier]) is cause
    assert blame(late, others) is Cause.STOPPED


def test_a_stall_names_the_stage_and_the_setting() -> None:
    watch, now = watch_after(MIN_STEPS)
    stalled = delivery(began=now, sample=5.9, gather=0.1, asked=now, taken=now + 6)
    warning = watch.look(StepTimes(8, stalled, 50.0, BACKWARD_MS, 18.0), FACTORED)
    assert warning is not None
    for told in ("rank 0", "6.0 s", "mini-batch 8", "0.050 s", "sampling", "sampler rank 1", "samplers=..., now 1"):
        assert told in warning


@pytest.mark.parametrize(
    ("cause", "settings", "setting"),
    [
        (Cause.SAMPLING, FACTORED, "sampler_threads=..., now 2"),
        (Cause.SAMPLING, IN_PROCESS, "num_threads=...), now 2"),
        (Cause.GATHERING, FACTORED, "samplers=..., now 1"),
        (Cause.GATHERING, IN_PROCESS, "num_threads"),
        (Cause.CONVERSION, FACTORED, "batch_format='blocks'"),
        (Cause.STOPPED, FACTORED, "sampler rank 1"),
        (Cause.STOPPED, IN_PROCESS, "this rank's sampling thread"),
        (Cause.SLOTS, FACTORED, "queue_depth=...), now 4"),
        (Cause.TRAINERS, FACTORED, "staleness=...), now 0"),
        (Cause.TRAINERS, IN_PROCESS, "FactoredStrategy(staleness=...)"),
    ],
)
def test_every_cause_has_a_remedy(cause: Cause, settings: PipelineSettings, setting: str) -> None:
    assert setting in explain(cause, delivery(began=0, asked=0, taken=1), settings)


def test_the_other_trainers_are_blamed_for_a_backward_pass_off_the_core() -> None:
    ready = delivery(began=0, asked=1, taken=1)
    late_peer = StepTimes(8, ready, train_ms=6050, backward_ms=6020, backward_cpu_ms=20)
    own_work = StepTimes(8, ready, train_ms=6050, backward_ms=6020, backward_cpu_ms=6000)
    assert "other trainers" in str(watch_after(MIN_STEPS)[0].look(late_peer, FACTORED))
    assert watch_after(MIN_STEPS)[0].look(own_work, FACTORED) is None
    alone = StallWatch(0, num_trainers=1, stall_s=5.0)
    for number in range(MIN_STEPS):
        alone.look(usual(number, number), FACTORED)
    assert alone.look(late_peer, FACTORED) is None


def wait_of(seconds: float, now: float) -> StepTimes:
    stalled = delivery(began=now, sample=seconds, gather=0, asked=now, taken=now + seconds)
    return StepTimes(0, stalled, 50.0, BACKWARD_MS, 18.0)


@pytest.mark.parametrize(("seconds", "is_stall"), [(0.4, False), (0.9, False), (1.1, True), (6.0, True)])
def test_a_wait_of_twenty_steps_is_a_stall(seconds: float, is_stall: bool) -> None:
    watch, now = watch_after(MIN_STEPS)
    assert (watch.look(wait_of(seconds, now), FACTORED) is not None) is is_stall


def test_a_wait_of_some_seconds_is_a_stall_where_steps_are_slow() -> None:
    for step_s, is_stall in ((1.0, True), (3.0, False)):  # 6 s: six usual steps, or two
        watch = StallWatch(0, 2, stall_s=5.0)
        for number in range(MIN_STEPS):
            watch.look(StepTimes(number, delivery(began=0, asked=0, taken=0), step_s * 1e3), FACTORED)
        assert (watch.look(wait_of(6.0, 100.0), FACTORED) is not None) is is_stall


def test_where_every_step_waits_nothing_is_a_stall() -> None:
    watch = StallWatch(0, 2, stall_s=5.0)
    for number in range(30):
        assert watch.look(wait_of(6.0, 10.0 * number), FACTORED) is None


def test_the_first_steps_may_take_their_time() -> None:
    watch, now = watch_after(MIN_STEPS - 1)
    assert watch.look(wait_of(60.0, now), FACTORED) is None


def test_one_warning_in_a_while() -> None:
    watch, now = watch_after(MIN_STEPS)
    assert watch.look(wait_of(6.0, now), FACTORED) is not None
    assert watch.look(wait_of(6.0, now + 10), FACTORED) is None
    assert watch.look(wait_of(6.0, now + 10 + QUIET_S), FACTORED) is not None
