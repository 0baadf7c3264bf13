"""The depth of a queue, on simulated steps: what it costs in time and memory beside depths that stay."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from lightning_gnnload.pipeline.queue.depth import FIRST, LEAST, MOST, QueueDepth, depth_within

NUM_STEPS = 3000


def simulate(make_ms: Sequence[float], train_ms: Sequence[float], queue: QueueDepth, adapts: bool = True) -> list[int]:
    """Plays one sampler and one trainer; returns the depth in each step. The last number is the time of all steps."""
    now, idle_at, made, freed, depths = 0.0, 0.0, list[float](), list[float](), []
    depth, changed_at = queue.depth, 0.0
    for step, training_ms in enumerate(train_ms):
        asked = now
        while len(made) < len(make_ms) and (len(made) < step + depth or len(made) <= step):
            waits_for = len(made) - depth
            # A slot that came free, or one that there is since the depth has grown.
            begin = max(idle_at, freed[waits_for] if 0 <= waits_for < len(freed) else changed_at)
            idle_at = begin + make_ms[len(made)]
            made.append(idle_at)
        ready = sum(at <= asked for at in made[step:])
        got = max(asked, made[step])
        if adapts:
            before = depth
            depth = queue.after_step(ready=ready, is_full=ready >= depth - 1, asked_s=asked, wait_s=got - asked)
            changed_at = got if depth > before else changed_at
        depths.append(depth)
        now = got + training_ms
        freed.append(now)
    return [*depths, int(now)]


STEADY = [10.0] * NUM_STEPS
DRAW = random.Random(0)
LATE = {
    "every 20th takes as long as eight": [64.0 if step % 20 == 7 else 5.6 for step in range(NUM_STEPS)],
    "each takes what it takes": [DRAW.expovariate(1 / 8) for _ in range(NUM_STEPS)],
}


@pytest.mark.parametrize("kind", LATE)
def test_late_mini_batches_are_hidden_with_less_memory_than_the_most(kind: str) -> None:
    *depths, took = simulate(LATE[kind], STEADY, QueueDepth())
    *_, shallow = simulate(LATE[kind], STEADY, QueueDepth(FIRST), adapts=False)
    *_, deep = simulate(LATE[kind], STEADY, QueueDepth(MOST), adapts=False)
    assert took - deep < 0.15 * (shallow - deep)
    assert FIRST < max(depths) <= MOST // 2


@pytest.mark.parametrize(
    ("make_ms", "train_ms", "last"),
    [
        (8.0, 10.0, LEAST),  # nobody waits: one in the making and one in use will do
        (12.0, 10.0, FIRST),  # the sampler is too slow, whatever the depth
    ],
)
def test_steady_steps_take_no_memory(make_ms: float, train_ms: float, last: int) -> None:
    *depths, _ = simulate([make_ms] * NUM_STEPS, [train_ms] * NUM_STEPS, QueueDepth())
    assert (max(depths), depths[-1]) == (FIRST, last)


def test_slots_are_given_back_when_steps_are_steady_again_and_seldom_in_vain() -> None:
    late_at_first = [80.0 if step % 20 == 7 and step < 500 else 4.0 for step in range(NUM_STEPS)]
    *depths, _ = simulate(late_at_first, STEADY, QueueDepth())
    assert max(depths) > FIRST
    assert depths[-1] <= FIRST
    now_and_then = [160.0 if step % 150 == 50 else 6.4 for step in range(2 * NUM_STEPS)]
    *depths, _ = simulate(now_and_then, 2 * STEADY, QueueDepth())
    grown = [step for step in range(1, len(depths)) if depths[step] > depths[step - 1]]
    assert sum(step < NUM_STEPS for step in grown) > 2 * sum(step >= NUM_STEPS for step in grown)


def test_a_queue_that_is_empty_as_it_begins_is_no_reason_for_more_slots() -> None:
    queue = QueueDepth()
    for epoch in range(8):
        queue.begin()
        queue.after_step(ready=0, is_full=False, asked_s=10.0 * epoch, wait_s=1.0)
        for step in range(1, 40):
            queue.after_step(ready=4, is_full=True, asked_s=10.0 * epoch + 0.1 * step, wait_s=0.0)
    assert queue.depth < FIRST  # windows go on from epoch to epoch


def test_memory_bounds_it_and_what_the_trainer_keeps() -> None:
    step: dict[str, Any] = {"ready": 0, "is_full": True, "asked_s": 1.0, "wait_s": 0.0}
    bounded = QueueDepth(9)
    assert [bounded.after_step(**step, most=most) for most in (7, 8, 1)] == [7, 7, LEAST]
    # Who keeps more gets no slots for it, or would get ever more; it is only not left without any.
    keeping = QueueDepth(9)
    assert [keeping.after_step(**step, least=least, most=1) for least in (12, 8, 3)] == [9, 8, 3]
    assert depth_within(10 * 6 * 7 + 59, slot_bytes=10, num_queues=6) == 7
    assert depth_within(0, slot_bytes=10, num_queues=6) == LEAST
    assert depth_within(1 << 40, slot_bytes=0, num_queues=6) == MOST
