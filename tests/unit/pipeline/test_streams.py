from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.streams import ReadStream, Stream, StreamSpec, TrainerPeer
from tests.unit.toy import toy_source

SPEC = StreamSpec("train", loader=0, reload=0, epoch=0, start=4, stop=20)


def stream(depth: int = 2) -> Stream:
    return Stream(TrainerPeer(channel=None, index=0, rank=0), 0, SPEC, depth, source=toy_source())


def test_steps_come_the_lowest_first_over_all_shares() -> None:
    made = stream()
    made.add_share([[5, 20, 4], [4, 20, 8]], more_slots=0)
    made.add_share([[6, 7, 1]], more_slots=0)
    steps = []
    while made.shares:
        assert made.next_step == min(steps[0] for steps in made.shares)
        steps.append(made.pop_step())
    assert steps == [4, 5, 6, 9, 12, 13, 17]
    assert not made.is_ready


@given(st.lists(st.integers(0, 3), min_size=20, max_size=40), st.integers(1, 3), st.sets(st.integers(0, 3), min_size=1))
def test_steps_are_dealt_to_where_they_are_at_home(homes: list[int], stride: int, samplers: set[int]) -> None:
    read = ReadStream(SPEC, 4, np.array(homes))
    steps = range(4, 20, stride)
    dealt = read.dealt(steps, sorted(samplers))
    owned = [sorted(step for part in of_sampler for step in part) for of_sampler in dealt]
    assert sorted(step for its in owned for step in its) == list(steps)
    homeless = [step for step in steps if homes[step] not in samplers]
    for sampler, its in zip(sorted(samplers), owned, strict=True):
        assert {step for step in its if homes[step] in samplers} == {step for step in steps if homes[step] == sampler}
        assert abs(len(set(its) & set(homeless)) - len(homeless) / len(samplers)) < 1


def test_steps_in_turn_are_few_ranges() -> None:
    # Each is a part of a message, and looked at for each step.
    homes = np.tile([0, 1, 2, 1], 250)
    dealt = ReadStream(replace(SPEC, start=0, stop=1000), 0, homes).dealt(range(1000), [0, 1, 2])
    assert dealt == [[range(0, 997, 4)], [range(1, 1000, 2)], [range(2, 999, 4)]]


def test_a_share_may_bring_slots() -> None:
    made = stream(depth=2)
    made.add_share([[4, 20, 1]], more_slots=0)
    made.num_out = 2
    assert not made.is_ready
    made.add_share([[4, 5, 1]], more_slots=1)
    assert made.is_ready


def test_nothing_is_made_before_its_mini_batches_are_found() -> None:
    made = stream()
    made.source = None
    made.add_share([[4, 20, 1]], more_slots=0)
    assert not made.is_ready


@pytest.mark.parametrize(
    "steps",
    [
        [3, 20, 1],
        [4, 21, 1],
        [4, 20, 0],
        [4, 20, -1],
        [9, 9, 1],
        [4, 5],
        [4, 5, 1, 1],
        [4, 5, 1.0],
        [4, True, 1],
        4,
        None,
    ],
)
def test_what_is_no_share_of_the_stream_is_refused(steps: Any) -> None:
    made = stream()
    with pytest.raises(QueueProtocolError, match="are no share of a stream"):
        made.add_share([[4, 20, 2], steps], more_slots=1)
    assert (made.shares, made.depth) == ([], 2)


def test_no_slots_can_be_taken_away() -> None:
    with pytest.raises(QueueProtocolError, match="are no share of a stream"):
        stream().add_share([[4, 5, 1]], more_slots=-1)


def test_a_ranges_end_may_lie_beyond_the_last_step() -> None:
    # As slicing gives it: the last of these steps is 19.
    made = stream()
    made.add_share([[5, 21, 2]], more_slots=0)
    assert made.shares == [range(5, 21, 2)]
