"""Samplers that train: whatever they contribute, each seed is trained once an epoch, no gradient is older than the
bound, and the update is the mean that a plain loop computes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
import torch

from tests.integration.replay import Epochs, replayed
from tests.integration.scripts import launch
from tests.integration.scripts.switching import Settings
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(500)  # the first test waits for a launch
SCRIPT = Path(__file__).parent / "scripts" / "switching.py"
SLOW_MS = 160.0  # eight steps of the trainers, so that two are less on a busy machine too
STALE: dict[str, Any] = {"staleness": 2}
TRAINS = "FactoredStrategy: sampler 0 trains while it is idle: profit +"

ON_THREE = [
    Settings("plain"),
    Settings("stale", strategy=STALE),
    Settings("two_samplers", 8, {"samplers": 2}),
    Settings("two_stale_samplers", 8, {"samplers": 2, **STALE}),
    Settings("half", trainer={"limit_train_batches": 0.5}),
    Settings("max_steps", trainer={"max_steps": 27, "max_epochs": -1}),
    Settings("val_interval", trainer={"val_check_interval": 0.25}),
    Settings("stale_val_interval", strategy=STALE, trainer={"val_check_interval": 0.25}),
    Settings("slow_sampler", model={"sampler_ms": SLOW_MS}),
    Settings("bounded", strategy={"switching": 12}, model={"sampler_ms": SLOW_MS / 2}),
    Settings("late_sampler", model={"sampler_ms": 33.0}),
    Settings("setup", model={"built_in": "setup", "dropout": 0.3}),
    Settings("configure_model", model={"built_in": "configure_model", "batch_norm": True}),
    Settings("fails", model={"fails": True}),
    # The order of these pairs matters: the second resumes from a checkpoint of the first. Steps of 40 ms, so that the
    # sampler has time to spare before the ninth, on a busy machine too.
    Settings("interrupted", model={"train_ms": 40.0}, save_every=9, stop_at=18),
    Settings("resumed", checkpoint="interrupted/step=9.ckpt"),
    Settings("stale_interrupted", strategy=STALE, model={"train_ms": 40.0}, save_every=9, stop_at=18),
    Settings("stale_resumed", strategy=STALE, checkpoint="stale_interrupted/step=9.ckpt"),
]
ON_FOUR = [
    # Steps of 40 ms, so that the one sampler has time to spare on a busy machine too.
    Settings("three_trainers", model={"train_ms": 40.0}),
    Settings("three_stale_trainers", strategy=STALE, model={"train_ms": 40.0}),
    Settings("two_and_two", strategy={"samplers": 2}),
    Settings("two_and_two_stale", strategy={"samplers": 2, **STALE}),
]
BY_NAME = {settings.name: settings for settings in ON_THREE + ON_FOUR}
WHOLE = [name for name in BY_NAME if "interrupted" not in name and "resumed" not in name]
CONTRIBUTED = [name for name in BY_NAME if name not in ("slow_sampler", "fails")]
REPLAYED = [
    "plain",
    "stale",
    "two_samplers",
    "two_stale_samplers",
    "bounded",
    "late_sampler",
    "three_trainers",
    "two_and_two_stale",
]


class Runs:
    """What the ranks of one launch wrote."""

    def __init__(self, folder: Path, output: str) -> None:
        self._folder = folder
        self.output = output

    def ranks(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted((self._folder / name).glob("rank-*.json"))]

    def trainers(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.ranks(name) if record["role"] == "trainer"]

    def samplers(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.ranks(name) if record["role"] == "sampler"]


def run(folder: Path, all_settings: list[Settings], num_devices: int) -> Runs:
    told = json.dumps([vars(settings) for settings in all_settings])
    return Runs(folder, launch.run(SCRIPT, told, folder=folder, num_devices=num_devices, timeout_s=400).output)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return run(tmp_path_factory.mktemp("on-three"), ON_THREE, 3)


@pytest.fixture(scope="module")
def on_four(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return run(tmp_path_factory.mktemp("on-four"), ON_FOUR, 4)


def by_name(*names: str) -> pytest.MarkDecorator:
    """Parametrizes a test by names of runs, and by the launch that they are of."""
    pairs = [
        pytest.param("on_four", name, marks=pytest.mark.matrix) if BY_NAME[name] in ON_FOUR else ("runs", name)
        for name in names
    ]
    return pytest.mark.parametrize(("job", "name"), pairs, indirect=["job"])


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Runs:
    runs: Runs = request.getfixturevalue(request.param)
    return runs


def trained(name: str, trainers: list[dict[str, Any]], upto: int | None = None) -> Counter[tuple[int, int]]:
    """How often each (epoch, seed) counted: in trainers' mini-batches, and in the gradients that joined them.

    Args:
        upto: global step at which to stop counting.
    """
    epochs, counts = Epochs(BY_NAME[name], len(trainers)), Counter[tuple[int, int]]()
    until = epochs.num_steps * 2 if upto is None else upto
    for record in trainers:
        for epoch, _, step, seeds, _ in record["trained"]:
            if [epoch, step] not in record["left_out"] and epoch * epochs.num_steps + step < until:
                counts.update((epoch, seed) for seed in seeds)
    for epoch, step, merging in trainers[0]["merged"]:
        for number, _ in merging:
            if epoch * epochs.num_steps + step < until:
                counts.update((epoch, seed) for seed in epochs.seeds(epoch, number))
    return counts


def planned(name: str, num_trainers: int, num_epochs: int = 2) -> Counter[tuple[int, int]]:
    epochs = Epochs(BY_NAME[name], num_trainers)
    num_slices = {"half": epochs.num_steps // 2, "max_steps": 27}.get(name, epochs.num_steps) * num_trainers
    num_epochs = 1 if name == "max_steps" else num_epochs
    return Counter(
        (e, seed) for e in range(num_epochs) for number in range(num_slices) for seed in epochs.seeds(e, number)
    )


@by_name(*WHOLE)
def test_each_seed_is_trained_once_an_epoch(job: Runs, name: str) -> None:
    trainers = job.trainers(name)
    assert trained(name, trainers) == planned(name, len(trainers))


@by_name(*CONTRIBUTED)
def test_samplers_contribute_and_the_trainers_pass_over_it(job: Runs, name: str) -> None:
    """Else the other tests prove nothing."""
    trainers, samplers = job.trainers(name), job.samplers(name)
    stats, num_passed = trainers[0]["stats"], sum(step[-1] for step in trainers[0]["steps"])
    assert stats["merged"] >= 4
    assert num_passed >= 1 or name.endswith("interrupted")
    assert stats["contributed"] <= sum(len(record["trained"]) for record in samplers)
    # What joined is what samplers trained, of the same epoch and step.
    epochs = Epochs(BY_NAME[name], len(trainers))
    theirs = {(epoch, step, *seeds) for record in samplers for epoch, _, step, seeds, _ in record["trained"]}
    for epoch, _, merging in trainers[0]["merged"]:
        for number, _ in merging:
            assert (epoch, number // len(trainers), *epochs.seeds(epoch, number)) in theirs


@by_name(*BY_NAME)
def test_no_gradient_is_older_than_the_bound(job: Runs, name: str) -> None:
    stats = job.trainers(name)[0]["stats"]
    strategy = BY_NAME[name].strategy
    assert stats["max_lag"] <= max(strategy.get("staleness", 0) + 1, strategy.get("switching", 1))
    assert stats["contributed"] >= stats["merged"]


@by_name(*BY_NAME)
def test_trainers_have_the_same_weights_bit_for_bit(job: Runs, name: str) -> None:
    trainers = job.trainers(name)
    assert len({record["weights"] for record in trainers}) == 1
    assert len({json.dumps(record["steps"]) for record in trainers}) == 1


@by_name(*REPLAYED)
def test_updates_are_the_means_of_all_gradients_that_joined(job: Runs, name: str) -> None:
    trainers = job.trainers(name)
    found = torch.tensor(trainers[0]["parameters"])
    wanted = replayed(BY_NAME[name], trainers)
    # By the median: float32 sums in another order, over some 50 updates, come to 1e-6, one gradient left out to 1e-4.
    # The largest would fail by chance, where a number before ReLU is 0 but for rounding: that moves one hidden unit.
    off = (found - wanted).abs()
    assert off.median() < 2e-5, off.sort().values[::80]


def test_lightning_counts_planned_steps(runs: Runs) -> None:
    plain = runs.trainers("plain")[0]
    assert [step[:3] for step in plain["steps"]] == [[e, i, 40 * e + i + 1] for e in range(2) for i in range(40)]
    assert (plain["global_step"], plain["num_batches"], plain["validated_at"]) == (80, 40, [40, 80])
    assert runs.trainers("half")[0]["global_step"] == 40
    assert runs.trainers("max_steps")[0]["global_step"] == 27
    for name in ("val_interval", "stale_val_interval"):
        assert runs.trainers(name)[0]["validated_at"] == list(range(10, 81, 10))


@pytest.mark.parametrize("prefix", ["", "stale_"])
def test_a_run_resumes_in_mid_epoch_with_what_was_contributed_ahead(runs: Runs, prefix: str) -> None:
    before, after = (runs.trainers(f"{prefix}{name}") for name in ("interrupted", "resumed"))
    ahead = [number for _, step, merging in before[0]["merged"] if step < 9 for number, _ in merging]
    assert max(ahead) // 2 >= 9, "nothing was contributed ahead: the test proves nothing"
    counts = trained(f"{prefix}interrupted", before, upto=9) + trained(f"{prefix}resumed", after)
    assert counts == planned(f"{prefix}resumed", 2)
    assert [step[1] for step in after[0]["steps"]][:3] == [9, 10, 11]


def test_training_that_fails_on_a_sampler_is_left_to_the_trainers(runs: Runs) -> None:
    stats = runs.trainers("fails")[0]["stats"]
    assert (stats["merged"], stats["num_withdrawn"]) == (0, 1)
    assert "training failed on sampler 0" in runs.output
    assert "ValueError: this model trains on trainers only" in runs.output


def test_a_sampler_too_slow_for_the_bound_is_tried_and_left_alone(runs: Runs) -> None:
    """A mini-batch of 160 ms cannot come within two steps of some 20 ms: three trials, and one for the second epoch."""
    stats = runs.trainers("slow_sampler")[0]["stats"]
    assert 0 < stats["contributed"] <= 3 + 1
    assert (stats["merged"], stats["awaited_ms"]) == (0, 0)
    assert "sampler 0 stays idle: it takes 16" in runs.output


def test_a_larger_bound_lets_it_join(runs: Runs) -> None:
    assert 1 < runs.trainers("bounded")[0]["stats"]["max_lag"] <= 12


def test_each_decision_is_told(runs: Runs) -> None:
    assert runs.output.count(TRAINS) >= sum(BY_NAME[name] in ON_THREE for name in CONTRIBUTED)


def test_it_learns(runs: Runs) -> None:
    for record in runs.ranks("plain"):
        first, second = ([loss for e, *_, loss in record["trained"] if e == epoch] for epoch in range(2))
        assert sum(second) / len(second) < 0.9 * sum(first) / len(first)


@pytest.mark.parametrize("signal", mostly_matrix([Signals.SIGKILL, Signals.SIGSTOP], Signals.SIGKILL))
def test_a_contributor_that_is_killed_or_stopped_loses_nothing(tmp_path: Path, signal: Signals) -> None:
    settings = Settings("killed", strategy={"stall_timeout_s": 8}, model={"kill_at": 5, "kill_by": signal})
    BY_NAME["killed"] = settings
    trainers = run(tmp_path, [settings], 3).trainers("killed")
    assert trainers[0]["stats"]["merged"] >= 1
    assert trained("killed", trainers) == planned("killed", 2)
    assert len({record["weights"] for record in trainers}) == 1


@pytest.mark.matrix
@pytest.mark.parametrize("how", ["spawn", "torchrun"])
def test_under_other_launchers(tmp_path: Path, how: str) -> None:
    settings = Settings("launched")
    BY_NAME["launched"] = settings
    job = launch.run(SCRIPT, json.dumps([vars(settings)]), folder=tmp_path, how=how, num_devices=3, timeout_s=200)
    (tmp_path / "launched").mkdir(exist_ok=True)
    if how == "torchrun":
        trainers = Runs(tmp_path, job.output).trainers("launched")
        assert trainers[0]["stats"]["merged"] >= 4
        assert trained("launched", trainers) == planned("launched", 2)
    assert TRAINS in job.output
