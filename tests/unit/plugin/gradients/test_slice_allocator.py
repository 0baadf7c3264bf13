"""Which slices trainer 0 gives, and which gradients it may still take."""

from __future__ import annotations

import random

import pytest

from lightning_gnnload.plugin.gradients.slice_allocator import SliceAllocator


def test_slices_are_given_once_from_the_end_backwards_and_none_of_the_step_under_way() -> None:
    shares = SliceAllocator(num_ranks=3, staleness=0, start=2, stop=5)
    given = []
    while (number := shares.give()) is not None:
        given.append(number)
    assert given == [14, 13, 12, 11, 10, 9]


def test_a_slice_that_came_back_is_given_again_first_unless_the_trainers_have_come_to_it() -> None:
    shares = SliceAllocator(num_ranks=2, staleness=0, stop=6)
    assert [shares.give() for _ in range(4)] == [11, 10, 9, 8]
    shares.give_back(10)
    shares.give_back(8)
    assert shares.give() == 10
    shares.pass_to(4)
    assert shares.candidate() is None  # 8 is of step 4; 11 and 10 are out
    shares.give_back(9)
    assert shares.candidate() is None


def test_what_was_contributed_before_an_interruption_is_not_given() -> None:
    shares = SliceAllocator(num_ranks=2, staleness=0, start=1, stop=6, merged=[11, 10, 8])
    assert [shares.give() for _ in range(3)] == [9, 7, 6]
    assert shares.num_before(step=5) == 3
    shares.merge(9)
    assert shares.num_before(step=5) == 2  # step 4 is whole now, and passed over


@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
def test_every_merged_slice_is_known_to_all_before_its_step(staleness: int) -> None:
    """Plays epochs: merges whatever may be merged, in a random order, and passes over what all trainers know to be
    whole. A slice that becomes known too late would be trained twice."""
    num_merged = 0
    for seed in range(200):
        random.seed(seed)
        num_steps, num_ranks = random.randint(2, 14), random.randint(1, 3)
        shares = SliceAllocator(num_ranks=num_ranks, staleness=staleness, stop=num_steps)
        known: set[int] = set()
        merged: set[int] = set()
        in_flight: list[list[int]] = []
        for step in range(num_steps):
            mine = set(range(step * num_ranks, (step + 1) * num_ranks))
            assert mine & merged <= known, f"seed {seed}: step {step} is trained again"
            if mine <= known:
                continue
            shares.pass_to(step)
            announced = []
            for number in random.sample(range(num_steps * num_ranks), num_steps * num_ranks):
                if number not in merged and random.random() < 0.4 and shares.is_mergeable(number):
                    assert number // num_ranks > step, f"seed {seed}: the trainers have come to it"
                    shares.merge(number)
                    merged.add(number)
                    num_merged += 1
                    announced.append(number)
            in_flight.append(announced)
            if len(in_flight) > staleness:
                known |= set(in_flight.pop(0))
    assert num_merged > 200, "hardly anything was merged: the test proves nothing"
