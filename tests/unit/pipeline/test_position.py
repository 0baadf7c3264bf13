"""Which epoch each iteration over a loader is: in loops by hand, and as Lightning and Fabric announce them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from lightning_gnnload.errors import CheckpointError
from lightning_gnnload.pipeline.position import NextEpoch, Position
from lightning_gnnload.pipeline.resume import ResumePoint

NUM_STEPS = 4
FACTS = {"num_seeds": 8, "global_batch_size": 2, "seed": 1, "order": "o", "seeds": "s", "graph": "g", "sampler": "n"}


def batches(epoch: int, start: int) -> list[tuple[int, int]]:
    return [(epoch, step) for step in range(start, NUM_STEPS)]


def read(position: Position) -> Iterator[tuple[int, int]]:
    return position.read(batches, lambda point: None)


def epoch_of(position: Position) -> int:
    """Reads an epoch, which is whole."""
    found = list(read(position))
    assert found == batches(found[0][0], 0)
    return found[0][0]


def resumed(position: Position) -> Position:
    """A position in another process, by what the first one's state says."""
    state = (position.loaded or ResumePoint(**position.place(), **FACTS)).to_state()
    other = Position()
    other.load(ResumePoint.from_state(state))
    return other


def test_loops_by_hand() -> None:
    position = Position()
    assert [epoch_of(position) for _ in range(3)] == [0, 1, 2]
    list(islice(read(position), 2))  # broken off
    assert epoch_of(position) == 4
    position.set_epoch(7)
    assert [epoch_of(position), epoch_of(position)] == [7, 8]
    unread = read(position)
    assert (position.place()["epoch"], epoch_of(position), next(unread)) == (8, 9, (10, 0))
    assert list(position.read(lambda epoch, start: [], lambda point: None)) == []  # of an epoch without a step


def test_of_two_iterators_the_later_one_says_where_the_loader_is() -> None:
    position = Position()
    first = read(position)
    next(first)
    second = read(position)
    assert [next(second), next(first), next(first)] == [(1, 0), (0, 1), (0, 2)]
    assert position.place()["step"] == 1
    following = resumed(position)
    first, second = read(following), read(following)
    assert [next(first), next(second)] == [(1, 1), (2, 0)]
    assert list(first) == batches(1, 2)  # and no epoch more, though the second is where the first began
    assert list(second) == batches(2, 1)


def test_loops_by_hand_over_loaders_that_are_alike() -> None:
    together, one, other = NextEpoch(), Position(), Position()
    one.follow(together)
    assert epoch_of(one) == 0
    other.follow(together)
    assert [epoch_of(each) for each in (other, one, one, other)] == [1, 2, 3, 4]


@pytest.mark.parametrize("done", range(NUM_STEPS + 1))
def test_loops_by_hand_resume(done: int) -> None:
    position = Position()
    position.set_epoch(5)
    list(islice(read(position), done))
    if done:
        assert list(read(resumed(position))) == (batches(5, done) or batches(6, 0))
    position = resumed(position)
    position.set_epoch(5)
    assert list(read(position)) == (batches(5, done) or batches(6, 0))
    position = resumed(position)
    position.set_epoch(3)
    assert epoch_of(position) == 3


def test_a_trainer_says_which_epoch_begins() -> None:
    position = Position()
    epoch_of(position)
    for fit in range(2):  # each begins at 0
        for epoch in range(3):
            position.announce(epoch)
            assert epoch_of(position) == epoch, fit


def test_what_is_read_again_while_an_epoch_lasts_is_never_the_same() -> None:
    position, found = Position(), []
    for epoch in range(30):
        position.announce(epoch)
        found += [epoch_of(position) for _ in range(40)]
        in_midst = list(islice(read(position), 2))
        following, unannounced = resumed(position), resumed(position)
        following.announce(epoch)
        next_one = epoch_of(position)
        for each in (following, unannounced):
            assert list(read(each)) == batches(in_midst[0][0], 2)
            assert epoch_of(each) == next_one
        found.append(in_midst[0][0])
    assert len(set(found)) == len(found)
    assert max(found) < 2**31


@pytest.mark.parametrize("limit", [3, NUM_STEPS])
@pytest.mark.parametrize(
    ("announced", "wanted"),
    [
        ([1], "rest"),
        ([1, 2], "next"),  # of a checkpoint of on_validation_end, whose epoch has nothing left
        ([2], "next"),  # after an epoch's last batch
        ([2, 3], "next"),  # with max_steps, after its end, which Lightning counts twice
    ],
)
def test_a_run_that_lightning_resumes(announced: list[int], wanted: str, limit: int) -> None:
    position = Position()
    for epoch in range(2):
        position.announce(epoch)
        list(islice(read(position), limit if wanted == "next" else 2))
    following = resumed(position)
    reading = read(following)
    for number in announced:
        following.announce(number)
    assert list(reading) == (batches(1, 2) if wanted == "rest" else batches(2, 0))
    ahead = 3 if announced == [2, 3] else 2 if wanted == "next" else 1
    again = resumed(following)  # from the middle of that epoch, which keeps its number
    again.announce(ahead)
    for each in (following, again):
        each.announce(ahead + 1)
        assert epoch_of(each) == (3 if wanted == "next" else 2)
        each.announce(0)  # of another fit
        assert epoch_of(each) == 0


def test_lightning_is_given_no_more_of_an_epoch_that_is_over() -> None:
    """It asks for more after the last batch of one loader of several."""
    position = Position()
    position.announce(0)
    list(islice(read(position), NUM_STEPS))
    following = resumed(position)
    reading = read(following)
    following.announce(0)
    assert list(reading) == []
    following.announce(1)
    assert epoch_of(following) == 1


def test_a_fit_begins_at_0_whatever_an_earlier_one_has_loaded_and_never_read() -> None:
    position = Position()
    position.announce(3)
    list(islice(read(position), NUM_STEPS))
    following = resumed(position)
    read(following)  # of a fit that is over at once
    reading = read(following)
    following.announce(0)
    assert list(reading) == batches(0, 0)


@pytest.mark.parametrize("num_epochs", [1, 3])
@pytest.mark.parametrize("done", [2, NUM_STEPS])
def test_fabric_counts_from_0_in_each_process(done: int, num_epochs: int) -> None:
    position = Position()
    for epoch in range(num_epochs):
        position.announce(epoch)
        list(islice(read(position), done))
    following = resumed(position)
    found = []
    for number in range(3):
        following.announce(number)
        found.append(list(read(following)))
    rest = [batches(num_epochs - 1, 2)] if done == 2 else []
    assert found == [*rest, *(batches(num_epochs + each, 0) for each in range(3))][:3]
    by_hand = resumed(following)
    assert [list(read(by_hand)) for _ in range(2)] == [batches(found[2][0][0] + each, 0) for each in (1, 2)]


def test_a_state_that_cannot_be_resumed_stays() -> None:
    def refuse(point: ResumePoint) -> None:
        raise CheckpointError("other seeds")

    position = Position()
    position.load(point := ResumePoint(3, 2, **FACTS))
    with pytest.raises(CheckpointError):
        next(position.read(batches, refuse))
    assert position.loaded == point


@pytest.mark.parametrize("spoilt", [{"again": -1}, {"ahead": "1"}, {"again": True}, {"other": 1}])
def test_states_are_checked(spoilt: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        ResumePoint.from_state(ResumePoint(3, 2, **FACTS).to_state() | spoilt)
