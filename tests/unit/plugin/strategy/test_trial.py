"""Who draws for a lone rank, by planted times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.plugin.strategy import trial
from lightning_gnnload.plugin.strategy.trial import ON_DEVICE, Trial, fastest_way


class PlantedLoader:
    """Takes so many ms for a batch, by who draws; ten times as long for the first ones of a turn, and of all."""

    def __init__(self, ms: dict[int, float]) -> None:
        self.ms, self.way = ms, -1
        self.turns: list[list[BatchRequest]] = []
        self.num_open = 0

    def __len__(self) -> int:
        return 7

    def use(self, way: int) -> None:
        self.way = way

    def made(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        self.turns.append([])
        self.num_open += 1
        is_first = len(self.turns) <= len(self.ms)
        try:
            for number, request in enumerate(requests):
                time.sleep(self.ms[self.way] / 1e3 * (10 if is_first or number < 3 else 1))
                self.turns[-1].append(request)
                yield self.way
        finally:
            self.num_open -= 1


def tried(ms: dict[int, float], limit_s: float = 60.0) -> tuple[Trial, PlantedLoader, list[int]]:
    loader = PlantedLoader(ms)
    tries = Trial(loader, list(ms), loader.use, torch.device("cpu"), limit_s)  # type: ignore[arg-type]
    return tries, loader, list(tries)


def test_steps_are_timed_by_who_draws() -> None:
    tries, loader, drawn_by = tried({0: 2.0, 4: 6.0})
    found = tries.steps_ms
    assert 2.0 <= found[0] < found[4]  # a busy machine adds to both
    assert found[4] >= 6.0
    # Neither what a first turn takes, nor what the first steps of a turn do.
    assert found[0] < 15.0
    assert found[4] < 45.0
    assert fastest_way(found) == ON_DEVICE
    num_steps = trial._WARM_UP_STEPS + trial._TIMED_STEPS
    assert drawn_by == ([0] * num_steps + [4] * num_steps) * (1 + trial._NUM_TURNS)
    assert loader.num_open == 0
    # In the epoch's order, from its beginning where it ends; and one batch of each turn was made in vain.
    requests = [request for turn in loader.turns for request in turn]
    assert [request.step for request in requests] == [number % 7 for number in range(len(requests))]
    assert len(requests) == len(drawn_by) + len(loader.turns)


def test_it_ends_when_its_time_is_over() -> None:
    tries, loader, _ = tried({0: 0.1, 2: 0.1}, limit_s=0.0)
    assert len(loader.turns) == 4  # one that is not timed, and one that is, by each
    assert set(tries.steps_ms) == {0, 2}


def test_what_ends_too_soon_has_no_times() -> None:
    loader = PlantedLoader({0: 0.1, 2: 0.1})
    tries = Trial(loader, [0, 2], loader.use, torch.device("cpu"), 1.0)  # type: ignore[arg-type]
    batches = iter(tries)
    for _ in range(5):
        next(batches)
    batches.close()  # type: ignore[attr-defined]  as a model does that stops
    assert (tries.steps_ms, loader.num_open) == ({}, 0)


@pytest.mark.parametrize(
    ("steps_ms", "way"),
    [
        ({0: 8.8, 4: 9.1, 12: 7.0}, 12),
        ({0: 1.0, 4: 0.98}, 0),  # within what measuring errs by
        ({0: 1.0, 4: 0.96}, 4),
        ({0: 9.0, 4: 5.0, 12: 4.9}, 4),
    ],
)
def test_the_device_draws_unless_the_host_is_faster(steps_ms: dict[int, float], way: int) -> None:
    assert fastest_way(steps_ms) == way


def test_one_line_says_why() -> None:
    assert trial.describe_trial({0: 8.81, 1: 9.1, 14: 7.0}) == (
        "a step takes 8.8 ms where its device draws, 9.1 ms where 1 thread of the host do, 7.0 ms where 14 threads of "
        "the host do, so 14 threads of the host draw"
    )
