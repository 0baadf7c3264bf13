"""GNNLab's profit metric, by hand."""

from __future__ import annotations

from lightning_gnnload.plugin.gradients.profit import Profit, Timings


def profit(num_left: int = 8, needed_ms: float = 60.0, late_ms: float = -5.0) -> Profit:
    return Profit(num_left=num_left, step_ms=20.0, num_trainers=2, needed_ms=needed_ms, late_ms=late_ms)


def test_it_pays_when_the_sampler_is_done_before_the_trainers_are() -> None:
    assert profit().value_ms == 8 * 20 / 2 - 60
    assert profit().is_worth_it
    assert not profit(num_left=6).is_worth_it  # 60 ms against 60 ms
    assert not profit(num_left=0).is_worth_it


def test_it_does_not_pay_to_wait_longer_than_a_gradient_saves() -> None:
    assert profit(late_ms=9.9).is_worth_it
    assert not profit(late_ms=10.0).is_worth_it


def test_it_tells_its_figures() -> None:
    assert str(profit()) == "profit +20 ms = 8 mini-batches left x 20.0 ms / 2 trainers - 60.0 ms"
    assert str(profit(late_ms=12.0)).endswith("a sampler's gradient would come 12.0 ms too late")


def test_one_late_step_changes_no_typical_time() -> None:
    timings = Timings()
    assert timings.typical_ms == 0
    for duration in (20.0, 21.0, 900.0, 20.0, 20.0):
        timings.add(duration)
    assert timings.typical_ms == 20.0
    for _ in range(50):
        timings.add(30.0)
    assert timings.typical_ms == 30.0  # it forgets
