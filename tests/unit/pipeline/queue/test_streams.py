from typing import Any

import pytest

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.queue.streams import Stream, StreamSpec, TrainerPeer
from tests.unit.toy import toy_source

SPEC = StreamSpec("train", loader=0, reload=0, epoch=0, start=4, stop=20)


def stream() -> Stream:
    return Stream(TrainerPeer(channel=None, index=0, rank=0), 0, SPEC, source=toy_source())


def test_steps_come_the_lowest_first_whenever_they_were_asked_for() -> None:
    made = stream()
    made.add([9, 13, 19])
    made.add([12, 4])
    steps = []
    while made.is_ready:
        steps.append(made.next_step)
        assert made.pop_step() == steps[-1]
    assert steps == [4, 9, 12, 13, 19]


def test_nothing_is_made_before_its_mini_batches_are_found() -> None:
    made = stream()
    made.source = None
    made.add([4])
    assert not made.is_ready


@pytest.mark.parametrize("step", [3, 20, -1, 4.0, True, "4", None, [4]])
def test_what_is_no_step_of_the_stream_is_refused(step: Any) -> None:
    made = stream()
    with pytest.raises(QueueProtocolError, match="are no steps of a stream"):
        made.add([4, step])
    assert made.steps == []
