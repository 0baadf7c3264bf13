"""FactoredStrategy(staleness=k) against a plain loop that is told the lags of the run: equal, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.delayed import Reference
from tests.integration.scripts import launch
from tests.integration.scripts.delayed import CASES
from tests.integration.scripts.toy import digest
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).parent / "scripts" / "delayed.py"
WITH_THREE = ["adam_3", "buckets", "buffers", "recorded", "repeated"]
WITH_ONE = list(CASES)
WITH_TWO = [name for name, case in CASES.items() if case.silent_at < 0]  # Lightning allows silence to one trainer only
NAMES = {1: WITH_ONE, 2: WITH_TWO, 3: WITH_THREE}
PAIRS = [pytest.param(1, name, marks=pytest.mark.matrix) for name in WITH_ONE] + [(2, name) for name in WITH_TWO]


class Records(dict[int, Path]):
    """Folders of records by number of trainers, each made when it is first read; a further rank samples, and idles."""

    def __init__(self, make_folder: Callable[[str], Path]) -> None:
        self._make_folder = make_folder

    def __missing__(self, num_trainers: int) -> Path:
        folder = self._make_folder(f"trainers-{num_trainers}")
        launch.run(SCRIPT, *NAMES[num_trainers], folder=folder, num_devices=num_trainers + 1, timeout_s=300)
        self[num_trainers] = folder / "records"
        return self[num_trainers]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return Records(tmp_path_factory.mktemp)


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


def reference(records: dict[int, Path], num_trainers: int, name: str) -> Reference:
    case = CASES[name]
    lags = read(records, num_trainers, name)[0]["lags"]
    return Reference(case, lags if case.staleness else [[0] * 99] * num_trainers)


@pytest.mark.parametrize(("num_trainers", "name"), PAIRS)
def test_weights_are_those_of_the_plain_loop_after_each_step(
    records: dict[int, Path], num_trainers: int, name: str
) -> None:
    """With the same averages at the same learning rates in the same order, and as late as was recorded."""
    wanted = reference(records, num_trainers, name)
    for rank, record in enumerate(read(records, num_trainers, name)):
        assert len(set(record["trace"])) > 1
        assert record["trace"] == wanted.replicas[rank].trace
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
def test_no_gradient_is_later_than_the_bound(records: dict[int, Path], num_trainers: int, name: str) -> None:
    for record in read(records, num_trainers, name):
        case, stats = CASES[name], record["stats"]
        if case.staleness == 0:
            assert stats is None  # plain DDP: no hook
            continue
        assert stats["max_ahead"] <= case.staleness
        assert stats["max_lag"] <= case.staleness
        silent = case.num_epochs if case.silent_at >= 0 else 0
        assert stats["applied"] == stats["launched"] == record["num_updates"] - silent


def test_trainers_are_at_versions_of_their_own(records: dict[int, Path]) -> None:
    """Else the other tests prove little."""
    found = [read(records, 2, name)[0]["lags"] for name in WITH_TWO if CASES[name].staleness in (1, 2, 3)]
    assert {lag for lags in found for its in lags for lag in its} >= {0, 1, 2}
    assert any(first != second for first, second in found)


@pytest.mark.parametrize("num_trainers", mostly_matrix([2, 3], 2))
def test_a_run_that_is_given_anothers_lags_repeats_it(records: dict[int, Path], num_trainers: int) -> None:
    """Though other steps are late, and though it saves no checkpoint where the other did; then it goes on by itself."""
    recorded, repeated = (read(records, num_trainers, name) for name in ("recorded", "repeated"))
    assert CASES["recorded"].save_every * 2 == 10  # steps, of which each but the last has two batches
    for its, again in zip(recorded, repeated, strict=True):
        assert [lags[:10] for lags in its["lags"]] == [lags[:10] for lags in again["lags"]]
        assert its["weights"] == again["weights"]
        assert any(sum(lags) for lags in its["lags"])


@pytest.mark.matrix
@pytest.mark.parametrize("name", WITH_THREE)
def test_three_trainers_stay_alike(records: dict[int, Path], name: str) -> None:
    """The order in which three numbers are added is gloo's own, so the plain loop is equal for two only."""
    found = read(records, 3, name)
    assert all(record["weights"] == found[0]["weights"] for record in found)
    assert found[0]["num_updates"] == found[0]["global_step"]
    wanted = reference(records, 3, name).replicas[0].parameters
    ours = torch.tensor([float.fromhex(value) for value in found[0]["final"]])
    torch.testing.assert_close(ours, nn.utils.parameters_to_vector(wanted))


@pytest.mark.parametrize("num_trainers", [1, 2])
def test_a_callbacks_moving_average_is_that_of_the_weights_it_saw(records: dict[int, Path], num_trainers: int) -> None:
    wanted = reference(records, num_trainers, "sgd_2")
    for replica, record in zip(wanted.replicas, read(records, num_trainers, "sgd_2"), strict=True):
        assert record["average"] == digest([replica.average])


def test_nothing_is_left_behind_and_nobody_is_warned(records: dict[int, Path]) -> None:
    for name in WITH_TWO:
        for record in read(records, 2, name):
            assert record["callbacks"][0] == "Watch"
            assert not [text for text in record["warnings"] if "lr_scheduler" in text or "staleness" in text]
