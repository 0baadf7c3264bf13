"""Graphs that the machines of a Ray cluster build and partition are those of one process, whatever ends meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.ray_nodes import RayNodes, ray_nodes
from tests.integration.scripts import launch
from tests.runif import RunIf

pytestmark = [RunIf(extras="ray"), pytest.mark.timeout(400)]
SCRIPT = Path(__file__).parent / "scripts" / "ray_tables.py"
LIMIT_S = 300 * launch.PATIENCE
CASES = ("whole", "typed", "bad", "killed")


def outcome(job: launch.Job, case: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((job.log.parent / f"{case}.json").read_text())
    return values


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_nodes({}, {}) as both:
        yield both


@pytest.fixture(scope="module")
def job(nodes: RayNodes, tmp_path_factory: pytest.TempPathFactory) -> launch.Job:
    folder = tmp_path_factory.mktemp("tables")
    with launch.start(SCRIPT, *CASES, folder=folder, environment=nodes.environment, anew=True) as job:
        job.wait(LIMIT_S)
    assert job.returncode == 0, job.output
    return job


def test_debians_packages(job: launch.Job) -> None:
    values = outcome(job, "whole")
    assert (values["code"], values["same"], values["parts"]) == (0, True, True)
    assert values["left"] == []
    assert len(set(values["fingerprints"])) == 1
    assert "killed by `ray.kill`" not in job.output  # those are ended on purpose


def test_types_times_and_tables_that_machines_cannot_read(job: launch.Job) -> None:
    assert outcome(job, "typed")["same"]


def test_bad_rows_are_told_by_their_numbers_and_nothing_is_left(job: launch.Job) -> None:
    values = outcome(job, "bad")
    local, ray = (told.splitlines()[-1] for told in values["told"])  # lines of progress may come before
    assert "2 src ('needs') name no package, the first in row 400000" in local
    assert ray == local
    assert values["left"] == []


def test_a_process_that_is_killed_is_started_again(job: launch.Job) -> None:
    values = outcome(job, "killed")
    assert (values["code"], values["same"], values["left"], values["warnings"]) == (0, True, [], [])


def test_a_machine_that_is_lost_is_done_without(nodes: RayNodes, job: launch.Job, tmp_path: Path) -> None:
    with launch.start(SCRIPT, "lost", folder=tmp_path, environment=nodes.environment, anew=True) as losing:
        until = time.monotonic() + LIMIT_S
        while not (tmp_path / "now").exists():
            assert time.monotonic() < until, losing.output
            assert losing.process.poll() is None, losing.output
            time.sleep(0.005)
        nodes.kill(1)
        losing.wait(LIMIT_S)
    assert losing.returncode == 0, losing.output
    values = outcome(losing, "lost")
    assert (values["code"], values["same"], values["left"]) == (0, True, [])
    assert [told.partition(": ")[2] for told in values["warnings"]] == [
        "the machine 127.0.0.3 is lost; others do its work."
    ]


def test_without_a_cluster_none_is_started(tmp_path: Path) -> None:
    # Ray looks for clusters among all processes of a machine, and here finds none.
    prefix = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")
    environment = dict.fromkeys(("HOME", "RAY_TMPDIR"), str(tmp_path))
    with launch.start(SCRIPT, "alone", folder=tmp_path, environment=environment, prefix=prefix) as job:
        job.wait(LIMIT_S)
    values = outcome(job, "alone")
    assert values["error"].startswith("LaunchError: gnnload build --engine ray: there is no Ray cluster to join. Start")
    assert values["left"] == []
