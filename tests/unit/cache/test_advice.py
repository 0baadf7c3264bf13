"""What is recommended, and why."""

from __future__ import annotations

import pytest

from lightning_gnnload.cache.advice import Speed, measure_speed, recommend
from lightning_gnnload.cache.simulate import AccessTrace, HitRateCurve
from tests.unit.toy import toy_data, toy_workload

RATIOS = [0.1, 0.2, 0.5]
CURVES = [
    HitRateCurve("optimum", "shuffle", [0.7, 0.9, 1.0], []),
    HitRateCurve("presample", "shuffle", [0.60, 0.80, 0.81], []),
    HitRateCurve("degree", "shuffle", [0.40, 0.79, 0.81], []),
    HitRateCurve("random", "shuffle", [0.1, 0.2, 0.5], []),
    HitRateCurve("clairvoyant", "shuffle", [0.65, 0.85, 0.86], []),
    HitRateCurve("s3fifo", "proximity", [0.9, 0.95, 0.99], []),
]
SLOW_DISK = Speed(store_ns=10_000, memory_ns=100, sample_ns=200)


@pytest.mark.parametrize(
    ("speed", "most", "policy", "ratio"),
    [
        (SLOW_DISK, 1.0, "clairvoyant", 0.2),  # sampling twice is cheap beside this disk
        (Speed(1000, 100, 200), 1.0, "presample", 0.2),  # here it is not, by 0.2 of the time to gather
        (Speed(1000, 100, 200), 0.1, "presample", 0.1),  # no more memory
        (Speed(100, 98, 50), 1.0, None, 0.2),  # as fast as memory
        (Speed(100, 140, 50), 1.0, None, 0.2),  # faster than memory: every cache costs time
        (SLOW_DISK, 0.05, None, 0.0),  # no memory for any
    ],
)
def test_what_pays_is_recommended(speed: Speed, most: float, policy: str | None, ratio: float) -> None:
    advice = recommend(CURVES, RATIOS, most, speed, "shuffle")
    assert (advice.policy, advice.ratio) == (policy, ratio)


def test_of_equals_the_easier_is_taken() -> None:
    equal = [HitRateCurve(name, "shuffle", [0.5], []) for name in ("belady", "s3fifo", "degree", "presample")]
    assert recommend(equal, [0.1], 1.0, SLOW_DISK, "shuffle").policy == "presample"


def test_speeds_are_of_this_table() -> None:
    data = toy_data()
    speed = measure_speed(data.x, AccessTrace(toy_workload(data), num_epochs=2))
    assert min(speed.store_ns, speed.memory_ns, speed.sample_ns) > 0
