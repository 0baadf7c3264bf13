"""The ledger of contributed slices, and what a checkpoint keeps of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lightning_gnnload.errors import CheckpointError
from lightning_gnnload.pipeline.contributed import ContributedStep, Ledger, place_alone
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from tests.unit.pipeline.job import job
from tests.unit.toy import content

NUM_STEPS = 7  # of 100 seeds, two trainers with 8 a step


def opened(num_ranks: int = 2, contributed: tuple[int, ...] = ()) -> Ledger:
    ledger = Ledger(num_ranks)
    ledger.open(stream=3, epoch=1, start=0, stop=10, contributed=contributed)
    return ledger


def test_a_step_is_whole_with_its_last_slice_and_no_sooner() -> None:
    ledger = opened(num_ranks=3)
    for number in (12, 14):
        ledger.add([number])
        assert not ledger.is_whole(4)
    ledger.add([13])
    assert ledger.is_whole(4)
    assert not ledger.is_whole(5)


def test_an_epoch_begins_with_nothing_but_what_it_is_resumed_with() -> None:
    ledger = opened(contributed=(18, 19))
    assert ledger.is_whole(9)
    ledger.open(stream=4, epoch=2, start=0, stop=10)
    assert not ledger.is_whole(9)
    assert ledger.ahead(0) == []


def test_a_checkpoint_keeps_what_is_ahead_through_json() -> None:
    ledger = opened(contributed=(19, 18, 15, 2))
    state = json.loads(json.dumps(ledger.state(3)))
    assert Ledger(2).resumable(state) == [15, 18, 19]
    assert ledger.ahead(7) == [15, 18, 19], "the step that comes next is ahead, too"
    assert ledger.ahead(8) == [18, 19]


def test_with_another_number_of_trainers_whole_steps_are_kept() -> None:
    state = opened(contributed=(19, 18, 15)).state(3)  # steps 9 and half of 7, of two trainers
    assert Ledger(4).resumable(state) == [36, 37, 38, 39]
    assert Ledger(1).resumable(state) == [9]


def test_a_loader_without_a_ledger_refuses_contributed_steps_and_nothing_else() -> None:
    place = {"epoch": 0, "step": 3}
    assert place_alone(place) == place
    assert place_alone({**place, "contributed": opened().state(3)}) == place
    with pytest.raises(CheckpointError, match=r"2 mini-batches of its end.*switching=True"):
        place_alone({**place, "contributed": opened(contributed=(18, 19)).state(3)})


def read(loaders: list[QueueLoader], whole: set[int], start: int = 0) -> Iterator[list[Any]]:
    """Step by step, as trainers go. Steps become known to be whole right before they come."""
    readers = [iter(loader) for loader in loaders]
    for step in range(start, len(loaders[0])):
        for loader in loaders:
            assert loader.ledger is not None
            loader.ledger.add([2 * step, 2 * step + 1] if step in whole else [2 * step])
        yield [batch if isinstance(batch, ContributedStep) else content(batch) for batch in map(next, readers)]


@pytest.mark.parametrize("num_samplers", [1, 2])
@pytest.mark.parametrize("whole", [{2}, {1, 2, 4, 6}, {3, 4, 5, 6}])
def test_loaders_pass_over_whole_steps_and_give_their_slots_back(whole: set[int], num_samplers: int) -> None:
    """With one slot for each stream: one that stayed would stall it."""
    with job(num_trainers=2, num_samplers=num_samplers, queue_depth=1) as running:
        queues = [running.queue(rank) for rank in range(2)]
        loaders = [running.loader(queue, rank=rank, ledger=Ledger(2)) for rank, queue in enumerate(queues)]
        for rank, batches in enumerate(zip(*read(loaders, whole), strict=True)):
            wanted = running.wanted(rank=rank)
            assert list(batches) == [ContributedStep(0, s) if s in whole else wanted[s] for s in range(NUM_STEPS)]


def test_a_loader_resumes_with_what_was_contributed_ahead() -> None:
    with job(num_trainers=2) as running:
        queues = [running.queue(rank) for rank in range(2)]
        ledgers = [Ledger(2), Ledger(2)]
        loaders = [running.loader(queue, rank=rank, ledger=ledgers[rank]) for rank, queue in enumerate(queues)]
        reading = read(loaders, set())
        for _ in range(3):
            next(reading)
        for ledger in ledgers:
            ledger.add([10, 11, 13])
        states = [loader.state_dict() for loader in loaders]
        assert states[0] == states[1]
        resumed = [running.loader(queue, rank=rank, ledger=Ledger(2)) for rank, queue in enumerate(queues)]
        for loader in resumed:
            loader.load_state_dict(states[0])
            assert loader.state_dict() == states[0]  # a checkpoint before the first step keeps it
        steps = list(read(resumed, set(), start=3))
        assert [step[0] == ContributedStep(0, 5) for step in steps] == [False, False, True, False]
        assert [step[1] for step in steps[:2]] == running.wanted(rank=1)[3:5]
        assert resumed[0].ledger is not None
        assert resumed[0].ledger.is_whole(6)  # 13 from the checkpoint, and 12 from this test's reading


def test_a_trainer_without_samplers_passes_over_whole_steps_too() -> None:
    with job(num_trainers=1, takeover=True) as running:
        queue = running.queue()
        loader = running.loader(queue, ledger=Ledger(1))
        assert loader.ledger is not None
        reading, found = iter(loader), []
        for step in range(len(loader)):
            loader.ledger.add([step] if step in (2, 7, 8) else [])
            if step == 5:
                queue.take = lambda *_: None  # type: ignore[method-assign]  # as when the last sampler is lost
            found.append(next(reading))
        kinds = [isinstance(batch, ContributedStep) for batch in found]
        assert [step for step, contributed in enumerate(kinds) if contributed] == [2, 7, 8]
        wanted = running.wanted()
        assert [content(batch) for step, batch in enumerate(found) if not kinds[step]] == [
            batch for step, batch in enumerate(wanted) if not kinds[step]
        ]
