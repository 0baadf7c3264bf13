"""Training with 1, 2 and 4 trainers at one global batch size: the same seeds and neighbourhoods at each step, and
losses that differ by rounding alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tests.integration.scripts import launch
from tests.integration.scripts.elastic import EPOCHS, GLOBAL_BATCH, HANDED_ON_AT, NUM_TRAIN, NUM_TRAINERS, STEPS

pytestmark = pytest.mark.timeout(400)  # the first test waits for the launch
SCRIPT = Path(__file__).parent / "scripts" / "elastic.py"
ROUNDING = {"single": 2.0**-24, "double": 2.0**-53, "weighed": 2.0**-53}
"""By run, the unit roundoff of its numbers."""


class Step(NamedTuple):
    """A global step: what all trainers saw together, and the mean loss over its seeds."""

    seeds: list[int]
    edges: set[tuple[int, ...]]
    loss: float


class Runs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self, num_trainers: int, run: str) -> dict[int, Step]:
        folder = self.folder / str(num_trainers) / run
        ranks = [json.loads((folder / f"trainer-{rank}.json").read_text()) for rank in range(num_trainers)]
        found = {}
        for slices in zip(*ranks, strict=True):
            (step,) = {step for step, *_ in slices}
            seeds = [seed for _, part, _, _ in slices for seed in part]
            edges = {tuple(edge) for _, _, part, _ in slices for edge in part}
            found[step] = Step(seeds, edges, sum(len(part) * loss for _, part, _, loss in slices) / len(seeds))
        return found

    def weights(self, num_trainers: int, run: str) -> torch.Tensor:
        state = torch.load(self.folder / str(num_trainers) / run / "weights.pt", weights_only=True)
        return torch.cat([tensor.flatten() for tensor in state.values()])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("elastic")
    launch.run(SCRIPT, folder=folder, num_devices=5, timeout_s=350)
    return Runs(folder)


def tolerance(run: str, loss: float) -> float:
    """A loss is a mean of at most 33 terms, and so are the gradients before it: whatever the order of a sum, its
    error is below its number of terms in units of roundoff, and two orders differ by twice that. What 20 small steps
    carry on in the weights is far below that bound (3 units, where it has 66). What is not rounding would not shrink
    with the unit."""
    return 2 * (GLOBAL_BATCH + 1) * ROUNDING[run] * loss


@pytest.mark.parametrize("run", ROUNDING)
@pytest.mark.parametrize("num_trainers", [2, 4])
def test_each_step_has_the_same_seeds_and_neighbourhoods(runs: Runs, num_trainers: int, run: str) -> None:
    alone, shared = runs.steps(1, run), runs.steps(num_trainers, run)
    assert sorted(shared) == sorted(alone) == list(range(EPOCHS * STEPS))
    for step, wanted in alone.items():
        assert shared[step].seeds == wanted.seeds
        assert shared[step].edges == wanted.edges
    for epoch in range(EPOCHS):
        seeds = [seed for step in range(STEPS) for seed in shared[epoch * STEPS + step].seeds]
        assert len(set(seeds)) == len(seeds) == NUM_TRAIN


@pytest.mark.parametrize(("num_trainers", "run"), [(2, "single"), (2, "double"), (2, "weighed"), (4, "weighed")])
def test_losses_and_weights_differ_by_rounding_alone(runs: Runs, num_trainers: int, run: str) -> None:
    shared = runs.steps(num_trainers, run)
    for step, wanted in runs.steps(1, run).items():
        assert abs(shared[step].loss - wanted.loss) <= tolerance(run, wanted.loss)
    furthest = (runs.weights(num_trainers, run) - runs.weights(1, run)).abs().max()
    assert furthest <= tolerance(run, 1)


@pytest.mark.parametrize("run", ["single", "double"])
def test_unequal_slices_weigh_their_seeds_unequally(runs: Runs, run: str) -> None:
    """Of four trainers, at the last step of an epoch alone. StepPlan.weight mends it, as the test above shows."""
    alone, shared = runs.steps(1, run), runs.steps(4, run)
    apart = {step: abs(shared[step].loss - alone[step].loss) for step in alone}
    for step in range(STEPS):  # the last step's own loss comes before its update
        assert apart[step] <= tolerance(run, alone[step].loss)
    assert min(apart[step] for step in range(STEPS, STEPS + 3)) > 10 * tolerance("single", 2)


def test_a_run_is_handed_on_from_two_trainers_to_one_and_to_four(runs: Runs) -> None:
    parts = {num_trainers: runs.steps(num_trainers, "handed_on") for num_trainers in NUM_TRAINERS}
    first, second = HANDED_ON_AT.values()
    spans = [range(first), range(first, second), range(second, EPOCHS * STEPS)]
    assert [sorted(part) for part in parts.values()] == [list(span) for span in spans]
    whole = runs.steps(1, "weighed")
    for part in parts.values():
        for step, found in part.items():
            assert found[:2] == whole[step][:2]
            assert abs(found.loss - whole[step].loss) <= tolerance("weighed", whole[step].loss)
    furthest = (runs.weights(4, "handed_on") - runs.weights(1, "weighed")).abs().max()
    assert furthest <= tolerance("weighed", 1)
