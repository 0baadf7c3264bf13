"""GNNLab's profit metric, by hand."""

from __future__ import annotations

import pytest

from lightning_gnnload.plugin.gradients.cost_model import CostModel, Timings


def profit(num_left: int = 8, late_ms: float = -5.0, bound: int = 1, won_ms: float | None = None) -> CostModel:
    times = {"step_ms": 20.0, "needed_ms": 60.0, "train_ms": 25.0, "late_ms": late_ms}
    return CostModel(num_left=num_left, num_trainers=2, bound=bound, won_ms=won_ms, **times)


def test_it_pays_when_the_sampler_is_done_before_the_trainers_are() -> None:
    assert profit().value_ms == 8 * 20 / 2 - 60
    assert profit().verdict == "worth"
    assert profit(num_left=6).verdict == "short"  # 60 ms against 60 ms
    assert profit(num_left=0).verdict == "short"


def test_it_does_not_pay_to_wait_for_more_than_half_of_what_a_gradient_saves() -> None:
    assert profit(late_ms=4.9).verdict == "worth"
    assert profit(late_ms=5.0).verdict == "late"


def test_what_gradients_have_won_overrules_what_they_promise() -> None:
    assert profit(won_ms=0.1).verdict == "worth"
    assert profit(won_ms=0.0).verdict == "late"


@pytest.mark.parametrize(
    ("late_ms", "bound", "lag"), [(-20.0, 3, 2), (0.0, 3, 3), (0.1, 1, 2), (20.0, 1, 2), (55.0, 2, 5)]
)
def test_each_step_of_lateness_is_an_update_more(late_ms: float, bound: int, lag: int) -> None:
    assert profit(late_ms=late_ms, bound=bound).lag == lag


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (profit(), "trains while it is idle: profit +20 ms = 8 mini-batches left x 20.0 ms / 2 trainers - 60.0 ms"),
        (profit(late_ms=4.0), "2 trainers - 60.0 ms; trainers wait 4.0 ms for each gradient"),
        (profit(num_left=2), "stays idle: profit -40 ms = 2 mini-batches left x 20.0 ms / 2 trainers - 60.0 ms"),
        (
            profit(late_ms=55.0),
            "it takes 25.0 ms to train a mini-batch and trainers 20.0 ms, so its gradients would be 4 "
            "updates late, and at most 1 may be. FactoredStrategy(switching=4)",
        ),
        (
            profit(won_ms=-9.0),
            "stays idle: its newest gradients won the trainers -9.0 ms, as too few came in time. "
            "FactoredStrategy(switching=2)",
        ),
    ],
)
def test_it_tells_the_verdict_and_its_figures(found: CostModel, says: str) -> None:
    assert says in str(found)


def test_one_late_step_changes_no_typical_time() -> None:
    timings = Timings()
    assert timings.typical_ms == 0
    for duration in (20.0, 21.0, 900.0, 20.0, 20.0):
        timings.add(duration)
    assert timings.typical_ms == 20.0
    for _ in range(50):
        timings.add(30.0)
    assert timings.typical_ms == 30.0  # it forgets
