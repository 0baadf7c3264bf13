"""FactoredStrategy(staleness=k) against a plain loop that delays gradients by k updates: equal, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.delayed import Reference
from tests.integration.scripts import launch
from tests.integration.scripts.delayed import CASES, NUM_BATCHES, network
from tests.integration.scripts.toy import digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SCRIPT = Path(__file__).parent / "scripts" / "delayed.py"
WITH_THREE = ["adam_3", "buckets", "buffers"]
WITH_ONE = list(CASES)
WITH_TWO = [name for name, case in CASES.items() if case.silent_at < 0]  # Lightning allows silence to one trainer only
PAIRS = [(1, name) for name in WITH_ONE] + [(2, name) for name in WITH_TWO]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By number of trainers; there is one sampler more, which idles."""
    found = {}
    for num_trainers, names in ((1, WITH_ONE), (2, WITH_TWO), (3, WITH_THREE)):
        folder = tmp_path_factory.mktemp(f"trainers-{num_trainers}")
        launch.run(SCRIPT, *names, folder=folder, num_devices=num_trainers + 1, timeout_s=300)
        found[num_trainers] = folder / "records"
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the trainers compute: two may add the same numbers in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def read(records: dict[int, Path], num_trainers: int, name: str) -> list[dict[str, Any]]:
    files = [records[num_trainers] / f"{name}-{rank}.json" for rank in range(num_trainers)]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(("num_trainers", "name"), PAIRS)
def test_weights_are_those_of_the_plain_loop_after_each_step(
    records: dict[int, Path], num_trainers: int, name: str
) -> None:
    wanted = Reference(CASES[name], num_trainers)
    assert len(set(wanted.trace)) > 1
    for rank, record in enumerate(read(records, num_trainers, name)):
        assert record["trace"] == wanted.trace
        assert record["weights"] == wanted.weights[rank]
        assert record["num_updates"] == record["global_step"] == wanted.num_updates
        assert record["num_hooks"] == wanted.num_updates  # on_before_optimizer_step, once an update


@pytest.mark.parametrize(("num_trainers", "name"), PAIRS)
def test_no_update_is_missing_where_parameters_must_be_complete(
    records: dict[int, Path], num_trainers: int, name: str
) -> None:
    for record in read(records, num_trainers, name):
        points = record["points"]
        assert [updates for _, updates, _ in points] == [step for _, _, step in points]
        case, named = CASES[name], {name for name, _, _ in points}
        assert named >= {"epoch", "end"}
        assert ("validation" in named) == bool(case.validate_every)
        assert ("checkpoint" in named) == bool(case.save_every)


@pytest.mark.parametrize(("num_trainers", "name"), PAIRS)
def test_the_lag_reaches_its_bound_and_not_more(records: dict[int, Path], num_trainers: int, name: str) -> None:
    for record in read(records, num_trainers, name):
        case, stats = CASES[name], record["stats"]
        if case.staleness == 0:
            assert stats is None  # plain DDP: no hook
            continue
        assert stats["max_ahead"] <= case.staleness
        assert stats["max_lag"] <= case.staleness
        if name in ("sgd_1", "sgd_2", "sgd_4"):
            assert stats["max_lag"] == case.staleness
            assert stats["flushed"] == case.num_epochs * case.staleness
        silent = case.num_epochs if case.silent_at >= 0 else 0
        assert stats["applied"] == stats["launched"] == record["num_updates"] - silent


@pytest.mark.parametrize("name", WITH_THREE)
def test_three_trainers_stay_alike(records: dict[int, Path], name: str) -> None:
    """The order in which three numbers are added is gloo's own, so the plain loop is equal for two only."""
    found = read(records, 3, name)
    assert all(record["trace"] == found[0]["trace"] for record in found)
    assert all(record["weights"] == found[0]["weights"] for record in found)
    assert found[0]["num_updates"] == found[0]["global_step"]
    wanted = Reference(CASES[name], 3).replicas[0].parameters
    ours = torch.tensor([float.fromhex(value) for value in found[0]["final"]])
    torch.testing.assert_close(ours, nn.utils.parameters_to_vector(wanted))


@pytest.mark.parametrize("num_trainers", [1, 2])
def test_a_callbacks_moving_average_is_that_of_the_weights_it_saw(records: dict[int, Path], num_trainers: int) -> None:
    average = Reference(CASES["sgd_2"], num_trainers).average
    for record in read(records, num_trainers, "sgd_2"):
        assert record["average"] == digest([average])


@pytest.mark.parametrize("name", ["sgd_0", "sgd_1", "sgd_2", "sgd_4", "adam_1", "adam_3"])
def test_no_weight_moves_until_the_first_gradient_is_handed_out(records: dict[int, Path], name: str) -> None:
    """Zero gradients would move Adam's averages and decay weights."""
    case = CASES[name]
    start = digest([nn.utils.parameters_to_vector(network(case).parameters())])
    trace = [start, *read(records, 2, name)[0]["trace"]]
    an_epoch = [False] * case.staleness + [True] * (NUM_BATCHES - case.staleness)
    assert [after != before for before, after in pairwise(trace)] == an_epoch * case.num_epochs


def test_late_gradients_change_what_is_learned(records: dict[int, Path]) -> None:
    ends = {read(records, 2, f"sgd_{k}")[0]["weights"] for k in (0, 1, 2, 4)}
    assert len(ends) == 4


def test_nothing_is_left_behind_and_nobody_is_warned(records: dict[int, Path]) -> None:
    for name in WITH_TWO:
        for record in read(records, 2, name):
            assert record["callbacks"][0] == "Watch"
            assert not [text for text in record["warnings"] if "lr_scheduler" in text or "staleness" in text]
