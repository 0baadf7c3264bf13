"""Ray Train starts the ranks, on clusters of this machine: the weights are those of our own launcher, whatever ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload import partition_graph
from tests.integration.scripts import launch
from tests.integration.scripts.toy import toy_data
from tests.runif import RunIf

pytestmark = [RunIf(extras="ray"), pytest.mark.timeout(700)]
SCRIPT = Path(__file__).parent / "scripts" / "rays.py"
RUNS = ("plain", "reported", "killed", "raises", "remote")


def run_on(folder: Path, num_nodes: int, *runs: str) -> launch.Job:
    """Runs Ray Train on a cluster of its own, which is gone afterwards, with all that Ray writes for a user."""
    (folder / "home").mkdir(parents=True)
    partition_graph(toy_data(), folder / "parts", 3, hops=0, progress=False)
    environment = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "home"), "RAY_USAGE_STATS_ENABLED": "0"}
    with launch.start(SCRIPT, *runs, folder=folder, num_devices=num_nodes, environment=environment, anew=True) as job:
        job.wait(600 * launch.PATIENCE)  # for Ray's own processes, too
    assert job.returncode == 0, job.output
    return job


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launch.Job]:
    return run_on(tmp_path_factory.mktemp("one"), 1, *RUNS)


def ranks(job: launch.Job, run: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((job.log.parent / run).glob("rank-*.json"))]


def trained_by_our_launcher(folder: Path, num_ranks: int) -> dict[str, Any]:
    launch.run(SCRIPT.with_name("resume.py"), 1, "-", "whole", "batch_end", folder=folder, num_devices=num_ranks)
    return json.loads((folder / "batch_end" / "whole" / "trainer-0.json").read_text())


def test_weights_are_those_of_our_own_launcher(one_node: launch.Job, tmp_path: Path) -> None:
    wanted = trained_by_our_launcher(tmp_path, 3)
    found = ranks(one_node, "plain")
    assert [rank["role"] for rank in found] == ["trainer", "trainer", "sampler"]
    # The sampler's script goes on with them, too.
    assert {rank["weights"] for rank in found} == {wanted["weights"]}
    assert {rank["world_size"] for rank in found} == {2}


def test_samplers_answer_each_report(one_node: launch.Job) -> None:
    assert {rank["weights"] for rank in ranks(one_node, "reported")} == {ranks(one_node, "plain")[0]["weights"]}
    folder = one_node.log.parent / "results" / "reported"
    # Of steps 3, 6, 9, 12, 15, 18, and of both epochs' ends; the function's own report has no checkpoint.
    assert len(list(folder.glob("checkpoint_*/checkpoint.ckpt"))) == 8


def test_a_killed_rank_is_started_again_and_goes_on_in_mid_epoch(one_node: launch.Job) -> None:
    found = ranks(one_node, "killed")
    assert len(found) == 3
    assert all(rank["resumed"] and rank["steps"][0] in (3, 6) for rank in found[:2])
    assert {rank["weights"] for rank in found} == {ranks(one_node, "plain")[0]["weights"]}


def test_what_a_trainer_raises_ends_the_run_and_is_told(one_node: launch.Job) -> None:
    assert "raises: WorkerGroupError" in one_node.output
    assert "ValueError: planted" in one_node.output
    assert ranks(one_node, "raises") == []


def test_owners_that_ray_starts_again_make_the_same_mini_batches(one_node: launch.Job) -> None:
    assert (one_node.log.parent / "remote" / "done").exists()  # one of them was killed
    assert {rank["weights"] for rank in ranks(one_node, "remote")} == {ranks(one_node, "plain")[0]["weights"]}


def test_nodes_have_samplers_of_their_own_and_an_owner_each(tmp_path: Path) -> None:
    wanted = trained_by_our_launcher(tmp_path, 5)
    job = run_on(tmp_path / "two", 2, "plain", "remote")
    for run in ("plain", "remote"):
        found = ranks(job, run)
        assert [(rank["node"], rank["role"]) for rank in found] == [
            (node, role) for node in range(2) for role in ("trainer", "trainer", "sampler")
        ]
        assert {rank["weights"] for rank in found} == {wanted["weights"]}
    assert (job.log.parent / "remote" / "done").exists()
    assert not list((job.log.parent / "home").glob(".ray/session*"))
