"""A cache changes no batch and no loss: every policy, under both kinds of strategies, shared by ranks, and when one of
them is killed. What CacheMonitor logs is the sum over the trainers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scripts import launch
from tests.integration.scripts.caches import AFTER, CACHES, LOST
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(400)  # the first test waits for two launches
SCRIPT = Path(__file__).parent / "scripts" / "caches.py"
TRAINERS, DEVICES = {"ddp": 2, "factored": 1}, {"ddp": 2, "factored": 3}


class Folders(dict[str, Path]):
    """What jobs wrote, by strategy; each runs when it is first asked for."""

    def __init__(self, make_folder: Callable[[str], Path]) -> None:
        self._make_folder = make_folder

    def __missing__(self, strategy: str) -> Path:
        self[strategy] = self._make_folder(strategy)
        job = launch.run(SCRIPT, strategy, folder=self[strategy], num_devices=DEVICES[strategy], timeout_s=300)
        (self[strategy] / "output.txt").write_text(job.output)
        return self[strategy]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp)


def of(folders: dict[str, Path], strategy: str, name: str, rank: int) -> dict[str, Any]:
    wrote: dict[str, Any] = json.loads((folders[strategy] / f"{name}-{rank}.json").read_text())
    return wrote


CASES = [
    pytest.param(strategy, name, marks=pytest.mark.matrix) if strategy == "ddp" else (strategy, name)
    for strategy in TRAINERS
    for name in (*CACHES, *((LOST, AFTER) if strategy == "factored" else ()))
    if name != "none"
]


@pytest.mark.parametrize(("strategy", "name"), CASES)
def test_a_cache_changes_no_batch_and_no_loss(folders: dict[str, Path], strategy: str, name: str) -> None:
    for rank in range(TRAINERS[strategy]):
        plain, cached = (of(folders, strategy, each, rank) for each in ("none", name))
        phases = {seen[0] for seen in cached["seen"]}
        assert phases == {"sanity", "train", "val", "test"}
        assert cached["seen"] == plain["seen"]
        assert any(tier.startswith("cache") for tier in cached["reads"]), "else nothing was tested"
        assert set(plain["reads"]) == {"memory"}
        assert ("packed" in cached["reads"]) == (name == "packed")
    assert not (folders[strategy] / "packed").exists()


@pytest.mark.parametrize(
    ("strategy", "name"),
    mostly_matrix([("ddp", "presample"), ("ddp", "levels"), ("factored", "presample")], ("factored", "presample")),
)
def test_the_monitor_logs_what_all_trainers_read(folders: dict[str, Path], strategy: str, name: str) -> None:
    ranks = [of(folders, strategy, name, rank) for rank in range(TRAINERS[strategy])]
    tiers = {tier for rank in ranks for tier in rank["reads"]}
    rows = {tier: sum(rank["reads"].get(tier, [0, 0])[0] for rank in ranks) for tier in tiers}
    for rank in ranks:
        metrics = rank["metrics"]
        for tier in tiers:
            num_bytes = sum(each["reads"].get(tier, [0, 0])[1] for each in ranks)
            assert metrics[f"cache/bytes_{tier.replace(' ', '_')}"] == num_bytes
        hits = sum(count for tier, count in rows.items() if tier.startswith("cache"))
        assert metrics["cache/hit_rate"] == pytest.approx(hits / sum(rows.values()))
        assert 0 < metrics["cache/hit_rate"] < 1
        assert ("cache/hit_rate_cache_2" in metrics) == (name == "levels")
        # 320 seeds of 2000 nodes, in both epochs: a tenth of the nodes is read much alike.
        assert 0.5 < metrics["cache/similarity"] < 1
        assert metrics == ranks[0]["metrics"] or strategy == "ddp"


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["none", "presample"])
def test_features_that_a_script_made_are_there_once(folders: dict[str, Path], name: str) -> None:
    assert [of(folders, "ddp", name, rank)["is_one_copy"] for rank in range(2)] == [True, True]
    # Ranks 1 and 2 sample: the trainer reads nothing, and keeps what its script made.
    assert [of(folders, "factored", name, rank)["is_one_copy"] for rank in range(3)] == [False, True, True]


@pytest.mark.parametrize(
    ("strategy", "rank"),
    mostly_matrix([("ddp", 0), ("ddp", 1), ("factored", 0), ("factored", 1)], ("factored", 0), ("factored", 1)),
)
def test_fits_leave_no_descriptor_behind(folders: dict[str, Path], strategy: str, rank: int) -> None:
    # The first fit makes the process group; so before the second one they are counted.
    _, first, *_, last = [of(folders, strategy, name, rank)["descriptors_before"] for name in CACHES]
    assert last <= first


def test_the_loss_of_a_sampler_is_told_and_nothing_else(folders: dict[str, Path]) -> None:
    output = (folders["factored"] / "output.txt").read_text()
    assert "sampler rank 2" in output
    assert "without a cache" not in output
    assert "Error" not in output.replace("SamplerDiedError", "")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiny", "CacheTooSmallError: capacity_bytes=10"),
        ("differing", "CacheDisagreementError: sharer 0 (rank 1) and sharer 1 (rank 2)"),
    ],
)
def test_a_cache_that_cannot_be_ends_the_fit(tmp_path: Path, name: str, said: str) -> None:
    # Where a sampler is lost the others go on, but not when its settings are as wrong for them.
    with launch.start(SCRIPT, "factored", name, folder=tmp_path, num_devices=3) as job:
        job.wait(timeout_s=120)
    assert job.returncode != 0
    assert said in job.output
    assert not list(tmp_path.glob(f"{name}-*.json"))
