from typing import Any

import pytest

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.streams import Stream, StreamSpec, TrainerPeer
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


def test_a_share_takes_no_slots_away() -> None:
    with pytest.raises(QueueProtocolError, match="are no share of a stream"):
        stream().add_share([[4, 5, 1]], more_slots=-1)


def test_slots_that_are_taken_away_come_back_first() -> None:
    made = stream(depth=3)
    made.add_share([[4, 20, 1]], more_slots=0)
    made.num_out = 2
    made.add_slots(-2)
    assert not made.is_ready
    made.num_out = 0
    assert made.is_ready
    with pytest.raises(QueueProtocolError, match="-1 slots more leave none"):
        made.add_slots(-1)
    assert made.depth == 1


def test_a_ranges_end_may_lie_beyond_the_last_step() -> None:
    # As slicing gives it: the last of these steps is 19.
    made = stream()
    made.add_share([[5, 21, 2]], more_slots=0)
    assert made.shares == [range(5, 21, 2)]
