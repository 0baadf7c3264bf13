"""The ledger of contributed slices, and what a checkpoint keeps of it."""

from __future__ import annotations

import json

import pytest

from lightning_gnnload.errors import CheckpointError
from lightning_gnnload.pipeline.contributed import Ledger, place_alone


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
    assert ledger.ahead(of=0) == []


def test_a_checkpoint_keeps_what_is_ahead_through_json() -> None:
    ledger = opened(contributed=(19, 18, 15, 2))
    state = json.loads(json.dumps(ledger.state(of=3)))
    assert Ledger(2).resumable(state) == [15, 18, 19]


def test_with_another_number_of_trainers_whole_steps_are_kept() -> None:
    state = opened(contributed=(19, 18, 15)).state(of=3)  # steps 9 and half of 7, of two trainers
    assert Ledger(4).resumable(state) == [36, 37, 38, 39]
    assert Ledger(1).resumable(state) == [9]


def test_a_loader_without_a_ledger_refuses_contributed_steps_and_nothing_else() -> None:
    place = {"epoch": 0, "step": 3}
    assert place_alone(place) == place
    assert place_alone({**place, "contributed": opened().state(of=3)}) == place
    with pytest.raises(CheckpointError, match=r"2 mini-batches of its end.*switching=True"):
        place_alone({**place, "contributed": opened(contributed=(18, 19)).state(of=3)})
